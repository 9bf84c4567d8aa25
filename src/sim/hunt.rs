//! The hunt for the faults that are put in on purpose: each must be found by a world of the list, and that world must be
//! clean without it. In builds with `--cfg weir_planted` only.
//!
//! Called by `weir sim --hunt` of such a build and by `tests/sim_planted.rs`.

use super::{LedgerKind, Options, SeedReport, run_seed};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use weir_core::planted::Planted;

/// A fault must be found by a seed below this.
pub const SEEDS_MAX: u64 = 1_000;
/// The list: a name and a seed on each line, `#` begins a remark.
const LIST: &str = include_str!("../../tests/planted_seeds.txt");

/// What the hunt for one fault came to.
#[derive(Clone, Debug)]
pub struct Prey {
    /// Which.
    pub fault: Planted,
    /// The seed of the list, or the one that was searched out; `None`: there is none.
    pub seed: Option<u64>,
    /// What the world of that seed showed with the fault; empty when it was not found.
    pub sins: Vec<String>,
    /// What the same world showed without it; must be empty.
    pub clean_sins: Vec<String>,
}

impl Prey {
    /// True when the seed shows the fault, and nothing without it.
    pub fn is_found(&self) -> bool {
        !self.sins.is_empty() && self.clean_sins.is_empty()
    }

    fn look(fault: Planted, seed: u64) -> Self {
        let words = |report: SeedReport| {
            let sins = report.sins.iter();
            sins.map(|sin| format!("{:?}: {}", sin.kind, sin.what))
                .collect()
        };
        let run = |planted| {
            let ledger = match fault.is_remote() {
                true => LedgerKind::Redis,
                false => LedgerKind::Embedded,
            };
            let options = Options {
                ledger,
                planted,
                ..Options::default()
            };
            words(run_seed(seed, &options))
        };
        let sins: Vec<String> = run(fault);
        let clean_sins = if sins.is_empty() {
            Vec::new()
        } else {
            run(Planted::None)
        };
        Self {
            fault,
            seed: Some(seed),
            sins,
            clean_sins,
        }
    }
}

/// The seeds of the list by the fault's name.
/// # Errors
/// A line that is not a name and a seed below [`SEEDS_MAX`].
pub fn listed() -> Result<BTreeMap<&'static str, u64>, String> {
    let lines = LIST.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let read = |line: &'static str| {
        let (name, seed) = line.split_once(' ')?;
        let seed = seed.trim().parse().ok().filter(|seed| *seed < SEEDS_MAX)?;
        Some((name, seed))
    };
    lines
        .map(|line| {
            read(line)
                .ok_or_else(|| format!("{line:?} is not a fault and a seed below {SEEDS_MAX}"))
        })
        .collect()
}

/// Runs each fault at its seed of the list.
/// # Errors
/// As [`listed`].
pub fn replay() -> Result<Vec<Prey>, String> {
    let listed = listed()?;
    Ok(hunt(&|fault| match listed.get(fault.name()) {
        Some(seed) => Prey::look(fault, *seed),
        None => nothing(fault),
    }))
}

/// Looks for each fault in all seeds below [`SEEDS_MAX`], from that of the list on.
pub fn search() -> Vec<Prey> {
    let listed = listed().unwrap_or_default();
    hunt(&|fault| {
        let first = listed.get(fault.name()).copied();
        let seeds = first.into_iter().chain(0..SEEDS_MAX);
        let mut looks = seeds.map(|seed| Prey::look(fault, seed));
        looks.find(Prey::is_found).unwrap_or_else(|| nothing(fault))
    })
}

fn nothing(fault: Planted) -> Prey {
    Prey {
        fault,
        seed: None,
        sins: Vec::new(),
        clean_sins: Vec::new(),
    }
}

/// One look per fault, on as many threads as there are cores; in the order of the table.
fn hunt(look: &(dyn Fn(Planted) -> Prey + Sync)) -> Vec<Prey> {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {})); // a part that panics is prey
    let (next, found) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let work = || {
        while let Some(fault) = Planted::ALL.get(next.fetch_add(1, Ordering::Relaxed)) {
            let prey = look(*fault);
            found
                .lock()
                .expect("no look panics")
                .insert(*fault as usize, prey);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    std::panic::set_hook(usual);
    found
        .into_inner()
        .expect("no look panics")
        .into_values()
        .collect()
}
