//! Token bucket as GCRA in exact integers: what a policy means, and one bucket.
//!
//! Called by the rules of the keyed table, the lease book and the instance limit. A policy is a rational rate and a capacity; debt
//! is counted in *units* of 1/tokens nanosecond, so that one nanosecond repays exactly `tokens` units and one token
//! costs exactly `per_ns` units (both reduced): nothing is ever rounded, whatever the rate (B04, B05, B14).
//! Invariants: 0 ≤ debt ≤ capacity × per_ns ≤ 2^62; a refusal writes nothing (B10); time never runs back (B02).
//! Not here: keys (`table`), leases (`lease`).

use crate::planted::{self, Planted};
use crate::time::{Mono, NS_PER_MS, NS_PER_S};

/// Largest `tokens` of a reduced rate. With it 2^30 ns are at most 2^61 units, so a table line can move its base.
pub const RATE_TOKENS_MAX: u64 = 1 << 31;
/// Largest `capacity × per_ns` of a reduced policy: debt and debt-after-cost stay below 2^63 in a `u64`.
pub const FULL_UNITS_MAX: u64 = 1 << 62;

/// Why a policy cannot be enforced exactly; the configuration refuses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyError {
    /// `per_ns` is 0: a rate needs a period.
    ZeroPeriod,
    /// Capacity 0 with a rate above 0: nothing could ever pass. Use capacity ≥ 1, or rate 0 to close.
    ZeroCapacity,
    /// Tokens of the reduced rate are above [`RATE_TOKENS_MAX`]. Use a rounder rate.
    RateTooFine,
    /// Capacity × reduced period is above [`FULL_UNITS_MAX`]. Use a smaller capacity, a shorter period or a rounder rate.
    TooLong,
    /// A sliding log's burst is above [`crate::limits::LOG_ENTRIES_MAX`]. Use a smaller burst or a sliding counter.
    LogTooLong,
}

impl core::fmt::Display for PolicyError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::ZeroPeriod => "the period of a rate must be at least 1 ns",
            Self::ZeroCapacity => "a burst of 0 lets nothing pass; use a burst of 1 or more, or rate 0 to close",
            Self::RateTooFine => "the reduced rate has more than 2147483648 tokens; use a rounder rate such as a multiple of 10 per second",
            Self::TooLong => "burst times period (after reducing the rate) is above 2^62 ns; use a smaller burst, a shorter period or a rounder rate",
            Self::LogTooLong => "a sliding log remembers every token of its burst, at most 64; use a smaller burst, or sliding-counter",
        })
    }
}

/// `tokens` per `per_ns` nanoseconds, an exact rational; 0 tokens never refill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Tokens.
    pub tokens: u64,
    /// Nanoseconds, at least 1.
    pub per_ns: u64,
}

impl Rate {
    /// Never refills.
    pub const ZERO: Self = Self {
        tokens: 0,
        per_ns: 1,
    };

    /// `tokens` per second.
    pub const fn per_second(tokens: u64) -> Self {
        Self {
            tokens,
            per_ns: NS_PER_S,
        }
    }

    /// Thousandths of a token per second, rounded down, for people and for other machines.
    pub fn milli_per_s(self) -> u64 {
        let milli = u128::from(self.tokens) * u128::from(1000 * NS_PER_S);
        u64::try_from(milli / u128::from(self.per_ns.max(1))).unwrap_or(u64::MAX)
    }

    /// The same rate in lowest terms.
    /// # Errors
    /// `ZeroPeriod`; `RateTooFine` when the reduced tokens exceed [`RATE_TOKENS_MAX`].
    const fn reduced(self) -> Result<Self, PolicyError> {
        if self.per_ns == 0 {
            return Err(PolicyError::ZeroPeriod);
        }
        let divisor = gcd(self.tokens, self.per_ns);
        let reduced = Self {
            tokens: self.tokens / divisor,
            per_ns: self.per_ns / divisor,
        };
        if reduced.tokens > RATE_TOKENS_MAX {
            return Err(PolicyError::RateTooFine);
        }
        Ok(reduced)
    }
}

