//! What an answer means to its buyer: what it does next, and whether the answer may be.
//!
//! One top-level function over (move, code); each kind's expectation stands where it is checked. Waits that the server
//! tells (429, 503) are obeyed; an unknown result (202 PENDING) is asked for, never sent again.

use super::act::{ActId, Cue, Move, Stage};
use super::crowd::Crowd;
use super::kinds::Kind;
use super::limits::{BURST_TRIES_MAX, CLOCK_SLACK_MS, PAUSE_MS, TRIES_MAX, UNPAID_TIMEOUT_MS};
use super::tally::{Told, bump};
use super::words::Words;
use weir_bench::client::Answer;
use weir_core::time::{Mono, NS_PER_MS, Now};
use weir_proto::answer::{
    Code, RequestState, read_code, read_state, read_text_member, read_u64_member,
};
use weir_proto::payment::reservation_id;

/// An answer, read.
#[derive(Clone, Copy, Debug)]
struct Word<'a> {
    code: Code,
    status: u16,
    body: &'a [u8],
    retry_after_s: Option<u32>,
    /// When its request was sent.
    sent: Mono,
}

impl Word<'_> {
    fn wait_ms(&self) -> Option<u64> {
        read_u64_member(self.body, "retry_after_ms")
    }

    fn poll_ms(&self) -> u64 {
        read_u64_member(self.body, "next_poll_after_ms").unwrap_or(PAUSE_MS)
    }

    fn reservation(&self) -> Option<weir_proto::ids::ReservationId> {
        read_text_member(self.body, "reservation_id").and_then(reservation_id)
    }

    /// A repeat of a request that a status query has closed for ever (design §12.5).
    fn never_accepted(&self) -> bool {
        read_text_member(self.body, "original_code") == Some(Code::NotAccepted.as_str().as_bytes())
    }
}

impl Crowd {
    /// Takes the answer to `cue`, whose request was sent at `sent`.
    pub(super) fn answered(&mut self, now: Now, cue: Cue, sent: Mono, answer: &Answer<'_>) {
        let Some(code) = read_code(answer.body) else {
            self.wrong(cue, "an answer without a code");
            return self.end(cue.act, None);
        };
        self.tally.answers[code as usize] += 1;
        if cue.step != Move::Status {
            let kind = self.kind_of(cue);
            self.tally.kind(kind).answers[code as usize] += 1;
        }
        let word = Word {
            code,
            status: answer.status,
            body: answer.body,
            retry_after_s: answer.retry_after_s,
            sent,
        };
        let limited_is_news = matches!(cue.step, Move::Burst | Move::TooSoon | Move::AfterWait);
        match code {
            Code::SystemOverloaded | Code::DependencyUnavailable => {
                self.acts.get_mut(cue.act).heard.paid_again |= cue.step.is_payment();
                self.again(now, cue, word.wait_ms());
            }
            Code::RateLimited if !limited_is_news => self.again(now, cue, word.wait_ms()),
            _ => self.result(now, cue, word),
        }
    }

    fn result(&mut self, now: Now, cue: Cue, word: Word<'_>) {
        match cue.step {
            Move::First | Move::SecondClick => self.first(now, cue, word),
            Move::Status => self.status(now, cue, word),
            Move::Again | Move::AgainLater => self.repeated(now, cue, word),
            Move::OtherBody => self.other_body(now, cue, word),
            Move::Second => self.must_be(now, cue, word, 409, Code::AlreadyPurchased),
            Move::Replay => self.must_be(now, cue, word, 403, Code::ReplayRejected),
            Move::Burst => self.burst(now, cue, word),
            Move::TooSoon => self.too_soon(now, cue, word),
            Move::AfterWait => self.must_be(now, cue, word, 409, Code::AlreadyPurchased),
            Move::Pay | Move::PayAgain | Move::PayWrong | Move::PayLate => {
                self.paid(now, cue, word)
            }
        }
    }

    /// Sends the same once more after the told wait.
    pub(super) fn again(&mut self, now: Now, cue: Cue, wait_ms: Option<u64>) {
        let act = self.acts.get_mut(cue.act);
        act.tries = act.tries.saturating_add(1);
        if act.tries > TRIES_MAX {
            self.wrong(cue, "told to come again too often");
            return self.end(cue.act, None);
        }
        self.send_in(now.mono, wait_ms.unwrap_or(PAUSE_MS), cue.act, cue.step);
    }

    /// The kind that an answer to `cue` is counted in.
    fn kind_of(&self, cue: Cue) -> Kind {
        let act = self.acts.get(cue.act);
        if cue.step.is_payment() {
            act.payer
        } else {
            act.kind
        }
    }

