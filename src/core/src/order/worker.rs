//! The worker: turns reservations into orders, payments into sold units, unpaid orders into free units.
//!
//! A handler on mail only. It gathers commands, sends one [`OrderBatch`] at a time to the order store, and after its
//! commit asks the ledger for the step that each moved order needs. Nothing is answered or asked before the commit.
//! After a crash the rows say where to go on: at start and after every doubt a sweep pages through the orders whose
//! step is not acknowledged. Unpaid orders are found by their due time in the store, so an idle SKU closes, too (field
//! bug R40). A message that cannot be carried out becomes a FAILED order and a dead letter and blocks nobody.

mod results;

use super::contract::{
    DeadLetter, DeadWhy, ORDER_MESSAGE_VERSION, OrderBatch, OrderCommand, OrderFault, OrderMessage,
    PaymentAnswer, PaymentAsk, PaymentResult, Standing, StockTotal,
};
use super::intake::{Intake, Taken};
use super::state::OrderState;
use super::steps::Steps;
use super::tally::Tally;
use crate::limits::{LEDGER_STEPS_MAX, ORDER_BATCH_MAX, ORDER_PAGE_MAX, ORDER_QUEUE_MAX};
use crate::mail::{Addr, Mail};
use crate::planted::{self, Planted};
use crate::port::{Effects, Event, Handler};
use crate::sale::Sale;
use crate::time::{Mono, Now, WallMs};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use weir_proto::ids::{ReservationId, SkuKey};

/// The first pause before a rolled back batch is sent again; doubles up to [`BATCH_PAUSE_MS_MAX`].
const BATCH_PAUSE_MS: u64 = 50;
/// The longest pause before a batch is sent again.
const BATCH_PAUSE_MS_MAX: u64 = 5_000;
/// A batch without an answer for so long is sent again: its mail or its answer is lost. Commands are idempotent.
const BATCH_ANSWER_MS: u64 = 10_000;
/// Unpaid orders are looked for at most so often.
const CLOSE_PAUSE_MS: u64 = 100;
/// How long after a doubt the sweep starts again.
const SWEEP_PAUSE_MS: u64 = 2_000;
/// The sweep starts again after so long without any doubt, too: whatever was lost is found.
const SWEEP_PERIOD_MS: u64 = 10_000;
/// Messages that came before a wish for rows are made into orders, or were tried, within this.
const ROWS_BEHIND_MS: u64 = 5_000;
/// How often an idle worker asks the ledger for what is not confirmed.
const OUTBOX_PERIOD_MS: u64 = 3_000;
/// How soon it asks when something was dropped, or a total is missing.
const OUTBOX_PAUSE_MS: u64 = 300;
/// After the order to stop, the worker ends once nothing came for so long: shards may have payments under way.
const DRAIN_QUIET_MS: u64 = 250;
/// The time to pay of a SKU that the configuration no longer names.
const ORPHAN_UNPAID_MS: u64 = 15 * 60 * 1_000;

/// The batch that the store has.
#[derive(Debug)]
struct InFlight {
    batch: Arc<OrderBatch>,
    attempts: Vec<u32>,
    /// Sent again then.
    resend_at: Mono,
    resends: u32,
}

/// The sweep over orders whose step is not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sweep {
    /// Starts then.
    At(Mono),
    /// The next page is to be asked for.
    After(ReservationId),
    /// A page is in the batch that the store has.
    Asked,
}

/// The orders' worker; one per process.
#[derive(Debug)]
pub struct Worker {
    sale: Arc<Sale>,
    intake: Intake,
    steps: Steps,
    in_flight: Option<InFlight>,
    seq: u64,
    /// The latest wall time seen or stored: what is stored never goes back (design §12.14).
    wall: WallMs,
    sweep: Sweep,
    /// The earliest due time of an unpaid order, as far as known.
    next_due: Option<WallMs>,
    close_not_before: Mono,
    /// When the outbox was asked for last.
    outbox_asked: Mono,
    /// Messages were dropped since the outbox was asked for.
    dropped_some: bool,
    /// Orders that the clerk wants, by SKU: those behind this one.
    rows_wanted: BTreeMap<SkuKey, (ReservationId, Mono)>,
    fault: Option<OrderFault>,
    /// Set by the order to stop; moved on by payments and order messages.
    stop_at: Option<Mono>,
    stopped: bool,
    /// When to look again, as of the last flush.
    wake: Option<Mono>,
    tally: Tally,
}

