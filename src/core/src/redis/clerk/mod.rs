//! The ledger's clerk: stands where the embedded ledger's owner stands, and asks Redis instead of a ledger of its own.
//!
//! A handler with connections ([`Addr::Owner`]): shards, worker and ops send it the same mail as the owner. It opens what
//! the configuration sells, shows shards what the [`Watch`] learns, reopens what gathered, draws this instance's part of
//! every budget for its shards ([`lease`]), reads the outbox for the worker, and mends books that a failover left behind.
//! Invariants: no grant is asked for while the order store is gone, or of a server that has not got the books; tokens are
//! handed out only for SKUs whose server can be asked, and the budget climbs anew after an outage (J6). Not here: what a
//! client hears (the shard).

pub mod lease;
mod mend;
mod outbox;
mod stats;
mod stream;
mod wishes;

use super::desk::{Desk, DeskConfig, News, Pull};
use super::step::{Maker, StepPlan};
use super::watch::Watch;
use crate::ask::{Answer, Ask, AskId, Failure, LedgerOp, Open, OpsRef, Outcome};
use crate::ledger::SkuState;
use crate::limit::lease::{LeaseDraw, ShardId};
use crate::limits::{CLERK_ASK_MS, REOPEN_TICK_MS};
use crate::mail::{Addr, Mail};
use crate::port::{Effects, Event, Handler};
use crate::sale::{Sale, Sku};
use crate::time::{Mono, Now};
use crate::view::SkuView;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use lease::{LeaseConfig, Leases};
use mend::Mending;
use outbox::Outbox;
use stream::Stream;
use weir_proto::ids::{RequestId, SkuKey};
use wishes::Wished;

/// What a clerk is made of.
#[derive(Clone, Debug)]
pub struct ClerkConfig {
    /// What is sold; of each SKU there is one of `plans`.
    pub sale: Arc<Sale>,
    /// What the steps of each SKU need.
    pub plans: Vec<StepPlan>,
    /// SKUs that are never put on sale by this run: orders of them exist, so what Redis does not have it has lost.
    pub never_open: Vec<SkuKey>,
    /// Who makes the orders here; `None`: another process does. Only who makes them puts on sale what is not there, and
    /// takes a changed policy over: nobody else knows whether a stock that is not there was sold before.
    pub maker: Option<Maker>,
    /// Shards 0..this get views and leases.
    pub shards_count: u16,
    /// How long a fence stands after a failover: longer than an old master may take writes.
    pub freeze_ms: u64,
    /// This run of the instance: larger than any before.
    pub boot: u64,
    /// Keys of winners' filters.
    pub seed: u64,
    /// How Redis is reached.
    pub desk: DeskConfig,
    /// How budgets are shared with other instances.
    pub leases: LeaseConfig,
}

/// What the clerk knows of one SKU beside its view.
#[derive(Debug)]
struct Desked {
    sku: SkuKey,
    mending: Mending,
    /// Its server could be asked at the last look.
    was_reachable: bool,
    /// As the last snapshot said.
    state: Option<SkuState>,
    /// Not empty: frozen, and why.
    frozen: String,
    /// An ask of ours that opens it is out until then.
    opening_until: Option<Mono>,
    /// A reopening is out.
    is_reopening: bool,
    /// It was there before and is not: it is not put on sale again.
    was_lost: bool,
}

/// See the module.
#[derive(Debug)]
pub struct Clerk {
    config: ClerkConfig,
    desk: Desk,
    watch: Watch,
    skus: Vec<Desked>,
    leases: Leases,
    outbox: Outbox,
    stream: Stream,
    orders_stopped: bool,
    draining: bool,
    /// Asks that were given to the desk and not answered.
    asks_out: u64,
    next_own_ask: u64,
    wishes: Vec<Wished>,
    tick_due: Mono,
}

impl Clerk {
    /// A clerk whose links connect when it starts.
    ///
    /// # Panics
    /// When a budget cannot be enforced exactly: the configuration check refuses that before.
    pub fn new(now: Now, config: ClerkConfig) -> Self {
        let keys: Vec<SkuKey> = config.plans.iter().map(|plan| plan.sku).collect();
        let skus = keys.iter().map(|key| Desked {
            sku: *key,
            mending: Mending::new(*key),
            was_reachable: false,
            state: None,
            frozen: String::new(),
            opening_until: None,
            is_reopening: false,
            was_lost: false,
        });
        Self {
            skus: skus.collect(),
            desk: Desk::new(config.desk.clone(), &config.plans),
            watch: Watch::new(keys.iter().copied(), config.boot, config.seed),
            leases: Leases::new(now, &config),
            outbox: Outbox::new(&keys),
            stream: Stream::new(config.maker, &keys),
            orders_stopped: false,
            draining: false,
            asks_out: 0,
            next_own_ask: 0,
            wishes: Vec::new(),
            tick_due: Mono(0),
            config,
        }
    }