    fn wrong(&mut self, cue: Cue, what: &str) {
        let kind = self.kind_of(cue);
        let heard = &mut self.acts.get_mut(cue.act).heard;
        let counted = if cue.step.is_payment() {
            &mut heard.wrong_payer
        } else {
            &mut heard.wrong
        };
        if !std::mem::replace(counted, true) {
            self.tally.kind(kind).wrong += 1;
        }
        self.tally
            .complain(|| format!("{}, {:?}: {what}", kind.text(), cue.step));
    }

    fn wrong_answer(&mut self, cue: Cue, word: Word<'_>) {
        self.wrong(cue, &format!("{} {}", word.status, word.code.as_str()));
    }

    fn must_be(&mut self, now: Now, cue: Cue, word: Word<'_>, status: u16, code: Code) {
        if word.code == Code::SeckillPending {
            return self.again(now, cue, Some(word.poll_ms()));
        }
        if (word.status, word.code) != (status, code) {
            self.wrong_answer(cue, word);
        }
    }

    /// A result of the first request, or of its double.
    fn first(&mut self, now: Now, cue: Cue, word: Word<'_>) {
        let act = self.acts.get_mut(cue.act);
        if act.stage != Stage::First {
            return; // the other click was given up
        }
        let kind = act.kind;
        if kind.is_refused() {
            let expected = kind.expected()[0];
            if word.code != expected {
                self.wrong_answer(cue, word);
            }
            return self.end(cue.act, None);
        }
        let repeat_expected = kind == Kind::DoubleClick || act.heard.lost;
        match word.code {
            Code::SeckillQueued if word.status == 202 => self.hold(cue, word),
            Code::RequestReplayed if word.never_accepted() => act.heard.sold_out = true,
            Code::RequestReplayed if repeat_expected => self.hold(cue, word),
            Code::SeckillPending => act.heard.pending = true,
            Code::SeckillSoldOut => {
                act.heard.sold_out = true;
                self.sold_out_seen = true;
            }
            _ => {
                act.heard.sold_out = true;
                self.wrong_answer(cue, word);
            }
        }
        if self.acts.get(cue.act).legs == 0 {
            self.resolve(now, cue, word);
        }
    }

    /// Every leg of the first request has a result.
    fn resolve(&mut self, now: Now, cue: Cue, word: Word<'_>) {
        let act = self.acts.get_mut(cue.act);
        let heard = act.heard;
        if act.reservation.is_some() {
            if heard.sold_out && !self.may_have_reopened(now.mono) {
                self.wrong(cue, "one click got a unit, the other was told SOLD_OUT");
            }
            self.granted(now, cue, word.poll_ms());
        } else if heard.pending {
            act.stage = Stage::Asking;
            self.send_in(now.mono, word.poll_ms(), cue.act, Move::Status);
        } else {
            self.lost(cue.act);
        }
    }

    /// Told to hold a unit: always the same one.
    fn hold(&mut self, cue: Cue, word: Word<'_>) {
        let told = word.reservation();
        let act = self.acts.get_mut(cue.act);
        match (act.reservation, told) {
            (_, None) => self.wrong(cue, "a grant without a reservation"),
            (None, told) => act.reservation = told,
            (Some(known), Some(told)) if known != told => {
                self.tally.changed_reservations += 1;
                self.wrong(cue, "another reservation than before");
            }
            _ => {}
        }
    }

    /// A unit is held. Starts what the kind does now, and follows the order.
    fn granted(&mut self, now: Now, cue: Cue, poll_ms: u64) {
        bump(&self.live.granted);
        self.open_firsts -= 1;
        let early = !self.may_have_reopened(now.mono);
        let act = self.acts.get_mut(cue.act);
        act.stage = Stage::Follow;
        let part = self.parts.next(act.kind, early);
        if part.kind != act.kind {
            self.tally.kind(act.kind).count -= 1;
            self.tally.kind(part.kind).count += u64::from(!part.kind.needs_win());
        }
        (act.kind, act.payer) = (part.kind, part.payer);
        let (kind, payer, sent) = (act.kind, act.payer, act.sent);
        self.note_reopening(sent);
        self.tally.kind(payer).count += 1;
        if kind.needs_win() {
            self.tally.kind(kind).count += 1;
        }
        self.open_unpaid += u64::from(matches!(payer, Kind::PaysNever | Kind::PaysLate));
        if kind == Kind::Late && early {
            self.wrong(cue, "a unit although it was sold out");
        }
        match kind {
            Kind::OtherConnection => self.send(cue.act, Move::Again),
            Kind::OtherBody => self.send(cue.act, Move::OtherBody),
            Kind::SecondRequest => self.send(cue.act, Move::Second),
            Kind::Replaying => self.send(cue.act, Move::Replay),
            _ => {}
        }
        self.send_in(now.mono, poll_ms, cue.act, Move::Status);
    }

