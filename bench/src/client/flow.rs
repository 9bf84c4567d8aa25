//! What the engine sends and reads: jobs out, answers in, matched by order.

use super::Client;
use super::answer::{BadAnswer, Read, read_answer};
use super::lane::{Link, UnderWay};
use super::workload::{Answer, Done, Failure, Job, LaneId, Outcome, Place, Then};
use crate::limits::PARKED_MAX;
use weir_core::port::{ConnId, Effects, Input};
use weir_core::time::Now;

impl Client {
    /// The lane may have room: it stands in the queue once, unless it is kept for those who name it.
    pub(super) fn has_room(&mut self, lane: LaneId) {
        self.room_came = true;
        if self.config.is_kept(lane) {
            return; // who names it finds it
        }
        let state = self.lanes.get_mut(lane);
        if !state.queued {
            state.queued = true;
            self.ready.push_back(lane);
        }
    }

    /// The workload may be asked for a request.
    pub(super) fn may_ask(&self) -> bool {
        !self.ready.is_empty() && self.parked.len() < PARKED_MAX
    }

    /// Sends the parked jobs that can be sent now; the others keep their order.
    pub(super) fn send_parked(&mut self, now: Now, fx: &mut Effects) {
        if !std::mem::take(&mut self.room_came) {
            return;
        }
        for _ in 0..self.parked.len() {
            let Some(job) = self.parked.pop_front() else {
                break;
            };
            match self.lane_for(&job) {
                Some((lane, conn)) => self.send(now, job, lane, conn, fx),
                None => self.parked.push_back(job),
            }
        }
    }

    /// Sends what is due, while there is room.
    pub(super) fn send_due(&mut self, now: Now, fx: &mut Effects) {
        self.drop_full_lanes();
        while self.may_ask()
            && let Some(job) = self.workload.next(now)
        {
            match self.lane_for(&job) {
                Some((lane, conn)) => self.send(now, job, lane, conn, fx),
                None => self.parked.push_back(job),
            }
            self.drop_full_lanes();
        }
    }

    /// After this the front of the queue has room, or the queue is empty.
    fn drop_full_lanes(&mut self) {
        while let Some(&lane) = self.ready.front() {
            if self.lanes.room(lane).is_some() {
                break;
            }
            self.ready.pop_front();
            self.lanes.get_mut(lane).queued = false;
        }
    }

    /// A lane with room where `job` may go. Lanes take turns.
    fn lane_for(&mut self, job: &Job) -> Option<(LaneId, ConnId)> {
        let unwanted = match job.place {
            Place::On(lane) => {
                // A lane that does not exist would wait for ever: the modulus keeps it a lane.
                let lane = LaneId(lane.0 % self.lanes.count());
                return self.lanes.room(lane).map(|conn| (lane, conn));
            }
            Place::NotOn(lane) if self.lanes.count() > 1 => Some(lane),
            Place::NotOn(_) | Place::Any => None,
        };
        for _ in 0..self.ready.len() {
            let lane = self.ready.pop_front()?;
            let Some(conn) = self.lanes.room(lane) else {
                self.lanes.get_mut(lane).queued = false;
                continue;
            };
            self.ready.push_back(lane);
            if Some(lane) != unwanted {
                return Some((lane, conn));
            }
        }
        None
    }

    fn send(&mut self, now: Now, job: Job, lane: LaneId, conn: ConnId, fx: &mut Effects) {
        self.workload.write(now, &job, lane, fx.outbox(conn));
        self.lanes.get_mut(lane).hold = job.then;
        let sent = now.mono;
        self.lanes.push(lane, UnderWay { job, sent });
        self.counts.in_flight_max = self.counts.in_flight_max.max(self.lanes.in_flight);
    }

    /// Reads answers from the front of what came.
    pub(super) fn received(
        &mut self,
        now: Now,
        conn: ConnId,
        lane: LaneId,
        input: &mut Input<'_>,
        fx: &mut Effects,
    ) {
        while self.lanes.get(lane).link == Link::Open(conn) && !input.bytes().is_empty() {
            let bytes = input.bytes();
            let Some(front) = self.lanes.front(lane).map(|front| front.job) else {
                self.give_up(now, conn, lane, Failure::Bad(BadAnswer::Unasked), fx);
                break;
            };
            if front.then == Then::Leave {
                self.leave(now, conn, lane, fx); // its answer came first: a client that is gone would not see it
                break;
            }
            if bytes.len() < self.lanes.get(lane).need_bytes {
                break;
            }
            match read_answer(bytes, front.to_head) {
                Read::NeedMore(at_least) => {
                    self.lanes.get_mut(lane).need_bytes = at_least;
                    break;
                }
                Read::Interim(n) => {
                    self.counts.interim += 1;
                    self.took(lane, n, input);
                }
                Read::Done(at) => {
                    let answer = Answer {
                        status: at.status,
                        retry_after_s: at.retry_after_s,
                        body: &bytes[at.body.clone()],
                    };
                    self.answered(now, lane, answer);
                    self.took(lane, at.bytes(), input);
                    if at.close {
                        self.counts.closed_with_answer += 1;
                        self.fail_all(now, lane, Failure::Unread, Failure::Unread);
                        self.close(conn, lane, fx);
                    } else {
                        self.has_room(lane);
                        self.leave_if_asked(now, conn, lane, fx);
                    }
                }
                Read::Bad(bad) => self.give_up(now, conn, lane, Failure::Bad(bad), fx),
            }
        }
        if self.lanes.get(lane).link != Link::Open(conn) {
            input.consume(input.bytes().len()); // we closed: nobody reads the rest
        } else if input.ended() {
            input.consume(input.bytes().len());
            self.server_ended(now, conn, lane, fx);
        }
    }

