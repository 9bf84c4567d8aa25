//! A rule: one of five ways to enforce a rate and a burst (requirement C1), and the arithmetic of each.
//!
//! Called by the keyed table for one key at a time. All five read the same [`Policy`]: `burst` tokens, and a *window*
//! in which the rate gives that many (burst / rate), counted in the policy's units, so nothing is rounded. A key's
//! state is its *debt*, the units until it cannot be told from a new key, and some words: none for GCRA and the leaky
//! bucket, one for the windows, one per token for the log. Invariants: a refusal writes nothing (B10); a denied caller
//! that comes exactly when told is admitted, and one nanosecond earlier it is not; a change of policy keeps what was
//! consumed (B20, B22, B33). Not here: keys and slots (`table`), pacing of our own calls (`shaper`).

use super::gcra::{Policy, PolicyError, Verdict};
use super::{log, window};
use crate::limits::LOG_ENTRIES_MAX;
use crate::time::Mono;

/// How a rate is enforced. W is the window burst / rate, T any stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Token bucket as GCRA. 16 bytes per key, smooth, at most burst + rate × T in any T. The default: for everything
    /// that has no reason to be otherwise.
    Gcra,
    /// At most `burst` per window, which starts with a key's first charge. 24 bytes per key and the easiest to explain
    /// ("3 per minute"), but two bursts may meet at a window's edge: up to 2 × burst + rate × T in any T.
    FixedWindow,
    /// At most `burst` in *every* stretch of W, exactly, by remembering each charge: for small bursts only, since a key
    /// takes 24 bytes and 8 per token of the burst (at most [`LOG_ENTRIES_MAX`]), and deciding walks them.
    SlidingLog,
    /// The log's answer estimated from two counters: the last window counts with the part of it that still overlaps.
    /// 24 bytes per key whatever the burst; the estimate takes the last window as evenly filled, so a burst at its end
    /// is forgotten too early and one at its start too late: up to 2 × burst + rate × T in the worst T.
    SlidingCounter,
    /// A queue of `burst` places that drains at the rate: admits when and only when GCRA does, and tells each admitted
    /// caller its *pace*, the time until its turn would come, so that well-behaved callers space themselves. The answer
    /// is immediate: nobody is held. A full queue refuses with the exact wait.
    LeakyBucket,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Gcra,
        Self::FixedWindow,
        Self::SlidingLog,
        Self::SlidingCounter,
        Self::LeakyBucket,
    ];

    /// Its word in the configuration.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Gcra => "gcra",
            Self::FixedWindow => "fixed-window",
            Self::SlidingLog => "sliding-log",
            Self::SlidingCounter => "sliding-counter",
            Self::LeakyBucket => "leaky-bucket",
        }
    }

    /// Words of state that a key has beside its debt, for a burst of `capacity`.
    pub const fn words(self, capacity: u32) -> usize {
        match self {
            Self::Gcra | Self::LeakyBucket => 0,
            Self::FixedWindow | Self::SlidingCounter => 1,
            Self::SlidingLog => 1 + capacity as usize,
        }
    }
}

/// A kind and its policy, checked together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    kind: Kind,
    policy: Policy,
}

impl Rule {
    /// Checks that `kind` can enforce `policy`.
    /// # Errors
    /// `LogTooLong` when a log's burst is above [`LOG_ENTRIES_MAX`]; `TooLong` when two windows of a counter are above
    /// the largest debt.
    pub const fn new(kind: Kind, policy: Policy) -> Result<Self, PolicyError> {
        match kind {
            Kind::SlidingLog if policy.capacity() > LOG_ENTRIES_MAX => Err(PolicyError::LogTooLong),
            Kind::SlidingCounter if policy.full_units() > super::gcra::FULL_UNITS_MAX / 2 => {
                Err(PolicyError::TooLong)
            }
            _ => Ok(Self { kind, policy }),
        }
    }

