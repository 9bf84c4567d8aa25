//! This instance's part of every budget: drawn from the buckets in Redis ahead of need, given to the shards (D2-D6, J6).
//!
//! Owned by the clerk. Of each SKU there is a bucket that all instances share, a pool of what was drawn of it, and a book
//! that paces what leaves the pool and shares it out. The buckets may be at another Redis than the stock (D5). Invariants:
//! no more is handed out than was drawn; one draw of a SKU is on its way at most, and one without an answer is sent again
//! with its number; a bucket that is not there admits nothing; a newer policy than ours is followed, never overwritten.

use super::ClerkConfig;
use crate::limit::book::{LeaseBook, Prepaid};
use crate::limit::gcra::Rate;
use crate::limit::lease::{LeaseDraw, LeaseGrant, LeaseReturn};
use crate::limit::pool::TokenPool;
use crate::limits::{
    BUCKET_POLICY_EVERY_MS, LEASE_SOLD_OUT_MS, POOL_AGAIN_MS, POOL_REFUSED_MS, POOL_RETURN_MS,
};
use crate::mail::{Addr, BudgetChange, Mail};
use crate::port::{ConnId, ConnectError, ConnectToken, Effects, Input};
use crate::redis::desk::{Desk, DeskConfig, News, Pull};
use crate::redis::endpoint::Endpoint;
use crate::redis::lease::{
    BudgetStep, BudgetTold, Drawn, LeasePolicy, LeaseSteps, PolicySet, PolicyTold, rate_milli,
};
use crate::stats::{Label, Sample};
use crate::time::{Mono, Now};
use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;
use weir_proto::ids::SkuKey;

/// Connects of the limiter's desk are numbered above this: no process makes as many to the ledger's.
const LIMITER_CONNECTS: u64 = 1 << 48;

/// How this instance shares budgets with others.
#[derive(Clone, Debug)]
pub struct LeaseConfig {
    /// The same over restarts and no other's, 1..=64 visible ASCII bytes.
    pub instance: String,
    /// Of the sale's budgets and `weights`: a bucket takes no older one.
    pub version: u64,
    /// Its share of demand, 1..=1000.
    pub weight: u32,
    /// The sum over all instances, `weight`..=[`crate::limits::BUCKET_WEIGHTS_MAX`].
    pub weights: u32,
    /// Where the buckets are; `None`: where the stock is.
    pub limiter: Option<DeskConfig>,
}

/// One SKU's budget.
#[derive(Debug)]
struct Line {
    frames: LeaseSteps,
    pool: TokenPool,
    book: LeaseBook,
    /// As this instance was configured, or told by its operator.
    own: LeasePolicy,
    /// The newest that is known: ours, or one that was found in Redis.
    policy: LeasePolicy,
    /// What the book paces by.
    paced: Rate,
    policy_due: Mono,
    policy_out: bool,
    return_out: bool,
    /// The bucket was there at the last answer.
    is_open: bool,
    /// Another process draws under this instance's name, or the bucket remembers no more instances.
    is_refused: bool,
    /// A shard has drawn: a process that only makes orders has none that does.
    is_asked: bool,
    /// There is something to sell, and a server to ask for it.
    is_served: bool,
    /// The buckets' server could be asked at the last look.
    was_reachable: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Leases {
    lines: Vec<Line>,
    limiter: Option<Desk>,
    /// Draining: unspent tokens go back until then at the latest.
    returning_until: Option<Mono>,
}

impl Leases {
    /// # Panics
    /// When a budget cannot be enforced exactly: the configuration check refuses that before.
    pub fn new(now: Now, config: &ClerkConfig) -> Self {
        let leases = &config.leases;
        let limiter = leases.limiter.as_ref().map(|limiter| {
            let mut desk = Desk::new(limiter.clone(), &config.plans);
            desk.number_connects_above(LIMITER_CONNECTS);
            desk
        });
        let lines = config.plans.iter().map(|plan| {
            let of_sale = config.sale.sku(plan.sku);
            let (_, spec) = of_sale.expect("each plan is of a SKU of the sale");
            let (rate, shards) = (spec.budget, config.shards_count);
            let book = LeaseBook::new(now.mono, config.boot, rate, shards);
            let own = LeasePolicy {
                version: leases.version,
                rate,
                weights: leases.weights,
            };
            let weight = leases.weight;
            Line {
                frames: LeaseSteps::new(plan.sku, &leases.instance),
                pool: TokenPool::new(now.mono, plan.sku, config.boot, weight, rate, shards),
                book: book.expect("the configuration check refuses what cannot be enforced"),
                own,
                policy: own,
                paced: rate,
                policy_due: Mono(0),
                policy_out: false,
                return_out: false,
                is_open: false,
                is_refused: false,
                is_asked: false,
                is_served: false,
                was_reachable: false,
            }
        });
        Self {
            lines: lines.collect(),
            limiter,
            returning_until: None,
        }
    }

