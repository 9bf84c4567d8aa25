//! A shard's share of one SKU's budget: prepaid tokens, spent without asking anyone.
//!
//! Called by the admission pipeline (`take`), by each turn (`want`) and by mail (`grant`). The owner deducts tokens
//! before it sends them ([`super::book`]), so a lost message or a crash only admits fewer. Invariants: granted = spent
//! + returned + wasted + held; at most one draw is outstanding; none left = closed, and nobody waits in a request.

use super::lease::{LeaseDraw, LeaseGrant, LeaseReturn, ShardId};
use crate::limits::{LEASE_RENEW_MS, LEASE_RESEND_MS, LEASE_TOKENS_MAX, LEASE_TOKENS_MIN};
use crate::planted::{self, Planted};
use crate::time::{Mono, NS_PER_MS};
use weir_proto::ids::SkuKey;

/// Demand is counted in windows of 2^26 ns (67 ms), so that a window's number is a shift.
const WINDOW_BITS: u32 = 26;
/// A lease is sized for this many windows of demand (268 ms): several round trips to a busy owner.
const WINDOWS_AHEAD: u64 = 4;
/// Demand is kept in sixteenths, so that one request per second is not rounded to none.
const DEMAND_SCALE: u64 = 16;
/// Tokens per window that one step of weight stands for; 1,000 steps are 120,000 tokens per second.
const WEIGHT_STEP: u64 = 8;

#[derive(Clone, Copy, Debug, Default)]
struct Lease {
    tokens: u32,
    expires: Mono,
}

#[derive(Clone, Copy, Debug)]
struct Outstanding {
    draw: LeaseDraw,
    sent: Mono,
}

/// Where granted tokens went; each counter only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShareBooks {
    /// Received from the owner.
    pub granted: u64,
    /// Taken by requests.
    pub spent: u64,
    /// Given back.
    pub returned: u64,
    /// Void: expired here, or granted by an earlier run of the owner.
    pub wasted: u64,
}

/// The share.
#[derive(Clone, Debug)]
pub struct BudgetShare {
    shard: ShardId,
    sku: SkuKey,
    shard_boot: u64,
    owner_boot: u64,
    seq: u64,
    older: Lease,
    newer: Lease,
    outstanding: Option<Outstanding>,
    draw_not_before: Mono,
    window: u64,
    window_asks: u64,
    demand: u64,
    books: ShareBooks,
}

impl BudgetShare {
    /// An empty share. `shard_boot`: this run's number, different from every earlier run's.
    pub fn new(now: Mono, shard: ShardId, sku: SkuKey, shard_boot: u64) -> Self {
        Self {
            shard,
            sku,
            shard_boot,
            owner_boot: 0,
            seq: 0,
            older: Lease::default(),
            newer: Lease::default(),
            outstanding: None,
            draw_not_before: Mono(0),
            window: now.0 >> WINDOW_BITS,
            window_asks: 0,
            demand: 0,
            books: ShareBooks::default(),
        }
    }

    /// Takes `cost` tokens or none; counts as demand either way. False = closed for now, answer 503.
    #[must_use]
    pub fn take(&mut self, now: Mono, cost: u32) -> bool {
        self.roll_window(now);
        self.window_asks += u64::from(cost);
        self.expire(now);
        if self.held() < cost {
            return false;
        }
        let from_older = self.older.tokens.min(cost); // the older lease expires first
        self.older.tokens -= from_older;
        self.newer.tokens -= cost - from_older;
        self.books.spent += u64::from(cost);
        true
    }

    /// The draw to send now, if any: when less than half of the coming demand is held and none is outstanding; or the
    /// outstanding one again, unchanged, when its answer is overdue.
    pub fn want(&mut self, now: Mono) -> Option<LeaseDraw> {
        self.roll_window(now);
        self.expire(now);
        if let Some(outstanding) = &mut self.outstanding {
            if now < outstanding.sent.plus_ms(LEASE_RESEND_MS) {
                return None;
            }
            outstanding.sent = now;
            return Some(outstanding.draw);
        }
        let target = self.target();
        let lasting = self.lasting(now);
        if now < self.draw_not_before || lasting >= target.div_ceil(2) {
            return None;
        }
        self.seq += 1;
        let draw = LeaseDraw {
            shard: self.shard,
            sku: self.sku,
            shard_boot: self.shard_boot,
            seq: self.seq,
            want: target - lasting,
            weight: self.weight(),
        };
        self.outstanding = Some(Outstanding { draw, sent: now });
        Some(draw)
    }

    /// Books a grant. Ignored (false): of another run of this shard, of an earlier run of the owner, or not the answer
    /// to the outstanding draw, as a duplicate is.
    pub fn grant(&mut self, now: Mono, grant: &LeaseGrant) -> bool {
        let answers = |o: &Outstanding| {
            grant.seq == o.draw.seq && grant.sku == o.draw.sku && grant.tokens <= o.draw.want
        };
        let Some(outstanding) = self.outstanding.filter(answers) else {
            if planted::is(Planted::LeaseGrantTwice) && grant.shard_boot == self.shard_boot {
                self.books.granted += u64::from(grant.tokens);
                self.newer.tokens += grant.tokens;
            }
            return false;
        };
        if grant.shard_boot != self.shard_boot || grant.owner_boot < self.owner_boot {
            return false;
        }
        if grant.owner_boot > self.owner_boot {
            self.waste_all(); // an earlier run's tokens must not be returned to this one
            self.owner_boot = grant.owner_boot;
        }
        self.outstanding = None;
        if grant.tokens < outstanding.draw.want {
            self.draw_not_before = now.plus_ms(grant.retry_ms);
        }
        self.books.granted += u64::from(grant.tokens);
        let lease = Lease {
            tokens: grant.tokens,
            expires: outstanding.sent.plus_ms(grant.ttl_ms),
        };
        self.keep(now, lease);
        self.expire(now);
        true
    }