    /// The same policy as a token bucket, which can enforce every one.
    pub const fn gcra(policy: Policy) -> Self {
        Self {
            kind: Kind::Gcra,
            policy,
        }
    }

    /// How.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Rate and burst.
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The longest debt, in units: when a key that was just charged cannot be told from a new one any more.
    pub(super) const fn debt_max(&self) -> u64 {
        match self.kind {
            Kind::SlidingCounter => 2 * self.policy.full_units(),
            _ => self.policy.full_units(),
        }
    }

    /// Decides `cost` tokens for a key with `debt` and `words`; writes nothing.
    #[inline]
    pub(super) fn decide(&self, now: Mono, debt: u64, words: &[u64], cost: u32) -> Verdict {
        match self.kind {
            Kind::Gcra | Kind::LeakyBucket => self.policy.decide(debt, cost),
            _ => self.decide_windowed(now, debt, words, cost),
        }
    }

    #[inline(never)]
    fn decide_windowed(&self, now: Mono, debt: u64, words: &[u64], cost: u32) -> Verdict {
        let policy = &self.policy;
        match self.kind {
            Kind::Gcra | Kind::LeakyBucket => policy.decide(debt, cost),
            Kind::FixedWindow => window::fixed(policy, debt, words, cost),
            Kind::SlidingCounter => window::counter(policy, debt, words, cost),
            Kind::SlidingLog => log::decide(policy, now, (debt, words), cost),
        }
    }

    /// Charges `cost` tokens (1 or more), which [`Self::decide`] allowed; returns the debt after it.
    pub(super) fn charge(&self, now: Mono, debt: u64, words: &mut [u64], cost: u32) -> u64 {
        match self.kind {
            Kind::Gcra | Kind::LeakyBucket => self.policy.charged(debt, cost),
            Kind::FixedWindow => window::charge_fixed(&self.policy, debt, words, cost),
            Kind::SlidingCounter => window::charge_counter(&self.policy, debt, words, cost),
            Kind::SlidingLog => log::charge(&self.policy, now, debt, words, cost),
        }
    }

    /// Gives `tokens` back, never above the burst (B11); returns the debt after it.
    pub(super) fn refund(&self, debt: u64, words: &mut [u64], tokens: u32) -> u64 {
        match self.kind {
            Kind::Gcra | Kind::LeakyBucket => debt.saturating_sub(self.policy.cost_units(tokens)),
            Kind::FixedWindow => {
                window::refund_fixed(words, tokens);
                debt
            }
            Kind::SlidingCounter => {
                window::refund_counter(&self.policy, debt, words, tokens);
                debt
            }
            Kind::SlidingLog => {
                log::refund(words, tokens);
                debt
            }
        }
    }

    /// Floor of the tokens left.
    pub(super) fn remaining(&self, now: Mono, debt: u64, words: &[u64]) -> u32 {
        match self.decide(now, debt, words, 0) {
            Verdict::Allow { remaining } => remaining,
            Verdict::Wait { .. } | Verdict::Never => 0, // a lowered burst is overdrawn
        }
    }

    /// The same state under another policy of the same kind; returns the debt in its units.
    ///
    /// What was consumed stays consumed: a raised burst helps at once by the difference, a lowered one gives nobody a
    /// fresh start. A window keeps the *part* of it that has passed, so a faster rate applies to all that is owed; a log
    /// keeps its instants and forgets what had left the old window.
    pub(super) fn carry(&self, to: &Self, now: Mono, debt: u64, words: &mut [u64]) -> u64 {
        match self.kind {
            Kind::Gcra | Kind::LeakyBucket => self.policy.carry(debt, &to.policy),
            Kind::FixedWindow | Kind::SlidingCounter => {
                window::carry(&self.policy, &to.policy, debt).min(to.debt_max())
            }
            Kind::SlidingLog => log::carry(&self.policy, &to.policy, now, words),
        }
    }
}
