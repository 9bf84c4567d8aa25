//! What buyers do: by their kind when they arrive, and by each reply or silence.

use super::buyer::{Kind, Pays};
use super::bytes::{self, Payment};
use super::vandal::Prank;
use super::{Act, Crowd, Heard, Sent, What};
use weir_core::port::Effects;
use weir_core::time::{Mono, NS_PER_MS, Now};
use weir_proto::addr::Source;
use weir_proto::answer::{
    Code, RequestState, read_code, read_state, read_text_member, read_u64_member,
};
use weir_proto::payment::reservation_id;

/// A buyer waits for a reply at least this long.
const PATIENCE_MS: u64 = 500;
/// Somebody who sends half a request waits this long for its answer: above every deadline of a shard.
const STALL_MS: u64 = 4_000;
/// Submits under one request id.
const TRIES_MAX: u32 = 6;
/// Callbacks of one payment.
const PAY_TRIES_MAX: u32 = 12;

impl Crowd {
    fn after_ms(&mut self, now: Now, ms_min: u64, ms_more: u64) -> Mono {
        let us = self.rng.below(ms_more * 1_000 + 1);
        Mono(now.mono.0 + ms_min * NS_PER_MS + us * 1_000)
    }

    fn kind_of(&self, wish: u32) -> Kind {
        let buyer = self.wishes[wish as usize].buyer;
        self.buyers[buyer as usize].kind
    }

    fn sent(&mut self, now: Now, wish: u32, what: What) -> Sent {
        let due = self.after_ms(now, PATIENCE_MS, 1_500);
        Sent { wish, what, due }
    }

    /// A buyer comes, or comes back, with a new wish.
    pub(super) fn arrive(&mut self, now: Now, buyer: u32, fx: &mut Effects) {
        if self.closing {
            return;
        }
        let wish = self.wish(buyer, None);
        match self.buyers[buyer as usize].kind {
            Kind::DoubleClick => {
                self.submit(now, wish, fx);
                self.submit_as(now, wish, What::Submit, true, fx);
            }
            Kind::OtherRequest | Kind::SameNonce => {
                self.submit(now, wish, fx);
                let like = (self.buyers[buyer as usize].kind == Kind::SameNonce).then_some(wish);
                let other = self.wish(buyer, like);
                let at = self.after_ms(now, 0, 20);
                self.plan_act(at, Act::Submit(other));
            }
            Kind::OtherBody => {
                self.submit(now, wish, fx);
                let fresh = self.rng.chance(1, 2);
                self.submit_as(now, wish, What::OtherBody, fresh, fx);
            }
            Kind::AsksFirst => {
                self.poll(now, wish, fx);
                let at = self.after_ms(now, 0, 5);
                self.plan_act(at, Act::Submit(wish));
            }
            Kind::Pipelined => {
                self.submit(now, wish, fx);
                self.poll(now, wish, fx);
            }
            Kind::Impatient => {
                let (line, stamp) = self.submit_as(now, wish, What::Submit, true, fx);
                let at = self.after_ms(now, 0, 3);
                self.plan_act(at, Act::HangUp(line, stamp));
            }
            Kind::Vandal => self.prank(now, wish, fx),
            _ => self.submit(now, wish, fx),
        }
    }

    fn prank(&mut self, now: Now, wish: u32, fx: &mut Effects) {
        let sku = self.wishes[wish as usize].sku;
        let prank = Prank::draw(&self.plan, sku, now.wall, &mut self.rng);
        let due = now.mono.plus_ms(STALL_MS);
        let sent = Sent {
            wish,
            what: What::Prank(prank.status),
            due,
        };
        self.send(now, sent, &prank.bytes, true, fx);
        self.come_back(now, wish);
    }

    /// The next submit of a wish, as long as that makes sense.
    pub(super) fn submit(&mut self, now: Now, wish: u32, fx: &mut Effects) {
        let known = &self.wishes[wish as usize];
        if self.closing || known.tries >= TRIES_MAX {
            if known.doubt {
                self.poll_at(now.mono, wish);
            }
            return;
        }
        self.submit_as(now, wish, What::Submit, false, fx);
    }

