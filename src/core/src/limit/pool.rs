//! An instance's prepaid tokens of one SKU: drawn ahead of need from the bucket that all instances share, for its shards.
//!
//! Called by the ledger's clerk. The bucket deducts a batch before it answers, so a lost answer or a crash only admits
//! fewer; a draw without an answer is sent again with its number and gets the same tokens. Invariants: drawn = handed +
//! returned + wasted + held; one draw is outstanding at most; what ends within [`POOL_LASTING_MS`] is not handed out any
//! more. Nobody waits: an empty pool is a closed one. Deliberately not here: who of the shards gets what ([`super::book`]).

use super::book::Prepaid;
use super::gcra::Rate;
use super::lease::{LeaseDraw, LeaseGrant, LeaseReturn, ShardId};
use crate::limits::{
    LEASE_TOKENS_MAX, LEASE_TOKENS_MIN, POOL_LASTING_MS, POOL_PAUSE_MS_MAX, POOL_PAUSE_MS_MIN,
};
use crate::time::{Mono, NS_PER_MS, NS_PER_S};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use weir_proto::ids::SkuKey;

/// Demand is counted in windows of 2^26 ns (67 ms), so that a window's number is a shift.
const WINDOW_BITS: u32 = 26;
/// The pool is sized for this many windows of demand (1.5 s) and drawn from anew when half of it is left: at 1,000 tokens
/// a second one draw brings 700 or more.
const WINDOWS_AHEAD: u64 = 22;
/// Demand is kept in sixteenths, so that one token per second is not rounded to none.
const DEMAND_SCALE: u64 = 16;
/// Batches that are held apart; more are merged into the newest, with the shortest of their lives.
const LOTS_MAX: usize = 8;
/// A quiet pool holds at most this part of a second's tokens: a small budget is not hoarded by whoever came first.
const QUIET_PART: u64 = 10;
/// One pool draws for all shards: it is the bucket's shard 0 of this instance.
const POOL: ShardId = ShardId(0);

#[derive(Clone, Copy, Debug)]
struct Lot {
    tokens: u32,
    ends: Mono,
}

#[derive(Clone, Copy, Debug)]
struct Outstanding {
    draw: LeaseDraw,
    sent: Mono,
    /// Its answer may still come.
    is_out: bool,
}

/// Where drawn tokens went; each counter only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolBooks {
    /// Received from the bucket, or back from shards.
    pub drawn: u64,
    /// Given to shards.
    pub handed: u64,
    /// Given back to the bucket.
    pub returned: u64,
    /// Void: expired here, or of a bucket that is gone.
    pub wasted: u64,
    /// Draws that were sent, repeats included.
    pub draws: u64,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct TokenPool {
    sku: SkuKey,
    boot: u64,
    weight: u32,
    rate: Rate,
    bucket_boot: u64,
    seq: u64,
    /// The oldest first.
    lots: VecDeque<Lot>,
    outstanding: Option<Outstanding>,
    not_before: Mono,
    /// Nothing but `not_before` is in the way of the next draw.
    is_waiting: bool,
    /// What each shard asked for last and did not get for want of tokens here.
    lacks: Box<[u32]>,
    window: u64,
    window_taken: u64,
    demand: u64,
    books: PoolBooks,
}

impl TokenPool {
    /// An empty pool for shards 0..`shards_count`. `boot`: this run's number, unlike every earlier run's. `weight`: this
    /// instance's share of demand against others, 1..=1000.
    pub fn new(
        now: Mono,
        sku: SkuKey,
        boot: u64,
        weight: u32,
        rate: Rate,
        shards_count: u16,
    ) -> Self {
        Self {
            sku,
            boot,
            weight,
            rate,
            bucket_boot: 0,
            seq: 0,
            lots: VecDeque::with_capacity(LOTS_MAX + 1),
            outstanding: None,
            not_before: Mono(0),
            is_waiting: false,
            lacks: alloc::vec![0; usize::from(shards_count)].into_boxed_slice(),
            window: now.0 >> WINDOW_BITS,
            window_taken: 0,
            demand: 0,
            books: PoolBooks::default(),
        }
    }

    /// The whole budget's rate from here on: what is held quietly and how long a short draw pauses follow it.
    pub fn set_rate(&mut self, rate: Rate) {
        self.rate = rate;
    }

    /// What can be handed out for a wish of `want`: tokens of the oldest lots that cover it, all of which live as long
    /// as the first.
    pub fn offer(&mut self, now: Mono, want: u32) -> Prepaid {
        self.expire(now);
        let lasting = self.lots.iter().filter(|lot| lasts(lot, now));
        let mut offer = Prepaid {
            tokens: 0,
            ends: now,
        };
        for lot in lasting {
            if offer.tokens == 0 {
                offer.ends = lot.ends;
            }
            offer.tokens = offer.tokens.saturating_add(lot.tokens);
            if offer.tokens >= want {
                break;
            }
        }
        offer
    }

