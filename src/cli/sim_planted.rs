//! `weir sim` and the faults put in on purpose: a build that has them is another program (design §12.16), so this one
//! starts it and takes its word only when it was built from the same sources.

use super::super::CliError;
use crate::sim::{LedgerKind, Options, run_seed};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::Command;
use weir_core::planted::Planted;

/// The world by which two builds know each other.
const SAME_SEED: u64 = 0;
/// Fewer seeds are somebody's quick look: without being told to, no other program is started for that.
const SEEDS_MIN: u64 = 1_000;

/// What a build with planted faults answers.
#[derive(Debug, Serialize, Deserialize)]
struct Hunted {
    planted: u64,
    planted_found: u64,
    /// See [`same_hash`].
    hash: u64,
}

/// How many faults the build at `named`, or else the one beside this program, finds; `None` when there is none.
/// # Errors
/// When it cannot be run, or is of other sources.
pub(super) fn found(named: Option<&Path>, seeds: u64) -> Result<Option<u64>, CliError> {
    let program = match named {
        Some(named) => named.to_owned(),
        None => match beside().filter(|_| seeds >= SEEDS_MIN) {
            Some(program) => program,
            None => return Ok(None),
        },
    };
    let told = |what: String| CliError::input(format!("{}: {what}", program.display()));
    let child = Command::new(&program)
        .args(["sim", "--hunt", "replay"])
        .output();
    let child = child.map_err(|error| told(error.to_string()))?;
    let answer = String::from_utf8_lossy(&child.stdout);
    let hunted: Hunted = serde_json::from_str(answer.trim()).map_err(|_| {
        told(
            "it does not know --hunt: it has no planted faults; build it with tests/planted.sh"
                .into(),
        )
    })?;
    if hunted.hash != same_hash() || hunted.planted != Planted::ALL.len() as u64 {
        return Err(told(
            "it was built from other sources; build it again with tests/planted.sh".into(),
        ));
    }
    Ok(Some(hunted.planted_found))
}

/// Of the worlds of [`SAME_SEED`] without a fault, with either ledger.
fn same_hash() -> u64 {
    let hash = |ledger| run_seed(SAME_SEED, &Options::traced(ledger, false)).hash;
    hash(LedgerKind::Embedded) ^ hash(LedgerKind::Redis).rotate_left(1)
}

fn beside() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?.with_file_name("weir-planted");
    program.exists().then_some(program)
}

/// Looks for every fault: at its seed of the list, with one line of JSON; or everywhere, with the list as it should be.
/// # Errors
/// `Broken` when one is not found.
#[cfg(weir_planted)]
pub(super) fn hunt(searches: bool) -> Result<(), CliError> {
    use super::super::print;
    use crate::sim::hunt::{SEEDS_MAX, replay, search};
    let prey = if searches {
        search()
    } else {
        replay().map_err(CliError::input)?
    };
    let (found, lost): (Vec<_>, Vec<_>) = prey.iter().partition(|prey| prey.is_found());
    if searches {
        print(
            "# Each fault of src/core/src/planted.rs and the first seed whose world shows it. Written by `tests/planted.sh --rewrite`.\n",
        )?;
        for prey in &found {
            let seed = prey.seed.unwrap_or_default();
            print(&format!("{} {seed}\n", prey.fault.name()))?;
            eprintln!("{} {seed}: {}", prey.fault.name(), prey.sins[0]);
        }
    } else {
        let hunted = Hunted {
            planted: prey.len() as u64,
            planted_found: found.len() as u64,
            hash: same_hash(),
        };
        let json = serde_json::to_string(&hunted).map_err(CliError::input)?;
        print(&format!("{json}\n"))?;
    }
    match lost.first() {
        None => Ok(()),
        Some(_) => {
            let names: Vec<_> = lost.iter().map(|prey| prey.fault.name()).collect();
            let names = names.join(", ");
            Err(CliError::Broken(format!(
                "no seed below {SEEDS_MAX} of the list shows {names}"
            )))
        }
    }
}
