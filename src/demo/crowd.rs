//! The crowd: who comes when, what is sent next, and the phases of the sale; a workload of the client engine.
//!
//! Closed loop: somebody new comes whenever a connection has room and nobody who is there has something to send. What an
//! answer means to its buyer is in `story`. A plain value: no clock, no socket; only [`Live`] is shared.

use super::act::{Act, ActId, Acts, Cue, Move, Stage};
use super::kinds::Kind;
use super::limits::{
    ACTS_MAX, CLOCK_SLACK_MS, LIMBO_MS, PAYMENT_LANES, RETURNING_EXTRA, RETURNING_PER_UNIT_PERCENT,
    UNPAID_TIMEOUT_MS,
};
use super::parts::Parts;
use super::tally::{Live, Phase, Shelf, Tally, Told, bump};
use super::words::{Ask, Flaw, Payment, Words};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_bench::client::{
    ClientCounts, Done, Failure, Job, LaneId, Outcome, Place, Progress, Then, Workload,
};
use weir_bench::due::DueQueue;
use weir_core::time::{Mono, Now};

/// The connection of bytes that are no request: it is closed again and again. Nobody who counts on one connection uses it.
const ROUGH_LANE: LaneId = LaneId(0);
/// One of so many malformed requests is malformed HTTP: each costs a connection.
const ROUGH_EVERY: u32 = 50;
/// First request number of a buyer's second visit.
const SECOND_VISIT: u8 = 40;
/// One of so many buyers comes when it is sold out.
const LATE_DIVISOR: u64 = 100;

/// Who comes.
#[derive(Clone, Copy, Debug)]
pub struct Cast {
    /// Buyers.
    pub buyers: u64,
    /// Units.
    pub stock: u64,
    /// Units put on sale again.
    pub restock: u64,
    /// Draws the kinds.
    pub seed: u64,
    /// The first of the [`PAYMENT_LANES`] that payments go by, where another process takes them.
    pub payments_from: Option<u32>,
    /// From a release or restock to the reopening seen by everybody.
    pub reopening_ms: u64,
}

/// The crowd.
pub struct Crowd {
    pub(super) cast: Cast,
    pub(super) words: Words,
    pub(super) acts: Acts,
    pub(super) ready: VecDeque<Cue>,
    pub(super) due: DueQueue,
    pub(super) tally: Tally,
    pub(super) live: Arc<Live>,
    /// Buyers in order who came.
    next_buyer: u64,
    late_left: u64,
    returning_left: u64,
    /// Buyers who lost; they may come back.
    pub(super) losers: Vec<u32>,
    pub(super) parts: Parts,
    /// First requests without a result.
    pub(super) open_firsts: u64,
    /// Orders that will be closed unpaid and are not yet.
    pub(super) open_unpaid: u64,
    pub(super) closed: u64,
    pub(super) sold_out_seen: bool,
    /// No unit comes back before.
    pub(super) reopening_from: Option<Mono>,
    phase: Phase,
    phase_from: Mono,
    started: Mono,
    aborted: bool,
    shelf: Arc<Shelf>,
}

impl Crowd {
    /// Nobody has come yet.
    pub fn new(cast: Cast, words: Words, live: Arc<Live>, shelf: Arc<Shelf>) -> Self {
        let units = (cast.stock + cast.restock) as usize;
        let acts_max = ACTS_MAX + 2 * units;
        Self {
            cast,
            words,
            acts: Acts::new(acts_max),
            ready: VecDeque::with_capacity(2 * acts_max),
            due: DueQueue::new(4 * acts_max),
            tally: Tally::new(2 * units),
            live,
            next_buyer: 0,
            late_left: cast.buyers / LATE_DIVISOR,
            returning_left: 0,
            losers: Vec::with_capacity(2 * units),
            parts: Parts::new(cast.stock),
            open_firsts: 0,
            open_unpaid: 0,
            closed: 0,
            sold_out_seen: false,
            reopening_from: None,
            phase: Phase::Rush,
            phase_from: Mono(0),
            started: Mono(0),
            aborted: false,
            shelf,
        }
    }