const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The answer of a bucket to a cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It passes; `remaining` whole tokens are left after it.
    Allow {
        /// Floor of the tokens left after the charge.
        remaining: u32,
    },
    /// Too fast: it passes after exactly this wait when nobody else takes, and not one nanosecond earlier.
    Wait {
        /// Ceiling of the exact wait, 1 or more.
        retry_after_ns: u64,
    },
    /// No wait helps: the cost is above the capacity, or the rate is 0 and too little is left (B09, B12).
    Never,
}

impl Verdict {
    /// True for `Allow`.
    pub const fn is_allow(self) -> bool {
        matches!(self, Self::Allow { .. })
    }

    /// The wait in whole milliseconds, rounded up so that it never comes early; `None` unless `Wait`.
    pub const fn retry_after_ms(self) -> Option<u64> {
        match self {
            Self::Wait { retry_after_ns } => Some(retry_after_ns.div_ceil(NS_PER_MS)),
            _ => None,
        }
    }

    /// Of two limits that must both pass: the stricter answer, independent of their order (B21).
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Never, _) | (_, Self::Never) => Self::Never,
            (Self::Wait { retry_after_ns: a }, Self::Wait { retry_after_ns: b }) => Self::Wait {
                retry_after_ns: a.max(b),
            },
            (wait @ Self::Wait { .. }, _) | (_, wait @ Self::Wait { .. }) => wait,
            (Self::Allow { remaining: a }, Self::Allow { remaining: b }) => Self::Allow {
                remaining: a.min(b),
            },
        }
    }
}

/// Divides numbers up to [`FULL_UNITS_MAX`] by one that stays the same, exactly, with a product and a shift: a CPU's
/// division takes up to 90 cycles.
///
/// Granlund and Montgomery, "Division by invariant integers using multiplication" (PLDI 1994): with d ≤ 2^s and
/// m = ⌈2^(62+s) / d⌉, ⌊n m / 2^(62+s)⌋ = ⌊n / d⌋ for every n ≤ 2^62.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Divisor {
    multiplier: u64,
    shift: u32,
}

impl Divisor {
    /// `divisor`: 1..=2^62.
    const fn new(divisor: u64) -> Self {
        let bits = u64::BITS - (divisor - 1).leading_zeros(); // 2^bits is the first power not below it
        let bits = if bits == 0 { 1 } else { bits };
        Self {
            multiplier: (1u128 << (62 + bits)).div_ceil(divisor as u128) as u64, // at most 2^63
            shift: bits - 1,
        }
    }

    /// `number` divided, rounded down; `number`: at most 2^62.
    #[inline]
    const fn quotient(self, number: u64) -> u64 {
        debug_assert!(number <= FULL_UNITS_MAX);
        let product = (2 * number) as u128 * self.multiplier as u128;
        ((product >> 64) as u64) >> self.shift
    }
}

/// Rate and capacity, checked so that every later step is exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    rate: Rate,
    capacity: u32,
    full_units: u64,
    by_period: Divisor,
    by_tokens: Divisor,
}

impl Policy {
    /// Lets nothing pass, ever.
    pub const CLOSED: Self = Self {
        rate: Rate::ZERO,
        capacity: 0,
        full_units: 0,
        by_period: Divisor::new(1),
        by_tokens: Divisor::new(1),
    };

