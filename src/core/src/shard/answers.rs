//! What comes back: answers of the ledger and the worker, deadlines of asks, views, leases; each becomes a reply or state.
//!
//! Called by the shard for mail and ticks. Unknown is not failure: the client is told to query, the slot stays taken until
//! the ledger answers, and what is unknown is looked up, never sent again (design §4, §12.5).

use super::Shard;
use super::asks::{Kind, Pending, Wait};
use super::known::Known;
use super::reply::Reply;
use super::skus::SkuIndex;
use super::staged::StatusCall;
use super::{admit::Refusal, asks::ReplyTo, asks::RequestName};
use crate::ask::{
    Answer, Ask, AskId, Failure, Held, LedgerAnswer, LedgerOp, Lookup, Mode, Outcome,
    ReservationState,
};
use crate::limit::dimension::Dim;
use crate::limit::lease::LeaseGrant;
use crate::mail::{Addr, Mail};
use crate::planted::{self, Planted};
use crate::port::Effects;
use crate::time::Now;
use crate::view::SkuView;
use weir_proto::answer::{Code, Reason, RequestState};
use weir_proto::ids::SkuKey;
use weir_proto::ticket::{Claims, TicketReject};

/// Pause between lookups of an ask whose result is unknown.
const RESOLVE_EVERY_MS: u64 = 1_000;
/// A lookup of ours may wait so long for the owner.
const RESOLVE_BUDGET_MS: u64 = 5_000;

impl Shard {
    /// The ledger's answer to one of our asks; one that is not out any more is of an earlier run, or came twice.
    pub(super) fn answered(&mut self, now: Now, answer: Answer, fx: &mut Effects) {
        if self.stays_open(now, &answer, fx) {
            return;
        }
        let Some(pending) = self.asks.remove(answer.id) else {
            self.counters.stale_answers += 1;
            return;
        };
        let reply = match pending.kind {
            Kind::Submit => self.submit_result(now, &pending, answer.outcome),
            Kind::Status => self.status_result(answer.outcome),
            Kind::Payment => return, // payments are answered by the worker
        };
        self.finish_ask(now, pending, reply, fx);
    }

    /// True for a submit to a remote ledger whose fate this answer does not tell: the reserve's answer was lost, or a
    /// lookup of it was not carried out. Its client hears "pending" once, its slot stays taken, it is looked up again.
    fn stays_open(&mut self, now: Now, answer: &Answer, fx: &mut Effects) -> bool {
        if !self.config.is_ledger_remote {
            return false;
        }
        let Some(pending) = self.asks.get_mut(answer.id) else {
            return false;
        };
        let is_told = pending.reply_to.is_none();
        let is_open = match answer.outcome {
            Outcome::Unknown => true,
            Outcome::Failed(_) => is_told,
            Outcome::Done(_) => false,
        };
        if pending.kind != Kind::Submit || !is_open {
            return false;
        }
        let (reply_to, request, kid) = (pending.reply_to.take(), pending.request, pending.kid);
        if !is_told {
            self.counters.ask_result(answer.outcome);
            self.verified_kid = kid;
            let reply = self.pending(Reply::new(Reason::Pending));
            self.reply_if(now, reply_to, &reply, &request, fx);
        }
        self.asks
            .look_again(answer.id, now.mono.plus_ms(RESOLVE_EVERY_MS));
        true
    }

    pub(super) fn finish_ask(
        &mut self,
        now: Now,
        pending: Pending,
        reply: Reply,
        fx: &mut Effects,
    ) {
        let reply = Reply {
            request_id: pending.request.request_id,
            ..reply
        };
        let leaks = planted::is(Planted::SlotLeaks) && pending.reply_to.is_none();
        if let Some(slot) = pending.slot.filter(|_| !leaks) {
            self.slots.release(slot);
        }
        if let Some(reply_to) = pending.reply_to {
            self.verified_kid = pending.kid;
            self.reply(now, &reply_to, &reply, Some(&pending.request), fx);
        }
    }

