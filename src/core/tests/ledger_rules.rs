//! The ledger's rules, one story each (requirements B6, B7, E4, F1-F5, G6; field bugs R18, R37, R39, R46, R68, R69).
#![allow(clippy::unwrap_used)] // a test that meets one has failed

use weir_core::ask::*;

use weir_core::ledger::codec::Journal;
use weir_core::ledger::{Ledger, LedgerConfig, SkuPlan};
use weir_core::limits::{OPS_REMEMBERED_MAX, UNITS_MAX};
use weir_core::order::contract::Money;
use weir_core::time::WallMs;
use weir_proto::ids::*;

const SKU: SkuKey = SkuKey {
    activity: ActivityId(1),
    sku: SkuId(10),
};

fn text<const N: usize>(text: &str) -> weir_proto::text::Text<N> {
    weir_proto::text::Text::new(text.as_bytes()).unwrap()
}

struct Desk {
    ledger: Ledger,
    journal: Journal,
    at: u64,
    ops: u64,
}

impl Desk {
    fn closed() -> Self {
        let config = LedgerConfig {
            plans: vec![SkuPlan {
                sku: SKU,
                reservations_max: 8,
                unit_price: Money {
                    minor: 9_900,
                    currency: *b"CNY",
                },
            }],
            tombstones_max: 3,
            seed: 1,
        };
        Self {
            ledger: Ledger::new(config),
            journal: Journal::new(Vec::new()),
            at: 1_000,
            ops: 0,
        }
    }

    fn open(stock: u64) -> Self {
        Self::open_by(stock, 2, false)
    }

    fn open_by(stock: u64, quantity_max: u32, once_per_activity: bool) -> Self {
        let mut desk = Self::closed();
        let target = desk.ops_ref();
        let answer = desk.apply(LedgerOp::Open(Open {
            target,
            stock,
            quantity_max,
            once_per_activity,
        }));
        assert!(matches!(answer, LedgerAnswer::OpsDone(books) if books.free == stock));
        desk
    }

    fn ops_ref(&mut self) -> OpsRef {
        self.ops += 1;
        OpsRef {
            sku: SKU,
            request_id: text(&format!("operator-{}", self.ops)),
        }
    }

    /// One step; the books are audited after it.
    fn apply(&mut self, op: LedgerOp) -> LedgerAnswer {
        let answer = self.ledger.apply(WallMs(self.at), &op, &mut self.journal);
        self.ledger.check().unwrap();
        answer
    }

    fn reserve(&mut self, user: u64, request: &str, nonce: &str, quantity: u32) -> LedgerAnswer {
        self.apply(LedgerOp::Reserve(Reserve {
            sku: SKU,
            user: UserId(user),
            request_id: text(request),
            nonce: text(nonce),
            nonce_until: WallMs(self.at + 60_000),
            quantity,
        }))
    }

    fn buy(&mut self, user: u64) -> LedgerAnswer {
        self.reserve(
            user,
            &format!("request-{user}"),
            &format!("nonce-{user}"),
            1,
        )
    }

    fn granted(&mut self, user: u64) -> ReservationRef {
        match self.buy(user) {
            LedgerAnswer::Granted(held) => ReservationRef {
                sku: SKU,
                reservation: held.reservation,
            },
            other => panic!("user {user} got {other:?}"),
        }
    }

    fn lookup(&mut self, user: u64, request: &str, tombstone: bool) -> LedgerAnswer {
        self.apply(LedgerOp::Lookup(Lookup {
            sku: SKU,
            user: UserId(user),
            request_id: text(request),
            tombstone,
        }))
    }

    fn release(&mut self, target: ReservationRef) -> LedgerAnswer {
        let end = ReleaseEnd::Closed;
        self.apply(LedgerOp::Release(Release { target, end }))
    }

    fn restock(&mut self, units: u64) -> LedgerAnswer {
        let target = self.ops_ref();
        self.apply(LedgerOp::Restock(Restock { target, units }))
    }

    fn mode(&mut self, mode: Mode) {
        let target = self.ops_ref();
        self.apply(LedgerOp::SetMode(SetMode { target, mode }));
    }

