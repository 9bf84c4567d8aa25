//! A SKU's state as the ledger's owner shows it to shards: a cache with an epoch and a time to live (E1-E4).
//!
//! Shards start empty and accept nothing until they have a view of every SKU (design §12.13). Only a larger
//! (boot, version) is applied; the owner repeats views on a timer, so a lost one converges.

use crate::ask::Mode;
use alloc::sync::Arc;
use alloc::vec::Vec;
use weir_proto::ids::{SkuKey, UserId};

/// One SKU as committed at `version` of owner run `boot`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkuView {
    /// Which SKU.
    pub sku: SkuKey,
    /// The owner's run; asks sent to an older run will never be answered.
    pub boot: u64,
    /// Grows with each change within a run.
    pub version: u64,
    /// Grows by one at each sold-out and each reopening.
    pub stock_epoch: u64,
    /// No unit is free.
    pub sold_out: bool,
    /// On sale by the ledger (opened and not closed).
    pub open: bool,
    /// Set by the operator.
    pub mode: Mode,
    /// Set when a store failed, the ledger's or the orders': no grants until a restart.
    pub poisoned: bool,
    /// Users who hold or bought, complete for this epoch when `sold_out`.
    pub winners: Arc<WinnersFilter>,
}

/// A set of users without their names: fingerprints, sorted. No false "absent"; a false "present" costs one lookup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WinnersFilter {
    fingerprints: Vec<u32>,
    key: u64,
}

impl WinnersFilter {
    /// Builds the set; `key` mixes the fingerprints so that buyers cannot aim at collisions.
    pub fn build(key: u64, users: impl Iterator<Item = UserId>) -> Self {
        let mut fingerprints: Vec<u32> = users.map(|user| fingerprint(key, user)).collect();
        fingerprints.sort_unstable();
        fingerprints.dedup();
        Self { fingerprints, key }
    }

    /// False only for users who are not in the set.
    pub fn may_contain(&self, user: UserId) -> bool {
        self.fingerprints
            .binary_search(&fingerprint(self.key, user))
            .is_ok()
    }

    /// Fingerprints held.
    pub fn len(&self) -> usize {
        self.fingerprints.len()
    }

    /// True for no fingerprint.
    pub fn is_empty(&self) -> bool {
        self.fingerprints.is_empty()
    }
}

fn fingerprint(key: u64, user: UserId) -> u32 {
    // One SplitMix step over the keyed id: uniform enough for 10^4..10^6 users (false "present" under 0.03 % at 10^6).
    (crate::rng::Rng::new(key ^ user.0).next_u64() >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_winner_is_found_and_few_others() {
        let filter = WinnersFilter::build(7, (1..=10_000).map(UserId));
        assert!((1..=10_000).all(|u| filter.may_contain(UserId(u))));
        let strangers = (20_000..1_020_000)
            .filter(|&u| filter.may_contain(UserId(u)))
            .count();
        assert!(
            strangers < 20,
            "{strangers} of a million strangers look like winners"
        );
    }
}