    fn submit_as(
        &mut self,
        now: Now,
        wish: u32,
        what: What,
        fresh: bool,
        fx: &mut Effects,
    ) -> (u32, u32) {
        let known = &mut self.wishes[wish as usize];
        known.tries += 1;
        let quantity = known.quantity + u32::from(what == What::OtherBody);
        let path = match self.buyers[known.buyer as usize].kind {
            Kind::WrongPath => "p_0ld000",
            _ => self.plan.activity(known.sku).path_id.as_str(),
        };
        let mut out = Vec::with_capacity(640);
        let to = (path, now.wall);
        bytes::put_submit(&self.plan, known, (&known.ticket, quantity), to, &mut out);
        let sent = self.sent(now, wish, what);
        self.send(now, sent, &out, fresh, fx)
    }

    /// A repetition of what is granted.
    pub(super) fn again(&mut self, now: Now, wish: u32, fx: &mut Effects) {
        if !self.closing {
            self.submit_as(now, wish, What::Again, false, fx);
        }
    }

    /// Plans a status query, unless one is planned.
    fn poll_at(&mut self, at: Mono, wish: u32) {
        let known = &mut self.wishes[wish as usize];
        if !known.polling && !known.is_settled() {
            known.polling = true;
            self.plan_act(at, Act::Poll(wish));
        }
    }

    pub(super) fn poll(&mut self, now: Now, wish: u32, fx: &mut Effects) {
        let known = &mut self.wishes[wish as usize];
        known.polling = true;
        let mut out = Vec::with_capacity(512);
        bytes::put_status(&self.plan, known, &mut out);
        let sent = self.sent(now, wish, What::Poll);
        self.send(now, sent, &out, false, fx);
    }

    pub(super) fn pay(&mut self, now: Now, wish: u32, attempt: u32, fx: &mut Effects) {
        let known = &self.wishes[wish as usize];
        let (false, Some(reservation)) = (self.closing, known.queued) else {
            return;
        };
        let pays = self.buyers[known.buyer as usize].pays;
        let price = self.plan.sku(known.sku).unit_price.minor;
        let price = price * u64::from(known.quantity);
        let amount_minor = match (pays, attempt / 100) {
            (Pays::TooLittleFirst, 0) | (Pays::OneIdForTwo, 1) => price - 1,
            _ => price,
        };
        let id = payment_name(wish, pays, attempt / 100);
        let payment = Payment {
            id: &id,
            reservation,
            amount_minor,
        };
        let mut out = Vec::with_capacity(640);
        bytes::put_payment(&self.plan, now.wall, known, &payment, &mut out);
        let sent = self.sent(now, wish, What::Pay(attempt));
        self.send(now, sent, &out, false, fx);
    }

    /// A reply to `sent`.
    pub(super) fn replied(&mut self, now: Now, sent: Sent, status: u16, body: &[u8]) {
        match sent.what {
            What::Submit | What::OtherBody => self.submit_replied(now, sent, status, body),
            What::Again => self.again_replied(now, sent.wish, body),
            What::Prank(wanted) => {
                // A connection without its proxy's word is refused whatever follows; a stall ends with its deadline, and the
                // door has limits of its own.
                let proxied = self.plan.shard.source == Source::ProxyProtocol;
                let limited = matches!(status, 408 | 429)
                    || (status == 403 && self.plan.has_gates())
                    || (status == 401 && self.plan.shard.signature.is_some())
                    || (status == 503 && self.plan.machines() > 1); // done elsewhere, whatever it is
                if status != wanted && !(proxied && status == 400) && !limited {
                    self.broken(format!("{wanted} was wanted, but the answer is {status}"));
                }
            }
            What::Poll => self.poll_replied(now, sent.wish, status, body),
            What::Pay(attempt) => self.pay_replied(now, sent.wish, attempt, status),
        }
    }

