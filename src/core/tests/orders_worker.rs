//! The orders' worker in a small world: the store's model, a ledger of one table, lossy mail, crashes.
#![allow(clippy::unwrap_used, clippy::result_large_err)] // helpers of tests; the seam gives mail back whole

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use weir_core::ask::{
    Answer, Ask, AskId, Failure, Held, LedgerAnswer, LedgerOp, Outcome, ReleaseEnd,
    ReservationState,
};
use weir_core::limit::gcra::Rate;
use weir_core::limit::lease::ShardId;
use weir_core::limits::ORDER_ATTEMPTS_MAX;
use weir_core::mail::{Addr, Mail, RowsAsk};
use weir_core::order::contract::{
    DeadWhy, Money, ORDER_MESSAGE_VERSION, OrderFault, OrderMessage, PaymentAsk, PaymentId,
    PaymentResult, Restocked, RestocksTold, StockTotal,
};
use weir_core::order::model::OrderModel;
use weir_core::order::state::OrderState;
use weir_core::order::worker::Worker;
use weir_core::port::{Effects, Event, Handler};
use weir_core::rng::Rng;
use weir_core::sale::{Activity, Sale, Sku};
use weir_core::time::{Mono, Now, WallMs};
use weir_proto::ids::{ActivityId, PathId, RequestId, ReservationId, SkuId, SkuKey, UserId};

const SKU: SkuKey = SkuKey {
    activity: ActivityId(1),
    sku: SkuId(1),
};
const PRICE: Money = Money {
    minor: 100,
    currency: *b"CNY",
};
const UNPAID_MS: u64 = 10_000;

fn sale(first_stock: u64) -> Arc<Sale> {
    let sku = Sku {
        id: SKU.sku,
        first_stock,
        quantity_max: 1,
        once_per_activity: false,
        unit_price: PRICE,
        unpaid_timeout_ms: UNPAID_MS,
        budget: Rate::per_second(1),
        sold_out_ttl_ms: 1,
    };
    let activity = Activity {
        id: SKU.activity,
        version: 1,
        path_id: PathId::new(b"path").unwrap(),
        opens_at: WallMs(0),
        closes_at: WallMs(u64::MAX),
        retention_ms: 0,
        device_salt: [0; 32],
        skus: vec![sku],
    };
    Arc::new(Sale {
        activities: vec![activity],
    })
}

/// A ledger that is only the table of a reservation's states, with the unit counts that follow from it.
#[derive(Default)]
struct Ledger {
    reservations: BTreeMap<ReservationId, (OrderMessage, ReservationState)>,
    free: u64,
    total: u64,
    /// Answers nothing but this while set.
    failing: Option<Outcome>,
}

impl Ledger {
    fn hold(&mut self, reservation: u64, user: u64) -> OrderMessage {
        let message = OrderMessage {
            version: ORDER_MESSAGE_VERSION,
            reservation: ReservationId(reservation),
            sku: SKU,
            user: UserId(user),
            quantity: 1,
            request_id: RequestId::new(b"request-00").unwrap(),
            unit_price: PRICE,
            reserved_at: WallMs(0),
        };
        self.free -= 1;
        self.reservations
            .insert(message.reservation, (message, ReservationState::Reserved));
        message
    }

    fn outbox(&self) -> Vec<OrderMessage> {
        self.reservations
            .values()
            .filter(|(_, state)| *state == ReservationState::Reserved)
            .map(|(message, _)| *message)
            .collect()
    }