    fn reopen(&mut self) -> usize {
        let count = self.ledger.reopen(WallMs(self.at), &mut self.journal);
        self.ledger.check().unwrap();
        count
    }

    fn books(&self) -> Books {
        self.ledger.sku(SKU).unwrap().books
    }

    fn epoch(&self) -> u64 {
        self.ledger.sku(SKU).unwrap().epoch
    }

    fn entries(&self) -> u32 {
        self.journal.entries()
    }
}

fn now_in(state: ReservationState, answer: LedgerAnswer) -> bool {
    matches!(answer, LedgerAnswer::Now(held) if held.state == state)
}

#[test]
fn one_unit_two_buyers_exactly_one_wins() {
    let mut desk = Desk::open(1);
    desk.granted(1);
    let before = desk.entries();
    assert_eq!(desk.buy(2), LedgerAnswer::SoldOut { epoch: 2 });
    assert_eq!(desk.entries(), before, "a refusal writes nothing");
    assert_eq!(desk.epoch(), 2, "the epoch grew at the last unit");
}

#[test]
fn a_repeat_gets_its_first_answer_whatever_changed_since() {
    let mut desk = Desk::open(1);
    let target = desk.granted(1);
    let repeated = |state| {
        LedgerAnswer::Repeated(Held {
            reservation: target.reservation,
            state,
            quantity: 1,
        })
    };
    assert_eq!(
        desk.buy(1),
        repeated(ReservationState::Reserved),
        "after sold-out"
    );
    desk.mode(Mode::Closed);
    assert_eq!(
        desk.buy(1),
        repeated(ReservationState::Reserved),
        "mode CLOSED"
    );
    let close = desk.ops_ref();
    desk.apply(LedgerOp::Close(close));
    desk.apply(LedgerOp::Confirm(target));
    assert_eq!(desk.buy(1), repeated(ReservationState::Confirmed), "closed");
    desk.release(target);
    assert_eq!(
        desk.buy(1),
        repeated(ReservationState::Closed),
        "released: never granted again"
    );
    assert_eq!(desk.books().held, 0);
}

#[test]
fn the_same_request_id_with_another_quantity_conflicts() {
    let mut desk = Desk::open(5);
    desk.granted(1);
    assert_eq!(
        desk.reserve(1, "request-1", "nonce-1", 2),
        LedgerAnswer::RequestIdConflict
    );
    assert!(
        matches!(
            desk.reserve(2, "request-1", "nonce-2", 1),
            LedgerAnswer::Granted(_)
        ),
        "ids are per user"
    );
}

#[test]
fn a_granted_nonce_serves_no_other_request_even_after_its_release() {
    let mut desk = Desk::open(5);
    let target = desk.granted(1);
    assert_eq!(
        desk.reserve(1, "request-1b", "nonce-1", 1),
        LedgerAnswer::ReplayRejected
    );
    assert_eq!(
        desk.reserve(2, "request-2", "nonce-1", 1),
        LedgerAnswer::ReplayRejected
    );
    desk.release(target);
    desk.at += 10_000_000;
    assert_eq!(
        desk.reserve(1, "request-1b", "nonce-1", 1),
        LedgerAnswer::ReplayRejected
    );
    assert!(matches!(
        desk.reserve(1, "request-1b", "nonce-1b", 1),
        LedgerAnswer::Granted(_)
    ));
}

#[test]
fn a_refusal_consumes_neither_nonce_nor_request_id() {
    let mut desk = Desk::open(1);
    let target = desk.granted(1);
    assert!(matches!(desk.buy(2), LedgerAnswer::SoldOut { .. }));
    desk.release(target);
    desk.reopen();
    desk.granted(2);
}

#[test]
fn a_user_holds_one_reservation_at_a_time() {
    let mut desk = Desk::open(5);
    let target = desk.granted(1);
    let second = desk.reserve(1, "request-1b", "nonce-1b", 1);
    assert!(
        matches!(second, LedgerAnswer::AlreadyHolds(held) if held.reservation == target.reservation)
    );
    desk.apply(LedgerOp::Settle(target));
    let third = desk.reserve(1, "request-1c", "nonce-1c", 1);
    assert!(
        matches!(third, LedgerAnswer::AlreadyHolds(held) if held.state == ReservationState::Settled)
    );
}