    /// Books what a shard got of an offer, the oldest first, and what it lacked because the offer was too small.
    ///
    /// # Panics
    /// When it is more than was offered: tokens would come from nowhere.
    pub fn hand(&mut self, now: Mono, shard: ShardId, tokens: u32, lacked: u32) {
        self.roll_window(now);
        self.window_taken += u64::from(tokens);
        if let Some(lack) = self.lacks.get_mut(usize::from(shard.0)) {
            *lack = lacked;
        }
        let mut left = tokens;
        for lot in self.lots.iter_mut().filter(|lot| lasts(lot, now)) {
            let taken = lot.tokens.min(left);
            lot.tokens -= taken;
            left -= taken;
        }
        assert_eq!(left, 0, "no more is handed out than is there");
        self.lots.retain(|lot| lot.tokens > 0);
        self.books.handed += u64::from(tokens);
    }

    /// A shard gave tokens back, which live until `ends`.
    pub fn came_back(&mut self, now: Mono, tokens: u32, ends: Mono) {
        self.books.drawn += u64::from(tokens);
        self.keep(Lot { tokens, ends });
        self.expire(now);
    }

    /// The draw to send now, if any: when less than half of the coming demand is held, or a shard lacked some; or the
    /// last one again, unchanged, after [`Self::lost`].
    pub fn want(&mut self, now: Mono) -> Option<LeaseDraw> {
        self.roll_window(now);
        self.expire(now);
        self.is_waiting = false;
        let (target, lasting, lacked) = (self.target(), self.lasting(now), self.lacked());
        match &self.outstanding {
            Some(outstanding) if outstanding.is_out => return None,
            None if lasting >= target.div_ceil(2) && lacked == 0 => return None,
            _ if now < self.not_before => {
                self.is_waiting = true;
                return None;
            }
            _ => {}
        }
        let draw = match self.outstanding {
            Some(outstanding) => outstanding.draw,
            None => {
                let want = target.saturating_sub(lasting).saturating_add(lacked);
                self.seq += 1;
                LeaseDraw {
                    shard: POOL,
                    sku: self.sku,
                    shard_boot: self.boot,
                    seq: self.seq,
                    want: want.clamp(1, LEASE_TOKENS_MAX),
                    weight: self.weight,
                }
            }
        };
        self.outstanding = Some(Outstanding {
            draw,
            sent: now,
            is_out: true,
        });
        self.books.draws += 1;
        Some(draw)
    }

    /// The draw's answer will not come, or refused it: the same draw is due after `pause_ms`. What it took of the bucket,
    /// if it did, the same number gets.
    pub fn lost(&mut self, now: Mono, pause_ms: u64) {
        if let Some(outstanding) = &mut self.outstanding {
            outstanding.is_out = false;
            self.not_before = now.plus_ms(pause_ms);
        }
    }

    /// True while a draw's answer may come.
    pub fn is_asking(&self) -> bool {
        let outstanding = self.outstanding.as_ref();
        outstanding.is_some_and(|outstanding| outstanding.is_out)
    }

    /// Nothing waits for a pause any more: the bucket is there again.
    pub fn hurry(&mut self, now: Mono) {
        self.not_before = now;
    }

    /// Books a grant. Ignored (false): not the answer to the outstanding draw.
    pub fn grant(&mut self, now: Mono, grant: &LeaseGrant) -> bool {
        let answers = |o: &Outstanding| {
            o.is_out
                && grant.seq == o.draw.seq
                && grant.shard_boot == self.boot
                && grant.tokens <= o.draw.want
        };
        let Some(outstanding) = self.outstanding.filter(answers) else {
            return false;
        };
        if grant.owner_boot != self.bucket_boot {
            self.waste_all(); // an earlier bucket's tokens must not be returned to this one
            self.bucket_boot = grant.owner_boot;
        }
        self.outstanding = None;
        if grant.tokens < outstanding.draw.want {
            let pause_ms = grant.retry_ms.max(self.pause_ms(grant.tokens));
            self.not_before = now.plus_ms(pause_ms);
        }
        self.lacks.fill(0);
        self.books.drawn += u64::from(grant.tokens);
        self.keep(Lot {
            tokens: grant.tokens,
            ends: outstanding.sent.plus_ms(grant.ttl_ms),
        });
        self.expire(now);
        true
    }