    fn find(&mut self, sku: SkuKey) -> Option<&mut Line> {
        self.lines.iter_mut().find(|line| line.frames.sku() == sku)
    }

    /// Whether there is something to sell of the SKU, and a server to ask for it: without, nothing is drawn.
    pub fn serve(&mut self, sku: SkuKey, is_served: bool) {
        if let Some(line) = self.find(sku) {
            line.is_served = is_served;
        }
    }

    /// The SKU's stock can be asked for again: its budget climbs from nothing, for what waited meanwhile must not come all
    /// at once.
    pub fn climb_anew(&mut self, now: Now, sku: SkuKey) {
        if let Some(line) = self.find(sku) {
            line.book.climb_anew(now.mono);
        }
    }

    /// Answers a shard's draw from what is there.
    pub fn draw(&mut self, now: Now, draw: &LeaseDraw) -> Option<LeaseGrant> {
        let line = self.find(draw.sku)?;
        line.is_asked = true;
        if !line.is_served {
            let nothing = Prepaid {
                tokens: 0,
                ends: now.mono,
            };
            let (grant, _) = line.book.draw_prepaid(now.mono, draw, nothing)?;
            return Some(LeaseGrant {
                retry_ms: LEASE_SOLD_OUT_MS,
                ..grant
            });
        }
        let offer = line.pool.offer(now.mono, draw.want);
        let (grant, taken) = line.book.draw_prepaid(now.mono, draw, offer)?;
        let lacked = draw.want.saturating_sub(offer.tokens);
        line.pool.hand(now.mono, draw.shard, taken, lacked);
        Some(grant)
    }

    /// A shard ends.
    pub fn give_back(&mut self, now: Now, back: &LeaseReturn) {
        if let Some(line) = self.find(back.sku) {
            let (tokens, ends) = line.book.give_back(now.mono, back);
            if let Some(ends) = ends.filter(|_| tokens > 0) {
                line.pool.came_back(now.mono, tokens, ends);
            }
        }
    }

    /// An operator's change, if it is newer than what is known; the other instances find it in the bucket.
    pub fn change(&mut self, now: Now, change: &BudgetChange) {
        let line = self.find(change.sku);
        let Some(line) = line.filter(|line| change.version > line.policy.version) else {
            return;
        };
        line.own = LeasePolicy {
            version: change.version,
            rate: change.rate,
            weights: change.weights.unwrap_or(line.policy.weights),
        };
        line.policy = line.own;
        line.policy_due = now.mono;
        line.pace(now);
    }

    /// The process ends: what is unspent goes back.
    pub fn drain(&mut self, now: Now) {
        let until = now.mono.plus_ms(POOL_RETURN_MS);
        self.returning_until.get_or_insert(until);
    }

    /// True when nothing is left that could go back, or it has had its time.
    pub fn is_over(&self, now: Now) -> bool {
        let has_had_time = self.returning_until.is_none_or(|until| until <= now.mono);
        let is_empty = |line: &Line| line.pool.held() == 0 && !line.return_out;
        has_had_time || self.lines.iter().all(is_empty)
    }

    /// The limiter's connections end.
    pub fn close(&mut self, fx: &mut Effects) {
        if let Some(limiter) = &mut self.limiter {
            limiter.close(fx);
        }
    }

    /// Sends what is due: policies, draws, at the end returns; and the limiter's own timed work. `ledger`: the desk of the
    /// stock, where the buckets are if they are nowhere else.
    pub fn turn(&mut self, now: Now, ledger: &mut Desk, fx: &mut Effects) {
        if let Some(limiter) = &mut self.limiter {
            limiter.turn(now, fx);
        }
        self.deliver(now, fx);
        let is_returning = self.returning_until.is_some();
        let desk = self.limiter.as_mut().unwrap_or(ledger);
        for line in &mut self.lines {
            if is_returning {
                line.give_all_back(now, desk, fx);
            } else {
                line.turn(now, desk, fx);
            }
        }
    }