    /// How Redis is reached, for checkers.
    pub fn desk(&self) -> &Desk {
        &self.desk
    }

    fn find(&mut self, sku: SkuKey) -> Option<&mut Desked> {
        self.skus.iter_mut().find(|desked| desked.sku == sku)
    }

    fn take_mail(&mut self, now: Now, mail: Mail, fx: &mut Effects) {
        match mail {
            Mail::Ask(ask) => self.take_up(now, ask, fx),
            Mail::LeaseDraw(draw) => self.draw(now, &draw, fx),
            Mail::LeaseReturn(back) => self.leases.give_back(now, &back),
            Mail::BudgetChange(change) => self.leases.change(now, &change),
            Mail::ViewsAsk(shard) => self.send_views(shard, fx),
            Mail::OrdersStopped => self.set_orders_stopped(true, fx),
            Mail::OutboxAsk { lacks } => {
                self.set_orders_stopped(false, fx);
                self.outbox.ask_all(now, lacks);
                self.stream.ask_all(now);
            }
            Mail::MendAsk(ask) => self.take_wish(ask, fx),
            Mail::Rows(found) => self.take_rows(&found),
            Mail::StatsAsk => {
                let stats = self.stats(now);
                fx.post(Addr::Ops, Mail::Stats(alloc::boxed::Box::new(stats)));
            }
            // Not the clerk's: whoever sent it here has a bug, and no client waits for an answer.
            _ => debug_assert!(false, "mail that is not the clerk's"),
        }
    }

    fn take_up(&mut self, now: Now, ask: Ask, fx: &mut Effects) {
        let refusal = match ask.op {
            LedgerOp::Reserve(_) if self.orders_stopped => Some(Failure::Poisoned),
            LedgerOp::Reserve(reserve) => {
                let desked = self.find(reserve.sku);
                let is_full = desked.is_some_and(|desked| desked.mending.is_full());
                is_full.then_some(Failure::Busy) // one grant more could not be remembered
            }
            _ => None,
        };
        if let Some(failure) = refusal {
            let outcome = Outcome::Failed(failure);
            let answer = Answer {
                id: ask.id,
                outcome,
            };
            fx.post(ask.from, Mail::Answer(answer));
            return;
        }
        self.asks_out += 1;
        self.outbox.asked(&ask);
        self.desk.ask(now, ask, fx);
    }

    /// Without orders to follow, a grant is a promise that nobody keeps.
    fn set_orders_stopped(&mut self, stopped: bool, fx: &mut Effects) {
        if core::mem::replace(&mut self.orders_stopped, stopped) != stopped {
            for shard in 0..self.config.shards_count {
                self.send_views(ShardId(shard), fx);
            }
        }
    }

    fn send_views(&self, shard: ShardId, fx: &mut Effects) {
        for view in self.watch.shown() {
            fx.post(Addr::Shard(shard), self.view_mail(view));
        }
    }

    fn view_mail(&self, view: &SkuView) -> Mail {
        Mail::View(SkuView {
            poisoned: view.poisoned || self.orders_stopped,
            ..view.clone()
        })
    }

    fn draw(&mut self, now: Now, draw: &LeaseDraw, fx: &mut Effects) {
        let is_reachable = self.desk.can_ask(now, draw.sku) && self.desk.is_at_home(draw.sku);
        let is_lost = self.find(draw.sku).is_none_or(|desked| desked.was_lost);
        if !is_reachable || is_lost {
            return; // the shard asks again; without an answer it closes when its lease ends
        }
        if let Some(grant) = self.leases.draw(now, draw) {
            fx.post(Addr::Shard(draw.shard), Mail::LeaseGrant(grant));
        }
    }

    /// A budget whose server comes back climbs from nothing: what waited meanwhile must not come all at once.
    fn watch_reach(&mut self, now: Now) {
        for desked in &mut self.skus {
            let is_reachable = self.desk.can_ask(now, desked.sku);
            if is_reachable && !desked.was_reachable {
                self.leases.climb_anew(now, desked.sku);
            }
            desked.was_reachable = is_reachable;
            self.leases.serve(desked.sku, desked.is_served(&self.desk));
        }
        self.leases.watch_reach(now);
    }