    /// Buyers who come in order; the late ones come after them in number, and whenever it is sold out in time.
    const fn in_order(&self) -> u64 {
        self.cast.buyers - self.cast.buyers / LATE_DIVISOR
    }

    /// True when units may be on sale again at `now`, so that SOLD_OUT is not the only true answer.
    pub(super) fn may_have_reopened(&self, now: Mono) -> bool {
        self.reopening_from.is_some_and(|from| now >= from)
    }

    /// A unit is held since `sent` at the earliest: its order is closed a timeout later at the earliest.
    pub(super) fn note_reopening(&mut self, sent: Mono) {
        let from = sent.plus_ms(UNPAID_TIMEOUT_MS - CLOCK_SLACK_MS);
        self.reopening_from = Some(self.reopening_from.map_or(from, |known| known.min(from)));
    }

    /// Sends as soon as there is room.
    pub(super) fn send(&mut self, act: ActId, step: Move) {
        self.acts.get_mut(act).legs += 1;
        self.ready.push_back(Cue { act, step });
    }

    /// Sends after `ms` milliseconds.
    pub(super) fn send_in(&mut self, now: Mono, ms: u64, act: ActId, step: Move) {
        self.acts.get_mut(act).legs += 1;
        let cue = Cue { act, step };
        self.due
            .push(now.plus_ms(ms), cue.pack())
            .expect("there is room for every leg of every act");
    }

    /// Whoever comes now, if anybody does.
    fn arrival(&mut self, now: Now) -> Option<Cue> {
        self.advance(now);
        if !self.somebody_comes() {
            return None;
        }
        let (buyer, kind, base) = match self.phase {
            Phase::Rush if self.sold_out_seen && self.late_left > 0 => {
                self.late_left -= 1;
                (self.in_order() + self.late_left, Kind::Late, 0)
            }
            Phase::Rush => {
                let buyer = self.next_buyer;
                self.next_buyer += 1;
                let early = self.cast.stock / 2;
                (buyer, Kind::of(buyer, early, self.cast.seed), 0)
            }
            _ => {
                self.returning_left -= 1;
                let buyer = self.losers.pop()?;
                (u64::from(buyer), Kind::Returning, SECOND_VISIT)
            }
        };
        if base == 0 {
            bump(&self.live.came);
        }
        if !kind.needs_win() {
            self.tally.kind(kind).count += 1;
        }
        self.open_firsts += 1;
        let act = self.acts.enter(Act::new(buyer as u32, kind, base));
        self.acts.get_mut(act).legs = 1;
        if kind == Kind::DoubleClick {
            self.send(act, Move::SecondClick);
        }
        let step = Move::First;
        Some(Cue { act, step })
    }

    /// True when `arrival` has somebody.
    fn somebody_comes(&self) -> bool {
        let waiting = match self.phase {
            Phase::Rush => {
                self.next_buyer < self.in_order() || self.sold_out_seen && self.late_left > 0
            }
            Phase::FirstReturn | Phase::SecondReturn => {
                self.returning_left > 0 && !self.losers.is_empty()
            }
            _ => false,
        };
        waiting && self.acts.has_room()
    }

    /// The next phase, when this one is over.
    fn advance(&mut self, now: Now) {
        let waited = |ms| now.mono >= self.phase_from.plus_ms(ms);
        match self.phase {
            Phase::Rush => {
                let all_came = self.next_buyer >= self.in_order();
                if all_came && self.late_left > 0 && self.open_firsts == 0 {
                    self.sold_out_seen = true; // never seen: the others come all the same, and the report says it
                }
                if all_came && self.late_left == 0 && self.open_firsts == 0 {
                    self.tally.rush_ns = now.mono.since(self.started);
                    self.tally.rush_requests = self.tally.answered;
                    self.reopening_from = Some(now.mono); // from here on the operator may act at any moment
                    self.enter(now, Phase::Restocking);
                }
            }
            Phase::Restocking if self.live.restocked.load(Ordering::Acquire) => {
                self.enter(now, Phase::Restocked);
            }
            Phase::Restocked if waited(self.cast.reopening_ms) => {
                self.returning_left = returning(self.cast.restock);
                self.enter(now, Phase::FirstReturn);
            }
            Phase::FirstReturn if self.nobody_returns() => self.enter(now, Phase::Unpaid),
            Phase::Unpaid if self.open_unpaid == 0 && waited(self.cast.reopening_ms) => {
                self.returning_left = returning(self.closed);
                self.enter(now, Phase::SecondReturn);
            }
            Phase::SecondReturn if self.nobody_returns() => self.enter(now, Phase::Settling),
            Phase::Settling if self.acts.count() == 0 => self.enter(now, Phase::Over),
            Phase::Unpaid | Phase::SecondReturn | Phase::Settling if waited(LIMBO_MS) => {
                self.aborted = true;
            }
            _ => {}
        }
    }