    /// What the limiter's desk heard.
    fn deliver(&mut self, now: Now, fx: &mut Effects) {
        while let Some(news) = self.limiter.as_mut().and_then(Desk::next_news) {
            match news {
                News::Resolve(endpoint) => fx.post(Addr::Resolver, Mail::ResolveAsk(endpoint)),
                news => self.hear(now, &news),
            }
        }
    }

    /// What a desk heard of buckets.
    pub fn hear(&mut self, now: Now, news: &News) {
        match news {
            News::Budget(sku, told) => {
                if let Some(line) = self.find(*sku) {
                    line.told(now, told);
                }
            }
            News::PullLost(sku, Pull::Budget(step)) => {
                if let Some(line) = self.find(*sku) {
                    line.lost(now, step);
                }
            }
            News::Greeted => {
                for line in &mut self.lines {
                    line.policy_due = now.mono; // whether the bucket is still there is not known
                    line.pool.hurry(now.mono);
                }
            }
            _ => {} // of the stock
        }
    }

    /// Looks whether the buckets' server can be asked; one that comes back lets its budgets climb anew.
    pub fn watch_reach(&mut self, now: Now) {
        let Some(limiter) = &self.limiter else {
            return;
        };
        for line in &mut self.lines {
            let is_reachable = limiter.can_ask(now, line.frames.sku());
            if is_reachable && !line.was_reachable {
                line.book.climb_anew(now.mono);
            }
            line.was_reachable = is_reachable;
        }
    }

    /// When [`Self::turn`] has something to do.
    pub fn next_deadline(&self) -> Option<Mono> {
        let lines = self.lines.iter();
        let lines = lines.filter_map(|line| {
            let policy = (!line.policy_out).then_some(line.policy_due);
            let draw = line.pool.next_deadline().filter(|_| line.is_served);
            policy.into_iter().chain(draw).min()
        });
        let limiter = self.limiter.as_ref().and_then(Desk::next_deadline);
        lines.chain(limiter).chain(self.returning_until).min()
    }

    /// A connect succeeded.
    pub fn connected(&mut self, now: Now, conn: ConnId, token: ConnectToken, fx: &mut Effects) {
        if let Some(limiter) = &mut self.limiter {
            limiter.connected(now, conn, token, fx);
        }
    }

    /// A connect failed.
    pub fn connect_failed(&mut self, now: Now, token: ConnectToken, error: ConnectError) {
        if let Some(limiter) = &mut self.limiter {
            limiter.connect_failed(now, token, error);
        }
    }

    /// Bytes came.
    pub fn received(&mut self, now: Now, conn: ConnId, input: &mut Input<'_>, fx: &mut Effects) {
        if let Some(limiter) = &mut self.limiter {
            limiter.received(now, conn, input, fx);
        }
    }

    /// A connection is gone.
    pub fn closed(&mut self, now: Now, conn: ConnId, fx: &mut Effects) {
        if let Some(limiter) = &mut self.limiter {
            limiter.closed(now, conn, fx);
        }
    }

    /// A name's address was found, or not.
    pub fn resolved(&mut self, now: Now, endpoint: &Endpoint, to: Option<SocketAddr>) {
        if let Some(limiter) = &mut self.limiter {
            limiter.resolved(now, endpoint, to);
        }
    }