#[test]
fn once_per_activity_bars_who_was_closed_but_not_who_failed() {
    let mut desk = Desk::open_by(5, 1, true);
    let closed = desk.granted(1);
    desk.release(closed);
    assert!(matches!(
        desk.reserve(1, "request-1b", "nonce-1b", 1),
        LedgerAnswer::AlreadyHolds(_)
    ));
    let failed = desk.granted(2);
    let end = ReleaseEnd::Failed;
    desk.apply(LedgerOp::Release(Release {
        target: failed,
        end,
    }));
    assert!(matches!(
        desk.reserve(2, "request-2b", "nonce-2b", 1),
        LedgerAnswer::Granted(_)
    ));
}

#[test]
fn modes_and_closing_stop_new_submits_only() {
    let mut desk = Desk::open(5);
    desk.mode(Mode::Degraded);
    desk.granted(1);
    for mode in [Mode::QueueOnly, Mode::Closed] {
        desk.mode(mode);
        assert_eq!(desk.buy(2), LedgerAnswer::ModeRefused(mode));
    }
    desk.mode(Mode::Normal);
    let close = desk.ops_ref();
    desk.apply(LedgerOp::Close(close));
    assert_eq!(desk.buy(2), LedgerAnswer::NotOpen);
    assert!(matches!(
        desk.lookup(1, "request-1", true),
        LedgerAnswer::Found(_)
    ));
    assert_eq!(Desk::closed().buy(1), LedgerAnswer::NotOpen);
}

#[test]
fn quantity_keeps_to_the_policy_and_to_what_is_left() {
    let mut desk = Desk::open(3);
    assert_eq!(
        desk.reserve(1, "request-1", "nonce-1", 0),
        LedgerAnswer::QuantityRefused
    );
    assert_eq!(
        desk.reserve(1, "request-1", "nonce-1", 3),
        LedgerAnswer::QuantityRefused
    );
    assert!(matches!(
        desk.reserve(1, "request-1", "nonce-1", 2),
        LedgerAnswer::Granted(_)
    ));
    assert_eq!(
        desk.reserve(2, "request-2", "nonce-2", 2),
        LedgerAnswer::QuantityRefused
    );
    assert!(matches!(
        desk.reserve(2, "request-2", "nonce-2", 1),
        LedgerAnswer::Granted(_)
    ));
}

#[test]
fn a_status_query_closes_the_door_and_says_so_for_at_least_one_turn() {
    let mut desk = Desk::open(5);
    assert_eq!(desk.lookup(1, "request-1", false), LedgerAnswer::NotFound);
    assert_eq!(desk.lookup(1, "request-1", true), LedgerAnswer::NotFound);
    assert_eq!(desk.buy(1), LedgerAnswer::Tombstoned);
    let turn = |desk: &mut Desk| {
        desk.ledger
            .turn_tombstones(WallMs(desk.at), &mut desk.journal)
    };
    turn(&mut desk);
    assert_eq!(desk.buy(1), LedgerAnswer::Tombstoned, "old, not forgotten");
    // Asked again: the promise is renewed for a whole turn.
    assert_eq!(desk.lookup(1, "request-1", true), LedgerAnswer::NotFound);
    turn(&mut desk);
    assert_eq!(desk.buy(1), LedgerAnswer::Tombstoned);
    turn(&mut desk);
    desk.granted(1);
}

#[test]
fn full_tables_answer_and_forget_nothing() {
    let mut desk = Desk::open(100);
    for user in 1..=3 {
        assert_eq!(desk.lookup(user, "request-x", true), LedgerAnswer::NotFound);
    }
    assert_eq!(desk.lookup(4, "request-x", true), LedgerAnswer::TableFull);
    assert_eq!(
        desk.reserve(1, "request-x", "nonce-1", 1),
        LedgerAnswer::Tombstoned
    );
    for user in 11..=18 {
        desk.granted(user);
    }
    assert_eq!(desk.buy(19), LedgerAnswer::TableFull);
    assert!(matches!(desk.buy(11), LedgerAnswer::Repeated(_)));
}

