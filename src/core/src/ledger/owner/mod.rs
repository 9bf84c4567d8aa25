//! The ledger's owner: takes asks from shards, worker and ops, and answers after the commit (design §3, §5, §12.3).
//!
//! Driven through [`Handler`]; talks to the store (Append, RecoverAsk), the worker (Reserved), the shards (views,
//! leases, answers). Asks are applied to memory at once; every answer, refusals included, waits for the batch that
//! covers the state it read. One batch commits while the next fills. Invariants: at most one batch in flight; views of
//! a batch leave before its answers (a SOLD_OUT never precedes its winners' filter); after one store fault nothing is
//! granted and nothing retried until a restart (field bug R55). Never blocks.

mod batches;
mod fault;
mod outbox;
mod start;
mod stats;
mod views;

use super::{Ledger, LedgerConfig, LedgerSizes};
use crate::ask::{Answer, Ask, Failure, LedgerOp, Outcome};
use crate::journal::BatchResult;
use crate::limit::book::{BookCounts, LeaseBook};
use crate::limit::lease::{LeaseDraw, LeaseReturn, ShardId};
use crate::limits::{
    OUTBOX_RESCAN_MS, REOPEN_TICK_MS, SNAPSHOT_AFTER_BATCHES, SNAPSHOT_AFTER_BYTES,
    TOMBSTONE_TTL_MS, VIEW_REFRESH_MS,
};
use crate::mail::{Addr, BudgetChange, Mail};
use crate::planted::{self, Planted};
use crate::port::{Effects, Event, Handler};
use crate::sale::{Sale, Sku};
use crate::time::{Mono, Now};
use crate::view::SkuView;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use batches::Batches;
pub use fault::OwnerFault;
use outbox::Outbox;
use stats::Counts;
use views::Views;
use weir_proto::ids::SkuKey;

/// What an owner is made of.
#[derive(Clone, Debug)]
pub struct OwnerConfig {
    /// What is sold.
    pub sale: Arc<Sale>,
    /// Shards 0..this get views and leases.
    pub shards_count: u16,
    /// Keys of tables and winners' filters.
    pub seed: u64,
}

/// What the owner does at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Waits for the store's image.
    Recovering,
    /// Answers.
    Serving,
    /// A fault ended it.
    Poisoned(OwnerFault),
}

/// When timed work is due.
#[derive(Debug, Default)]
struct Due {
    tick: Mono,
    views: Mono,
    outbox: Mono,
    tombstones: Mono,
}

/// See the module.
#[derive(Debug)]
pub struct Owner {
    config: OwnerConfig,
    sizes: LedgerSizes,
    phase: Phase,
    draining: bool,
    /// The worker said that the order store is gone.
    orders_stopped: bool,
    boot: u64,
    ledger: Ledger,
    batches: Batches,
    views: Views,
    outbox: Outbox,
    leases: Vec<(SkuKey, LeaseBook)>,
    due: Due,
    counts: Counts,
    /// Batches and bytes since the last snapshot, and that snapshot's size.
    unsnapped: Unsnapped,
}

#[derive(Debug, Default)]
struct Unsnapped {
    batches: u64,
    bytes: usize,
    snapshot_bytes: usize,
}

impl Owner {
    /// An owner that has not started; [`Handler::on_start`] asks the store for its image.
    pub fn new(config: OwnerConfig) -> Self {
        Self::with_sizes(config, LedgerSizes::default())
    }

    /// The same with other capacities.
    pub fn with_sizes(config: OwnerConfig, sizes: LedgerSizes) -> Self {
        let nothing = LedgerConfig {
            plans: Vec::new(),
            tombstones_max: 0,
            seed: config.seed,
        };
        let ledger = Ledger::new(nothing);
        Self {
            phase: Phase::Recovering,
            draining: false,
            orders_stopped: false,
            boot: 0,
            batches: Batches::new(sizes.batch_bytes_max),
            sizes,
            views: Views::new(config.seed),
            outbox: Outbox::new(&ledger),
            ledger,
            leases: Vec::new(),
            due: Due::default(),
            counts: Counts::default(),
            unsnapped: Unsnapped::default(),
            config,
        }
    }