impl Worker {
    /// `boot` must differ between runs of a worker that one ledger owner may see.
    pub fn new(sale: Arc<Sale>, boot: u32) -> Self {
        Self {
            sale,
            intake: Intake::default(),
            steps: Steps::new(boot),
            in_flight: None,
            seq: u64::from(boot) << 40,
            wall: WallMs(0),
            sweep: Sweep::After(ReservationId(0)),
            next_due: Some(WallMs(0)),
            close_not_before: Mono(0),
            outbox_asked: Mono(0),
            dropped_some: false,
            rows_wanted: BTreeMap::new(),
            fault: None,
            stop_at: None,
            stopped: false,
            wake: None,
            tally: Tally::default(),
        }
    }

    /// Why the worker takes nothing any more, until a restart; `None` while it works. Readiness follows it.
    pub fn fault(&self) -> Option<OrderFault> {
        self.fault
    }

    /// True when nothing waits for the store or the ledger (tests, the simulator's liveness phase, shutdown).
    pub fn is_idle(&self) -> bool {
        self.in_flight.is_none()
            && self.intake.is_empty()
            && self.steps.len() == 0
            && matches!(self.sweep, Sweep::At(_))
    }

    fn on_mail(&mut self, now: Now, mail: Mail, fx: &mut Effects) {
        match mail {
            Mail::Reserved(messages) => self.take_messages(messages),
            Mail::StockTotal(total) => {
                self.dropped_some |= !self.intake.total(total);
            }
            Mail::Restocked(told) => {
                self.dropped_some |= !self.intake.restocks(*told);
            }
            Mail::PaymentAsk(ask) => self.take_payment(*ask, fx),
            Mail::RowsAsk(ask) if self.sale.sku(ask.sku).is_some() => {
                let wanted = self.rows_wanted.entry(ask.sku);
                wanted.or_insert((ask.after, now.mono)).0 = ask.after;
            }
            Mail::OrdersDone(done) => self.take_results(now, *done, fx),
            Mail::Answer(answer) => {
                if let Some(command) = self.steps.answered(now.mono, &answer) {
                    self.steps.left_some |= !self.intake.inner(command);
                }
            }
            Mail::StatsAsk => {
                let stats = self.tally.stats(
                    self.intake.messages(),
                    self.intake.payments(),
                    &self.steps,
                    self.fault,
                );
                fx.post(Addr::Ops, Mail::Stats(Box::new(stats)));
            }
            _ => self.tally.strange_mail += 1,
        }
    }

    fn take_messages(&mut self, messages: Vec<OrderMessage>) {
        for message in messages {
            let kept = self.fault.is_none()
                && match unfit(&message) {
                    None => self.intake.message(message),
                    Some(why) => self.intake.inner(OrderCommand::Bury(DeadLetter {
                        message,
                        why,
                        attempts: 0,
                    })),
                };
            if !kept {
                self.dropped_some = true;
                self.tally.messages_dropped += 1;
            }
        }
    }

    fn take_payment(&mut self, ask: PaymentAsk, fx: &mut Effects) {
        if self.fault.is_some() || !self.intake.payment(ask) {
            self.answer_payment(&ask, PaymentResult::StoreFailed, fx);
        }
    }

    fn answer_payment(&mut self, ask: &PaymentAsk, result: PaymentResult, fx: &mut Effects) {
        self.tally.payment(result);
        let answer = PaymentAnswer { id: ask.id, result };
        fx.post(ask.from, Mail::PaymentAnswer(Box::new(answer)));
    }

