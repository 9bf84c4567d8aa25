//! What a desk counted.

use super::{Desk, ERROR_WORDS, errors};
use crate::redis::breaker::Breaker;
use weir_proto::resp::ErrorReply;

/// What a desk counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeskCounts {
    /// Asks written for the first time.
    pub asks: u64,
    /// Asks written again because the server did not execute them.
    pub resends: u64,
    /// Answers that were decided.
    pub done: u64,
    /// Asks that ended without being executed.
    pub failed: u64,
    /// Asks that ended unknown.
    pub unknown: u64,
    /// SCRIPT LOAD commands.
    pub loads: u64,
    /// Slot maps asked for.
    pub refreshes: u64,
    /// Links lost.
    pub lost: u64,
    /// Error replies that say that nothing was executed: overload, no memory, no replicas, a cluster without the slot.
    pub refusals: u64,
    /// Error replies that leave open what was executed.
    pub faults: u64,
    /// Asks that an open breaker kept back.
    pub broken: u64,
    /// Draws of tokens of which nobody knows whether they were carried out (`LIMITER_RESULT_UNKNOWN`).
    pub draws_unknown: u64,
    /// Answers that too few replicas had in time: unknown.
    pub unreplicated: u64,
    /// Error replies to asks and pulls by the word of [`ERROR_WORDS`], but for those about slots and scripts.
    pub errors: [u64; ERROR_WORDS.len()],
}

impl Desk {
    /// Those about slots and scripts are everyday.
    pub(super) fn count_error(&mut self, error: &ErrorReply<'_>) {
        if !matches!(error.code, b"NOSCRIPT" | b"MOVED" | b"ASK" | b"TRYAGAIN") {
            self.counts.errors[errors::word_of(error)] += 1;
        }
    }

    /// What was counted so far.
    pub fn counts(&self) -> &DeskCounts {
        &self.counts
    }

    /// How often a breaker of this desk opened, and whether one is open now.
    pub fn breakers(&self) -> (u64, bool) {
        let breakers = self.nodes.iter().map(|node| &node.breaker);
        let opened_count = breakers.clone().map(Breaker::opened_count).sum();
        (opened_count, breakers.clone().any(Breaker::is_open))
    }

    /// Connections that were not made or were lost, by [`LinkFault::word`].
    pub fn link_faults(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.link_faults.iter().map(|(word, count)| (*word, *count))
    }
}
