//! Leaky bucket as a shaper of one stream of work: answers at once when a piece of work may run, or that it may not (C1).
//!
//! For a caller that can put work off (our own calls to others, a client that keeps its own queue); a request is never
//! held. The first `burst` tokens run at once, what comes after is spaced at the rate, and what would wait longer than
//! the shaper's patience is refused. Trade-off: it smooths what a token bucket lets through in a burst, at the price of
//! delay. Invariants: work never runs faster than burst + rate × time; a refusal writes nothing (B10); a reservation is
//! given back at most once, because it is taken by value, and only before its turn (B11).

use super::gcra::{Policy, PolicyError, Rate, Verdict};
use crate::time::Mono;

/// A turn: run at `act_at`. Neither `Copy` nor `Clone`, so that it is given back once.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a turn that is neither used nor cancelled still delays the next ones"]
pub struct Turn {
    /// When the work may run: the instant of asking or later.
    pub act_at: Mono,
    tokens: u32,
    /// Units asked of the shaper up to and including this turn, at this rate.
    asked_units: u128,
    rates: u32,
}

/// The shaper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shaper {
    policy: Policy,
    patience_ns: u64,
    /// Units that are owed; above the policy's full debt while work waits.
    debt: u128,
    last: Mono,
    asked_units: u128,
    /// Changes of rate: turns of an earlier one are not given back.
    rates: u32,
}

impl Shaper {
    /// An idle shaper. `patience_ns`: the longest delay that [`Self::reserve`] gives.
    pub const fn new(policy: Policy, patience_ns: u64, now: Mono) -> Self {
        Self {
            policy,
            patience_ns,
            debt: 0,
            last: now,
            asked_units: 0,
            rates: 0,
        }
    }

    fn debt_now(&self, now: Mono) -> u128 {
        self.debt
            .saturating_sub(u128::from(self.policy.repaid(now.since(self.last))))
    }

    /// Nanoseconds until `debt` is within the burst; `None`: never.
    fn delay_ns(&self, debt: u128) -> Option<u64> {
        let over = debt.saturating_sub(u128::from(self.policy.full_units()));
        let ns = match (over, self.policy.rate().tokens) {
            (0, _) => 0,
            (_, 0) => return None,
            (_, tokens) => over.div_ceil(u128::from(tokens)),
        };
        u64::try_from(ns).ok()
    }

    /// The next turn for `tokens` of work.
    /// # Errors
    /// `Wait` with the exact time after which the same call gets a turn; `Never` when the work is larger than the burst
    /// or the rate is 0. Nothing is written then.
    pub fn reserve(&mut self, now: Mono, tokens: u32) -> Result<Turn, Verdict> {
        if tokens > self.policy.capacity() {
            return Err(Verdict::Never);
        }
        let cost = u128::from(self.policy.cost_units(tokens));
        let debt = self.debt_now(now) + cost;
        let delay_ns = self.delay_ns(debt).ok_or(Verdict::Never)?;
        if delay_ns > self.patience_ns {
            return Err(Verdict::Wait {
                retry_after_ns: delay_ns - self.patience_ns,
            });
        }
        let now = now.max(self.last);
        (self.debt, self.last) = (debt, now);
        self.asked_units += cost;
        Ok(Turn {
            act_at: now.plus_ns(delay_ns),
            tokens,
            asked_units: self.asked_units,
            rates: self.rates,
        })
    }

    /// Gives a turn back; returns the tokens credited: none once its time has come, and not those that later turns
    /// already wait behind, for their times are told; nor those of a turn that an earlier rate gave.
    pub fn cancel(&mut self, now: Mono, turn: Turn) -> u32 {
        let now = now.max(self.last);
        if turn.act_at <= now || turn.rates != self.rates {
            return 0;
        }
        let behind = self.asked_units - turn.asked_units;
        let cost = u128::from(self.policy.cost_units(turn.tokens));
        let credit = cost.saturating_sub(behind);
        let tokens = credit / u128::from(self.policy.cost_units(1)).max(1);
        self.debt = self.debt_now(now).saturating_sub(credit);
        self.last = now;
        u32::try_from(tokens).expect("at most the turn's tokens")
    }

    /// Whole tokens that could run at once; negative: so many wait.
    pub fn level(&self, now: Mono) -> i64 {
        let free = i128::from(self.policy.full_units()) - self.debt_now(now) as i128; // below 2^127: see `reserve`
        let level = free.div_euclid(i128::from(self.policy.cost_units(1)).max(1));
        i64::try_from(level).unwrap_or(i64::MIN)
    }

    /// Another rate, for all that is owed; burst and patience stay.
    /// # Errors
    /// As [`Policy::new`]; nothing changes then.
    pub fn set_rate(&mut self, now: Mono, rate: Rate) -> Result<(), PolicyError> {
        let policy = Policy::new(rate, self.policy.capacity())?;
        let (old, new) = (self.policy.rate(), policy.rate());
        let owed = self.debt_now(now) * u128::from(new.per_ns);
        self.debt = owed.div_ceil(u128::from(old.per_ns));
        self.last = self.last.max(now);
        self.policy = policy;
        self.rates = self.rates.wrapping_add(1);
        Ok(())
    }
}