    fn nobody_returns(&self) -> bool {
        (self.returning_left == 0 || self.losers.is_empty()) && self.open_firsts == 0
    }

    fn enter(&mut self, now: Now, phase: Phase) {
        self.phase = phase;
        self.phase_from = now.mono;
        self.live.set_phase(phase);
    }

    fn place(&self, cue: Cue) -> (Place, Then) {
        let act = self.acts.get(cue.act);
        if let Some(first) = self.cast.payments_from
            && cue.step.is_payment()
        {
            return (
                Place::On(LaneId(first + act.buyer % PAYMENT_LANES)),
                Then::Stay,
            );
        }
        match cue.step {
            Move::First if is_rough(act) => (Place::On(ROUGH_LANE), Then::Await),
            Move::SecondClick | Move::Again | Move::AgainLater => {
                (Place::NotOn(act.lane), Then::Stay)
            }
            // One shard must see all of these.
            Move::Burst | Move::TooSoon | Move::AfterWait => {
                (Place::On(LaneId(act.lane.0.max(1))), Then::Stay)
            }
            _ => (Place::Any, Then::Stay),
        }
    }

    /// What of a buyer is no longer under way; those who have nothing left to do go.
    fn leg_ended(&mut self, id: ActId) {
        let act = self.acts.get(id);
        if act.legs == 0 && act.stage == Stage::Ended {
            self.acts.leave(id);
        }
    }

    fn failed(&mut self, now: Now, cue: Cue, failure: Failure) {
        if failure == Failure::Unread {
            return self.send(cue.act, cue.step); // nobody looked at it: the connection had ended in order
        }
        if self.aborted {
            return;
        }
        self.tally.transport_errors += 1;
        self.tally
            .complain(|| format!("a request got no answer: {}", failure.as_str()));
        self.acts.get_mut(cue.act).heard.lost = true;
        self.acts.get_mut(cue.act).heard.paid_again |= cue.step.is_payment();
        self.again(now, cue, None);
    }

    fn is_over(&self) -> bool {
        self.phase == Phase::Over || self.aborted
    }
}

/// How many losers come back for so many units.
const fn returning(units: u64) -> u64 {
    units * RETURNING_PER_UNIT_PERCENT / 100 + RETURNING_EXTRA
}

const fn is_rough(act: &Act) -> bool {
    matches!(act.kind, Kind::Malformed) && (act.buyer / 16).is_multiple_of(ROUGH_EVERY)
}

impl Workload for Crowd {
    fn start(&mut self, now: Now) {
        self.started = now.mono;
        self.phase_from = now.mono;
    }

    fn next(&mut self, now: Now) -> Option<Job> {
        if self.is_over() {
            return None;
        }
        let cue = match self.ready.pop_front() {
            Some(cue) => cue,
            None => match self.due.pop_due(now.mono) {
                Some((_, id)) => Cue::unpack(id),
                None => self.arrival(now)?,
            },
        };
        let (place, then) = self.place(cue);
        Some(Job {
            place,
            then,
            ..Job::new(cue.pack(), now.mono)
        })
    }

