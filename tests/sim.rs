//! The simulation in the normal test run: 200 worlds keep every promise; the same worlds give the same hash.

use weir::sim::{LedgerKind, Options, Report, run_range, run_seed};

const SEEDS: u64 = 200;

fn range(threads: usize) -> Report {
    run_range(0..SEEDS, threads, &Options::default(), &|_| {})
}

fn with_redis() -> Options {
    Options::traced(LedgerKind::Redis, false)
}

fn assert_clean(report: &Report) {
    let failed: Vec<_> = report
        .failed
        .iter()
        .map(|world| (world.seed, &world.sins))
        .collect();
    assert!(report.is_clean(), "{failed:#?}");
}

#[test]
fn two_hundred_worlds_keep_every_promise_and_repeat_themselves() {
    let report = range(2);
    assert_clean(&report);
    assert!(report.grants > 1_000 && report.unknowns > 100 && report.crashes > 50);
    for (kind, count) in &report.faults {
        assert!(*count > 0, "no {kind} in {SEEDS} worlds");
    }
    assert_eq!(report, range(1), "the number of threads changes nothing");
}

#[test]
fn a_hundred_worlds_with_the_ledger_in_redis_keep_every_promise_and_repeat_themselves() {
    let run = |threads| run_range(0..SEEDS / 2, threads, &with_redis(), &|_| {});
    let report = run(2);
    assert_clean(&report);
    assert!(report.grants > 1_000 && report.unknowns > 100 && report.crashes > 20);
    assert_eq!(report, run(1), "the number of threads changes nothing");
}

#[test]
fn worlds_differ_by_their_seed() {
    let hash = |seed| run_seed(seed, &Options::default()).hash;
    assert_eq!(hash(7), hash(7));
    assert_ne!(hash(7), hash(8));
    assert_ne!(hash(7), run_seed(7, &with_redis()).hash);
}