    fn answer(&mut self, op: &LedgerOp) -> Outcome {
        use ReservationState as S;
        if let Some(outcome) = self.failing {
            return outcome;
        }
        let target = match op {
            LedgerOp::Confirm(target) | LedgerOp::Settle(target) | LedgerOp::PaidLate(target) => {
                target
            }
            LedgerOp::Release(release) => &release.target,
            other => panic!("the worker never asks {other:?}"),
        };
        let user = self
            .reservations
            .get(&target.reservation)
            .map(|(m, _)| m.user);
        let holds = self
            .reservations
            .values()
            .any(|(message, state)| Some(message.user) == user && state.is_live());
        let Some((message, state)) = self.reservations.get_mut(&target.reservation) else {
            return Outcome::Done(LedgerAnswer::NoReservation);
        };
        let (next, free) = match (op, *state) {
            (LedgerOp::Confirm(_), S::Reserved) => (Some(S::Confirmed), self.free),
            (LedgerOp::Confirm(_), S::Confirmed | S::Settled) => (Some(*state), self.free),
            (LedgerOp::Settle(_), S::Reserved | S::Confirmed | S::Settled) => {
                (Some(S::Settled), self.free)
            }
            (LedgerOp::Release(release), S::Reserved | S::Confirmed) => {
                let end = match release.end {
                    ReleaseEnd::Closed => S::Closed,
                    ReleaseEnd::Failed => S::Failed,
                };
                (Some(end), self.free + 1)
            }
            (LedgerOp::Release(_), S::Closed | S::Failed | S::PaidLate) => {
                (Some(*state), self.free)
            }
            (LedgerOp::PaidLate(_), S::Closed | S::Failed) if self.free > 0 && !holds => {
                (Some(S::Settled), self.free - 1)
            }
            (LedgerOp::PaidLate(_), S::Closed | S::Failed) => (Some(S::PaidLate), self.free),
            (LedgerOp::PaidLate(_), S::PaidLate | S::Settled) => (Some(*state), self.free),
            _ => (None, self.free),
        };
        self.free = free;
        *state = next.unwrap_or(*state);
        let held = Held {
            reservation: message.reservation,
            state: *state,
            quantity: 1,
        };
        Outcome::Done(match next {
            Some(_) => LedgerAnswer::Now(held),
            None => LedgerAnswer::StepRefused(held),
        })
    }
}

/// Worker, store model, ledger and the mail between them, on one virtual clock.
struct World {
    now: Now,
    sale: Arc<Sale>,
    worker: Worker,
    runs: u32,
    store: OrderModel,
    ledger: Ledger,
    mail: VecDeque<(Addr, Mail)>,
    answers: BTreeMap<AskId, PaymentResult>,
    rng: Rng,
    /// Of 1,000 mails so many are lost, and as many doubled.
    loss: u64,
    asks: u64,
    /// How often the owner was told that orders stopped.
    stops: u64,
    /// Reservations and states of the rows that the owner was given last, and whether any were given.
    restocks: Vec<Restocked>,
    total: u64,
    rows: Option<Vec<(ReservationId, ReservationState)>>,
    stopped: bool,
    ticks: u64,
}

impl World {
    fn new(stock: u64) -> Self {
        let sale = sale(stock);
        let mut world = Self {
            now: Now {
                mono: Mono(1),
                wall: WallMs(1_000_000),
            },
            worker: Worker::new(sale.clone(), 0),
            sale,
            runs: 0,
            store: OrderModel::new(),
            ledger: Ledger {
                free: stock,
                total: stock,
                ..Ledger::default()
            },
            mail: VecDeque::new(),
            answers: BTreeMap::new(),
            rng: Rng::new(1),
            loss: 0,
            asks: 0,
            stops: 0,
            restocks: Vec::new(),
            total: 0,
            rows: None,
            stopped: false,
            ticks: 0,
        };
        world.turn(None);
        world
    }

    /// Gives the worker one event (its start, when `None`) and ends its turn.
    fn turn(&mut self, event: Option<Event<'_>>) {
        let mut fx = Effects::new(0);
        match event {
            Some(event) => self.worker.on_event(self.now, event, &mut fx),
            None => self.worker.on_start(self.now, &mut fx),
        }
        self.worker.on_flush(self.now, &mut fx);
        self.collect(fx);
    }

    fn collect(&mut self, mut fx: Effects) {
        let mut ops = Vec::new();
        fx.take_ops(&mut ops);
        assert!(ops.is_empty() || !self.stopped, "it stops once");
        self.stopped |= !ops.is_empty();
        fx.deliver_posts(|to, mail| {
            if self.rng.chance(self.loss, 1_000) {
                return Ok(());
            }
            if self.rng.chance(self.loss, 1_000) {
                self.mail.push_back((to, mail.clone()));
            }
            self.mail.push_back((to, mail));
            Ok(())
        });
    }

