//! The simulation can fail: each planted fault is found at its seed of `planted_seeds.txt`, below 1,000, and the same world
//! is clean without it (design §12.16).
//!
//! Built only with `--cfg weir_planted` (`planted_rustc.sh`); empty otherwise.
#![cfg(weir_planted)]

use weir::sim::hunt::replay;
use weir::sim::{Options, run_seed};
use weir_core::planted::Planted;

#[test]
fn every_planted_fault_is_found_at_its_seed_and_nothing_without_it() {
    let hunted = replay().expect("the list of seeds can be read");
    assert_eq!(hunted.len(), Planted::ALL.len());
    for prey in &hunted {
        let shown = prey.sins.first().map_or("nothing", String::as_str);
        println!("{} {:?}: {shown}", prey.fault.name(), prey.seed);
    }
    let lost: Vec<_> = hunted.iter().filter(|prey| !prey.is_found()).collect();
    assert!(
        lost.is_empty(),
        "not found, or found where there is none; tests/planted.sh --rewrite looks for them again: {lost:#?}"
    );
    println!(
        "planted {}, found {}",
        hunted.len(),
        hunted.len() - lost.len()
    );
}

#[test]
fn without_a_planted_fault_the_same_build_finds_nothing() {
    for seed in 0..50 {
        assert_eq!(run_seed(seed, &Options::default()).sins, [], "seed {seed}");
    }
}