    fn submit_result(&mut self, now: Now, pending: &Pending, outcome: Outcome) -> Reply {
        let name = &pending.request;
        self.counters.ask_result(outcome);
        if let Outcome::Done(
            LedgerAnswer::Granted(held) | LedgerAnswer::Repeated(held) | LedgerAnswer::Found(held),
        ) = outcome
        {
            self.known.put(
                name,
                Known::Granted {
                    quantity: held.quantity,
                    reservation: held.reservation,
                },
            );
        } else {
            self.known.forget(name);
        }
        match outcome {
            Outcome::Done(answer) => self.submit_answer(now, name.sku, pending.quantity, answer),
            Outcome::Failed(failure) => match failure {
                Failure::Late => self.busy_reply(Reason::DeadlineSpent),
                Failure::Busy => self.busy_reply(Reason::MailFull),
                Failure::Poisoned => self.busy_reply(Reason::StorePoisoned),
                Failure::Recovering | Failure::Unavailable => {
                    self.busy_reply(Reason::LedgerUnavailable)
                }
                Failure::Frozen => self.busy_reply(Reason::ModeQueueOnly),
                Failure::UnknownSku => Reply::new(Reason::UnknownSku),
            },
            Outcome::Unknown => self.pending(Reply::new(Reason::Pending)),
        }
    }

    fn submit_answer(
        &mut self,
        now: Now,
        sku: SkuKey,
        quantity: u32,
        answer: LedgerAnswer,
    ) -> Reply {
        match answer {
            LedgerAnswer::Granted(held) => {
                if let Some(index) = self.skus.find_key(sku) {
                    self.skus.state_mut(index).admitted += 1;
                }
                self.pending(Reply {
                    reservation: Some(held.reservation),
                    ..Reply::new(Reason::Queued)
                })
            }
            LedgerAnswer::Repeated(held) | LedgerAnswer::Found(held)
                if held.quantity == quantity || planted::is(Planted::BodyNotCompared) =>
            {
                let reply = Reply {
                    reservation: Some(held.reservation),
                    state: Some(state_word(held.state)),
                    original: Some(Code::SeckillQueued),
                    ..Reply::new(Reason::Replayed)
                };
                if held.state == ReservationState::Reserved {
                    self.pending(reply)
                } else {
                    reply
                }
            }
            LedgerAnswer::Repeated(_)
            | LedgerAnswer::Found(_)
            | LedgerAnswer::RequestIdConflict => Reply::new(Reason::RequestIdConflict),
            LedgerAnswer::SoldOut { epoch } => {
                if let Some(index) = self.skus.find_key(sku) {
                    self.skus.sold_out(now.mono, index, epoch);
                }
                Reply::new(Reason::SoldOutLedger)
            }
            LedgerAnswer::AlreadyHolds(_) => Reply::new(Reason::AlreadyPurchased),
            LedgerAnswer::ReplayRejected => Reply::new(Reason::ReplayRejected),
            LedgerAnswer::Tombstoned => Reply {
                original: Some(Code::NotAccepted),
                ..Reply::new(Reason::Tombstoned)
            },
            LedgerAnswer::NotOpen => Reply::new(Reason::NotOpenClosed),
            LedgerAnswer::ModeRefused(Mode::QueueOnly) => self.busy_reply(Reason::ModeQueueOnly),
            LedgerAnswer::ModeRefused(_) => Reply::new(Reason::ModeClosed),
            LedgerAnswer::QuantityRefused => Reply::new(Reason::QuantityRefused),
            LedgerAnswer::TableFull => self.busy_reply(Reason::TableFull),
            // Lookups of ours found nothing: the reserve was refused or never taken up.
            LedgerAnswer::NotFound => self.busy_reply(Reason::DeadlineSpent),
            LedgerAnswer::Now(_)
            | LedgerAnswer::StepRefused(_)
            | LedgerAnswer::NoReservation
            | LedgerAnswer::OpsDone(_) => {
                unreachable!("the ledger answers a reserve or a lookup with one of their answers")
            }
        }
    }

