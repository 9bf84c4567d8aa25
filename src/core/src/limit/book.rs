//! The owner's side of one SKU's budget: a bucket of R_admit, and what each shard drew from it.
//!
//! Called on lease mail by the ledger's owner, or by its clerk with what a [`super::pool`] drew. Tokens are deducted
//! before the grant leaves (B43); a repeated draw gets its grant again, an older one nothing (B44); a shard's part is its
//! fair share by wish and weight among those that draw, with a floor (B45). Invariants: granted − returned ≤ rate × time +
//! burst, and ≤ what was prepaid, for any loss, repetition or crash; the bucket starts empty and its rate climbs in steps
//! (J6). Expired tokens are not credited again: the shard counts them as wasted.

use super::gcra::{Bucket, Policy, PolicyError, Rate};
use super::lease::{LeaseDraw, LeaseGrant, LeaseReturn};
use super::share::{self, Claim};
use crate::limits::{
    BUDGET_BURST_MS, BUDGET_RAMP_MS, BUDGET_RAMP_STEPS, LEASE_RETRY_MS, LEASE_TOKENS_MIN,
    LEASE_TTL_MS,
};
use crate::planted::{self, Planted};
use crate::time::{Mono, NS_PER_MS};
use alloc::boxed::Box;

/// Tokens that a bucket elsewhere deducted already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prepaid {
    /// So many.
    pub tokens: u32,
    /// They are void from then on.
    pub ends: Mono,
}

/// Of the rate that a book is made with.
const FIRST_VERSION: u64 = 1;

/// What the owner knows of one shard.
#[derive(Clone, Copy, Debug, Default)]
struct ShardLine {
    known: bool,
    boot: u64,
    boot_before: u64,
    seq: u64,
    tokens: u32,
    /// The tokens are prepaid and void from then on.
    ends: Option<Mono>,
    returned_seq: u64,
    outstanding: u64,
    claim: Claim,
    drew_at: Mono,
}

/// Counters of one budget; each only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BookCounts {
    /// Tokens sent to shards, repeats not counted again.
    pub granted: u64,
    /// Tokens that came back.
    pub returned: u64,
    /// Tokens of returns that were refused: of an earlier run, a duplicate, or more than was out.
    pub void: u64,
    /// Draws answered again.
    pub repeated_draws: u64,
    /// Draws refused as older.
    pub stale_draws: u64,
}

/// The book of one SKU.
#[derive(Clone, Debug)]
pub struct LeaseBook {
    owner_boot: u64,
    version: u64,
    rate: Rate,
    steps: [Policy; BUDGET_RAMP_STEPS as usize],
    step: usize,
    step_ends: Mono,
    bucket: Bucket,
    shards: Box<[ShardLine]>,
    counts: BookCounts,
}

impl LeaseBook {
    /// An empty bucket of `rate` that starts to climb at `now`, for shards 0..`shards_count`.
    ///
    /// `owner_boot`: this run's number, above every earlier run's. Allocates once.
    /// # Errors
    /// As [`Policy::new`], for the rate or one of its steps.
    pub fn new(
        now: Mono,
        owner_boot: u64,
        rate: Rate,
        shards_count: u16,
    ) -> Result<Self, PolicyError> {
        let steps = climb(rate)?;
        Ok(Self {
            owner_boot,
            version: FIRST_VERSION,
            rate,
            steps,
            step: 0,
            step_ends: now.plus_ms(step_ms()),
            bucket: Bucket::with_tokens(steps[0], now, 0),
            shards: alloc::vec![ShardLine::default(); usize::from(shards_count)].into_boxed_slice(),
            counts: BookCounts::default(),
        })
    }

    /// Changes R_admit; the climb goes on where it was. What is saved is kept (whole tokens), clamped to the new burst:
    /// a raise adds speed, never tokens at once.
    /// # Errors
    /// As [`Self::new`]; nothing changes then.
    pub fn set_rate(&mut self, now: Mono, rate: Rate) -> Result<(), PolicyError> {
        let steps = climb(rate)?;
        self.climb_to(now);
        self.rate = rate;
        self.steps = steps;
        let saved = self.bucket.level(now).remaining;
        self.bucket = Bucket::with_tokens(self.steps[self.step], now, saved);
        Ok(())
    }

