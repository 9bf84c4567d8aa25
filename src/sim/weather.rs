//! The faults of all that travels, and what can be seen there: tokens granted, asks per user.
//!
//! Mail between owner and store, and between worker and order store, is never lost: those parts share a process and only
//! a crash loses it. All other mail may be lost, doubled or delayed.

use super::plan::{Plan, Weather};
use super::tally::{Fault, Faults as Counts, Sin, SinKind};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use weir_core::ask::LedgerOp;
use weir_core::limit::gcra::Rate;
use weir_core::limit::lease::{LeaseGrant, ShardId};
use weir_core::limits::BUDGET_BURST_MS;
use weir_core::mail::{Addr, Mail};
use weir_core::rng::Rng;
use weir_core::time::{Mono, NS_PER_MS, Now};
use weir_io::sim::{Dial, DialFate, Faults, MailFate, Route, SegmentFate};
use weir_proto::ids::{SkuKey, UserId};

/// What of one budget was seen to leave the owner.
struct Granted {
    since: Mono,
    tokens: u64,
    /// Draws seen: each counts once.
    seen: BTreeMap<(u64, u64), ()>,
}

/// What the weather knows; shared with the director.
pub(super) struct Sky {
    plan: Arc<Plan>,
    rates: Weather,
    calm: bool,
    pub counts: Counts,
    pub sins: Vec<Sin>,
    granted: BTreeMap<(SkuKey, u64), Granted>,
    /// Reserves per shard and user of a shard's run: count, first.
    asked: BTreeMap<(ShardId, UserId, SkuKey), (u64, Mono)>,
}

impl Sky {
    pub fn new(plan: Arc<Plan>) -> Self {
        Self {
            rates: plan.weather,
            plan,
            calm: false,
            counts: Counts::default(),
            sins: Vec::new(),
            granted: BTreeMap::new(),
            asked: BTreeMap::new(),
        }
    }

    /// No fault from now on.
    pub fn calm(&mut self) {
        self.calm = true;
    }

    /// A shard begins a new run with full limits.
    pub fn shard_restarts(&mut self, shard: ShardId) {
        self.asked.retain(|(of, ..), _| *of != shard);
    }

    /// Units per `rate` in `ns`, rounded up.
    fn at_rate(rate: Rate, ns: u64) -> u64 {
        let tokens = u128::from(rate.tokens) * u128::from(ns);
        tokens.div_ceil(u128::from(rate.per_ns)) as u64
    }

    fn sees(&mut self, now: Now, route: Route, mail: &Mail) {
        match (route.from, mail) {
            (Addr::Owner, Mail::LeaseGrant(grant)) => self.sees_grant(now, grant),
            (Addr::Shard(shard), Mail::Ask(ask)) => {
                if let LedgerOp::Reserve(reserve) = ask.op {
                    self.sees_reserve(now, shard, (reserve.user, reserve.sku));
                }
            }
            _ => {}
        }
    }

    /// granted ≤ rate × time + burst, for any loss, repetition or crash (requirement D3).
    fn sees_grant(&mut self, now: Now, grant: &LeaseGrant) {
        let entry = self
            .granted
            .entry((grant.sku, grant.owner_boot))
            .or_insert_with(|| Granted {
                since: now.mono,
                tokens: 0,
                seen: BTreeMap::new(),
            });
        let draw = (grant.shard_boot, grant.seq);
        if entry.seen.insert(draw, ()).is_none() {
            entry.tokens += u64::from(grant.tokens);
        }
        let Some((_, sku)) = self.plan.sale.sku(grant.sku) else {
            return;
        };
        let ns = now.mono.since(entry.since) + 2 * BUDGET_BURST_MS * NS_PER_MS;
        let most = Self::at_rate(sku.budget, ns) + 1;
        if entry.tokens > most {
            let what = format!(
                "budget of {:?}: {} tokens granted, {most} allowed by then",
                grant.sku, entry.tokens
            );
            self.sins.push(Sin::new(SinKind::Broken, what));
        }
    }

    /// Reserves of a user on one run of a shard ≤ burst + rate × time.
    fn sees_reserve(&mut self, now: Now, shard: ShardId, who: (UserId, SkuKey)) {
        let policy = *self.plan.shard.user.rule.policy();
        let (count, first) = self
            .asked
            .entry((shard, who.0, who.1))
            .or_insert((0, now.mono));
        *count += 1;
        let most =
            u64::from(policy.capacity()) + Self::at_rate(policy.rate(), now.mono.since(*first));
        if *count > most {
            let what = format!("user limit: {count} asks on {shard:?}, {most} allowed by then");
            self.sins.push(Sin::new(SinKind::Broken, what));
        }
    }
}

/// The hook that the world asks.
pub(super) struct Wind(pub Rc<RefCell<Sky>>);

impl Faults for Wind {
    fn mail(&mut self, now: Now, route: Route, mail: &Mail, rng: &mut Rng) -> MailFate {
        let mut sky = self.0.borrow_mut();
        sky.sees(now, route, mail);
        let is_inside = |addr| matches!(addr, Addr::Store | Addr::OrderStore);
        if sky.calm || is_inside(route.from) || is_inside(route.to) {
            return MailFate::Deliver { delay_ns: 0 };
        }
        let draw = rng.below(1_000);
        let rates = sky.rates;
        let most_ns = rates.mail_delay_ms_max * NS_PER_MS;
        if draw < rates.mail_lost {
            sky.counts.count(Fault::MailLost);
            MailFate::Lose
        } else if draw < rates.mail_lost + rates.mail_doubled {
            sky.counts.count(Fault::MailDoubled);
            let again_ns = rng.below(most_ns);
            MailFate::Duplicate { again_ns }
        } else if draw < rates.mail_lost + rates.mail_doubled + rates.mail_delayed {
            sky.counts.count(Fault::MailDelayed);
            let delay_ns = rng.below(most_ns);
            MailFate::Deliver { delay_ns }
        } else {
            MailFate::Deliver { delay_ns: 0 }
        }
    }

    fn dial(&mut self, _now: Now, _dial: Dial, rng: &mut Rng) -> DialFate {
        let mut sky = self.0.borrow_mut();
        if sky.calm {
            return DialFate::Pass;
        }
        let (draw, rates) = (rng.below(1_000), sky.rates);
        if draw < rates.dial_refused {
            sky.counts.count(Fault::DialRefused);
            DialFate::Refuse
        } else if draw < rates.dial_refused + rates.dial_dropped {
            sky.counts.count(Fault::DialDropped);
            DialFate::Drop
        } else {
            DialFate::Pass
        }
    }

    fn segment(&mut self, _now: Now, _route: Route, _bytes: usize, rng: &mut Rng) -> SegmentFate {
        let mut sky = self.0.borrow_mut();
        if sky.calm {
            return SegmentFate::Pass { delay_ns: 0 };
        }
        let (draw, rates) = (rng.below(1_000), sky.rates);
        if draw < rates.conn_reset {
            sky.counts.count(Fault::ConnReset);
            SegmentFate::Reset
        } else if draw < rates.conn_reset + rates.segment_delayed {
            sky.counts.count(Fault::SegmentDelayed);
            let delay_ns = rng.below(300 * NS_PER_MS);
            SegmentFate::Pass { delay_ns }
        } else {
            SegmentFate::Pass { delay_ns: 0 }
        }
    }
}
