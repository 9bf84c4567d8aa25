//! The client engine: many persistent HTTP/1.1 connections to one server, or to several alike, in one handler.
//!
//! Run by a driver (uring, sim); asks its [`Workload`] what to send and tells it what came of it. Invariants: each job
//! ends in exactly one `done`; answers match requests by order; nothing is sent twice by itself; a lane is reconnected
//! after `Connection: close`, a reset or a time-out. Deterministic: same events, times and seed, same effects.
//! `flow` holds what is sent and read; this file the life of connections.

mod answer;
mod config;
mod flow;
mod lane;
mod workload;

pub use answer::{AnswerAt, BadAnswer, Read, read_answer};
pub use config::{ClientConfig, ClientConfigError, Kept};
pub use workload::{
    Answer, ClientCounts, Done, Failure, Job, LaneId, Outcome, Place, Progress, Then, Workload,
};

use crate::limits::{CONNECT_PAUSE_MS, CONNECT_PAUSE_MS_MAX, CONNECTING_MAX, PARKED_MAX, SCAN_MS};
use lane::{Lanes, Link};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use weir_core::port::{
    CloseCause, ConnId, Connect, ConnectError, ConnectToken, Effects, Event, Handler,
};
use weir_core::rng::Rng;
use weir_core::time::{Mono, Now};

/// The engine. Give it to a driver with at least `connections` slots.
pub struct Client {
    config: ClientConfig,
    workload: Box<dyn Workload>,
    lanes: Lanes,
    /// Lane by the driver's slot; grows to the driver's slots as they are first used.
    lane_of_slot: Vec<Option<(ConnId, LaneId)>>,
    /// Lanes that may have room, each at most once, in the order in which they get requests.
    ready: VecDeque<LaneId>,
    /// Lanes that are down and may connect now.
    to_connect: VecDeque<LaneId>,
    connecting: usize,
    /// Jobs that wait for a lane of their own choice, in the order of asking.
    parked: VecDeque<Job>,
    /// Some lane got room since `parked` was walked.
    room_came: bool,
    /// When overdue answers and ended pauses are looked for.
    scan_due: Mono,
    counts: ClientCounts,
    rng: Rng,
    life: Life,
}

/// The engine's own course.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Working,
    /// The workload is told the end once every connection is closed.
    Closing,
    Ended,
}

impl Client {
    /// An engine that will run `workload`.
    ///
    /// # Errors
    /// A value of `config` outside its range.
    pub fn new(
        config: ClientConfig,
        workload: Box<dyn Workload>,
    ) -> Result<Self, ClientConfigError> {
        config.check()?;
        let connections = config.connections as usize;
        Ok(Self {
            workload,
            lanes: Lanes::new(config.connections, config.pipeline_max),
            lane_of_slot: Vec::with_capacity(connections),
            ready: VecDeque::with_capacity(connections),
            to_connect: VecDeque::with_capacity(connections),
            connecting: 0,
            parked: VecDeque::with_capacity(PARKED_MAX),
            room_came: false,
            scan_due: Mono(0),
            counts: ClientCounts::default(),
            rng: Rng::new(config.seed),
            life: Life::Working,
            config,
        })
    }

    fn lane_of(&self, conn: ConnId) -> Option<LaneId> {
        match self.lane_of_slot.get(conn.slot as usize) {
            Some(Some((known, lane))) if *known == conn => Some(*lane),
            _ => None,
        }
    }

    fn connected(&mut self, conn: ConnId, lane: LaneId, fx: &mut Effects) {
        let slot = conn.slot as usize;
        if slot >= self.lane_of_slot.len() {
            self.lane_of_slot.resize(slot + 1, None);
        }
        self.lane_of_slot[slot] = Some((conn, lane));
        self.connecting -= 1;
        self.counts.connected += 1;
        self.lanes.get_mut(lane).link = Link::Open(conn);
        self.lanes.open += 1;
        if self.life == Life::Working {
            self.has_room(lane);
        } else {
            self.close(conn, lane, fx);
        }
    }

    fn connect_failed(&mut self, now: Now, lane: LaneId, error: ConnectError) {
        self.connecting -= 1;
        self.counts.connect_failed += 1;
        let failures = &mut self.lanes.get_mut(lane).failures;
        *failures = failures.saturating_add(1);
        self.pause(now, lane);
        self.workload
            .connect_failed(now, self.config.target_of(lane), error, self.lanes.open);
    }

    /// The lane's connection is gone, whoever ended it.
    fn closed(&mut self, now: Now, conn: ConnId, lane: LaneId, cause: CloseCause) {
        self.lane_of_slot[conn.slot as usize] = None;
        if let Link::Open(_) = self.lanes.get(lane).link {
            self.lanes.open -= 1;
            let first = match cause {
                CloseCause::Reset => Failure::Reset,
                CloseCause::Local | CloseCause::Shutdown => Failure::LostWithLane,
            };
            self.fail_all(now, lane, first, Failure::LostWithLane);
        }
        let state = self.lanes.get_mut(lane);
        state.need_bytes = 0;
        state.hold = Then::Stay;
        if state.failures > 1 {
            self.pause(now, lane); // breaks again and again without an answer: like a failed connect
        } else {
            state.link = Link::Down;
            self.to_connect.push_back(lane);
        }
    }