    /// As [`Self::set_rate`], if `version` is above the one that holds; false: it is not, and nothing changes.
    /// # Errors
    /// As [`Self::new`]; nothing changes then.
    pub fn change(&mut self, now: Mono, version: u64, rate: Rate) -> Result<bool, PolicyError> {
        if version <= self.version {
            return Ok(false);
        }
        self.set_rate(now, rate)?;
        self.version = version;
        Ok(true)
    }

    /// Version of the rate that holds; 1 until it is changed.
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// R_admit, whatever step of the climb was reached.
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// Begins the climb again with an empty bucket: after an outage what waited must not come all at once (J6).
    pub fn climb_anew(&mut self, now: Mono) {
        self.step = 0;
        self.step_ends = now.plus_ms(step_ms());
        self.bucket = Bucket::with_tokens(self.steps[0], now, 0);
    }

    /// Answers a draw; `None` when it is older than one already answered, of an earlier run, or of an unknown shard.
    pub fn draw(&mut self, now: Mono, draw: &LeaseDraw) -> Option<LeaseGrant> {
        self.grant(now, draw, None)
    }

    /// As [`Self::draw`], with no more tokens than there are prepaid, none of which lives longer than they do; so this
    /// book only paces and shares out. Gives, beside the grant, how many were taken of them now: none for a repeated draw.
    pub fn draw_prepaid(
        &mut self,
        now: Mono,
        draw: &LeaseDraw,
        prepaid: Prepaid,
    ) -> Option<(LeaseGrant, u32)> {
        let before = self.counts.granted;
        let grant = self.grant(now, draw, Some(prepaid))?;
        let taken = self.counts.granted - before;
        Some((grant, u32::try_from(taken).expect("one grant's tokens")))
    }

    fn grant(
        &mut self,
        now: Mono,
        draw: &LeaseDraw,
        prepaid: Option<Prepaid>,
    ) -> Option<LeaseGrant> {
        self.climb_to(now);
        let index = usize::from(draw.shard.0);
        let line = self.shards.get_mut(index)?;
        if draw.seq == 0 || !line.enter_run(draw.shard_boot) || line.seq > draw.seq {
            self.counts.stale_draws += 1;
            return None;
        }
        if line.seq == draw.seq {
            self.counts.repeated_draws += 1;
            return Some(self.answer(now, draw, index));
        }
        line.claim = Claim {
            want: draw.want,
            weight: draw.weight.clamp(1, 1000),
        };
        line.drew_at = now;
        let most = prepaid.map_or(u32::MAX, |prepaid| prepaid.tokens);
        let wanted = draw.want.min(self.part(now, index, most)).min(most);
        let tokens = if planted::is(Planted::LeaseNotDeducted) {
            wanted.min(self.bucket.level(now).remaining)
        } else {
            self.bucket.take_up_to(now, wanted)
        };
        let line = &mut self.shards[index];
        line.seq = draw.seq;
        line.tokens = tokens;
        line.ends = prepaid.map(|prepaid| prepaid.ends);
        line.outstanding += u64::from(tokens);
        self.counts.granted += u64::from(tokens);
        Some(self.answer(now, draw, index))
    }

    /// Takes tokens back, once per grant number, never more than that shard drew in this run. Gives how many, and until
    /// when they live if they were prepaid.
    pub fn give_back(&mut self, now: Mono, back: &LeaseReturn) -> (u32, Option<Mono>) {
        self.climb_to(now);
        let credited = self.creditable(back);
        self.counts.returned += u64::from(credited);
        self.counts.void += u64::from(back.tokens - credited);
        if credited > 0 {
            self.bucket.refund(now, credited);
        }
        let line = self.shards.get(usize::from(back.shard.0));
        (credited, line.and_then(|line| line.ends))
    }

    /// The counters.
    pub const fn counts(&self) -> &BookCounts {
        &self.counts
    }

    /// Whole tokens in the bucket at `now`.
    pub fn saved(&self, now: Mono) -> u32 {
        self.bucket.level(now).remaining
    }

