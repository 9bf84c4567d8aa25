//! The faults of all that travels, and what can be seen there: tokens granted, asks per user.
//!
//! Mail between owner and store, and between worker and order store, is never lost: those parts share a process and only
//! a crash loses it. All other mail may be lost, doubled or delayed.

use super::afar::Afar;
use super::marks::{Happened, Marks};
use super::plan::{Plan, Weather};
use super::tally::{Fault, Faults as Counts, Sin, SinKind};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use weir_core::ask::{Failure, LedgerOp, Outcome, Reserve};
use weir_core::ledger::owner::Owner;
use weir_core::limit::book::BookCounts;
use weir_core::limit::gcra::Rate;
use weir_core::limit::lease::{LeaseDraw, LeaseGrant, LeaseReturn};
use weir_core::limit::rule::{Kind, Rule};
use weir_core::limits::BUDGET_BURST_MS;
use weir_core::mail::{Addr, Mail};
use weir_core::order::contract::OrderBatch;
use weir_core::redis::clerk::Clerk;
use weir_core::rng::Rng;
use weir_core::shard::Shard;
use weir_core::time::{Mono, NS_PER_MS, Now, WallMs};
use weir_core::view::SkuView;
use weir_io::sim::{Dial, DialFate, Faults, MailFate, Route, Seat, SegmentFate};
use weir_proto::ids::{SkuKey, UserId};

/// What of one budget was seen to leave the owner.
struct Granted {
    since: Mono,
    tokens: u64,
    /// Draws seen, and the most that each was answered with: a shard takes one of its answers.
    seen: BTreeMap<(u64, u64), u64>,
}

/// What the weather knows; shared with the director.
pub(super) struct Sky {
    plan: Arc<Plan>,
    rates: Weather,
    calm: bool,
    pub counts: Counts,
    pub sins: Vec<Sin>,
    granted: BTreeMap<(SkuKey, u64), Granted>,
    /// Tokens granted to each run of a shard.
    granted_to: BTreeMap<(SkuKey, u64), u64>,
    /// Tokens that came back to each run of the owner, and the returns seen: each counts once.
    returned: BTreeMap<(SkuKey, u64), u64>,
    returns: BTreeMap<(SkuKey, u64, u64), ()>,
    /// The newest draw of each run of a shard.
    drawn: BTreeMap<(SkuKey, u64), u64>,
    /// Reserves of a shard's run that somebody or something limits: count, first.
    asked: BTreeMap<(Seat, Limited), (u64, Mono)>,
    /// The newest view of each SKU that left the owner of each machine.
    views: BTreeMap<(u16, SkuKey), Shown>,
    /// What only a ledger in Redis shows.
    pub afar: Afar,
    /// The worker's run and its last batch's time.
    worked: (u64, WallMs),
    pub marks: Marks,
}

/// What a limit of a shard counts by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Limited {
    User(UserId, SkuKey),
    Device(u64, SkuKey),
    Instance,
}