    /// The counters. `ledger`: as in [`Self::turn`].
    pub fn put(&self, now: Now, ledger: &Desk, samples: &mut Vec<Sample>) {
        let desk = self.limiter.as_ref().unwrap_or(ledger);
        let mut put = |name, label, value| samples.push(Sample { name, label, value });
        let unknown = desk.counts().draws_unknown;
        put("weir_limiter_result_unknown_total", Label::None, unknown);
        let refused = self.lines.iter().any(|line| line.is_refused);
        put("weir_lease_refused", Label::None, u64::from(refused));
        for line in &self.lines {
            let label = Label::Sku(line.frames.sku());
            let is_reachable = desk.can_ask(now, line.frames.sku());
            let is_followed = line.policy.version != line.own.version
                || rate_milli(line.policy.rate) != rate_milli(line.own.rate)
                || line.policy.weights != line.own.weights;
            let (book, pool) = (line.book.counts(), line.pool.books());
            for (name, value) in [
                ("weir_lease_tokens_granted_total", book.granted),
                ("weir_lease_tokens_returned_total", book.returned),
                ("weir_lease_tokens_void_total", book.void),
                ("weir_lease_draws_stale_total", book.stale_draws),
                ("weir_instance_draws_total", pool.draws),
                ("weir_instance_tokens_drawn_total", pool.drawn),
                ("weir_instance_tokens_returned_total", pool.returned),
                ("weir_instance_tokens_wasted_total", pool.wasted),
                ("weir_instance_tokens_held", u64::from(line.pool.held())),
                ("weir_budget_reachable", u64::from(is_reachable)),
                ("weir_budget_open", u64::from(line.is_open)),
                ("weir_budget_policy_version", line.policy.version),
                ("weir_budget_policy_followed", u64::from(is_followed)),
                ("weir_budget_weights", u64::from(line.policy.weights)),
                ("seckill_admission_rate_limit", rate_milli(line.policy.rate)),
            ] {
                put(name, label, value);
            }
        }
    }
}

impl Line {
    fn turn(&mut self, now: Now, desk: &mut Desk, fx: &mut Effects) {
        let is_policy_due = !self.policy_out && self.policy_due <= now.mono;
        if !is_policy_due && !self.is_served {
            return;
        }
        if !desk.can_ask(now, self.frames.sku()) {
            self.policy_due = self.policy_due.max(now.mono.plus_ms(POOL_AGAIN_MS)); // a greeting makes it earlier
            return;
        }
        if is_policy_due {
            let step = BudgetStep::Policy(self.policy);
            self.policy_out = desk.step_budget(now, &self.frames, step, fx);
            self.policy_due = now.mono.plus_ms(POOL_AGAIN_MS);
        }
        // Without a bucket there is nothing to draw; whoever finds it missing sets the policy first.
        if self.is_served
            && self.is_asked
            && self.is_open
            && let Some(draw) = self.pool.want(now.mono)
            && !desk.step_budget(now, &self.frames, BudgetStep::Draw(draw), fx)
        {
            self.pool.lost(now.mono, POOL_AGAIN_MS);
        }
    }

    fn give_all_back(&mut self, now: Now, desk: &mut Desk, fx: &mut Effects) {
        if self.return_out || self.pool.is_asking() {
            return; // what is on its way comes first: it is given back, too
        }
        if let Some(back) = self.pool.give_back(now.mono) {
            self.return_out = desk.step_budget(now, &self.frames, BudgetStep::Return(back), fx);
        }
    }

    fn told(&mut self, now: Now, told: &BudgetTold) {
        match told {
            BudgetTold::Policy(told) => self.policy_told(now, told),
            BudgetTold::Draw(Drawn::Granted(grant)) => {
                self.is_refused = false;
                self.pool.grant(now.mono, grant);
            }
            BudgetTold::Draw(Drawn::NotOpen) => {
                self.is_open = false;
                self.policy_due = now.mono;
                self.pool.lost(now.mono, POOL_AGAIN_MS);
            }
            BudgetTold::Draw(Drawn::Stale | Drawn::Full) => {
                self.is_refused = true;
                self.pool.lost(now.mono, POOL_REFUSED_MS);
            }
            BudgetTold::Return(_) => self.return_out = false,
        }
    }

    fn policy_told(&mut self, now: Now, told: &PolicyTold) {
        self.policy_out = false;
        self.policy_due = now.mono.plus_ms(BUCKET_POLICY_EVERY_MS);
        let holds = told.holds;
        if holds.version < self.policy.version {
            self.policy_due = now.mono; // it answers one that was changed here meanwhile
        } else if told.set != PolicySet::Applied {
            self.policy = holds;
        }
        self.pace(now);
        if !core::mem::replace(&mut self.is_open, true) {
            self.pool.hurry(now.mono);
        }
    }

    /// Paces by the policy that holds. One that cannot be paced exactly here is left to the bucket alone.
    fn pace(&mut self, now: Now) {
        let own = self.own.rate;
        let rate = match rate_milli(own) == rate_milli(self.policy.rate) {
            true => own, // exactly as it was said
            false => self.policy.rate,
        };
        if rate != self.paced && self.book.set_rate(now.mono, rate).is_ok() {
            self.pool.set_rate(rate);
            self.paced = rate;
        }
    }

    fn lost(&mut self, now: Now, step: &BudgetStep) {
        match step {
            BudgetStep::Policy(_) => {
                self.policy_out = false;
                self.policy_due = now.mono.plus_ms(POOL_AGAIN_MS);
            }
            BudgetStep::Draw(_) => self.pool.lost(now.mono, POOL_AGAIN_MS),
            BudgetStep::Return(_) => self.return_out = false,
        }
    }
}
