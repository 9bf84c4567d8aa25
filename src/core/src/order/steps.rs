//! What the worker has asked of the ledger and waits for: one entry per order, asked again until it is acknowledged.
//!
//! Called by the worker only. Invariants: at most `limits::LEDGER_STEPS_MAX` entries; an entry follows the newest
//! version of its order, answers to older asks are ignored; every step is idempotent in the ledger, so asking again
//! after a lost or unknown answer is safe. What does not fit or is given up stays marked in its row (`acked < version`).

use super::contract::{Fenced, OrderCommand, Standing};
use super::state::{LedgerStep, OrderState};
use crate::ask::{
    Answer, Ask, AskId, Held, LedgerAnswer, LedgerOp, Outcome, Release, ReleaseEnd, ReservationRef,
    ReservationState,
};
use crate::limits::LEDGER_STEPS_MAX;
use crate::mail::{Addr, Mail};
use crate::planted::{self, Planted};
use crate::port::Effects;
use crate::time::Mono;
use alloc::collections::{BTreeMap, BTreeSet};
use weir_proto::ids::ReservationId;

/// How long the owner may take to take up an ask. Nobody waits for it but the worker, so it is generous.
const ASK_MS: u64 = 2_000;
/// How long after its deadline an ask counts as lost: the answer's way back.
const GRACE_MS: u64 = 500;
/// The first pause before asking again; doubles up to [`PAUSE_MS_MAX`].
const PAUSE_MS: u64 = 50;
/// The longest pause before asking again.
const PAUSE_MS_MAX: u64 = 5_000;
/// Tries before an entry makes room; the sweep brings it back.
const ATTEMPTS_MAX: u32 = 12;

/// One order whose step is not acknowledged.
#[derive(Debug)]
struct Open {
    standing: Standing,
    /// What is asked now; differs from the state's own step while a detour is needed.
    step: LedgerStep,
    ask: Option<AskId>,
    timer: Mono,
    attempts: u32,
}

/// What an answer means for an order.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// This command records it; the entry is done.
    Record(OrderCommand),
    /// Another step comes first.
    Ask(LedgerStep),
    /// Nothing is known; later again.
    Again,
}

/// The open steps.
#[derive(Debug)]
pub(super) struct Steps {
    open: BTreeMap<ReservationId, Open>,
    by_ask: BTreeMap<AskId, ReservationId>,
    timers: BTreeSet<(Mono, ReservationId)>,
    next_ask: u64,
    /// An entry did not fit or was given up: a sweep of the rows is needed.
    pub(super) left_some: bool,
    /// Answers that contradict the order store; reconcile shows them.
    pub(super) disputes: u64,
}