    fn hear(&mut self, now: Now, news: News, fx: &mut Effects) {
        match &news {
            News::Page(page) => {
                let (sku, state) = (page.sku, page.state.as_ref());
                let mut skus = self.skus.iter_mut();
                if let Some(desked) = skus.find(|desked| desked.sku == sku) {
                    desked.mending.page(state, &self.desk);
                }
                let frozen = state.map_or(String::new(), |state| state.frozen.clone());
                let state = state.map(|state| state.sku);
                self.look_at(now, sku, state, frozen, fx);
                let mut skus = self.skus.iter();
                if let Some(desked) = skus.find(|desked| desked.sku == sku) {
                    self.leases.serve(sku, desked.is_served(&self.desk));
                }
            }
            News::Stepped(sku, Pull::Reopen) | News::PullLost(sku, Pull::Reopen) => {
                if let Some(desked) = self.find(*sku) {
                    desked.is_reopening = false;
                }
            }
            News::Offered(sku, id, end) => self.offered(now, *sku, *id, Some(*end)),
            News::PullLost(sku, Pull::Offer(id)) => self.offered(now, *sku, *id, None),
            News::Outbox(found) => self.outbox.found(now, found, fx),
            News::PullLost(sku, Pull::Outbox { .. }) => self.outbox.lost(now, *sku),
            News::Taken(sku, taken) => {
                let taken = (*sku, &**taken);
                self.stream.taken(now, taken, &mut self.outbox, fx);
            }
            News::PullLost(sku, Pull::Take) => self.stream.lost(now, *sku),
            News::Resolve(endpoint) => {
                fx.post(Addr::Resolver, Mail::ResolveAsk(endpoint.clone()));
            }
            News::Stepped(sku, pull) => self.stepped(now, *sku, *pull, true, fx),
            News::PullLost(_, Pull::Snapshot { .. } | Pull::Budget(_)) => {}
            News::PullLost(sku, pull) => self.stepped(now, *sku, *pull, false, fx),
            News::Hint { .. } | News::Greeted | News::Budget(..) => {}
        }
        self.leases.hear(now, &news);
        if let Some(view) = self.watch.hear(now, news) {
            for shard in 0..self.config.shards_count {
                fx.post(Addr::Shard(ShardId(shard)), self.view_mail(&view));
            }
        }
    }

    /// Puts on sale what was never opened, takes a changed policy over, and reopens what gathered.
    fn look_at(
        &mut self,
        now: Now,
        sku: SkuKey,
        state: Option<SkuState>,
        frozen: String,
        fx: &mut Effects,
    ) {
        self.stream.note_state(now, sku, state.as_ref());
        let sale = Arc::clone(&self.config.sale);
        let (boot, own_ask) = (self.config.boot, self.next_own_ask);
        let opens_skus = self.config.maker.is_some();
        let is_home = self.desk.is_at_home(sku);
        let is_lost = self.config.never_open.contains(&sku) || !is_home;
        let Some((_, spec)) = sale.sku(sku) else {
            return;
        };
        let Some(desked) = self.find(sku) else {
            return;
        };
        // What was there and is not any more was lost: putting its first stock on sale again would sell it twice.
        let is_lost = state.is_none() && (is_lost || desked.state.is_some() || desked.was_lost);
        desked.was_lost = is_lost || (desked.was_lost && !(is_home && state.is_some()));
        desked.state = state.or(desked.state);
        desked.frozen = frozen;
        let wants_reopening = state.is_some_and(|state| state.sold_out && state.books.free > 0)
            && desked.frozen.is_empty();
        let is_opening = desked.opening_until.is_some_and(|until| now.mono < until);
        let may_open = opens_skus && !is_opening && !is_lost;
        let name = open_name(state.as_ref(), spec, boot).filter(|_| may_open);
        if let Some(name) = name {
            let deadline = now.mono.plus_ms(CLERK_ASK_MS);
            desked.opening_until = Some(deadline);
            self.next_own_ask += 1;
            let ask = Ask {
                from: Addr::Owner,
                id: AskId(own_ask),
                deadline,
                op: open_of(sku, spec, &name),
            };
            self.asks_out += 1;
            self.desk.ask(now, ask, fx);
        } else if wants_reopening && !desked.is_reopening {
            desked.is_reopening = true;
            if !self.desk.pull(now, sku, Pull::Reopen, fx)
                && let Some(desked) = self.find(sku)
            {
                desked.is_reopening = false;
            }
        }
    }