/// A view as it was shown.
#[derive(Clone, Copy, Debug)]
struct Shown {
    version: (u64, u64),
    epoch: u64,
    sold_out: bool,
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
            granted_to: BTreeMap::new(),
            returned: BTreeMap::new(),
            returns: BTreeMap::new(),
            drawn: BTreeMap::new(),
            asked: BTreeMap::new(),
            views: BTreeMap::new(),
            afar: Afar::default(),
            worked: (0, WallMs(0)),
            marks: Marks::default(),
        }
    }

    /// No fault from now on.
    pub fn calm(&mut self) {
        self.calm = true;
        self.afar.calm();
    }

    /// A shard begins a new run with full limits.
    pub fn shard_restarts(&mut self, shard: Seat) {
        self.asked.retain(|(of, _), _| *of != shard);
    }

    /// Units per `rate` in `ns`, rounded up.
    fn at_rate(rate: Rate, ns: u64) -> u64 {
        let tokens = u128::from(rate.tokens) * u128::from(ns);
        tokens.div_ceil(u128::from(rate.per_ns)) as u64
    }

    /// Tokens that the rate of a SKU's budget gives in `ns`.
    pub fn budget_after(&self, sku: SkuKey, ns: u64) -> u64 {
        let found = self.plan.sale.sku(sku);
        found.map_or(0, |(_, sku)| Self::at_rate(sku.budget, ns))
    }

    fn sees(&mut self, now: Now, route: Route, mail: &Mail) {
        let seat = route.from;
        match (seat.addr, mail) {
            (Addr::Owner, Mail::LeaseGrant(grant)) => self.sees_grant(now, grant),
            (Addr::Shard(_), Mail::Ask(ask)) => {
                if let LedgerOp::Reserve(reserve) = ask.op {
                    self.sees_reserve(now, seat, &reserve);
                }
                self.afar.sees_ask(seat, ask, &mut self.marks);
            }
            (Addr::Shard(_), Mail::LeaseDraw(draw)) => self.sees_draw(draw),
            (Addr::Shard(_), Mail::LeaseReturn(back)) => self.sees_return(back),
            (Addr::Owner, Mail::Answer(answer)) => {
                self.sees_outcome(answer.outcome);
                self.afar.sees_answer(route.to, answer, &mut self.marks);
            }
            (Addr::Owner, Mail::View(view)) => self.sees_view(seat.machine, view),
            (Addr::Owner, Mail::Reserved(messages)) => {
                self.afar.sees_outbox(messages, &mut self.marks);
            }
            (Addr::Store, Mail::Recovered(image)) => {
                let how = match image.snapshot {
                    Some(_) => Happened::FromSnapshot,
                    None => Happened::FromBatches,
                };
                self.marks.happened(how, 1);
            }
            (Addr::Worker, Mail::Orders(batch)) => self.sees_batch(batch),
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
        let most = entry.seen.entry(draw).or_default();
        let more = u64::from(grant.tokens).saturating_sub(*most);
        *most += more;
        entry.tokens += more;
        let to = self.granted_to.entry((grant.sku, grant.shard_boot));
        *to.or_default() += more;
        let happened = match grant.tokens {
            0 => Happened::LeaseDry,
            _ => Happened::LeaseGranted,
        };
        self.marks.happened(happened, 1);
        let Some((_, sku)) = self.plan.sale.sku(grant.sku) else {
            return;
        };
        let ns = now.mono.since(entry.since) + 2 * BUDGET_BURST_MS * NS_PER_MS;
        let back = self.returned.get(&(grant.sku, grant.owner_boot));
        let back = back.copied().unwrap_or(0);
        let drawn = self.afar.drawn(grant.sku, grant.owner_boot);
        let most = Self::at_rate(sku.budget, ns) + 1 + back;
        let most = drawn.map_or(most, |drawn| most.min(drawn + back));
        if entry.tokens > most {
            let what = format!(
                "budget of {:?}: {} tokens granted, {most} allowed by then",
                grant.sku, entry.tokens
            );
            self.sins.push(Sin::new(SinKind::Broken, what));
        }
    }

    /// Reserves of a user, of a device, of all on one run of a shard: each ≤ burst + rate × time, or what else its rule says.
    fn sees_reserve(&mut self, now: Now, shard: Seat, reserve: &Reserve) {
        let plan = Arc::clone(&self.plan);
        let user = Limited::User(reserve.user, reserve.sku);
        self.counts_as(now, shard, user, &plan.shard.user.rule);
        if let Some(device) = plan.device(reserve.user) {
            let device = Limited::Device(device, reserve.sku);
            self.counts_as(now, shard, device, &plan.shard.device.rule);
        }
        let instance = Rule::gcra(plan.shard.instance);
        self.counts_as(now, shard, Limited::Instance, &instance);
    }

    fn counts_as(&mut self, now: Now, shard: Seat, who: Limited, rule: &Rule) {
        let fresh = (0, now.mono);
        let (count, first) = self.asked.entry((shard, who)).or_insert(fresh);
        *count += 1;
        let elapsed_ns = now.mono.since(*first);
        let policy = rule.policy();
        let bursts = match rule.kind() {
            Kind::Gcra | Kind::LeakyBucket | Kind::SlidingLog => 1,
            Kind::FixedWindow | Kind::SlidingCounter => 2,
        };
        let most = bursts * u64::from(policy.capacity()) + Self::at_rate(policy.rate(), elapsed_ns);
        if *count > most {
            let what = format!("{who:?}: {count} asks on {shard:?}, {most} allowed by then");
            self.sins.push(Sin::new(SinKind::Broken, what));
        }
    }

    fn sees_draw(&mut self, draw: &LeaseDraw) {
        let before = self.drawn.insert((draw.sku, draw.shard_boot), draw.seq);
        let happened = if before == Some(draw.seq) {
            Happened::LeaseDrawnAgain
        } else {
            Happened::LeaseDrawn
        };
        self.marks.happened(happened, 1);
    }

    fn sees_return(&mut self, back: &LeaseReturn) {
        self.marks.happened(Happened::LeaseReturned, 1);
        let name = (back.sku, back.shard_boot, back.seq);
        if self.returns.insert(name, ()).is_none() {
            *self
                .returned
                .entry((back.sku, back.owner_boot))
                .or_default() += u64::from(back.tokens);
        }
    }

    fn sees_outcome(&mut self, outcome: Outcome) {
        let happened = match outcome {
            Outcome::Done(_) | Outcome::Failed(Failure::UnknownSku) => return,
            Outcome::Failed(Failure::Unavailable) => Happened::AskUnavailable,
            Outcome::Failed(Failure::Frozen) => Happened::AskFrozen,
            Outcome::Failed(Failure::Late) => Happened::AskLate,
            Outcome::Failed(Failure::Poisoned) => Happened::AskPoisoned,
            Outcome::Failed(Failure::Recovering) => Happened::AskRecovering,
            Outcome::Failed(Failure::Busy) => Happened::AskBusy,
            Outcome::Unknown => Happened::AskUnknown,
        };
        self.marks.happened(happened, 1);
    }

    /// Sold-out and reopening each have an epoch of their own (E1). A poisoned view says nothing of stock.
    fn sees_view(&mut self, machine: u16, view: &SkuView) {
        let shown = Shown {
            version: (view.boot, view.version),
            epoch: view.stock_epoch,
            sold_out: view.sold_out,
        };
        let before = self.views.get(&(machine, view.sku)).copied();
        if view.poisoned || before.is_some_and(|before| before.version >= shown.version) {
            return;
        }
        self.views.insert((machine, view.sku), shown);
        let is_mute = self.plan.redis.as_ref().is_some_and(|redis| redis.is_mute);
        if shown.sold_out && before.is_some_and(|before| !before.sold_out) {
            let how = match is_mute {
                true => Happened::SoldOutPulled,
                false => Happened::SoldOutHeard,
            };
            self.marks.happened(how, 1);
        }
        let is_follower =
            |before: &Shown| before.version.0 == shown.version.0 || !self.afar.is_replaced;
        if let Some(before) = before.filter(is_follower)
            && before.sold_out != shown.sold_out
            && before.epoch >= shown.epoch
        {
            let what = format!("{:?} was shown as {shown:?} after {before:?}", view.sku);
            self.sins.push(Sin::new(SinKind::Broken, what));
        }
    }

    /// Within a run of the worker stored time does not run back (design §12.14).
    fn sees_batch(&mut self, batch: &OrderBatch) {
        let run = batch.seq >> 40; // the run's number is above the batches'
        let (known, last) = self.worked;
        if known == run && batch.at < last {
            let what = format!(
                "the worker's batch of {:?} follows one of {last:?}",
                batch.at
            );
            self.sins.push(Sin::new(SinKind::Broken, what));
        }
        self.worked = (run, batch.at);
    }

    /// What a shard has received and used of its budgets, against what was sent to it.
    pub fn sees_shard(&mut self, shard: &Shard) {
        for (sku, books) in shard.budgets() {
            let granted = self
                .granted_to
                .get(&(sku, shard.boot()))
                .copied()
                .unwrap_or(0);
            if books.granted > granted {
                let got = books.granted;
                let what = format!("a shard counts {got} tokens of {sku:?}, {granted} were sent");
                self.sins.push(Sin::new(SinKind::Broken, what));
            }
        }
    }

    /// What the owner has credited of what came back.
    pub fn sees_owner(&mut self, owner: &Owner) {
        for (sku, counts) in owner.lease_counts() {
            let returned = self
                .returned
                .get(&(sku, owner.boot()))
                .copied()
                .unwrap_or(0);
            if counts.returned > returned {
                let credited = counts.returned;
                let what = format!("{credited} tokens of {sku:?} credited, {returned} came back");
                self.sins.push(Sin::new(SinKind::Broken, what));
            }
        }
    }

    /// The counters of a shard that ends.
    pub fn shard_ends(&mut self, shard: &Shard) {
        self.sees_shard(shard);
        self.marks.replies(&shard.counters().by_reason);
        let wasted = shard.budgets().map(|(_, books)| books.wasted).sum();
        self.marks.happened(Happened::LeaseWasted, wasted);
    }

    /// What a clerk's breaker does.
    pub fn sees_clerk(&mut self, machine: u16, clerk: &Clerk) {
        let (opened, is_open) = clerk.desk().breakers();
        self.afar
            .sees_breaker(machine, opened, is_open, &mut self.marks);
    }

    /// The counters of a clerk that ends.
    pub fn clerk_ends(&mut self, clerk: &Clerk) {
        let counts = clerk.desk().counts();
        for (happened, times) in [
            (Happened::ScriptLoaded, counts.loads),
            (Happened::Resent, counts.resends),
            (Happened::LinkLost, counts.lost),
            (Happened::Refused, counts.refusals),
            (Happened::BreakerKeptBack, counts.broken),
        ] {
            self.marks.happened(happened, times);
        }
    }

    /// The counters of an owner that ends.
    pub fn owner_ends(&mut self, owner: &Owner) {
        self.sees_owner(owner);
        for (_, counts) in owner.lease_counts() {
            let BookCounts {
                repeated_draws,
                stale_draws,
                void,
                ..
            } = *counts;
            self.marks.happened(Happened::LeaseRepeated, repeated_draws);
            self.marks.happened(Happened::LeaseStale, stale_draws);
            self.marks.happened(Happened::LeaseReturnVoid, void);
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
        if sky.calm || is_inside(route.from.addr) || is_inside(route.to.addr) {
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
            if let Mail::Ask(ask) = mail {
                sky.afar.doubles(ask);
            }
            MailFate::Duplicate { again_ns }
        } else if draw < rates.mail_lost + rates.mail_doubled + rates.mail_delayed {
            sky.counts.count(Fault::MailDelayed);
            let delay_ns = rng.below(most_ns);
            MailFate::Deliver { delay_ns }
        } else {
            MailFate::Deliver { delay_ns: 0 }
        }
    }

    fn dial(&mut self, now: Now, dial: Dial, rng: &mut Rng) -> DialFate {
        let mut sky = self.0.borrow_mut();
        if sky.afar.is_apart(now, dial.from, dial.to) {
            return DialFate::Drop;
        }
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

    fn segment(&mut self, now: Now, route: Route, _bytes: usize, rng: &mut Rng) -> SegmentFate {
        let mut sky = self.0.borrow_mut();
        if let Some(delay_ns) = sky.afar.holds_back(now, route) {
            return SegmentFate::Pass { delay_ns };
        }
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