    /// Sends the next batch, or the last one again when its time has come.
    fn send_batch(&mut self, now: Now, fx: &mut Effects) {
        if self.fault.is_some() {
            return;
        }
        if let Some(in_flight) = &mut self.in_flight {
            if in_flight.resend_at <= now.mono {
                in_flight.resend_at = now.mono.plus_ms(BATCH_ANSWER_MS);
                in_flight.resends += 1;
                self.tally.batches_resent += 1;
                fx.post(Addr::OrderStore, Mail::Orders(in_flight.batch.clone()));
            }
            return;
        }
        let (sale, wall) = (&self.sale, self.wall);
        let mut taken = self.intake.take(now.mono, |sku| {
            let unpaid_ms = sale
                .sku(sku)
                .map_or(ORPHAN_UNPAID_MS, |(_, sku)| sku.unpaid_timeout_ms);
            wall.plus_ms(unpaid_ms)
        });
        self.add_scans(now, &mut taken);
        if taken.commands.is_empty() {
            return;
        }
        self.seq += 1;
        self.plant_early_steps(now, &taken, fx);
        let at = if planted::is(Planted::WorkerClockRunsBack) {
            now.wall
        } else {
            self.wall
        };
        let batch = Arc::new(OrderBatch {
            seq: self.seq,
            at,
            commands: taken.commands,
        });
        fx.post(Addr::OrderStore, Mail::Orders(batch.clone()));
        self.in_flight = Some(InFlight {
            batch,
            attempts: taken.attempts,
            resend_at: now.mono.plus_ms(BATCH_ANSWER_MS),
            resends: 0,
        });
    }

    /// For two planted faults only: what the batch will come to is told before it has committed.
    fn plant_early_steps(&mut self, now: Now, taken: &Taken, fx: &mut Effects) {
        for command in &taken.commands {
            match command {
                OrderCommand::Pay(ask) if planted::is(Planted::PaidBeforeCommit) => {
                    self.answer_payment(ask, PaymentResult::Paid, fx);
                }
                OrderCommand::Insert(order) if planted::is(Planted::ConfirmBeforeCommit) => {
                    let standing = Standing {
                        reservation: order.message.reservation,
                        sku: order.message.sku,
                        state: OrderState::Created,
                        version: 1,
                        acked: 0,
                    };
                    self.steps.want(now.mono, standing);
                }
                _ => {}
            }
        }
    }

    /// The worker's own commands: the sweep's next page, the closing of what is due, and rows for the clerk. Last in the
    /// batch, so that what they find covers the orders made before them.
    fn add_scans(&mut self, now: Now, taken: &mut Taken) {
        let after = match self.sweep {
            Sweep::At(at) if at <= now.mono => Some(ReservationId(0)),
            Sweep::After(after) => Some(after),
            _ => None,
        };
        if let Some(after) = after
            && self.has_room_for_page()
        {
            self.sweep = Sweep::Asked;
            let limit = ORDER_PAGE_MAX;
            taken.push(OrderCommand::Unacked { after, limit }, 0);
        }
        if self.next_due.is_some_and(|due| due <= self.wall) && self.close_not_before <= now.mono {
            self.close_not_before = now.mono.plus_ms(CLOSE_PAUSE_MS);
            let limit = ORDER_PAGE_MAX;
            taken.push(OrderCommand::CloseDue { limit }, 0);
        }
        // Only behind every message that came before it was asked for, and what became of it: one that is broken in this
        // batch has a row, as FAILED, after a later one.
        let makes = |command| matches!(command, &OrderCommand::Insert(_) | &OrderCommand::Bury(_));
        let is_quiet = self.intake.messages() == 0 && !taken.commands.iter().any(makes);
        let mut wanted = self.rows_wanted.iter();
        let is_ripe = |at: &Mono| is_quiet || at.plus_ms(ROWS_BEHIND_MS) <= now.mono;
        let ripe = wanted.find(|(_, (_, at))| is_ripe(at));
        if taken.commands.len() < ORDER_BATCH_MAX
            && let Some((&sku, &(after, _))) = ripe
        {
            self.rows_wanted.remove(&sku);
            let limit = ORDER_PAGE_MAX;
            taken.push(OrderCommand::Rows { sku, after, limit }, 0);
        }
    }

    /// A page of the sweep waits while the ledger is behind: its orders could not be asked for.
    fn has_room_for_page(&self) -> bool {
        self.steps.len() < LEDGER_STEPS_MAX / 2
    }

    /// Asks the ledger for its outbox when something was dropped, and now and then when idle (mail may be lost).
    fn ask_outbox(&mut self, now: Now, fx: &mut Effects) {
        if self.outbox_due().is_none_or(|due| due > now.mono) {
            return;
        }
        self.outbox_asked = now.mono;
        let lacks = core::mem::take(&mut self.dropped_some);
        fx.post(Addr::Owner, Mail::OutboxAsk { lacks });
    }