    fn deliver(&mut self, to: Addr, mail: Mail) {
        match (to, mail) {
            (Addr::Worker, mail) => self.turn(Some(Event::Mail(mail))),
            (Addr::OrderStore, mail) => {
                let mut fx = Effects::new(0);
                self.store.on_event(self.now, Event::Mail(mail), &mut fx);
                self.store.on_flush(self.now, &mut fx);
                self.collect(fx);
            }
            (Addr::Owner, Mail::Ask(Ask { id, op, .. })) => {
                self.asks += 1;
                let outcome = self.ledger.answer(&op);
                let mut fx = Effects::new(0);
                fx.post(Addr::Worker, Mail::Answer(Answer { id, outcome }));
                self.collect(fx);
            }
            (Addr::Owner, Mail::OutboxAsk { .. }) => {
                let mut fx = Effects::new(0);
                let total = self.ledger.total;
                fx.post(
                    Addr::Worker,
                    Mail::StockTotal(StockTotal { sku: SKU, total }),
                );
                fx.post(Addr::Worker, Mail::Reserved(self.ledger.outbox()));
                self.collect(fx);
            }
            (Addr::Owner, Mail::Rows(rows)) => {
                (self.restocks, self.total) = (rows.restocks.clone(), rows.total);
                let offers = rows.offers.iter();
                let rows = offers.map(|offer| (offer.message.reservation, offer.state));
                self.rows = Some(rows.collect());
            }
            (Addr::Owner, Mail::OrdersStopped) => self.stops += 1,
            (Addr::Shard(_), Mail::PaymentAnswer(answer)) => {
                let first = self.answers.insert(answer.id, answer.result);
                assert!(
                    self.loss > 0 || first.is_none(),
                    "one answer per payment ask"
                );
            }
            (to, mail) => panic!("strange mail to {to:?}: {mail:?}"),
        }
    }

    /// Runs for `ms` of virtual time.
    fn run_for(&mut self, ms: u64) {
        let end = self.now.mono.plus_ms(ms);
        loop {
            while let Some((to, mail)) = self.mail.pop_front() {
                self.deliver(to, mail);
            }
            let store = self.store.next_deadline();
            let next = [self.worker.next_deadline(), store]
                .into_iter()
                .flatten()
                .min()
                .unwrap_or(end)
                .min(end)
                // A turn takes time: a part that asked to be woken at once cannot stop the clock.
                .max(self.now.mono.plus_ns(1_000));
            let passed = next.since(self.now.mono);
            let before_ms = self.now.mono.0 / 1_000_000;
            self.now.mono = self.now.mono.plus_ns(passed);
            let passed_ms = self.now.mono.0 / 1_000_000 - before_ms;
            self.now.wall = self.now.wall.plus_ms(passed_ms);
            if self.now.mono >= end {
                return;
            }
            let mut fx = Effects::new(0);
            self.store.on_flush(self.now, &mut fx);
            self.collect(fx);
            self.ticks += 1;
            self.turn(Some(Event::Tick));
        }
    }

    fn crash_worker(&mut self) {
        self.runs += 1;
        self.worker = Worker::new(self.sale.clone(), self.runs);
        self.mail.clear();
        self.store.restart();
        self.turn(None);
    }

    fn reserve(&mut self, reservation: u64, user: u64) {
        let message = self.ledger.hold(reservation, user);
        let mut fx = Effects::new(0);
        fx.post(Addr::Worker, Mail::Reserved(vec![message]));
        self.collect(fx);
    }

    fn pay(&mut self, payment: &str, reservation: u64) -> AskId {
        self.asks += 1;
        let id = AskId(1_000_000 + self.asks);
        let ask = PaymentAsk {
            from: Addr::Shard(ShardId(0)),
            id,
            payment: PaymentId::new(payment.as_bytes()).unwrap(),
            reservation: ReservationId(reservation),
            sku: SKU,
            amount: PRICE,
            paid_at: self.now.wall,
        };
        self.turn(Some(Event::Mail(Mail::PaymentAsk(Box::new(ask)))));
        id
    }

    fn order(&self, reservation: u64) -> OrderState {
        self.store
            .standing(ReservationId(reservation))
            .expect("the order exists")
    }

    fn held(&self, reservation: u64) -> ReservationState {
        self.ledger.reservations[&ReservationId(reservation)].1
    }

    /// Both books say the same, everything is acknowledged, and no unit is sold twice.
    fn check(&self) {
        for (id, (_, state)) in &self.ledger.reservations {
            let row = &self.store.tables.orders[id];
            assert_eq!(row.acked, row.version, "{id} at {:?}", row.state);
            let expected = match row.state {
                OrderState::Created => ReservationState::Confirmed,
                OrderState::Paid => ReservationState::Settled,
                OrderState::Closed => ReservationState::Closed,
                OrderState::Failed => ReservationState::Failed,
                OrderState::PaidLate => ReservationState::PaidLate,
                other => panic!("no row stands at {other:?}"),
            };
            assert_eq!(*state, expected, "{id}");
        }
        let live = self.store.tables.live.len() as u64;
        assert_eq!(live, self.ledger.total - self.ledger.free);
    }
}