#[test]
fn release_gives_the_recorded_quantity_back_once() {
    let mut desk = Desk::open(5);
    desk.reserve(1, "request-1", "nonce-1", 2);
    let target = ReservationRef {
        sku: SKU,
        reservation: ReservationId(1),
    };
    assert!(now_in(ReservationState::Closed, desk.release(target)));
    let before = desk.entries();
    assert!(now_in(ReservationState::Closed, desk.release(target)));
    assert_eq!(desk.entries(), before);
    assert_eq!(desk.books().free, 5);
}

#[test]
fn steps_are_idempotent_and_refused_where_they_lead_nowhere() {
    let mut desk = Desk::open(5);
    let target = desk.granted(1);
    assert!(matches!(
        desk.apply(LedgerOp::PaidLate(target)),
        LedgerAnswer::StepRefused(_)
    ));
    for _ in 0..2 {
        assert!(now_in(
            ReservationState::Confirmed,
            desk.apply(LedgerOp::Confirm(target))
        ));
    }
    for _ in 0..2 {
        assert!(now_in(
            ReservationState::Settled,
            desk.apply(LedgerOp::Settle(target))
        ));
    }
    assert!(now_in(
        ReservationState::Settled,
        desk.apply(LedgerOp::Confirm(target))
    ));
    assert!(matches!(desk.release(target), LedgerAnswer::StepRefused(_)));
    let early = desk.granted(2); // paid before its confirm is seen
    assert!(now_in(
        ReservationState::Settled,
        desk.apply(LedgerOp::Settle(early))
    ));
    let gone = desk.granted(3);
    desk.release(gone);
    assert!(matches!(
        desk.apply(LedgerOp::Settle(gone)),
        LedgerAnswer::StepRefused(_)
    ));
    assert!(matches!(
        desk.apply(LedgerOp::Confirm(gone)),
        LedgerAnswer::StepRefused(_)
    ));
    let reservation = ReservationId(99);
    for reservation in [reservation, ReservationId(0), ReservationId(u64::MAX)] {
        let nobody = ReservationRef {
            sku: SKU,
            reservation,
        };
        assert_eq!(
            desk.apply(LedgerOp::Confirm(nobody)),
            LedgerAnswer::NoReservation
        );
    }
}

#[test]
fn reopening_gathers_releases_into_one_epoch_step() {
    let mut desk = Desk::open(2);
    let (first, second) = (desk.granted(1), desk.granted(2));
    assert_eq!(desk.epoch(), 2);
    desk.release(first);
    desk.release(second);
    assert_eq!(
        desk.buy(3),
        LedgerAnswer::SoldOut { epoch: 2 },
        "not sellable before the step"
    );
    assert_eq!(desk.ledger.reopens(), 1);
    assert_eq!(desk.reopen(), 1);
    assert_eq!(desk.epoch(), 3);
    assert_eq!(desk.reopen(), 0);
    desk.granted(3);
    assert_eq!(desk.epoch(), 3);
    desk.granted(4);
    assert_eq!(desk.epoch(), 4);
}

#[test]
fn a_late_payment_takes_a_free_unit_or_is_listed_for_refund() {
    let mut desk = Desk::open(1);
    let first = desk.granted(1);
    desk.release(first);
    // The unit waits for the reopening; who has paid comes before who will.
    assert!(now_in(
        ReservationState::Settled,
        desk.apply(LedgerOp::PaidLate(first))
    ));
    assert_eq!(desk.reopen(), 0);
    assert_eq!(desk.books().sold, 1);
    assert!(now_in(
        ReservationState::Settled,
        desk.apply(LedgerOp::PaidLate(first))
    ));

    let mut desk = Desk::open(1);
    let first = desk.granted(1);
    desk.release(first);
    desk.reopen();
    desk.granted(2);
    assert!(now_in(
        ReservationState::PaidLate,
        desk.apply(LedgerOp::PaidLate(first))
    ));
    desk.restock(5);
    assert!(
        now_in(
            ReservationState::PaidLate,
            desk.apply(LedgerOp::PaidLate(first))
        ),
        "the refund is listed already"
    );
}