    fn status_result(&mut self, outcome: Outcome) -> Reply {
        match outcome {
            Outcome::Done(LedgerAnswer::Found(held) | LedgerAnswer::Repeated(held)) => {
                self.status_of(&held)
            }
            Outcome::Done(LedgerAnswer::NotFound | LedgerAnswer::Tombstoned) => {
                Reply::new(Reason::NotAccepted)
            }
            Outcome::Done(_) => self.busy_reply(Reason::StatusBusy),
            Outcome::Failed(Failure::Late) => self.busy_reply(Reason::StatusBusy),
            Outcome::Failed(_) => self.busy_reply(Reason::StatusUnavailable),
            Outcome::Unknown => self.pending(Reply::new(Reason::StatusPending)),
        }
    }

    fn status_of(&mut self, held: &Held) -> Reply {
        let reply = Reply {
            reservation: Some(held.reservation),
            ..Reply::new(Reason::for_status(state_word(held.state)))
        };
        match held.state {
            ReservationState::Reserved | ReservationState::Confirmed => self.pending(reply),
            _ => reply,
        }
    }

    /// A status query: the ticket is the credential, whatever its expiry, until the activity's end and retention
    /// (design §12.12); its own limit and slots, so that it works when submit is closed (A5).
    pub(super) fn status(
        &mut self,
        now: Now,
        reply_to: ReplyTo,
        call: &StatusCall,
        fx: &mut Effects,
    ) -> Option<Reply> {
        match self.status_stages(now, reply_to, call, fx) {
            Ok(()) => None,
            Err(refusal) => Some(Reply {
                request_id: call.request_id,
                ..refusal.into()
            }),
        }
    }

    fn status_stages(
        &mut self,
        now: Now,
        reply_to: ReplyTo,
        call: &StatusCall,
        fx: &mut Effects,
    ) -> Result<(), Refusal> {
        let sku = SkuKey {
            activity: call.activity,
            sku: call.sku,
        };
        let index = self.skus.find_key(sku).ok_or(Reason::UnknownSku)?;
        self.gate_address(now, call.client)?;
        self.source(now, call.client)?;
        let claims = self.authentic(call.ticket)?;
        let checked = self.status_ticket(now, call, index, &claims);
        self.verified(checked)?;
        self.note_user(now, claims.user);
        let judged = self.limits.of(Dim::Status).take(now.mono, &[claims.user.0]);
        self.limits.check(Dim::Status, &judged)?;
        let told = self.limits.told(Dim::Status, &judged);
        let slot = self
            .slots
            .acquire_status()
            .map_err(|_| self.busy(Reason::StatusBusy))?;
        let request = RequestName {
            sku,
            user: claims.user,
            request_id: call.request_id,
        };
        let due = reply_to.arrived.plus_ms(self.config.request_budget_ms);
        let pending = Pending {
            reply_to: Some(ReplyTo { told, ..reply_to }),
            kind: Kind::Status,
            request,
            quantity: 0,
            owner_boot: self.skus.owner_boot(),
            due,
            slot: Some(slot),
            kid: self.verified_kid,
        };
        let id = self
            .asks
            .insert(pending, Wait::Request)
            .expect("there are as many places as in-flight slots");
        let lookup = Lookup {
            sku,
            user: request.user,
            request_id: request.request_id,
            tombstone: true,
        };
        fx.post(
            Addr::Owner,
            Mail::Ask(Ask {
                from: self.addr(),
                id,
                deadline: due,
                op: LedgerOp::Lookup(lookup),
            }),
        );
        Ok(())
    }

    fn status_ticket(
        &self,
        now: Now,
        call: &StatusCall,
        index: SkuIndex,
        claims: &Claims,
    ) -> Result<(), TicketReject> {
        let (activity, _) = self.skus.spec(index);
        // The user is whoever the ticket was made for: it asks for its own requests only.
        let expect = self.expectation(now, index, claims.user, call.device);
        claims.check_subject(&expect)?;
        if now.wall >= activity.closes_at.plus_ms(activity.retention_ms) {
            return Err(TicketReject::Expired);
        }
        claims.check_device(&expect)
    }

