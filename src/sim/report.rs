//! A range of seeds: run on some threads, merged in the order of seeds, so that the result does not depend on them.

use super::marks::Marks;
use super::tally::{Faults, SinKind};
use super::{HASH_BYTES, LedgerKind, Options, SeedReport, run_seed};
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_core::planted::Planted;

/// What came of a range of seeds; its JSON is the last line of `weir sim --json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Worlds run.
    pub seeds: u64,
    /// Times more units were live than exist.
    pub oversold: u64,
    /// Users with two live reservations or orders.
    pub double_grants: u64,
    /// Acknowledged requests that were not durable, or got no order.
    pub lost: u64,
    /// Requests without a terminal answer.
    pub limbo: u64,
    /// Other promises broken: books, limits, one reply each, no grant after a "no".
    pub broken: u64,
    /// Of all worlds' event sequences, in the order of their seeds.
    pub hash: String,
    /// Reservations made durable.
    pub grants: u64,
    /// Replies that told an unknown result.
    pub unknowns: u64,
    /// Crashes of any part.
    pub crashes: u64,
    /// Requests that buyers sent.
    pub requests: u64,
    /// Turns of all parts.
    pub turns: u64,
    /// Faults by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Every mark and how often it was reached, in all worlds together.
    pub marks: BTreeMap<String, u64>,
    /// Marks that no world reached; a few seeds cannot reach all.
    pub marks_missing: Vec<String>,
    /// Faults that can be put in on purpose.
    pub planted: u64,
    /// Of these, how many a build with them in found; `None`: there was none at hand to ask.
    pub planted_found: Option<u64>,
    /// The worlds with sins.
    #[serde(skip)]
    pub failed: Vec<SeedReport>,
}

impl Report {
    /// True when every promise held.
    pub fn is_clean(&self) -> bool {
        self.oversold + self.double_grants + self.lost + self.limbo + self.broken == 0
    }

    fn of(worlds: Vec<SeedReport>, ledger: LedgerKind) -> Self {
        let mut hash = blake3::Hasher::new();
        let mut faults = Faults::default();
        let mut marks = Marks::default();
        let mut sins = [0; 5];
        let mut report = Self {
            seeds: worlds.len() as u64,
            oversold: 0,
            double_grants: 0,
            lost: 0,
            limbo: 0,
            broken: 0,
            hash: String::new(),
            grants: 0,
            unknowns: 0,
            crashes: 0,
            requests: 0,
            turns: 0,
            faults: BTreeMap::new(),
            marks: BTreeMap::new(),
            marks_missing: Vec::new(),
            planted: Planted::ALL.len() as u64,
            planted_found: None,
            failed: Vec::new(),
        };
        for world in worlds {
            for number in [
                world.seed,
                world.hash,
                world.grants,
                world.sins.len() as u64,
            ] {
                hash.update(&number.to_le_bytes());
            }
            faults.add(&world.faults);
            marks.add(&world.marks);
            report.grants += world.grants;
            report.unknowns += world.unknowns;
            report.requests += world.requests;
            report.turns += world.turns;
            for sin in &world.sins {
                sins[sin.kind as usize] += 1;
            }
            if !world.sins.is_empty() {
                report.failed.push(world);
            }
        }
        report.oversold = sins[SinKind::Oversold as usize];
        report.double_grants = sins[SinKind::DoubleGrant as usize];
        report.lost = sins[SinKind::Lost as usize];
        report.limbo = sins[SinKind::Limbo as usize];
        report.broken = sins[SinKind::Broken as usize];
        report.crashes = faults.crashes();
        report.marks = marks.all(&faults, ledger);
        let missing = report.marks.iter().filter(|(_, count)| **count == 0);
        report.marks_missing = missing.map(|(name, _)| name.clone()).collect();
        let excused = marks.wrongly_excused(ledger);
        let excused =
            excused.map(|label| format!("reason.{label} is called unreachable, and was reached"));
        report.marks_missing.extend(excused);
        report.faults = faults.iter(ledger).collect();
        let bytes: [u8; HASH_BYTES] = *hash.finalize().as_bytes();
        report.hash = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        report
    }
}

/// Runs every world of `seeds` on `threads` threads; `done` is told after each how many are done.
pub fn run_range(
    seeds: Range<u64>,
    threads: usize,
    options: &Options,
    done: &(dyn Fn(u64) + Sync),
) -> Report {
    let (next, finished) = (AtomicU64::new(seeds.start), AtomicU64::new(0));
    let work = || {
        let mut worlds = Vec::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return worlds;
            }
            worlds.push(run_seed(seed, options));
            done(finished.fetch_add(1, Ordering::Relaxed) + 1);
        }
    };
    let mut worlds = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut worlds = work();
        for other in others {
            match other.join() {
                Ok(more) => worlds.extend(more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        worlds
    });
    worlds.sort_by_key(|world| world.seed);
    Report::of(worlds, options.ledger)
}