    /// Why nothing is sold any more; `None` while recovering or serving.
    pub fn fault(&self) -> Option<&OwnerFault> {
        match &self.phase {
            Phase::Poisoned(fault) => Some(fault),
            Phase::Recovering | Phase::Serving => None,
        }
    }

    /// True once the image is restored and asks are answered.
    pub fn is_serving(&self) -> bool {
        self.phase == Phase::Serving
    }

    /// The ledger in memory, which may be ahead of what is committed; for checkers.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// This run's number; 0 before the store's image came.
    pub fn boot(&self) -> u64 {
        self.boot
    }

    /// What was granted and came back of each SKU's budget in this run; for checkers.
    pub fn lease_counts(&self) -> impl Iterator<Item = (SkuKey, &BookCounts)> {
        self.leases.iter().map(|(sku, book)| (*sku, book.counts()))
    }

    fn ledger_config(&self) -> LedgerConfig {
        LedgerConfig::sized(&self.config.sale, self.config.seed, &self.sizes)
    }

    /// Sends every shown view to every shard.
    fn broadcast(&self, fx: &mut Effects) {
        for shard in 0..self.config.shards_count {
            self.send_views(ShardId(shard), fx);
        }
    }

    fn send_views(&self, shard: ShardId, fx: &mut Effects) {
        for view in self.views.shown() {
            fx.post(Addr::Shard(shard), self.view_mail(view));
        }
    }

    fn view_mail(&self, view: &SkuView) -> Mail {
        let poisoned = view.poisoned || self.orders_stopped;
        Mail::View(SkuView {
            poisoned,
            ..view.clone()
        })
    }

    /// Without orders to follow, a grant is a promise that nobody keeps: none is made while the order store is gone.
    fn set_orders_stopped(&mut self, stopped: bool, fx: &mut Effects) {
        if core::mem::replace(&mut self.orders_stopped, stopped) != stopped {
            self.broadcast(fx);
        }
    }

    fn take_up(&mut self, now: Now, ask: &Ask, fx: &mut Effects) {
        if let Some(failure) = self.refusal(now, ask, fx) {
            self.counts.refused(failure);
            let outcome = Outcome::Failed(failure);
            fx.post(
                ask.from,
                Mail::Answer(Answer {
                    id: ask.id,
                    outcome,
                }),
            );
            return;
        }
        let answer = self
            .ledger
            .apply(now.wall, &ask.op, &mut self.batches.journal);
        let outcome = Outcome::Done(answer);
        let held = &mut self.batches.filling.answers;
        held.push((
            ask.from,
            Answer {
                id: ask.id,
                outcome,
            },
        ));
    }

    /// Why an ask is not even decided. These answers rest on no state, so they leave at once.
    fn refusal(&mut self, now: Now, ask: &Ask, fx: &mut Effects) -> Option<Failure> {
        match self.phase {
            Phase::Recovering => return Some(Failure::Recovering),
            Phase::Poisoned(_) => return Some(Failure::Poisoned),
            Phase::Serving if self.orders_stopped && matches!(ask.op, LedgerOp::Reserve(_)) => {
                return Some(Failure::Poisoned);
            }
            Phase::Serving => {}
        }
        let is_timed = matches!(ask.op, LedgerOp::Reserve(_) | LedgerOp::Lookup(_));
        if is_timed && now.mono > ask.deadline {
            return Some(Failure::Late);
        }
        let key = ask.op.sku();
        if self.ledger.sku(key).is_none() && self.config.sale.sku(key).is_none() {
            return Some(Failure::UnknownSku);
        }
        if !self.batches.has_room(1) {
            self.turn_over(fx);
        }
        (!self.batches.has_room(1)).then_some(Failure::Busy)
    }

    /// With nothing in flight: sends the filling batch to the store, or lets answers go that rest on nothing new.
    fn turn_over(&mut self, fx: &mut Effects) {
        if self.batches.in_flight.is_some() {
            return;
        }
        if self.batches.journal.entries() == 0 {
            self.batches.filling.release(fx);
        } else {
            self.seal(fx);
        }
    }

