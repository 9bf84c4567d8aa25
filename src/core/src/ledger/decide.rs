//! What a step comes to: reads the ledger, changes nothing. The rules of requirements B6, B7, E4, F1-F5 and G6.

use super::Ledger;
use super::codec::{Entry, Granted};
use super::sku::{OpsStep, Sku};
use super::tables::{Record, RequestName, SkuIndex};
use crate::ask::{
    Held, LedgerAnswer, LedgerOp, Lookup, Mode, Release, ReleaseEnd, ReservationRef,
    ReservationState, Reserve,
};
use crate::planted::{self, Planted};
use crate::time::WallMs;
use weir_proto::ids::UserId;

/// What a step comes to.
pub(super) enum Decision {
    /// Nothing is written.
    Answer(LedgerAnswer),
    /// This is written, taken, and answered for.
    Write(Entry),
}

impl Ledger {
    pub(super) fn decide(&self, at: WallMs, op: &LedgerOp) -> Decision {
        match op {
            LedgerOp::Reserve(reserve) => self.decide_reserve(at, reserve),
            LedgerOp::Lookup(lookup) => self.decide_lookup(at, lookup),
            LedgerOp::Confirm(target) => self.decide_step(at, *target, Step::Confirm),
            LedgerOp::Settle(target) => self.decide_step(at, *target, Step::Settle),
            LedgerOp::Release(Release { target, end }) => {
                self.decide_step(at, *target, Step::Release(*end))
            }
            LedgerOp::PaidLate(target) => self.decide_step(at, *target, Step::PaidLate),
            LedgerOp::Open(open) => self.decide_ops(
                at,
                open.target,
                OpsStep::Open {
                    stock: open.stock,
                    quantity_max: open.quantity_max,
                    once_per_activity: open.once_per_activity,
                },
            ),
            LedgerOp::Close(target) => self.decide_ops(at, *target, OpsStep::Close),
            LedgerOp::SetMode(set) => self.decide_ops(at, set.target, OpsStep::SetMode(set.mode)),
            LedgerOp::Restock(restock) => {
                self.decide_ops(at, restock.target, OpsStep::Restock(restock.units))
            }
        }
    }

    /// The order is the contract: a repeat gets its first answer whatever else changed; then identity (nonce, user);
    /// then the sale's state; then stock; last our own room.
    fn decide_reserve(&self, at: WallMs, reserve: &Reserve) -> Decision {
        use Decision::{Answer, Write};
        let Some(index) = self.find_sku(reserve.sku) else {
            return Answer(LedgerAnswer::NotOpen);
        };
        let sku = &self.skus[usize::from(index)];
        let name = RequestName {
            sku: index,
            user: reserve.user,
            request_id: reserve.request_id,
        };
        let known = self.records.request(&name);
        if let Some(record) = known.filter(|_| !planted::is(Planted::RequestIdForgotten)) {
            let is_same = record.quantity == reserve.quantity;
            return Answer(if is_same || planted::is(Planted::BodyNotCompared) {
                LedgerAnswer::Repeated(record.held())
            } else {
                LedgerAnswer::RequestIdConflict
            });
        }
        if self.tombstones.contains(&name) && !planted::is(Planted::TombstoneIgnored) {
            return Answer(LedgerAnswer::Tombstoned);
        }
        let is_used = self.records.nonce(index, &reserve.nonce).is_some();
        if is_used && !planted::is(Planted::NonceForgotten) {
            return Answer(LedgerAnswer::ReplayRejected);
        }
        if let Some(held) = self.bars_user(sku, index, reserve.user) {
            return Answer(LedgerAnswer::AlreadyHolds(held));
        }
        if !sku.open && !planted::is(Planted::ClosedIgnored) {
            return Answer(LedgerAnswer::NotOpen);
        }
        let is_paused = matches!(sku.mode, Mode::QueueOnly | Mode::Closed);
        if is_paused && !planted::is(Planted::ModeIgnored) {
            return Answer(LedgerAnswer::ModeRefused(sku.mode));
        }
        let is_above = reserve.quantity > sku.quantity_max;
        if reserve.quantity == 0 || (is_above && !planted::is(Planted::QuantityUnchecked)) {
            return Answer(LedgerAnswer::QuantityRefused);
        }
        let sells_on = planted::is(Planted::SoldOneTooMany) && sku.books.free == 0;
        if sku.sold_out && !sells_on {
            return Answer(LedgerAnswer::SoldOut { epoch: sku.epoch });
        }
        if sku.books.free < u64::from(reserve.quantity) && !sells_on {
            return Answer(LedgerAnswer::QuantityRefused);
        }
        let Some(plan) = sku.plan.filter(|_| sku.room() > 0) else {
            return Answer(LedgerAnswer::TableFull);
        };
        Write(Entry::Granted(Granted {
            sku: reserve.sku,
            user: reserve.user,
            request_id: reserve.request_id,
            nonce: reserve.nonce,
            nonce_until: reserve.nonce_until,
            quantity: reserve.quantity,
            unit_price: plan.unit_price,
            reservation: self.records.next_id(),
            at,
        }))
    }