    fn submit_replied(&mut self, now: Now, sent: Sent, status: u16, body: &[u8]) {
        let wish = sent.wish;
        let code = read_code(body);
        match code {
            Some(Code::SeckillQueued) => {
                self.accepted(sent);
                self.told_queued(now, wish, body);
            }
            Some(Code::RequestReplayed) => match read_text_member(body, "original_code") {
                Some(original) if original == Code::SeckillQueued.as_str().as_bytes() => {
                    self.accepted(sent);
                    self.told_queued(now, wish, body);
                }
                _ => self.wishes[wish as usize].told = Some(RequestState::NotAccepted),
            },
            Some(Code::SeckillPending) => {
                self.heard.push(Heard::Unknown);
                self.wishes[wish as usize].doubt = true;
                self.in_doubt(now, wish);
            }
            Some(Code::RateLimited | Code::SystemOverloaded | Code::DependencyUnavailable) => {
                let wait_ms = read_u64_member(body, "retry_after_ms").unwrap_or(200);
                let tries = self.wishes[wish as usize].tries;
                let more_ms = 50_u64 << tries.min(5); // full jitter
                let at = self.after_ms(now, wait_ms.min(3_000), more_ms);
                if sent.what == What::Submit {
                    self.plan_act(at, Act::Submit(wish));
                }
            }
            Some(_) => self.come_back(now, wish),
            None => self.broken(format!("status {status} with a body that is not ours")),
        }
        let kind = self.kind_of(wish);
        let known = &self.wishes[wish as usize];
        let is_barred = kind.is_barred() || self.plan.bars(known.user);
        if is_barred && known.queued.is_some() {
            self.broken(format!("{kind:?} was answered {code:?}"));
        }
        // Whatever this answer says: an earlier one that did not come may have been a grant.
        let at = self.after_ms(now, 20, 400);
        self.poll_at(at, wish);
    }

    /// A body was accepted under its request id: no other one may be.
    fn accepted(&mut self, sent: Sent) {
        let bodies = &mut self.wishes[sent.wish as usize].bodies;
        bodies[usize::from(sent.what == What::OtherBody)] = true;
        if *bodies == [true; 2] {
            self.broken("two bodies were accepted under one request id");
        }
    }

    /// What was granted is asked for again: nobody may be told that it was not. A sale that is closed, paused or too busy
    /// may say so before it looks.
    fn again_replied(&mut self, now: Now, wish: u32, body: &[u8]) {
        match read_code(body) {
            Some(Code::RequestReplayed) => self.told_queued(now, wish, body),
            // Where views may be late or lost, a shard may still hold the mark of an epoch before the grant (E3).
            Some(Code::SeckillSoldOut) if self.plan.views_are_late() => {}
            Some(
                code @ (Code::SeckillQueued
                | Code::SeckillSoldOut
                | Code::AlreadyPurchased
                | Code::ReplayRejected
                | Code::RequestIdConflict),
            ) => self.broken(format!(
                "what was QUEUED was answered {code:?} the next time"
            )),
            _ => {}
        }
    }

    /// 202 QUEUED, or the repetition of it.
    fn told_queued(&mut self, now: Now, wish: u32, body: &[u8]) {
        let Some(reservation) = read_text_member(body, "reservation_id").and_then(reservation_id)
        else {
            self.broken("QUEUED without a reservation");
            return;
        };
        let known = &mut self.wishes[wish as usize];
        if known.queued.is_some_and(|before| before != reservation) {
            self.broken("one request id was answered with two reservations");
            return;
        }
        known.queued = Some(reservation);
        let is_first = known.tries > 0 && !known.paying;
        self.heard.push(Heard::Queued { wish, reservation });
        if is_first && self.kind_of(wish) != Kind::OtherBody && self.rng.chance(1, 6) {
            let at = self.after_ms(now, 10, 2_000);
            self.plan_act(at, Act::Again(wish));
        }
        let at = self.after_ms(now, 50, 600);
        self.poll_at(at, wish);
        self.plan_payment(now, wish);
    }

    fn plan_payment(&mut self, now: Now, wish: u32) {
        let known = &mut self.wishes[wish as usize];
        if std::mem::replace(&mut known.paying, true) {
            return;
        }
        let unpaid_ms = self.plan.sku(known.sku).unpaid_timeout_ms;
        match self.buyers[known.buyer as usize].pays {
            Pays::Never => {}
            Pays::AfterTheEnd => {
                let at = self.after_ms(now, unpaid_ms, 300);
                self.plan_act(at, Act::Pay(wish, 0));
            }
            pays => {
                let at = self.after_ms(now, 1, unpaid_ms + 50);
                self.plan_act(at, Act::Pay(wish, 0));
                if matches!(pays, Pays::Twice | Pays::TooLittleFirst | Pays::OneIdForTwo) {
                    let at = Mono(at.0 + self.rng.below(300) * NS_PER_MS);
                    self.plan_act(at, Act::Pay(wish, 100));
                }
            }
        }
    }