    /// `capacity`: the most tokens a bucket holds (the burst), 1 or more unless the rate is 0.
    /// # Errors
    /// `ZeroPeriod`, `ZeroCapacity`, `RateTooFine` (reduced tokens above [`RATE_TOKENS_MAX`]), or `TooLong` when
    /// capacity × reduced period exceeds [`FULL_UNITS_MAX`].
    pub const fn new(rate: Rate, capacity: u32) -> Result<Self, PolicyError> {
        let rate = match rate.reduced() {
            Ok(rate) => rate,
            Err(error) => return Err(error),
        };
        if capacity == 0 && rate.tokens != 0 {
            return Err(PolicyError::ZeroCapacity);
        }
        match rate.per_ns.checked_mul(capacity as u64) {
            Some(full_units) if full_units <= FULL_UNITS_MAX => Ok(Self {
                rate,
                capacity,
                full_units,
                by_period: Divisor::new(rate.per_ns),
                by_tokens: Divisor::new(if rate.tokens == 0 { 1 } else { rate.tokens }),
            }),
            _ => Err(PolicyError::TooLong),
        }
    }

    /// The policy of one of `shards_count` (1 or more) parts: the same capacity, the rate divided exactly. Together the
    /// parts admit at most `shards_count` × capacity + rate × time (B43: stated, not hidden).
    /// # Errors
    /// As [`Self::new`], for the longer period.
    pub const fn split(&self, shards_count: u16) -> Result<Self, PolicyError> {
        match self.rate.per_ns.checked_mul(shards_count as u64) {
            Some(per_ns) => Self::new(
                Rate {
                    tokens: self.rate.tokens,
                    per_ns,
                },
                self.capacity,
            ),
            None => Err(PolicyError::TooLong),
        }
    }

    /// The rate, in lowest terms.
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// The most tokens a bucket holds.
    pub const fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Units from empty to full: the window of the windowed rules.
    pub(super) const fn full_units(&self) -> u64 {
        self.full_units
    }

    /// Units that `tokens` cost, clamped.
    #[inline]
    pub(super) const fn cost_units(&self, tokens: u32) -> u64 {
        (tokens as u64).saturating_mul(self.rate.per_ns)
    }

    /// Nanoseconds from empty to full, rounded up; `None` when the rate is 0.
    pub const fn full_ns(&self) -> Option<u64> {
        self.repay_ns(self.full_units)
    }

    /// Units repaid in `elapsed_ns`, clamped to `u64::MAX`, which is above every debt (B07).
    #[inline]
    pub(super) fn repaid(&self, elapsed_ns: u64) -> u64 {
        u64::try_from(u128::from(elapsed_ns) * u128::from(self.rate.tokens)).unwrap_or(u64::MAX)
    }

    /// Nanoseconds until `units` are repaid, rounded up; `None` when the rate is 0 and units are owed.
    #[inline]
    pub(super) const fn repay_ns(&self, units: u64) -> Option<u64> {
        match (units, self.rate.tokens) {
            (0, _) => Some(0),
            (_, 0) => None,
            (_, tokens) => {
                let whole = self.by_tokens.quotient(units);
                Some(whole + (whole * tokens < units) as u64)
            }
        }
    }

    /// Debt of an empty-but-for-`tokens` bucket.
    pub(super) fn debt_at(&self, tokens: u32) -> u64 {
        u64::from(self.capacity.saturating_sub(tokens)) * self.rate.per_ns
    }

    /// Whole tokens left at this debt.
    #[inline]
    pub(super) fn remaining(&self, debt: u64) -> u32 {
        self.by_period.quotient(self.full_units - debt) as u32 // at most the capacity
    }

    /// Decides `cost` tokens at `debt` (already brought to the present).
    #[inline]
    pub(super) fn decide(&self, debt: u64, cost: u32) -> Verdict {
        if cost > self.capacity {
            return Verdict::Never;
        }
        let after = debt + self.cost_units(cost); // both at most 2^62
        if planted::is(Planted::OneCellTooMany) && after <= self.full_units + self.rate.per_ns {
            return Verdict::Allow { remaining: 0 };
        }
        if after <= self.full_units {
            return Verdict::Allow {
                remaining: self.remaining(after),
            };
        }
        match self.repay_ns(after - self.full_units) {
            Some(retry_after_ns) => Verdict::Wait { retry_after_ns },
            None => Verdict::Never,
        }
    }