    fn write(&mut self, now: Now, job: &Job, lane: LaneId, out: &mut Vec<u8>) {
        let cue = Cue::unpack(job.id);
        let act = self.acts.get_mut(cue.act);
        if cue.step == Move::First {
            act.lane = lane;
            act.sent = act.sent.min(now.mono);
        }
        let act = *act;
        let ask = Ask {
            buyer: act.buyer,
            request: act.base,
            ticket: act.base,
            quantity: 1,
        };
        let other = |offset: u8| Ask {
            request: act.base + offset,
            ticket: act.base + offset,
            ..ask
        };
        let words = &mut self.words;
        match cue.step {
            Move::First => match act.kind {
                Kind::Forged => words.submit(ask, Flaw::Forged, out),
                Kind::Expired => words.submit(ask, Flaw::Expired, out),
                Kind::NoTicket => words.no_ticket(ask, out),
                Kind::WrongPath => words.wrong_path(ask, out),
                Kind::Malformed if is_rough(&act) => words.bad_bytes(out),
                Kind::Malformed => words.bad_body(ask, out),
                _ => words.submit(ask, Flaw::None, out),
            },
            Move::SecondClick | Move::Again | Move::AgainLater => {
                words.submit(ask, Flaw::None, out);
            }
            Move::OtherBody => words.submit(Ask { quantity: 2, ..ask }, Flaw::None, out),
            Move::Second => words.submit(other(1), Flaw::None, out),
            Move::Replay => words.submit(
                Ask {
                    request: act.base + 2,
                    ..ask
                },
                Flaw::None,
                out,
            ),
            Move::Burst => words.submit(other(3 + act.bursts), Flaw::None, out),
            Move::TooSoon => words.submit(other(30), Flaw::None, out),
            Move::AfterWait => words.submit(other(31), Flaw::None, out),
            Move::Status => words.status(ask, out),
            Move::Pay | Move::PayAgain | Move::PayLate | Move::PayWrong => {
                let wrong = cue.step == Move::PayWrong;
                let payment = Payment {
                    number: u8::from(wrong),
                    surplus: u64::from(wrong),
                    reservation: act.reservation.expect("who pays holds a reservation"),
                };
                words.payment(now, payment, out);
            }
        }
    }

    fn done(&mut self, now: Now, done: &Done<'_>) {
        let cue = Cue::unpack(done.job.id);
        self.acts.get_mut(cue.act).legs -= 1;
        match done.outcome {
            Outcome::Answer(answer) => {
                self.tally.answered += 1;
                bump(&self.live.answered);
                if cue.step.is_submit() {
                    self.tally.latency.record_ns(done.done.since(done.sent));
                }
                self.answered(now, cue, done.sent, &answer);
            }
            Outcome::Failed(failure) => self.failed(now, cue, failure),
            Outcome::Left => unreachable!("no job of the crowd leaves"),
        }
        self.leg_ended(cue.act);
    }

    fn next_due(&self) -> Option<Mono> {
        // Phases end by what others do, too: those are looked for with every scan of the engine.
        if self.is_over() {
            None
        } else if !self.ready.is_empty() || self.somebody_comes() {
            Some(Mono(0))
        } else {
            self.due.next_due()
        }
    }

    fn progress(&self) -> Progress {
        if self.aborted {
            Progress::Aborted
        } else if self.phase == Phase::Over {
            Progress::Complete
        } else {
            Progress::Running
        }
    }

    fn drain(&mut self) {
        self.aborted = true;
    }

    fn ended(&mut self, _now: Now, counts: &ClientCounts) {
        self.live.set_phase(Phase::Over);
        let mut tally = std::mem::replace(&mut self.tally, Tally::new(0));
        tally.client = *counts;
        tally.gave_up = self.aborted;
        for act in self.acts.present().filter(|act| act.stage != Stage::Ended) {
            tally.limbo += 1;
            if let Some(reservation) = act.reservation {
                tally.told.push(Told {
                    reservation,
                    user: Words::user(act.buyer),
                    end: None,
                });
            }
        }
        if let Ok(mut shelf) = self.shelf.lock() {
            *shelf = Some(tally);
        }
    }
}