trait Standings {
    fn standing(&self, reservation: ReservationId) -> Option<OrderState>;
}

impl Standings for OrderModel {
    fn standing(&self, reservation: ReservationId) -> Option<OrderState> {
        self.tables
            .orders
            .get(&reservation)
            .map(|order| order.state)
    }
}

#[test]
fn orders_are_made_confirmed_paid_and_the_unpaid_closed_in_time() {
    let mut world = World::new(3);
    for id in 1..=3 {
        world.reserve(id, id);
    }
    world.run_for(100);
    assert_eq!(world.held(1), ReservationState::Confirmed);
    let paid = world.pay("p1", 1);
    world.run_for(100);
    assert_eq!(world.answers[&paid], PaymentResult::Paid);
    assert_eq!(world.held(1), ReservationState::Settled);
    world.run_for(UNPAID_MS - 300);
    assert_eq!(world.order(2), OrderState::Created, "not a moment early");
    world.run_for(500);
    assert_eq!(world.order(2), OrderState::Closed);
    assert_eq!(world.held(3), ReservationState::Closed);
    assert_eq!(world.ledger.free, 2);
    world.check();
    assert!(world.worker.is_idle());
}

/// Found by `weir sim --seed 633`: the row was made, the word of it was lost, and nobody looked at its due time again.
#[test]
fn orders_whose_answer_was_lost_are_closed_in_time_too() {
    let mut world = World::new(1);
    world.run_for(200);
    world.store.faults.delay_ns = 1_000_000_000;
    world.reserve(1, 1);
    world.run_for(100);
    assert_eq!(world.order(1), OrderState::Created);
    world.store.restart(); // the answer is lost; the batch is sent again after a while
    world.store.faults.delay_ns = 0;
    world.run_for(UNPAID_MS + 1_000);
    assert_eq!(world.order(1), OrderState::Closed);
    world.check();
}

#[test]
fn orders_sent_many_times_are_made_once() {
    let mut world = World::new(1);
    let message = world.ledger.hold(1, 1);
    for _ in 0..50 {
        world.turn(Some(Event::Mail(Mail::Reserved(vec![message, message]))));
    }
    world.run_for(100);
    assert_eq!(world.store.tables.history.len(), 1);
    world.check();
}

#[test]
fn orders_paid_after_the_close_get_a_free_unit_or_a_refund() {
    let mut world = World::new(1);
    world.reserve(1, 1);
    world.run_for(UNPAID_MS + 500);
    assert_eq!(world.held(1), ReservationState::Closed);
    world.reserve(2, 2); // somebody else buys the unit (field bug Q14)
    world.run_for(100);
    let late = world.pay("p1", 1);
    world.run_for(100);
    assert_eq!(world.answers[&late], PaymentResult::Late);
    assert_eq!(world.order(1), OrderState::PaidLate);
    assert!(world.store.tables.refunds.values().all(|refund| refund.due));
    world.run_for(UNPAID_MS + 500); // the unit is free again
    let late = world.pay("p2", 2);
    world.run_for(100);
    assert_eq!(world.answers[&late], PaymentResult::Late);
    assert_eq!(
        world.order(2),
        OrderState::Paid,
        "sold again to who has paid"
    );
    let due: Vec<bool> = world.store.tables.refunds.values().map(|r| r.due).collect();
    assert_eq!(due, [true, false]);
    world.check();
}

#[test]
fn orders_whose_release_was_lost_before_a_late_payment_keep_their_unit() {
    let mut world = World::new(1);
    world.reserve(1, 1);
    world.run_for(100);
    world.ledger.failing = Some(Outcome::Unknown);
    world.run_for(UNPAID_MS + 500);
    assert_eq!(world.order(1), OrderState::Closed);
    assert_eq!(world.held(1), ReservationState::Confirmed);
    world.pay("p1", 1);
    world.run_for(10);
    world.ledger.failing = None;
    world.run_for(60_000);
    assert_eq!(world.order(1), OrderState::Paid);
    world.check();
}