    /// When the outbox is to be asked for; `None` while busy or full: looked at again when mail changes that.
    fn outbox_due(&self) -> Option<Mono> {
        let idle = self.in_flight.is_none() && self.intake.is_empty() && self.steps.len() == 0;
        let room = self.intake.messages() < ORDER_QUEUE_MAX / 2;
        if self.fault.is_some() {
            None
        } else if self.dropped_some && room {
            Some(self.outbox_asked.plus_ms(OUTBOX_PAUSE_MS))
        } else {
            idle.then(|| self.outbox_asked.plus_ms(OUTBOX_PERIOD_MS))
        }
    }

    fn wake_at(&self, now: Now) -> Option<Mono> {
        let stop = self.stop_at.filter(|at| !self.stopped && *at > now.mono);
        if self.fault.is_some() {
            // Steps of committed orders go on; nothing else can.
            return earliest([self.steps.next_deadline(), stop]);
        }
        let batch = match &self.in_flight {
            Some(in_flight) => Some(in_flight.resend_at),
            None => {
                // Only an idle store can take the rest. The wall clock may step: look at least every second.
                let due = self.next_due.map(|due| {
                    let wait_ms = due.since(self.wall).min(1_000);
                    now.mono.plus_ms(wait_ms).max(self.close_not_before)
                });
                let sweep = match self.sweep {
                    // Without room it waits for the steps, which have their own times: not to be woken in vain.
                    Sweep::At(at) if self.has_room_for_page() => Some(at),
                    _ => None,
                };
                earliest([due, sweep, self.intake.next_deadline()])
            }
        };
        earliest([batch, self.steps.next_deadline(), self.outbox_due(), stop])
    }
}

impl Handler for Worker {
    fn on_start(&mut self, now: Now, fx: &mut Effects) {
        self.wall = self.wall.max(now.wall);
        // The configured first stock is a floor; the ledger's totals follow and only raise it.
        for activity in &self.sale.activities {
            for sku in &activity.skus {
                let key = SkuKey {
                    activity: activity.id,
                    sku: sku.id,
                };
                self.dropped_some |= !self.intake.total(StockTotal {
                    sku: key,
                    total: sku.first_stock,
                });
            }
        }
        self.outbox_asked = now.mono;
        fx.post(Addr::Owner, Mail::OutboxAsk { lacks: true });
    }

    fn on_event(&mut self, now: Now, event: Event<'_>, fx: &mut Effects) {
        self.wall = self.wall.max(now.wall);
        match event {
            Event::Mail(mail) => {
                if self.stop_at.is_some() {
                    self.stop_at = Some(now.mono.plus_ms(DRAIN_QUIET_MS));
                }
                self.on_mail(now, mail, fx);
            }
            Event::Drain => self.stop_at = Some(now.mono.plus_ms(DRAIN_QUIET_MS)),
            _ => {}
        }
    }

    fn on_flush(&mut self, now: Now, fx: &mut Effects) {
        self.wall = self.wall.max(now.wall);
        self.steps.send_due(now.mono, fx);
        if self.steps.left_some
            && let Sweep::At(at) = self.sweep
        {
            self.steps.left_some = false;
            self.sweep = Sweep::At(at.min(now.mono.plus_ms(SWEEP_PAUSE_MS)));
        }
        self.ask_outbox(now, fx);
        self.send_batch(now, fx);
        // Steps that the ledger has not acknowledged are found again at the next start.
        let done = self.in_flight.is_none() && (self.intake.is_empty() || self.fault.is_some());
        let quiet = self.stop_at.is_some_and(|at| at <= now.mono);
        if quiet && done && !self.stopped {
            self.stopped = true;
            fx.stop();
        }
        self.wake = self.wake_at(now);
    }

    fn next_deadline(&self) -> Option<Mono> {
        self.wake
    }
}

/// Why this message can never become an order; `None` when it can.
fn unfit(message: &OrderMessage) -> Option<DeadWhy> {
    const MAX: u64 = i64::MAX as u64; // SQL's integers
    if message.version != ORDER_MESSAGE_VERSION {
        return Some(DeadWhy::Version);
    }
    let price = message
        .unit_price
        .minor
        .checked_mul(u64::from(message.quantity));
    let fits = message.quantity > 0
        && price.is_some_and(|price| price <= MAX)
        && message.user.0 <= MAX
        && message.reservation.0 <= MAX;
    (!fits).then_some(DeadWhy::Range)
}

fn earliest<const N: usize>(times: [Option<Mono>; N]) -> Option<Mono> {
    times.into_iter().flatten().min()
}