    /// The debt after a charge that [`Self::decide`] allows.
    #[inline]
    pub(super) fn charged(&self, debt: u64, cost: u32) -> u64 {
        let after = debt + self.cost_units(cost);
        if planted::is(Planted::OneCellTooMany) {
            return after.min(self.full_units);
        }
        after // at most a full debt
    }

    /// The same fill under another policy, rounded against the caller by less than one unit.
    ///
    /// A smaller capacity keeps what is left and clamps it (B20); a larger one keeps what was consumed, so that raising
    /// a limit helps at once by exactly the difference (B22). Debt is carried in tokens, so a new rate applies to all of it (B33).
    pub(super) fn carry(&self, debt: u64, to: &Self) -> u64 {
        let dropped = u64::from(self.capacity.saturating_sub(to.capacity)) * self.rate.per_ns;
        let kept = u128::from(debt.saturating_sub(dropped));
        let units = (kept * u128::from(to.rate.per_ns)).div_ceil(u128::from(self.rate.per_ns));
        u64::try_from(units)
            .expect("kept is at most the new capacity in tokens")
            .min(to.full_units)
    }
}

/// Fill of a bucket at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// Floor of the tokens held.
    pub remaining: u32,
    /// Nanoseconds until full, rounded up; `None` when the rate is 0 and it is not full.
    pub full_in_ns: Option<u64>,
}

/// One token bucket. For many keys see [`super::table::KeyedLimiter`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    policy: Policy,
    debt: u64,
    last: Mono,
}

impl Bucket {
    /// A bucket that holds `tokens` (clamped to the capacity) at `now`.
    pub fn with_tokens(policy: Policy, now: Mono, tokens: u32) -> Self {
        Self {
            policy,
            debt: policy.debt_at(tokens),
            last: now,
        }
    }

    /// A full bucket.
    pub fn full(policy: Policy, now: Mono) -> Self {
        Self::with_tokens(policy, now, policy.capacity)
    }

    /// The policy in force.
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    fn debt_now(&self, now: Mono) -> u64 {
        self.debt
            .saturating_sub(self.policy.repaid(now.since(self.last))) // an older `now` repays 0
    }

    /// What `take` would answer; writes nothing.
    pub fn check(&self, now: Mono, cost: u32) -> Verdict {
        self.policy.decide(self.debt_now(now), cost)
    }

    /// Takes `cost` tokens or none. A refusal leaves the bucket bit for bit as it was.
    pub fn take(&mut self, now: Mono, cost: u32) -> Verdict {
        let debt = self.debt_now(now);
        let verdict = self.policy.decide(debt, cost);
        if verdict.is_allow() && cost > 0 {
            self.write(now, self.policy.charged(debt, cost));
        }
        verdict
    }

    /// Takes as many of `cost` tokens as there are whole ones; returns how many.
    pub fn take_up_to(&mut self, now: Mono, cost: u32) -> u32 {
        let granted = cost.min(self.level(now).remaining);
        if granted > 0 {
            self.take(now, granted);
        }
        granted
    }

    /// Gives `tokens` back; the fill never exceeds the capacity (B11). The caller refunds each charge at most once.
    pub fn refund(&mut self, now: Mono, tokens: u32) {
        let credit = self.policy.cost_units(tokens);
        self.write(now, self.debt_now(now).saturating_sub(credit));
    }

    /// Fill at `now`.
    pub fn level(&self, now: Mono) -> Level {
        let debt = self.debt_now(now);
        Level {
            remaining: self.policy.remaining(debt),
            full_in_ns: self.policy.repay_ns(debt),
        }
    }

    /// Switches policy: credit under the old one up to `now`, then carried over.
    ///
    /// A smaller capacity keeps what is left, clamped; a larger one keeps what was consumed.
    pub fn set_policy(&mut self, now: Mono, policy: Policy) {
        let debt = self.policy.carry(self.debt_now(now), &policy);
        self.policy = policy;
        self.write(now, debt);
    }

    fn write(&mut self, now: Mono, debt: u64) {
        self.debt = debt;
        self.last = self.last.max(now);
    }
}