    /// Gives back everything held (shutdown, close, sold out); `None` when nothing is.
    pub fn give_back(&mut self, now: Mono) -> Option<LeaseReturn> {
        self.expire(now);
        let tokens = self.held();
        if tokens == 0 {
            return None;
        }
        if !planted::is(Planted::LeaseReturnKeeps) {
            self.older = Lease::default();
            self.newer = Lease::default();
        }
        self.books.returned += u64::from(tokens);
        let seq = self.seq - u64::from(self.outstanding.is_some()); // the last one that was granted
        Some(LeaseReturn {
            shard: self.shard,
            sku: self.sku,
            owner_boot: self.owner_boot,
            shard_boot: self.shard_boot,
            seq,
            tokens,
        })
    }

    /// When `want` may next have something to send, for the shard's deadline; `None` when nothing is pending.
    pub fn next_deadline(&self) -> Option<Mono> {
        match &self.outstanding {
            Some(outstanding) => Some(outstanding.sent.plus_ms(LEASE_RESEND_MS)),
            None => {
                // Until when what lasts is enough; the newer lease lives longer.
                let enough = self.target().div_ceil(2);
                let lasts_until = if self.newer.tokens >= enough {
                    self.newer.expires
                } else if self.held() >= enough {
                    self.older.expires
                } else {
                    Mono(0)
                };
                let renew_at = Mono(lasts_until.0.saturating_sub(LEASE_RENEW_MS * NS_PER_MS));
                Some(renew_at.max(self.draw_not_before))
            }
        }
    }

    /// Tokens that are not about to expire: a quiet share is renewed in time, so that the first buyer after a pause finds some.
    fn lasting(&self, now: Mono) -> u32 {
        let leases = [&self.older, &self.newer].into_iter();
        leases
            .filter(|lease| lease.expires > now.plus_ms(LEASE_RENEW_MS))
            .map(|lease| lease.tokens)
            .sum()
    }

    /// Tokens held; some may be found expired at the next `take`.
    pub const fn held(&self) -> u32 {
        self.older.tokens + self.newer.tokens
    }

    /// The counters.
    pub const fn books(&self) -> &ShareBooks {
        &self.books
    }

    /// Panics unless granted = spent + returned + wasted + held.
    pub fn audit(&self) {
        let ShareBooks {
            granted,
            spent,
            returned,
            wasted,
        } = self.books;
        assert_eq!(
            granted,
            spent + returned + wasted + u64::from(self.held()),
            "every prepaid token is accounted for"
        );
    }

    fn keep(&mut self, now: Mono, lease: Lease) {
        if self.newer.tokens > 0 && self.older.expires <= now.plus_ms(LEASE_RENEW_MS) {
            // Merging would take the newer one's life: what is about to expire is given up instead.
            self.books.wasted += u64::from(self.older.tokens);
            self.older = Lease::default();
        }
        if self.older.tokens == 0 {
            self.older = self.newer;
        } else if self.newer.tokens > 0 {
            self.older = Lease {
                tokens: self.older.tokens + self.newer.tokens,
                expires: self.older.expires.min(self.newer.expires), // strict: part of them could have lived longer
            };
        }
        self.newer = lease;
    }

    fn expire(&mut self, now: Mono) {
        for lease in [&mut self.older, &mut self.newer] {
            if lease.tokens > 0 && lease.expires <= now {
                self.books.wasted += u64::from(lease.tokens);
                lease.tokens = 0;
            }
        }
    }

    fn waste_all(&mut self) {
        self.books.wasted += u64::from(self.held());
        self.older = Lease::default();
        self.newer = Lease::default();
    }

    /// Closes past windows into the moving average (three parts old, one part new); a long silence reaches 0 in a bounded loop.
    fn roll_window(&mut self, now: Mono) {
        let window = now.0 >> WINDOW_BITS;
        if window <= self.window {
            return;
        }
        for _ in 0..(window - self.window).min(64) {
            self.demand = (self.demand * 3 + self.window_asks * DEMAND_SCALE) / 4;
            self.window_asks = 0;
        }
        self.window = window;
    }

    /// Tokens asked for per window: the average, or the present window when it is already above it.
    fn demand_per_window(&self) -> u64 {
        self.demand.div_ceil(DEMAND_SCALE).max(self.window_asks)
    }

    fn target(&self) -> u32 {
        let ahead = self.demand_per_window().saturating_mul(WINDOWS_AHEAD);
        ahead.clamp(u64::from(LEASE_TOKENS_MIN), u64::from(LEASE_TOKENS_MAX)) as u32 // a u32 by the clamp
    }

    fn weight(&self) -> u32 {
        self.demand_per_window()
            .div_ceil(WEIGHT_STEP)
            .clamp(1, 1000) as u32 // by the clamp
    }
}