    fn poll_replied(&mut self, now: Now, wish: u32, status: u16, body: &[u8]) {
        self.wishes[wish as usize].polling = false;
        let mut wait_ms = read_u64_member(body, "next_poll_after_ms").unwrap_or(300);
        match read_code(body) {
            Some(Code::SeckillStatus | Code::NotAccepted) => {
                let Some(state) = read_state(body) else {
                    self.broken("a status without a state");
                    return;
                };
                let known = &mut self.wishes[wish as usize];
                let before = known.told;
                if before == Some(RequestState::NotAccepted) && state != RequestState::NotAccepted {
                    self.broken(format!("NOT_ACCEPTED became {}", state.as_str()));
                    return;
                }
                known.told = Some(state);
                if let Some(reservation) =
                    read_text_member(body, "reservation_id").and_then(reservation_id)
                {
                    known.queued = Some(reservation);
                    self.heard.push(Heard::Queued { wish, reservation });
                    self.plan_payment(now, wish);
                }
                if state.is_terminal() {
                    self.come_back(now, wish);
                }
            }
            Some(
                Code::RateLimited
                | Code::SystemOverloaded
                | Code::DependencyUnavailable
                | Code::TemporarilyBanned,
            ) => {
                wait_ms = read_u64_member(body, "retry_after_ms").unwrap_or(300);
            }
            // Its address was denied from the start: nothing of its can be open.
            Some(Code::AccessDenied)
                if self.plan.denies_address(self.wishes[wish as usize].buyer) =>
            {
                self.wishes[wish as usize].told = Some(RequestState::Rejected);
                return;
            }
            Some(Code::SeckillPending) => {}
            // A bad ticket cannot ask either: nothing of its can be open.
            Some(Code::TokenInvalid | Code::Unauthenticated)
                if matches!(self.kind_of(wish), Kind::BadTicket(_)) =>
            {
                self.wishes[wish as usize].told = Some(RequestState::Rejected);
                return;
            }
            code => {
                self.broken(format!("a status query was answered {status} {code:?}"));
                return;
            }
        }
        let at = self.after_ms(now, wait_ms.min(3_000), 200);
        self.poll_at(at, wish);
    }

    fn pay_replied(&mut self, now: Now, wish: u32, attempt: u32, status: u16) {
        match status {
            200 => self.wishes[wish as usize].paid = Some(attempt / 100),
            // No order yet, or nobody to take it: the provider tries again.
            404 | 503 | 429 => self.pay_again(now, wish, attempt),
            _ => {}
        }
    }

    fn pay_again(&mut self, now: Now, wish: u32, attempt: u32) {
        if attempt % 100 < PAY_TRIES_MAX {
            let at = self.after_ms(now, 50, 500);
            self.plan_act(at, Act::Pay(wish, attempt + 1));
        }
    }

    /// No reply came; `reached`: the request may have arrived.
    pub(super) fn unanswered(&mut self, now: Now, sent: Sent, reached: bool) {
        let wish = sent.wish;
        match sent.what {
            What::Submit | What::OtherBody => {
                self.wishes[wish as usize].doubt |= reached;
                self.in_doubt(now, wish);
            }
            What::Poll => {
                self.wishes[wish as usize].polling = false;
                let at = self.after_ms(now, 50, 500);
                self.poll_at(at, wish);
            }
            What::Pay(attempt) => self.pay_again(now, wish, attempt),
            What::Again | What::Prank(_) => {}
        }
    }

    /// The result is not known: half of the buyers send the same request again, the others ask.
    fn in_doubt(&mut self, now: Now, wish: u32) {
        let at = self.after_ms(now, 10, 600);
        if self.rng.chance(1, 2) && !self.closing {
            self.plan_act(at, Act::Submit(wish));
        } else {
            self.poll_at(at, wish);
        }
    }

    /// A wish ended: perhaps the buyer comes back for another.
    fn come_back(&mut self, now: Now, wish: u32) {
        let buyer = self.wishes[wish as usize].buyer;
        let who = &mut self.buyers[buyer as usize];
        if who.returns > 0 && !self.closing {
            who.returns -= 1;
            let at = self.after_ms(now, 50, 2_500);
            self.plan_act(at, Act::Arrive(buyer));
        }
    }
}

/// The name of a payment. Attempts share it; a second payment of "Twice" and the short one have their own.
pub(in crate::sim) fn payment_name(wish: u32, pays: Pays, number: u32) -> String {
    let name = match (pays, number) {
        (Pays::TooLittleFirst, 0) => "short",
        (_, 0) | (Pays::OneIdForTwo, _) => "first",
        _ => "second",
    };
    format!("pay-{wish}-{name}")
}