    fn pause(&mut self, now: Now, lane: LaneId) {
        let state = self.lanes.get_mut(lane);
        let pause_ms = (CONNECT_PAUSE_MS << state.failures.min(10)).min(CONNECT_PAUSE_MS_MAX);
        // Full jitter (seed 000 §7.4): clients that failed together must not come back together.
        let pause_ms = 1 + self.rng.below(pause_ms);
        state.link = Link::Pausing(now.mono.plus_ms(pause_ms));
    }

    /// Closes our side; the lane reconnects when `Closed` comes.
    fn close(&mut self, conn: ConnId, lane: LaneId, fx: &mut Effects) {
        fx.close(conn);
        self.lanes.open -= 1;
        self.lanes.get_mut(lane).link = Link::Closing(conn);
    }

    /// Connects what may connect now, a bounded number at once.
    fn connect_lanes(&mut self, now: Now, fx: &mut Effects) {
        while self.connecting < CONNECTING_MAX
            && let Some(lane) = self.to_connect.pop_front()
        {
            self.lanes.get_mut(lane).link = Link::Connecting;
            self.connecting += 1;
            let from = match self.config.sources.len() {
                0 => None,
                count => {
                    let source = self.config.sources[lane.0 as usize % count];
                    Some(SocketAddr::new(IpAddr::V4(source), 0))
                }
            };
            fx.connect(Connect {
                token: ConnectToken(lane.0.into()),
                to: self.config.target_of(lane),
                from,
                deadline: now.mono.plus_ms(self.config.connect_ms),
            });
        }
    }

    /// Looks for answers that are overdue and for pauses that are over.
    fn scan(&mut self, now: Now, fx: &mut Effects) {
        if now.mono < self.scan_due {
            return;
        }
        self.scan_due = now.mono.plus_ms(SCAN_MS);
        for index in 0..self.lanes.count() {
            let lane = LaneId(index);
            match self.lanes.get(lane).link {
                Link::Pausing(until) if until <= now.mono => {
                    self.lanes.get_mut(lane).link = Link::Down;
                    self.to_connect.push_back(lane);
                }
                Link::Open(conn) => {
                    let oldest = self.lanes.front(lane);
                    if oldest.is_some_and(|oldest| {
                        oldest.sent.plus_ms(self.config.answer_ms) <= now.mono
                    }) {
                        self.fail_all(now, lane, Failure::TimedOut, Failure::LostWithLane);
                        self.close(conn, lane, fx);
                    }
                }
                _ => {}
            }
        }
    }

    /// Ends the run when the workload's course says so.
    fn wind_up(&mut self, now: Now, fx: &mut Effects) {
        let over = match self.workload.progress() {
            Progress::Running => false,
            Progress::Complete => self.lanes.in_flight == 0 && self.parked.is_empty(),
            Progress::Aborted => true,
        };
        if self.life == Life::Working && over {
            self.life = Life::Closing;
            for index in 0..self.lanes.count() {
                let lane = LaneId(index);
                if let Link::Open(conn) = self.lanes.get(lane).link {
                    self.fail_all(now, lane, Failure::LostWithLane, Failure::LostWithLane);
                    self.close(conn, lane, fx);
                }
            }
            self.fail_parked(now);
        }
        if self.life == Life::Closing && self.all_down() {
            self.life = Life::Ended;
            self.workload.ended(now, &self.counts);
            fx.stop();
        }
    }

    fn all_down(&self) -> bool {
        self.connecting == 0 && self.lane_of_slot.iter().all(Option::is_none)
    }
}

impl Handler for Client {
    fn on_start(&mut self, now: Now, fx: &mut Effects) {
        self.workload.start(now);
        self.to_connect.extend((0..self.lanes.count()).map(LaneId));
        self.scan_due = now.mono.plus_ms(SCAN_MS);
        self.connect_lanes(now, fx);
    }

    fn on_event(&mut self, now: Now, event: Event<'_>, fx: &mut Effects) {
        match event {
            Event::Connected { conn, token } => self.connected(conn, LaneId(token.0 as u32), fx),
            Event::ConnectFailed { token, error } => {
                self.connect_failed(now, LaneId(token.0 as u32), error);
            }
            Event::Received { conn, mut input } => match self.lane_of(conn) {
                Some(lane) => self.received(now, conn, lane, &mut input, fx),
                None => input.consume(input.bytes().len()),
            },
            Event::Sent { conn } => {
                if let Some(lane) = self.lane_of(conn) {
                    self.leave_if_asked(now, conn, lane, fx);
                }
            }
            Event::Closed { conn, cause } => {
                if let Some(lane) = self.lane_of(conn) {
                    self.closed(now, conn, lane, cause);
                }
            }
            Event::Drain => self.workload.drain(),
            Event::Tick | Event::Mail(_) | Event::Accepted { .. } => {}
        }
    }

    fn on_flush(&mut self, now: Now, fx: &mut Effects) {
        if self.life == Life::Working {
            self.scan(now, fx);
            self.send_parked(now, fx);
            self.send_due(now, fx);
            self.connect_lanes(now, fx);
        }
        self.wind_up(now, fx); // last: what was just sent is under way
    }

    fn next_deadline(&self) -> Option<Mono> {
        if self.life != Life::Working {
            return None;
        }
        // Without room the next request waits for an answer, not for its instant: that wait must not spin.
        let due = match self.may_ask() {
            true => self.workload.next_due(),
            false => None,
        };
        Some(due.unwrap_or(self.scan_due).min(self.scan_due))
    }
}