    fn seal(&mut self, fx: &mut Effects) {
        self.counts.batches += 1;
        self.counts.entries += u64::from(self.batches.journal.entries());
        self.counts.journal_bytes += self.batches.journal.bytes().len() as u64;
        self.views
            .capture(&self.ledger, &mut self.batches.filling.views);
        self.outbox.seal(&self.ledger);
        let snapshot = self.snapshot_if_due();
        let batch = self.batches.seal(self.ledger.next_reservation(), snapshot);
        fx.post(Addr::Store, Mail::Append(Box::new(batch)));
        if planted::is(Planted::AnswerBeforeCommit) {
            self.batches.committing.release(fx);
        }
        if planted::is(Planted::OutboxBeforeCommit) {
            let next = self.ledger.next_reservation();
            self.outbox.commit(&self.ledger, next, fx);
        }
    }

    fn snapshot_if_due(&mut self) -> Option<Vec<u8>> {
        let unsnapped = &mut self.unsnapped;
        unsnapped.batches += 1;
        unsnapped.bytes += self.batches.journal.bytes().len();
        let bytes_max = SNAPSHOT_AFTER_BYTES.max(unsnapped.snapshot_bytes);
        if unsnapped.batches < SNAPSHOT_AFTER_BATCHES && unsnapped.bytes < bytes_max {
            return None;
        }
        let mut snapshot = Vec::with_capacity(unsnapped.snapshot_bytes);
        self.ledger.snapshot_into(&mut snapshot);
        self.counts.snapshots += 1;
        *unsnapped = Unsnapped {
            snapshot_bytes: snapshot.len(),
            ..Unsnapped::default()
        };
        Some(snapshot)
    }

    fn appended(&mut self, result: BatchResult, fx: &mut Effects) {
        let Some(in_flight) = self
            .batches
            .in_flight
            .filter(|batch| batch.seq == result.seq)
        else {
            return; // a repeated result: that batch was let go
        };
        if let Err(fault) = result.result
            && !planted::is(Planted::FailedCommitTaken)
        {
            self.poison(OwnerFault::Store(fault), fx);
            return;
        }
        self.batches.in_flight = None;
        self.batches.recycle(result.buffer);
        // Views first: a shard must have the winners' filter before it sees the first SOLD_OUT.
        let mut views = core::mem::take(&mut self.batches.committing.views);
        for view in views.drain(..) {
            for shard in 0..self.config.shards_count {
                fx.post(Addr::Shard(ShardId(shard)), self.view_mail(&view));
            }
            self.views.show(view);
        }
        self.batches.committing.views = views;
        self.batches.committing.release(fx);
        self.outbox
            .commit(&self.ledger, in_flight.next_reservation, fx);
    }

    /// Nothing is known of what was not committed, and nothing more will be done in this run.
    fn poison(&mut self, fault: OwnerFault, fx: &mut Effects) {
        self.phase = Phase::Poisoned(fault);
        let sale = Arc::clone(&self.config.sale);
        self.views.poison(sale_skus(&sale).map(|(key, _)| key));
        self.broadcast(fx);
        self.batches.in_flight = None;
        self.batches.committing.release_unknown(fx);
        self.batches.filling.release_unknown(fx);
    }

    fn draw(&mut self, now: Now, draw: &LeaseDraw, fx: &mut Effects) {
        let Some(book) = self.lease_book(draw.sku) else {
            return; // the shard asks again; without an answer it closes when its lease ends
        };
        if let Some(grant) = book.draw(now.mono, draw) {
            fx.post(Addr::Shard(draw.shard), Mail::LeaseGrant(grant));
        }
    }

    fn give_back(&mut self, now: Now, back: &LeaseReturn) {
        if let Some(book) = self.lease_book(back.sku) {
            book.give_back(now.mono, back);
        }
    }

    /// One that cannot be enforced was refused by the listener already, and here changes nothing.
    fn change_budget(&mut self, now: Now, change: &BudgetChange) {
        if let Some(book) = self.lease_book(change.sku) {
            let _ = book.change(now.mono, change.version, change.rate);
        }
    }

    fn lease_book(&mut self, key: SkuKey) -> Option<&mut LeaseBook> {
        let is_serving = self.is_serving();
        let found = self.leases.iter_mut().find(|(sku, _)| *sku == key);
        found.filter(|_| is_serving).map(|(_, book)| book)
    }