impl Steps {
    /// `boot` differs between runs of the worker, so that an answer to an older run names no ask of this one.
    pub(super) fn new(boot: u32) -> Self {
        Self {
            open: BTreeMap::new(),
            by_ask: BTreeMap::new(),
            timers: BTreeSet::new(),
            next_ask: u64::from(boot) << 40,
            left_some: false,
            disputes: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// Asks the ledger for the step of this standing, unless a newer or equal version is open already.
    pub(super) fn want(&mut self, now: Mono, standing: Standing) {
        let Some(step) = standing.state.ledger_step() else {
            return;
        };
        let is_forgotten = match standing.state {
            OrderState::Paid => planted::is(Planted::SettleForgotten),
            OrderState::Closed => planted::is(Planted::ReleaseForgotten),
            _ => false,
        };
        if is_forgotten {
            return;
        }
        let reservation = standing.reservation;
        match self.open.get(&reservation) {
            Some(open) if open.standing.version >= standing.version => return,
            Some(_) => self.forget(reservation),
            None if self.open.len() >= LEDGER_STEPS_MAX => {
                self.left_some = true;
                return;
            }
            None => {}
        }
        self.timers.insert((now, reservation));
        self.open.insert(
            reservation,
            Open {
                standing,
                step,
                ask: None,
                timer: now,
                attempts: 0,
            },
        );
    }

    /// Posts every ask that is due.
    pub(super) fn send_due(&mut self, now: Mono, fx: &mut Effects) {
        while let Some(&(timer, reservation)) = self.timers.first() {
            if timer > now || fx.posts_waiting() >= LEDGER_STEPS_MAX {
                return;
            }
            self.timers.remove(&(timer, reservation));
            let open = self
                .open
                .get_mut(&reservation)
                .expect("a timer names an open step");
            if open.attempts >= ATTEMPTS_MAX {
                self.left_some = true;
                self.forget(reservation);
                continue;
            }
            if let Some(lost) = open.ask.take() {
                self.by_ask.remove(&lost);
            }
            let id = AskId(self.next_ask);
            self.next_ask += 1;
            let deadline = now.plus_ms(ASK_MS);
            open.ask = Some(id);
            open.attempts += 1;
            open.timer = deadline.plus_ms(GRACE_MS);
            self.timers.insert((open.timer, reservation));
            self.by_ask.insert(id, reservation);
            let ask = Ask {
                from: Addr::Worker,
                id,
                deadline,
                op: ledger_op(open.step, &open.standing),
            };
            fx.post(Addr::Owner, Mail::Ask(ask));
        }
    }

    /// Takes an answer; gives the command that records what it means, if anything is to be recorded now.
    pub(super) fn answered(&mut self, now: Mono, answer: &Answer) -> Option<OrderCommand> {
        let reservation = self.by_ask.remove(&answer.id)?;
        let open = self
            .open
            .get_mut(&reservation)
            .expect("an ask names an open step");
        open.ask = None;
        let (verdict, disputed) = match answer.outcome {
            Outcome::Done(done) => judge(&open.standing, open.step, done),
            Outcome::Failed(_) | Outcome::Unknown => (Verdict::Again, false),
        };
        self.disputes += u64::from(disputed);
        let timer = match verdict {
            Verdict::Record(command) => {
                self.forget(reservation);
                return Some(command);
            }
            Verdict::Ask(step) => {
                open.step = step;
                now
            }
            Verdict::Again => now.plus_ms((PAUSE_MS << open.attempts.min(10)).min(PAUSE_MS_MAX)),
        };
        self.timers.remove(&(open.timer, reservation));
        open.timer = timer;
        self.timers.insert((timer, reservation));
        None
    }

    /// When something is due next.
    pub(super) fn next_deadline(&self) -> Option<Mono> {
        self.timers.first().map(|(timer, _)| *timer)
    }

    fn forget(&mut self, reservation: ReservationId) {
        if let Some(open) = self.open.remove(&reservation) {
            self.timers.remove(&(open.timer, reservation));
            if let Some(ask) = open.ask {
                self.by_ask.remove(&ask);
            }
        }
    }
}

fn ledger_op(step: LedgerStep, standing: &Standing) -> LedgerOp {
    let target = ReservationRef {
        sku: standing.sku,
        reservation: standing.reservation,
    };
    let release = |end| LedgerOp::Release(Release { target, end });
    match step {
        LedgerStep::Confirm => LedgerOp::Confirm(target),
        LedgerStep::Settle => LedgerOp::Settle(target),
        LedgerStep::PaidLate => LedgerOp::PaidLate(target),
        LedgerStep::ReleaseClosed => release(ReleaseEnd::Closed),
        LedgerStep::ReleaseFailed => release(ReleaseEnd::Failed),
    }
}

/// Reads the ledger's answer to `step` for an order that stands at `standing`; true in the second place: the two
/// stores contradict each other.
fn judge(standing: &Standing, step: LedgerStep, answer: LedgerAnswer) -> (Verdict, bool) {
    let at = Fenced {
        reservation: standing.reservation,
        version: standing.version,
    };
    let ack = Verdict::Record(OrderCommand::Ack(at));
    let state = match answer {
        LedgerAnswer::Now(Held { state, .. }) | LedgerAnswer::StepRefused(Held { state, .. }) => {
            Some(state)
        }
        LedgerAnswer::NoReservation => None,
        // No answer to a step of ours: only a bug of the ledger can say it. Nothing is concluded from it.
        _ => return (Verdict::Again, true),
    };
    match standing.state {
        OrderState::Reserved | OrderState::Queued => (Verdict::Again, true),
        OrderState::Created => match state {
            Some(ReservationState::Confirmed | ReservationState::Settled) => (ack, false),
            Some(ReservationState::Reserved) => (Verdict::Again, true),
            // Nothing is held for it: the order must not stay open for payment.
            Some(_) | None => (Verdict::Record(OrderCommand::Close(at)), true),
        },
        OrderState::Paid => judge_paid(at, step, state),
        OrderState::Closed | OrderState::Failed => (ack, state == Some(ReservationState::Settled)),
        OrderState::PaidLate => match state {
            _ if planted::is(Planted::ResellUnasked) => {
                (Verdict::Record(OrderCommand::Resell(at)), false)
            }
            Some(ReservationState::Settled) => (Verdict::Record(OrderCommand::Resell(at)), false),
            // The release of the close before was lost and superseded: the unit is still there, so it can be sold.
            Some(ReservationState::Reserved) if step == LedgerStep::Settle => {
                (Verdict::Ask(LedgerStep::Confirm), false)
            }
            Some(ReservationState::Reserved | ReservationState::Confirmed) => {
                (Verdict::Ask(LedgerStep::Settle), false)
            }
            Some(ReservationState::Closed | ReservationState::Failed)
                if step != LedgerStep::PaidLate =>
            {
                (Verdict::Ask(LedgerStep::PaidLate), false)
            }
            Some(_) | None => (ack, false),
        },
    }
}

fn judge_paid(at: Fenced, step: LedgerStep, state: Option<ReservationState>) -> (Verdict, bool) {
    match state {
        Some(ReservationState::Settled) => (Verdict::Record(OrderCommand::Ack(at)), false),
        // A crash lost the confirm: it goes first.
        Some(ReservationState::Reserved) => (Verdict::Ask(LedgerStep::Confirm), false),
        Some(ReservationState::Confirmed) => (Verdict::Ask(LedgerStep::Settle), false),
        Some(ReservationState::Closed | ReservationState::Failed)
            if step != LedgerStep::PaidLate =>
        {
            (Verdict::Ask(LedgerStep::PaidLate), true)
        }
        Some(_) | None => (Verdict::Record(OrderCommand::LoseUnit(at)), true),
    }
}