    fn deliver(&mut self, now: Now, fx: &mut Effects) {
        while let Some(news) = self.desk.next_news() {
            self.hear(now, news, fx);
        }
        while let Some(grant) = self.desk.next_grant() {
            if let Some(desked) = self.find(grant.message.sku) {
                desked.mending.keep(grant);
            }
        }
        while let Some((from, answer)) = self.desk.next_answer() {
            self.asks_out -= 1;
            self.outbox.answered(now, from, &answer, fx);
            if from == Addr::Owner {
                // Something was opened, or was not: the snapshot says, and what is not there is opened again.
                self.watch.look_now(now);
                self.skus
                    .iter_mut()
                    .for_each(|desked| desked.opening_until = None);
            } else {
                fx.post(from, Mail::Answer(answer));
            }
        }
    }
}

impl Handler for Clerk {
    fn on_start(&mut self, now: Now, fx: &mut Effects) {
        self.desk.turn(now, fx);
    }

    fn on_event(&mut self, now: Now, event: Event<'_>, fx: &mut Effects) {
        match event {
            Event::Mail(Mail::Resolved(resolved)) => {
                self.desk.resolved(now, &resolved.endpoint, resolved.to);
                self.leases.resolved(now, &resolved.endpoint, resolved.to);
            }
            Event::Mail(mail) => self.take_mail(now, mail, fx),
            Event::Connected { conn, token } => {
                if !self.desk.connected(now, conn, token, fx) {
                    self.leases.connected(now, conn, token, fx);
                }
            }
            Event::ConnectFailed { token, error } => {
                if !self.desk.connect_failed(now, token, error) {
                    self.leases.connect_failed(now, token, error);
                }
            }
            Event::Received { conn, mut input } => {
                if !self.desk.received(now, conn, &mut input, fx) {
                    self.leases.received(now, conn, &mut input, fx);
                }
            }
            Event::Closed { conn, .. } => {
                if !self.desk.closed(now, conn, fx) {
                    self.leases.closed(now, conn, fx);
                }
            }
            Event::Drain => {
                self.draining = true;
                self.leases.drain(now);
            }
            Event::Tick | Event::Sent { .. } => {}
            Event::Accepted { .. } => debug_assert!(false, "the clerk does not listen"),
        }
    }

    fn on_flush(&mut self, now: Now, fx: &mut Effects) {
        if self.draining && self.asks_out == 0 && self.leases.is_over(now) {
            self.desk.close(fx);
            self.leases.close(fx);
            fx.stop(); // everything that was asked is answered
            return;
        }
        self.deliver(now, fx);
        self.watch.turn(now, &mut self.desk, fx);
        self.leases.turn(now, &mut self.desk, fx);
        self.stream.turn(now, &mut self.desk, fx);
        self.outbox.turn(now, &self.stream, &mut self.desk, fx);
        self.desk.turn(now, fx);
        self.deliver(now, fx); // what the turn gave up is answered in it
        if self.tick_due <= now.mono {
            self.tick_due = now.mono.plus_ms(REOPEN_TICK_MS);
            self.watch_reach(now);
            self.mend_all(now, fx);
            self.see_to_wishes(now, fx);
        }
        for place in 0..self.skus.len() {
            if self.skus[place].mending.is_mending() {
                self.mend(now, place, fx);
            }
        }
    }

    fn next_deadline(&self) -> Option<Mono> {
        let due = [
            Some(self.tick_due),
            self.watch.next_deadline(),
            self.leases.next_deadline(),
            self.outbox.next_deadline(),
            self.stream.next_deadline(),
            self.desk.next_deadline(),
        ];
        due.into_iter().flatten().min()
    }
}

impl Desked {
    /// True when there are units that a token could buy, at a server that can be asked and has the books.
    fn is_served(&self, desk: &Desk) -> bool {
        let sells = |state: &SkuState| state.open && !state.sold_out;
        let sells = self.state.as_ref().is_some_and(sells) && self.frozen.is_empty();
        sells && !self.was_lost && self.was_reachable && desk.is_at_home(self.sku)
    }
}

/// The name of the operator's request that makes Redis sell what the configuration says; `None`: it does already.
fn open_name(state: Option<&SkuState>, spec: &Sku, boot: u64) -> Option<String> {
    match state {
        None => Some("weir-first-stock".into()),
        Some(state)
            if state.open
                && (state.quantity_max != spec.quantity_max
                    || state.once_per_activity != spec.once_per_activity) =>
        {
            Some(format!("weir-policy-{boot:016x}"))
        }
        Some(_) => None,
    }
}

fn open_of(sku: SkuKey, spec: &Sku, name: &str) -> LedgerOp {
    let request_id = RequestId::new(name.as_bytes());
    let target = OpsRef {
        sku,
        request_id: request_id.expect("our own names are short visible ASCII"),
    };
    LedgerOp::Open(Open {
        target,
        stock: spec.first_stock,
        quantity_max: spec.quantity_max,
        once_per_activity: spec.once_per_activity,
    })
}