#[test]
fn a_late_payment_does_not_give_a_second_unit_to_who_bought_again() {
    let mut desk = Desk::open(5);
    let first = desk.granted(1);
    desk.release(first);
    assert!(matches!(
        desk.reserve(1, "request-1b", "nonce-1b", 1),
        LedgerAnswer::Granted(_)
    ));
    assert!(now_in(
        ReservationState::PaidLate,
        desk.apply(LedgerOp::PaidLate(first))
    ));
}

#[test]
fn a_late_payment_that_bought_bars_its_user_although_a_newer_one_was_closed() {
    let mut desk = Desk::open(5);
    let first = desk.granted(1);
    desk.release(first);
    desk.reserve(1, "request-1b", "nonce-1b", 1);
    let reservation = ReservationId(2);
    desk.release(ReservationRef {
        sku: SKU,
        reservation,
    });
    assert!(now_in(
        ReservationState::Settled,
        desk.apply(LedgerOp::PaidLate(first))
    ));
    assert!(matches!(
        desk.reserve(1, "request-1c", "nonce-1c", 1),
        LedgerAnswer::AlreadyHolds(_)
    ));
}

#[test]
fn operators_steps_happen_once_per_request_id() {
    let mut desk = Desk::open(1);
    desk.granted(1);
    let target = desk.ops_ref();
    let restock = LedgerOp::Restock(Restock { target, units: 4 });
    for _ in 0..3 {
        assert!(matches!(desk.apply(restock), LedgerAnswer::OpsDone(books) if books.total == 5));
    }
    assert_eq!(
        desk.apply(LedgerOp::Close(target)),
        LedgerAnswer::RequestIdConflict
    );
    assert_eq!(desk.restock(0), LedgerAnswer::QuantityRefused);
    assert_eq!(desk.restock(UNITS_MAX), LedgerAnswer::QuantityRefused);
    assert_eq!(desk.reopen(), 1);
    desk.granted(2);
    // Open again: the stock is ignored.
    let target = desk.ops_ref();
    let again = LedgerOp::Open(Open {
        target,
        stock: 50,
        quantity_max: 1,
        once_per_activity: false,
    });
    assert!(matches!(desk.apply(again), LedgerAnswer::OpsDone(books) if books.total == 5));
    for _ in desk.ops - 2..OPS_REMEMBERED_MAX as u64 {
        // two were refused
        desk.mode(Mode::Normal);
    }
    let target = desk.ops_ref();
    let one_more = LedgerOp::SetMode(SetMode {
        target,
        mode: Mode::Closed,
    });
    assert_eq!(desk.apply(one_more), LedgerAnswer::TableFull);
    desk.at += 24 * 3600 * 1000;
    assert!(
        matches!(desk.apply(one_more), LedgerAnswer::OpsDone(_)),
        "a day later the oldest may go"
    );
    assert!(matches!(desk.apply(restock), LedgerAnswer::OpsDone(books) if books.total == 5));
}

#[test]
fn a_sku_opened_without_stock_is_sold_out_until_it_is_restocked() {
    let mut desk = Desk::open(0);
    assert!(matches!(desk.buy(1), LedgerAnswer::SoldOut { epoch: 1 }));
    desk.restock(1);
    assert!(matches!(desk.buy(1), LedgerAnswer::SoldOut { epoch: 1 }));
    desk.reopen();
    desk.granted(1);
}

#[test]
fn stored_time_never_runs_back() {
    let mut desk = Desk::open(2);
    desk.granted(1);
    desk.at = 10;
    desk.granted(2);
    let times: Vec<u64> = desk
        .ledger
        .reservations()
        .map(|r| r.message.reserved_at.0)
        .collect();
    assert_eq!(times, [1_000, 1_000]);
}