    /// Gives back what is held (the instance ends); `None` when nothing is. Not more than one return can say.
    pub fn give_back(&mut self, now: Mono) -> Option<LeaseReturn> {
        self.expire(now);
        let tokens = self.held().min(LEASE_TOKENS_MAX);
        if tokens == 0 {
            return None;
        }
        self.books.returned += u64::from(tokens);
        self.books.wasted += u64::from(self.held() - tokens);
        self.lots.clear();
        Some(LeaseReturn {
            shard: POOL,
            sku: self.sku,
            owner_boot: self.bucket_boot,
            shard_boot: self.boot,
            seq: self.seq - u64::from(self.outstanding.is_some()), // the last one that was granted
            tokens,
        })
    }

    /// When [`Self::want`] may have something that it had not at its last call for a pause's sake.
    pub fn next_deadline(&self) -> Option<Mono> {
        self.is_waiting.then_some(self.not_before)
    }

    /// Tokens held; some may be found expired at the next call.
    pub fn held(&self) -> u32 {
        self.lots.iter().map(|lot| lot.tokens).sum()
    }

    /// The counters.
    pub const fn books(&self) -> &PoolBooks {
        &self.books
    }

    /// Panics unless drawn = handed + returned + wasted + held.
    pub fn audit(&self) {
        let PoolBooks {
            drawn,
            handed,
            returned,
            wasted,
            draws: _,
        } = self.books;
        assert_eq!(
            drawn,
            handed + returned + wasted + u64::from(self.held()),
            "every drawn token is accounted for"
        );
    }

    fn keep(&mut self, lot: Lot) {
        if lot.tokens == 0 {
            return;
        }
        if self.lots.len() == LOTS_MAX
            && let Some(newest) = self.lots.back_mut()
        {
            newest.tokens = newest.tokens.saturating_add(lot.tokens);
            newest.ends = newest.ends.min(lot.ends); // strict: part of them could have lived longer
            return;
        }
        self.lots.push_back(lot);
    }

    fn expire(&mut self, now: Mono) {
        let wasted = &mut self.books.wasted;
        self.lots.retain(|lot| {
            let lives = lot.ends > now;
            *wasted += if lives { 0 } else { u64::from(lot.tokens) };
            lives
        });
    }

    fn waste_all(&mut self) {
        self.books.wasted += u64::from(self.held());
        self.lots.clear();
    }

    fn lasting(&self, now: Mono) -> u32 {
        let lasting = self.lots.iter().filter(|lot| lasts(lot, now));
        lasting.map(|lot| lot.tokens).sum()
    }

    fn lacked(&self) -> u32 {
        let lacked = self
            .lacks
            .iter()
            .fold(0_u32, |all, lack| all.saturating_add(*lack));
        lacked.min(LEASE_TOKENS_MAX)
    }

    /// Closes past windows into the moving average (seven parts old, one part new); a long silence reaches 0 in a
    /// bounded loop.
    fn roll_window(&mut self, now: Mono) {
        let window = now.0 >> WINDOW_BITS;
        if window <= self.window {
            return;
        }
        for _ in 0..(window - self.window).min(128) {
            self.demand = (self.demand * 7 + self.window_taken * DEMAND_SCALE) / 8;
            self.window_taken = 0;
        }
        self.window = window;
    }

    /// Tokens to hold: of the coming demand, but never less than what answers a quiet shard's first wish.
    fn target(&self) -> u32 {
        let ahead = self.demand.saturating_mul(WINDOWS_AHEAD) / DEMAND_SCALE;
        let shards = u64::try_from(self.lacks.len()).unwrap_or(u64::MAX);
        let of_rate = self.per_second() / QUIET_PART;
        let quiet = (u64::from(LEASE_TOKENS_MIN) * shards).min(of_rate).max(1);
        ahead.clamp(quiet, u64::from(LEASE_TOKENS_MAX)) as u32 // a u32 by the clamp
    }

    fn per_second(&self) -> u64 {
        let per_s = u128::from(self.rate.tokens) * u128::from(NS_PER_S);
        let per_s = per_s / u128::from(self.rate.per_ns.max(1));
        u64::try_from(per_s).unwrap_or(u64::MAX)
    }

    /// The time in which twice as many come in as there were.
    fn pause_ms(&self, tokens: u32) -> u64 {
        let ns = 2 * u128::from(tokens) * u128::from(self.rate.per_ns);
        let ns = ns / u128::from(self.rate.tokens.max(1));
        let ms = u64::try_from(ns / u128::from(NS_PER_MS)).unwrap_or(u64::MAX);
        ms.clamp(POOL_PAUSE_MS_MIN, POOL_PAUSE_MS_MAX)
    }
}

fn lasts(lot: &Lot, now: Mono) -> bool {
    lot.ends > now.plus_ms(POOL_LASTING_MS)
}