    fn took(&mut self, lane: LaneId, bytes: usize, input: &mut Input<'_>) {
        self.counts.received_bytes += bytes as u64;
        self.lanes.get_mut(lane).need_bytes = 0;
        input.consume(bytes);
    }

    fn answered(&mut self, now: Now, lane: LaneId, answer: Answer<'_>) {
        let under_way = self.lanes.pop(lane).expect("the front was looked at");
        let state = self.lanes.get_mut(lane);
        state.failures = 0;
        if under_way.job.then == Then::Await {
            state.hold = Then::Stay; // the server did not close after all, or is about to be closed on
        }
        self.tell(now, lane, under_way, Outcome::Answer(answer));
    }

    /// The server ended its side without saying so in an answer.
    fn server_ended(&mut self, now: Now, conn: ConnId, lane: LaneId, fx: &mut Effects) {
        match self.lanes.front(lane) {
            None => {
                self.counts.closed_idle += 1;
                self.close(conn, lane, fx);
            }
            Some(front) if front.job.then == Then::Leave => self.leave(now, conn, lane, fx),
            Some(_) => self.give_up(now, conn, lane, Failure::Closed, fx),
        }
    }

    fn give_up(&mut self, now: Now, conn: ConnId, lane: LaneId, first: Failure, fx: &mut Effects) {
        self.fail_all(now, lane, first, Failure::LostWithLane);
        self.close(conn, lane, fx);
    }

    /// Leaves when the leaving request is the only one under way and its bytes are with the kernel.
    pub(super) fn leave_if_asked(
        &mut self,
        now: Now,
        conn: ConnId,
        lane: LaneId,
        fx: &mut Effects,
    ) {
        let state = self.lanes.get(lane);
        if state.link == Link::Open(conn)
            && state.hold == Then::Leave
            && self.lanes.in_flight_on(lane) == 1
            && fx.unsent_bytes(conn) == 0
        {
            self.leave(now, conn, lane, fx);
        }
    }

    fn leave(&mut self, now: Now, conn: ConnId, lane: LaneId, fx: &mut Effects) {
        let under_way = self.lanes.pop(lane).expect("the leaving request is there");
        self.tell(now, lane, under_way, Outcome::Left);
        self.close(conn, lane, fx);
    }

    /// Ends everything under way on `lane`: the oldest with `first`, the others with `rest`.
    pub(super) fn fail_all(&mut self, now: Now, lane: LaneId, first: Failure, rest: Failure) {
        if self.lanes.in_flight_on(lane) > 0 && first != Failure::Unread {
            self.counts.broken += 1;
            let state = self.lanes.get_mut(lane);
            state.failures = state.failures.saturating_add(1);
        }
        let mut failure = first;
        while let Some(under_way) = self.lanes.pop(lane) {
            let outcome = match under_way.job.then {
                Then::Leave => Outcome::Left, // it wanted to be gone, and is
                Then::Stay | Then::Await => Outcome::Failed(failure),
            };
            self.tell(now, lane, under_way, outcome);
            failure = rest;
        }
    }

    /// Ends the jobs that never found their lane.
    pub(super) fn fail_parked(&mut self, now: Now) {
        while let Some(job) = self.parked.pop_front() {
            let lane = match job.place {
                Place::On(lane) => Some(lane),
                Place::Any | Place::NotOn(_) => None,
            };
            let done = Done {
                job,
                lane,
                sent: now.mono,
                done: now.mono,
                outcome: Outcome::Failed(Failure::NotSent),
            };
            self.workload.done(now, &done);
        }
    }

    fn tell(&mut self, now: Now, lane: LaneId, under_way: UnderWay, outcome: Outcome<'_>) {
        let done = Done {
            job: under_way.job,
            lane: Some(lane),
            sent: under_way.sent,
            done: now.mono,
            outcome,
        };
        self.workload.done(now, &done);
    }
}