    fn tick(&mut self, now: Now, fx: &mut Effects) {
        if self.phase == Phase::Recovering || now.mono < self.due.tick {
            return;
        }
        self.due.tick = now.mono.plus_ms(REOPEN_TICK_MS);
        if now.mono >= self.due.views {
            self.due.views = now.mono.plus_ms(VIEW_REFRESH_MS);
            self.broadcast(fx);
        }
        if self.phase == Phase::Serving {
            self.timed_steps(now);
            if now.mono >= self.due.outbox {
                self.due.outbox = now.mono.plus_ms(OUTBOX_RESCAN_MS);
                self.outbox.rescan();
            }
            self.outbox.step(&self.ledger, fx);
        }
    }

    /// What time does to the ledger, as entries of the filling batch; without room it waits for the next tick.
    fn timed_steps(&mut self, now: Now) {
        let reopens = self.ledger.reopens();
        if reopens > 0 && self.batches.has_room(reopens.div_ceil(8)) {
            // eight reopenings are shorter than the longest entry
            self.ledger.reopen(now.wall, &mut self.batches.journal);
        }
        if now.mono >= self.due.tombstones && self.batches.has_room(1) {
            self.due.tombstones = now.mono.plus_ms(TOMBSTONE_TTL_MS);
            self.ledger
                .turn_tombstones(now.wall, &mut self.batches.journal);
        }
    }

    /// Starts sending everything unconfirmed to the worker, which is new; before the recovery it is only noted.
    fn send_outbox(&mut self, fx: &mut Effects) {
        self.outbox.resend_all();
        if self.is_serving() {
            self.outbox.tell_totals(fx);
            self.outbox.step(&self.ledger, fx);
        }
    }

    fn take_mail(&mut self, now: Now, mail: Mail, fx: &mut Effects) {
        match mail {
            Mail::Ask(ask) => self.take_up(now, &ask, fx),
            Mail::LeaseDraw(draw) => self.draw(now, &draw, fx),
            Mail::LeaseReturn(back) => self.give_back(now, &back),
            Mail::BudgetChange(change) => self.change_budget(now, &change),
            Mail::ViewsAsk(shard) => self.send_views(shard, fx),
            Mail::Appended(result) => self.appended(*result, fx),
            Mail::Recovered(image) => self.recovered(now, &image, fx),
            Mail::OrdersStopped => self.set_orders_stopped(true, fx),
            Mail::OutboxAsk { .. } => {
                self.set_orders_stopped(false, fx);
                self.send_outbox(fx);
            }
            Mail::StatsAsk => {
                let stats = self.stats();
                fx.post(Addr::Ops, Mail::Stats(Box::new(stats)));
            }
            // Not the owner's: whoever sent it here has a bug, and no client waits for an answer.
            _ => debug_assert!(false, "mail that is not the owner's"),
        }
    }
}

impl Handler for Owner {
    fn on_start(&mut self, _now: Now, fx: &mut Effects) {
        fx.post(Addr::Store, Mail::RecoverAsk);
    }

    fn on_event(&mut self, now: Now, event: Event<'_>, fx: &mut Effects) {
        match event {
            Event::Mail(mail) => self.take_mail(now, mail, fx),
            Event::Tick => self.tick(now, fx),
            Event::Drain => self.draining = true,
            // The owner has no conns.
            Event::Accepted { .. }
            | Event::Connected { .. }
            | Event::ConnectFailed { .. }
            | Event::Received { .. }
            | Event::Sent { .. }
            | Event::Closed { .. } => debug_assert!(false, "the owner has no conns"),
        }
    }

    fn on_flush(&mut self, _now: Now, fx: &mut Effects) {
        if self.is_serving() {
            self.turn_over(fx);
        }
        if self.draining && (!self.is_serving() || self.batches.is_idle()) {
            fx.stop(); // everything that was asked is answered
        }
    }

    fn next_deadline(&self) -> Option<Mono> {
        (self.phase != Phase::Recovering).then_some(self.due.tick)
    }
}

fn sale_skus(sale: &Sale) -> impl Iterator<Item = (SkuKey, &Sku)> {
    sale.activities.iter().flat_map(|activity| {
        activity.skus.iter().map(|sku| {
            let key = SkuKey {
                activity: activity.id,
                sku: sku.id,
            };
            (key, sku)
        })
    })
}