    /// The policy in force at the last call: the present step of the climb.
    pub const fn policy(&self) -> &Policy {
        self.bucket.policy()
    }

    fn creditable(&mut self, back: &LeaseReturn) -> u32 {
        let Some(line) = self.shards.get_mut(usize::from(back.shard.0)) else {
            return 0;
        };
        let current =
            back.owner_boot == self.owner_boot && line.known && back.shard_boot == line.boot;
        let again = back.seq <= line.returned_seq && !planted::is(Planted::LeaseReturnTwice);
        if !current || again || back.seq > line.seq {
            return 0;
        }
        line.returned_seq = back.seq;
        let credited = back
            .tokens
            .min(u32::try_from(line.outstanding).unwrap_or(u32::MAX));
        line.outstanding -= u64::from(credited);
        credited
    }

    /// Most tokens for this shard now: its fair share of what is saved, `most` of it, but not below the floor.
    fn part(&self, now: Mono, index: usize, most: u32) -> u32 {
        let drawing =
            |line: &&ShardLine| line.known && now.since(line.drew_at) < LEASE_TTL_MS * NS_PER_MS;
        let claims = self.shards.iter().filter(drawing).map(|line| &line.claim);
        let saved = u64::from(self.bucket.level(now).remaining.min(most));
        let part = share::part(saved, self.shards[index].claim, claims);
        u32::try_from(part)
            .unwrap_or(u32::MAX)
            .max(LEASE_TOKENS_MIN)
    }

    fn answer(&self, now: Mono, draw: &LeaseDraw, index: usize) -> LeaseGrant {
        let line = &self.shards[index];
        let lives_ms = |ends: Mono| ends.since(now) / NS_PER_MS;
        LeaseGrant {
            sku: draw.sku,
            owner_boot: self.owner_boot,
            shard_boot: draw.shard_boot,
            seq: draw.seq,
            tokens: line.tokens,
            ttl_ms: line.ends.map_or(LEASE_TTL_MS, lives_ms).min(LEASE_TTL_MS),
            retry_ms: LEASE_RETRY_MS,
        }
    }

    /// Switches to each step at its own instant, so that a late call credits neither more nor less.
    fn climb_to(&mut self, now: Mono) {
        while self.step + 1 < self.steps.len() && now >= self.step_ends {
            self.step += 1;
            self.bucket
                .set_policy(self.step_ends, self.steps[self.step]);
            self.step_ends = self.step_ends.plus_ms(step_ms());
        }
    }
}

impl ShardLine {
    /// True when the message belongs to the shard's present run; a run not seen before starts afresh.
    fn enter_run(&mut self, boot: u64) -> bool {
        if self.known && boot == self.boot {
            return true;
        }
        if self.known && boot == self.boot_before {
            return false; // a late message of the run before
        }
        let boot_before = if self.known { self.boot } else { boot };
        *self = Self {
            known: true,
            boot,
            boot_before,
            ..Self::default()
        };
        true
    }
}

const fn step_ms() -> u64 {
    BUDGET_RAMP_MS / BUDGET_RAMP_STEPS
}

/// Step k of n has k/n of the rate; all share one capacity, so that a step changes the speed and never the fill.
fn climb(rate: Rate) -> Result<[Policy; BUDGET_RAMP_STEPS as usize], PolicyError> {
    let burst = u128::from(rate.tokens) * u128::from(BUDGET_BURST_MS * NS_PER_MS)
        / u128::from(rate.per_ns.max(1));
    let capacity = match rate.tokens {
        0 => 0,
        _ => u32::try_from(burst).unwrap_or(u32::MAX).max(1),
    };
    let mut steps = [Policy::new(rate, capacity)?; BUDGET_RAMP_STEPS as usize];
    for (step, slot) in (1..).zip(&mut steps) {
        let tokens = rate
            .tokens
            .checked_mul(step)
            .ok_or(PolicyError::RateTooFine)?;
        let per_ns = rate
            .per_ns
            .checked_mul(BUDGET_RAMP_STEPS)
            .ok_or(PolicyError::TooLong)?;
        *slot = Policy::new(Rate { tokens, per_ns }, capacity)?;
    }
    Ok(steps)
}