    /// No unit.
    fn lost(&mut self, id: ActId) {
        self.open_firsts -= 1;
        let act = self.acts.get_mut(id);
        let (kind, buyer) = (act.kind, act.buyer);
        act.stage = Stage::Ended;
        if kind.needs_win() {
            act.kind = Kind::Honest; // nothing to prove: it was one press like others
            self.tally.kind(Kind::Honest).count += 1;
        }
        match kind {
            Kind::OtherConnection => self.send(id, Move::Again),
            Kind::OtherBody => self.send(id, Move::OtherBody),
            Kind::Honest if self.losers.len() < self.losers.capacity() => self.losers.push(buyer),
            _ => {}
        }
    }

    /// The same request again: the first answer, whatever happened since.
    fn repeated(&mut self, now: Now, cue: Cue, word: Word<'_>) {
        let won = self.acts.get(cue.act).reservation.is_some();
        match word.code {
            Code::SeckillPending => self.again(now, cue, Some(word.poll_ms())),
            Code::RequestReplayed if word.never_accepted() && !won => {}
            Code::RequestReplayed if won && word.status == 200 => self.hold(cue, word),
            Code::SeckillSoldOut if !won => {}
            // A refusal is decided afresh (design §12.1): units came back.
            Code::SeckillQueued if !won && self.may_have_reopened(now.mono) => {
                self.hold(cue, word);
                self.open_firsts += 1;
                self.acts.get_mut(cue.act).sent = word.sent;
                self.acts.get_mut(cue.act).kind = Kind::Returning;
                self.granted(now, cue, word.poll_ms());
            }
            _ => self.wrong_answer(cue, word),
        }
    }

    fn other_body(&mut self, now: Now, cue: Cue, word: Word<'_>) {
        let won = self.acts.get(cue.act).reservation.is_some();
        match word.code {
            Code::SeckillPending => self.again(now, cue, Some(word.poll_ms())),
            Code::RequestIdConflict if won && word.status == 400 => {}
            Code::RequestReplayed if !won && word.never_accepted() => {}
            // Two units are more than the sale allows; that is only looked at when it is not known to be sold out.
            Code::SeckillSoldOut | Code::InvalidArgument if !won => {}
            _ => self.wrong_answer(cue, word),
        }
    }

    /// Presses until it is limited.
    fn burst(&mut self, now: Now, cue: Cue, word: Word<'_>) {
        let act = self.acts.get_mut(cue.act);
        act.bursts += 1;
        match word.code {
            Code::AlreadyPurchased if act.bursts < BURST_TRIES_MAX => {
                self.send(cue.act, Move::Burst);
            }
            Code::SeckillPending if act.bursts < BURST_TRIES_MAX => {
                self.send(cue.act, Move::Burst);
            }
            Code::RateLimited if word.status == 429 => {
                let Some(wait_ms) = self.limited(cue, word) else {
                    return;
                };
                self.acts.get_mut(cue.act).told_wait = (wait_ms, now.mono);
                self.send(cue.act, Move::TooSoon);
            }
            Code::AlreadyPurchased => self.wrong(cue, "never limited"),
            _ => self.wrong_answer(cue, word),
        }
    }

    /// The exact wait of a 429; the header says the same in whole seconds, rounded up.
    fn limited(&mut self, cue: Cue, word: Word<'_>) -> Option<u64> {
        let wait_ms = word.wait_ms();
        let header_fits =
            wait_ms.map(|ms| ms.div_ceil(1_000).max(1)) == word.retry_after_s.map(u64::from);
        if wait_ms.is_none() || !header_fits {
            self.wrong(cue, "a 429 without the same wait in body and header");
            return None;
        }
        wait_ms
    }

    fn too_soon(&mut self, now: Now, cue: Cue, word: Word<'_>) {
        let (told_ms, told_at) = self.acts.get(cue.act).told_wait;
        let waited_ms = now.mono.since(told_at) / NS_PER_MS;
        match word.code {
            Code::RateLimited => {
                let Some(wait_ms) = self.limited(cue, word) else {
                    return;
                };
                if wait_ms > told_ms {
                    self.wrong(cue, "a refusal lengthened the wait");
                }
                self.send_in(now.mono, wait_ms, cue.act, Move::AfterWait);
            }
            // This machine was so slow that the wait was over.
            Code::AlreadyPurchased if waited_ms + CLOCK_SLACK_MS >= told_ms => {}
            _ => self.wrong_answer(cue, word),
        }
    }