#[test]
fn orders_of_a_poisoned_message_fail_and_block_nobody() {
    let mut world = World::new(3);
    world.store.faults.poison.insert(ReservationId(2));
    for id in 1..=3 {
        world.reserve(id, id);
    }
    world.run_for(100);
    assert_eq!(world.order(3), OrderState::Created);
    world.run_for(5_000);
    assert_eq!(world.order(2), OrderState::Failed);
    let letter = world.store.tables.dead[&ReservationId(2)];
    assert_eq!(
        (letter.why, letter.attempts),
        (DeadWhy::Statement, ORDER_ATTEMPTS_MAX)
    );
    world.check();
}

/// A ledger that lost some is mended with the rows: an order that comes behind them would be known to nobody there.
#[test]
fn orders_under_way_are_among_the_rows_that_a_ledger_is_mended_with() {
    for poisoned in [false, true] {
        let mut world = World::new(2);
        world.run_for(100);
        if poisoned {
            world.store.faults.poison.insert(ReservationId(2));
        }
        world.reserve(1, 1);
        world.reserve(2, 2);
        let after = ReservationId(0);
        let ask = Mail::RowsAsk(RowsAsk { sku: SKU, after });
        world.mail.push_back((Addr::Worker, ask));
        while world.rows.is_none() {
            world.run_for(100);
        }
        let state = match poisoned {
            false => ReservationState::Confirmed,
            true => ReservationState::Failed,
        };
        let wanted = vec![
            (ReservationId(1), ReservationState::Confirmed),
            (ReservationId(2), state),
        ];
        assert_eq!(world.rows, Some(wanted), "poisoned: {poisoned}");
    }
}

/// A restock by its name is among them as often as it was carried out, which is once; and the total has it.
#[test]
fn orders_know_a_restock_that_was_told_as_soon_as_rows_are_asked_for() {
    let mut world = World::new(2);
    world.run_for(100);
    let restock = |number: u64| Restocked {
        sku: SKU,
        request_id: RequestId::new(format!("restock-{number}").as_bytes()).unwrap(),
        units: number,
        at: WallMs(number),
    };
    let tell = |restocks: &[u64], total, adds| {
        let restocks = restocks.iter().map(|number| restock(*number));
        Mail::Restocked(Box::new(RestocksTold {
            sku: SKU,
            restocks: restocks.collect(),
            total,
            adds,
        }))
    };
    let after = ReservationId(0);
    for mail in [
        tell(&[3, 4], Some(9), false),
        tell(&[5], None, true),
        tell(&[5], None, true),
        tell(&[5, 6], None, false), // more than that is under way: no total yet
        Mail::RowsAsk(RowsAsk { sku: SKU, after }),
    ] {
        world.mail.push_back((Addr::Worker, mail));
    }
    while world.rows.is_none() {
        world.run_for(100);
    }
    assert_eq!(world.restocks, [3, 4, 5, 6].map(restock));
    assert_eq!(world.total, 14);
}

#[test]
fn orders_of_an_unknown_format_are_dead_letters_at_once() {
    let mut world = World::new(1);
    let mut message = world.ledger.hold(1, 1);
    message.version = 9;
    world.turn(Some(Event::Mail(Mail::Reserved(vec![message]))));
    world.run_for(100);
    assert_eq!(
        world.store.tables.dead[&ReservationId(1)].why,
        DeadWhy::Version
    );
    assert_eq!(world.held(1), ReservationState::Failed);
}

#[test]
fn orders_of_restocked_units_wait_for_the_total_and_are_made() {
    let mut world = World::new(1);
    world.reserve(1, 1);
    world.run_for(50);
    world.ledger.free += 1;
    world.ledger.total += 1;
    // The total's mail is lost; the order comes first.
    world.reserve(2, 2);
    world.run_for(6_000);
    assert_eq!(world.order(2), OrderState::Created);
    world.check();
}

#[test]
fn orders_stop_when_the_disk_is_full_and_go_on_after_a_restart() {
    let mut world = World::new(2);
    world.reserve(1, 1);
    world.run_for(100);
    world.store.faults.next.push_back(OrderFault::DiskFull);
    let unknown = world.pay("p1", 1);
    world.run_for(100);
    assert_eq!(world.answers[&unknown], PaymentResult::StoreFailed);
    assert_eq!(world.worker.fault(), Some(OrderFault::DiskFull));
    assert_eq!(world.stops, 1, "the owner was told to grant nothing more");
    let refused = world.pay("p1", 1);
    world.reserve(2, 2);
    world.run_for(100);
    assert_eq!(world.answers[&refused], PaymentResult::StoreFailed);
    assert!(!world.store.tables.orders.contains_key(&ReservationId(2)));
    world.crash_worker();
    world.run_for(100);
    let paid = world.pay("p1", 1);
    world.run_for(100);
    assert_eq!(world.answers[&paid], PaymentResult::Paid);
    assert_eq!(world.order(2), OrderState::Created);
    world.check();
}

