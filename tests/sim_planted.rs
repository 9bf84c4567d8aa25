//! The simulation can fail: each planted fault is found within 1,000 seeds (design §12.16).
//!
//! Built only with `RUSTFLAGS="--cfg weir_planted"` (tests/all.sh gives it a target directory of its own); empty otherwise.
#![cfg(weir_planted)]

use weir::sim::{Options, SeedReport, SinKind, run_seed};
use weir_core::planted::Planted;

const SEEDS_MAX: u64 = 1_000;

/// The first world where the fault shows as one of `kinds`.
fn first_with(planted: Planted, kinds: &[SinKind]) -> Option<SeedReport> {
    let options = Options {
        planted,
        ..Options::default()
    };
    (0..SEEDS_MAX)
        .map(|seed| run_seed(seed, &options))
        .find(|world| world.sins.iter().any(|sin| kinds.contains(&sin.kind)))
}

#[test]
fn an_answer_before_its_commit_is_found() {
    let found = first_with(Planted::AnswerBeforeCommit, &[SinKind::Lost]);
    let world = found.expect("a client was told QUEUED before the journal had it");
    println!("seed {}: {:?}", world.seed, world.sins[0]);
    assert!(run_seed(world.seed, &Options::default()).sins.is_empty());
}

#[test]
fn a_release_applied_twice_is_found() {
    let found = first_with(Planted::ReleaseTwice, &[SinKind::Oversold, SinKind::Broken]);
    let world = found.expect("books that do not balance, or more units live than exist");
    println!("seed {}: {:?}", world.seed, world.sins[0]);
    assert!(run_seed(world.seed, &Options::default()).sins.is_empty());
}

#[test]
fn without_a_planted_fault_the_same_build_finds_nothing() {
    for seed in 0..50 {
        assert_eq!(run_seed(seed, &Options::default()).sins, [], "seed {seed}");
    }
}
