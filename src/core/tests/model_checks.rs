//! Small worlds, looked at whole: every order of messages and steps within bounds, over the real lease and ledger types
//! (stateright). Each model has a mistake beside it that the same check must find.
#![allow(clippy::unwrap_used)] // a test that meets one has failed

#[path = "models/lease.rs"]
mod lease;
#[path = "models/ledger.rs"]
mod ledger;

use stateright::{Checker, DiscoveryClassification, Model};
use std::fmt::Debug;
use std::hash::Hash;

/// Looks at every state; prints how many there are; gives the name of a property that does not hold.
fn broken<M>(name: &str, model: M) -> Option<&'static str>
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq + Send + Sync,
{
    let checker = model.checker().threads(2).spawn_bfs().join();
    println!("{name}: {} states", checker.unique_state_count());
    assert!(
        checker.is_done(),
        "every state was looked at, or one is wrong"
    );
    let discoveries = checker.discoveries();
    let wrong = discoveries.keys().copied().find(|name| {
        matches!(
            checker.discovery_classification(name),
            DiscoveryClassification::Counterexample
        )
    });
    if wrong.is_none() {
        // Every "sometimes" of the model has been seen: it is not true for want of anything happening.
        checker.assert_properties();
        assert!(
            checker.unique_state_count() > 1_000,
            "too small to say anything"
        );
    }
    wrong
}

#[test]
fn leases_never_admit_more_than_the_rate_gave() {
    assert_eq!(broken("leases", lease::Leases { reused_boot: false }), None);
}

#[test]
fn a_shard_that_keeps_its_run_number_is_found() {
    let found = broken(
        "leases, run number kept",
        lease::Leases { reused_boot: true },
    );
    assert_eq!(found, Some("spent tokens were granted once"));
}

#[test]
fn the_ledger_keeps_its_books_whatever_comes_in_whatever_order() {
    assert_eq!(broken("ledger", ledger::Steps { soft_no: false }), None);
}

#[test]
fn a_no_without_a_tombstone_is_found() {
    let found = broken(
        "ledger, no without tombstone",
        ledger::Steps { soft_no: true },
    );
    assert_eq!(found, Some("no grant follows a no"));
}