#[test]
fn orders_go_on_after_a_ledger_that_was_away_for_long() {
    let mut world = World::new(50);
    world.ledger.failing = Some(Outcome::Failed(Failure::Recovering));
    for id in 1..=50 {
        world.reserve(id, id);
    }
    world.run_for(8_000);
    for id in 1..=50 {
        world.pay(&format!("p{id}"), id);
    }
    world.run_for(120_000);
    world.ledger.failing = None;
    world.run_for(20_000);
    assert_eq!(world.held(50), ReservationState::Settled);
    world.check();
}

#[test]
fn orders_wait_without_spinning_while_the_ledger_takes_no_steps() {
    let mut world = World::new(4_000);
    world.ledger.failing = Some(Outcome::Failed(Failure::Poisoned));
    for id in 1..=4_000 {
        world.reserve(id, id);
    }
    world.run_for(9_000);
    let before = world.ticks;
    world.run_for(3_000); // the sweep is due, and has to wait for the steps
    let ticks = world.ticks - before;
    assert!(ticks < 3_000, "{ticks} ticks in three seconds");
    world.ledger.failing = None;
    world.run_for(60_000);
    assert_eq!(world.held(4_000), ReservationState::Closed); // unpaid in time
    world.check();
}

#[test]
fn orders_drain_finishes_what_was_taken_and_stops_once() {
    let mut world = World::new(1);
    world.run_for(10);
    world.reserve(1, 1);
    world.run_for(5);
    world.turn(Some(Event::Drain));
    assert!(!world.stopped, "a payment may be under way");
    let paid = world.pay("p1", 1);
    world.run_for(100);
    assert_eq!(world.answers[&paid], PaymentResult::Paid);
    assert!(!world.stopped);
    world.run_for(5_000);
    assert!(world.stopped);
}

#[test]
fn orders_survive_lost_and_doubled_mail_slow_stores_and_crashes_at_any_instant() {
    let mut ends = [0_usize; 7];
    for seed in 0..60 {
        let mut world = World::new(40);
        world.rng = Rng::new(seed);
        world.loss = 30;
        world.store.faults.delay_ns = world.rng.below(30_000_000);
        let (mut next, mut paid) = (1, 0);
        for round in 0..60 {
            for _ in 0..world.rng.below(4) {
                // The ledger lets a user hold one; a user of a dead reservation may come again.
                let user = 1 + world.rng.below(60);
                let holds = world
                    .ledger
                    .reservations
                    .values()
                    .any(|(message, state)| message.user.0 == user && state.is_live());
                if world.ledger.free > 0 && !holds {
                    world.reserve(next, user);
                    next += 1;
                }
            }
            if next > 1 && world.rng.chance(2, 3) {
                paid += 1;
                let reservation = 1 + world.rng.below(next - 1);
                world.pay(&format!("p{paid}"), reservation);
            }
            if world.rng.chance(1, 12) {
                let fault = [OrderFault::Busy, OrderFault::Io, OrderFault::DiskFull]
                    [world.rng.below(3) as usize];
                world.store.faults.next.push_back(fault);
            }
            let ms = world.rng.below(1_500);
            world.run_for(ms);
            if world.worker.fault().is_some() || (round % 9 == 0 && world.rng.chance(1, 2)) {
                world.crash_worker();
            }
        }
        world.loss = 0;
        world.store.faults.next.clear();
        if world.store.fault().is_some() || world.worker.fault().is_some() {
            world.crash_worker();
        }
        world.run_for(60_000);
        world.check();
        for row in world.store.tables.orders.values() {
            ends[row.state as usize] += 1;
        }
        let stock = world.store.tables.stock[&SKU];
        assert!(stock.taken <= stock.total);
    }
    for state in [OrderState::Paid, OrderState::Closed] {
        assert!(ends[state as usize] > 100, "{ends:?}");
    }
}