    /// Deadlines of asks: the client hears "unknown", the slot stays; then a lookup from time to time.
    pub(super) fn expire_asks(&mut self, now: Now, fx: &mut Effects) {
        while let Some(id) = self.asks.next_due(now.mono) {
            let Some(pending) = self.asks.get_mut(id) else {
                continue;
            };
            let (kind, request, kid) = (pending.kind, pending.request, pending.kid);
            let reply_to = pending.reply_to.take();
            self.verified_kid = kid;
            match (kind, reply_to) {
                (Kind::Payment, _) => {
                    self.asks.remove(id);
                    self.payments_out -= 1;
                    let reply = self.busy_reply(Reason::PaymentUnavailable);
                    self.reply_if(now, reply_to, &reply, &request, fx);
                    continue;
                }
                (Kind::Submit, Some(_)) => {
                    self.counters.unknowns += 1;
                    let reply = self.pending(Reply::new(Reason::Pending));
                    self.reply_if(now, reply_to, &reply, &request, fx);
                }
                (Kind::Status, Some(_)) => {
                    let reply = self.pending(Reply::new(Reason::StatusPending));
                    self.reply_if(now, reply_to, &reply, &request, fx);
                }
                (Kind::Submit | Kind::Status, None) => self.look_up(now, id, &request, fx),
            }
            self.asks.look_again(id, now.mono.plus_ms(RESOLVE_EVERY_MS));
        }
    }

    fn look_up(&mut self, now: Now, id: AskId, request: &RequestName, fx: &mut Effects) {
        let lookup = Lookup {
            sku: request.sku,
            user: request.user,
            request_id: request.request_id,
            tombstone: self.config.is_ledger_remote,
        };
        let deadline = now.mono.plus_ms(RESOLVE_BUDGET_MS);
        fx.post(
            Addr::Owner,
            Mail::Ask(Ask {
                from: self.addr(),
                id,
                deadline,
                op: LedgerOp::Lookup(lookup),
            }),
        );
    }

    fn reply_if(
        &mut self,
        now: Now,
        reply_to: Option<ReplyTo>,
        reply: &Reply,
        request: &RequestName,
        fx: &mut Effects,
    ) {
        if let Some(reply_to) = reply_to {
            let reply = Reply {
                request_id: request.request_id,
                ..*reply
            };
            self.reply(now, &reply_to, &reply, Some(request), fx);
        }
    }

    /// The owner's word on a SKU. A new run of the owner will never answer what the old one was asked.
    pub(super) fn viewed(&mut self, now: Now, view: SkuView, fx: &mut Effects) {
        let was_ready = self.skus.is_ready();
        let boot = view.boot;
        if self.skus.apply(now.mono, view) {
            for id in self.asks.of_earlier_boot(boot) {
                let Some(pending) = self.asks.remove(id) else {
                    continue;
                };
                let reply = match pending.kind {
                    Kind::Submit => self.submit_result(now, &pending, Outcome::Unknown),
                    Kind::Status | Kind::Payment => self.status_result(Outcome::Unknown),
                };
                self.finish_ask(now, pending, reply, fx);
            }
        }
        if !was_ready && self.skus.is_ready() {
            self.views_since = Some(now.mono);
            fx.accept(!self.draining);
        }
    }

    /// Prepaid tokens came.
    pub(super) fn leased(&mut self, now: Now, grant: &LeaseGrant) {
        if let Some(index) = self.skus.find_key(grant.sku) {
            self.skus.state_mut(index).budget.grant(now.mono, grant);
        }
    }

    /// Draws ahead of need, at the turn's end, never in a request.
    pub(super) fn draw_leases(&mut self, now: Now, fx: &mut Effects) {
        if self.draining || !self.config.role.sells() {
            return;
        }
        for state in self.skus.states_mut() {
            if let Some(draw) = state.budget.want(now.mono) {
                fx.post(Addr::Owner, Mail::LeaseDraw(draw));
            }
        }
    }
}

/// The client's word for where a reservation stands.
fn state_word(state: ReservationState) -> RequestState {
    match state {
        ReservationState::Reserved => RequestState::Queued,
        ReservationState::Confirmed => RequestState::Created,
        ReservationState::Settled => RequestState::Paid,
        ReservationState::Closed => RequestState::Closed,
        ReservationState::Failed => RequestState::Failed,
        ReservationState::PaidLate => RequestState::PaidLate,
    }
}