    /// A status answer: for an unknown result, or on the way to the order's end.
    fn status(&mut self, now: Now, cue: Cue, word: Word<'_>) {
        if word.code == Code::SeckillPending {
            return self.send_in(now.mono, word.poll_ms(), cue.act, Move::Status);
        }
        let asking = self.acts.get(cue.act).stage == Stage::Asking;
        match (word.code, read_state(word.body)) {
            (Code::NotAccepted, _) if asking => self.lost(cue.act),
            (Code::SeckillStatus, Some(_)) if asking => {
                self.hold(cue, word);
                self.granted(now, cue, word.poll_ms());
            }
            (Code::SeckillStatus, Some(state)) => {
                self.hold(cue, word);
                self.follow(now, cue, state, word.poll_ms());
            }
            _ => {
                self.wrong_answer(cue, word);
                self.end(cue.act, None);
            }
        }
    }

    /// The order stands at `state`: pay, wait, or know the end.
    fn follow(&mut self, now: Now, cue: Cue, state: RequestState, poll_ms: u64) {
        let act = self.acts.get(cue.act);
        let (payer, heard) = (act.payer, act.heard);
        let may_be_closed = now.mono >= act.sent.plus_ms(UNPAID_TIMEOUT_MS - CLOCK_SLACK_MS);
        let waits = matches!(payer, Kind::PaysNever | Kind::PaysLate);
        let as_payer = Cue {
            step: Move::Pay,
            ..cue
        };
        match state {
            RequestState::Created if !waits && !heard.paid && !heard.refund => {
                let first = if payer == Kind::PaysWrong {
                    Move::PayWrong
                } else {
                    Move::Pay
                };
                self.send(cue.act, first);
            }
            RequestState::Queued | RequestState::Reserved | RequestState::Created => {
                self.send_in(now.mono, poll_ms, cue.act, Move::Status);
            }
            RequestState::Paid if heard.paid || heard.refund => self.end(cue.act, Some(state)),
            RequestState::Closed if heard.refund => {
                self.send_in(now.mono, poll_ms, cue.act, Move::Status);
            }
            RequestState::Closed if payer == Kind::PaysLate && may_be_closed => {
                self.send(cue.act, Move::PayLate);
            }
            RequestState::Closed if may_be_closed && !heard.paid => self.end(cue.act, Some(state)),
            RequestState::PaidLate if heard.refund => self.end(cue.act, Some(state)),
            _ => {
                self.wrong(as_payer, &format!("the order is {}", state.as_str()));
                self.end(cue.act, Some(state));
            }
        }
    }

    /// An answer to a payment.
    fn paid(&mut self, now: Now, cue: Cue, word: Word<'_>) {
        let act = self.acts.get_mut(cue.act);
        let may_be_closed = now.mono >= act.sent.plus_ms(UNPAID_TIMEOUT_MS - CLOCK_SLACK_MS);
        let booked_before = act.heard.paid_again;
        match (cue.step, word.code) {
            (Move::PayWrong, Code::InvalidArgument) if word.status == 400 => {
                return self.send(cue.act, Move::Pay);
            }
            (Move::Pay, Code::PaymentAccepted) => act.heard.paid = true,
            (Move::Pay, Code::PaymentRepeated) if booked_before => act.heard.paid = true,
            (Move::PayAgain, Code::PaymentRepeated) => {}
            // Too late by this machine's slowness, or on purpose.
            (
                Move::Pay | Move::PayAgain | Move::PayWrong | Move::PayLate,
                Code::PaymentRefundDue,
            ) if may_be_closed => {
                act.heard.refund = true;
            }
            _ => self.wrong_answer(cue, word),
        }
        let act = self.acts.get(cue.act);
        if cue.step == Move::Pay && act.payer == Kind::PaysTwice && act.heard.paid {
            return self.send(cue.act, Move::PayAgain);
        }
        self.send_in(now.mono, PAUSE_MS, cue.act, Move::Status);
    }

    /// The end is known (`None`: nothing is held, or nothing more can be learned).
    fn end(&mut self, id: ActId, state: Option<RequestState>) {
        let act = self.acts.get_mut(id);
        if act.stage == Stage::Ended {
            return;
        }
        let was_open = matches!(act.stage, Stage::First | Stage::Asking);
        act.stage = Stage::Ended;
        let act = *act;
        self.open_firsts -= u64::from(was_open);
        if let Some(reservation) = act.reservation {
            let user = Words::user(act.buyer);
            self.tally.told.push(Told {
                reservation,
                user,
                end: state,
            });
            self.open_unpaid -= u64::from(matches!(act.payer, Kind::PaysNever | Kind::PaysLate));
            self.tally.limbo += u64::from(state.is_none());
        }
        match state {
            Some(RequestState::Paid) => bump(&self.live.paid),
            Some(RequestState::Closed) => self.closed += 1,
            _ => {}
        }
        match act.kind {
            Kind::OverLimit if state == Some(RequestState::Paid) => self.send(id, Move::Burst),
            Kind::OtherConnection if state == Some(RequestState::Paid) => {
                self.send(id, Move::AgainLater)
            }
            _ => {}
        }
    }
}