    /// The reservation that keeps this user from another one. FAILED always frees the user: no order came of it.
    fn bars_user(&self, sku: &Sku, index: SkuIndex, user: UserId) -> Option<Held> {
        let record = self.records.user(index, user)?;
        if planted::is(Planted::UserForgotten) {
            return None;
        }
        let ended_for_good = matches!(
            record.state,
            ReservationState::Closed | ReservationState::PaidLate
        );
        let once = sku.once_per_activity && !planted::is(Planted::OnceForgotten);
        (record.state.is_live() || (once && ended_for_good)).then(|| record.held())
    }

    fn decide_lookup(&self, at: WallMs, lookup: &Lookup) -> Decision {
        use Decision::{Answer, Write};
        let Some(index) = self.find_sku(lookup.sku) else {
            return Answer(LedgerAnswer::NotOpen); // nothing can be promised for later, so not NotFound
        };
        let name = RequestName {
            sku: index,
            user: lookup.user,
            request_id: lookup.request_id,
        };
        if let Some(record) = self.records.request(&name) {
            return Answer(LedgerAnswer::Found(record.held()));
        }
        // An old tombstone may go soon: the promise of this answer needs a young one.
        let writes = lookup.tombstone && !planted::is(Planted::TombstoneNotWritten);
        if !writes || self.tombstones.is_young(&name) {
            return Answer(LedgerAnswer::NotFound);
        }
        if !self.tombstones.has_room() {
            return Answer(LedgerAnswer::TableFull);
        }
        Write(Entry::Tombstoned {
            sku: lookup.sku,
            user: lookup.user,
            request_id: lookup.request_id,
            at,
        })
    }

    fn decide_step(&self, at: WallMs, target: ReservationRef, step: Step) -> Decision {
        use Decision::{Answer, Write};
        let record = self.find_sku(target.sku).and_then(|index| {
            let record = self.records.get(target.reservation)?;
            (record.name.sku == index).then_some(record)
        });
        let Some(record) = record else {
            return Answer(LedgerAnswer::NoReservation);
        };
        match self.next_state(record, step) {
            Next::Stays => Answer(LedgerAnswer::Now(record.held())),
            Next::Refused => Answer(LedgerAnswer::StepRefused(record.held())),
            Next::To(to) => Write(Entry::Moved {
                reservation: record.id,
                to,
                at,
            }),
        }
    }

    /// The table of a reservation's states.
    fn next_state(&self, record: &Record, step: Step) -> Next {
        use ReservationState::{Closed, Confirmed, Failed, PaidLate, Reserved, Settled};
        if planted::is(Planted::ReleaseTwice) && self.can_release_again(record, step) {
            return Next::To(record.state);
        }
        match (step, record.state) {
            (Step::Confirm, Reserved) => Next::To(Confirmed),
            (Step::Confirm, Confirmed | Settled) => Next::Stays,
            (Step::Settle, Reserved | Confirmed) => Next::To(Settled),
            (Step::Settle, Settled) => Next::Stays,
            (Step::Release(ReleaseEnd::Closed), Reserved | Confirmed) => Next::To(Closed),
            (Step::Release(ReleaseEnd::Failed), Reserved | Confirmed) => Next::To(Failed),
            (Step::Release(_), Closed | Failed | PaidLate) => Next::Stays,
            // A unit that is free, even one that waits for the reopening, goes to who has paid.
            (Step::PaidLate, Closed | Failed) if self.can_sell_again(record) => Next::To(Settled),
            (Step::PaidLate, Closed | Failed) => Next::To(PaidLate),
            (Step::PaidLate, PaidLate | Settled) => Next::Stays,
            (Step::Confirm | Step::Settle, Closed | Failed | PaidLate)
            | (Step::Release(_), Settled)
            | (Step::PaidLate, Reserved | Confirmed) => Next::Refused,
        }
    }

    pub(super) fn can_sell_again(&self, record: &Record) -> bool {
        let name = &record.name;
        let holds = self
            .records
            .user(name.sku, name.user)
            .is_some_and(|other| other.state.is_live());
        let free = self.skus[usize::from(name.sku)].books.free;
        (!holds || planted::is(Planted::LateSaleTwice)) && free >= u64::from(record.quantity)
    }

    /// For a planted fault only.
    fn can_release_again(&self, record: &Record, step: Step) -> bool {
        let held = self.skus[usize::from(record.name.sku)].books.held;
        matches!(step, Step::Release(_))
            && matches!(
                record.state,
                ReservationState::Closed | ReservationState::Failed
            )
            && held >= u64::from(record.quantity)
    }
}

/// A step of a reservation.
#[derive(Clone, Copy)]
enum Step {
    Confirm,
    Settle,
    Release(ReleaseEnd),
    PaidLate,
}

/// What a step does to a state.
enum Next {
    To(ReservationState),
    Stays,
    Refused,
}
