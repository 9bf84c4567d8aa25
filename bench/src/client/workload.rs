//! What the engine sends and learns: jobs, their outcomes, and the trait of those who decide them.
//!
//! Implemented by the bench's load, the demo's buyers and the simulator's; called by the engine only. Each job that
//! `next` gave ends in exactly one `done`. A workload is a plain value: no clock, no socket; same calls, same answers.

use super::answer::BadAnswer;
use std::net::SocketAddr;
use weir_core::port::ConnectError;
use weir_core::time::{Mono, Now};
use weir_proto::answer::{Code, read_code};

/// One of the engine's connections: 0..connections. The lane stays when its socket is replaced; its source address too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LaneId(pub u32);

/// Which connection a job wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Whichever has room; they take turns.
    Any,
    /// This one, as soon as it has room.
    On(LaneId),
    /// Any but this one. With a single connection it could never be sent: the engine then takes that one.
    NotOn(LaneId),
}

/// What becomes of the connection after the job's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// More requests may follow at once.
    Stay,
    /// The server is expected to close: nothing is sent behind this request before its answer is known.
    Await,
    /// The client goes away as soon as its bytes are with the kernel and earlier answers are in: [`Outcome::Left`].
    Leave,
}

/// One request to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// The workload's own name for it.
    pub id: u64,
    /// When it should have been sent: latency counts from here.
    pub scheduled: Mono,
    /// Where.
    pub place: Place,
    /// And then.
    pub then: Then,
    /// The method is HEAD: its answer has no body.
    pub to_head: bool,
}

impl Job {
    /// An ordinary request on any connection.
    pub const fn new(id: u64, scheduled: Mono) -> Self {
        Self {
            id,
            scheduled,
            place: Place::Any,
            then: Then::Stay,
            to_head: false,
        }
    }
}

/// How a job ended.
#[derive(Clone, Copy, Debug)]
pub struct Done<'a> {
    /// The job.
    pub job: Job,
    /// Where it was sent; for [`Failure::NotSent`] where it would have been, if that was decided.
    pub lane: Option<LaneId>,
    /// When its bytes were given to the driver; equal to `done` when they never were.
    pub sent: Mono,
    /// When its end was known.
    pub done: Mono,
    /// Its end.
    pub outcome: Outcome<'a>,
}

impl Done<'_> {
    /// Nanoseconds from the scheduled instant to the end.
    pub const fn latency_ns(&self) -> u64 {
        self.done.since(self.job.scheduled)
    }

    /// Nanoseconds by which the request was sent late.
    pub const fn lag_ns(&self) -> u64 {
        self.sent.since(self.job.scheduled)
    }
}

/// The end of a job.
#[derive(Clone, Copy, Debug)]
pub enum Outcome<'a> {
    /// The server answered.
    Answer(Answer<'a>),
    /// We went away as asked; what the server did is not known.
    Left,
    /// No answer.
    Failed(Failure),
}

/// What the server said.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// 200..=599.
    pub status: u16,
    /// `Retry-After` in whole seconds.
    pub retry_after_s: Option<u32>,
    /// The body.
    pub body: &'a [u8],
}

impl Answer<'_> {
    /// The `code` member, when the body is one of weir's.
    pub fn code(&self) -> Option<Code> {
        read_code(self.body)
    }
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Failure {
    /// The connection was reset.
    Reset,
    /// The server closed without an answer.
    Closed,
    /// No answer within [`super::ClientConfig::answer_ms`].
    TimedOut,
    /// The bytes were no answer that we accept.
    Bad(BadAnswer),
    /// The connection ended with a full answer to an earlier request: this one was not looked at (RFC 9112 §9.6) and
    /// may be sent again.
    Unread,
    /// The connection ended with an earlier request that failed: what became of this one is not known.
    LostWithLane,
    /// It was never sent: the run ended first.
    NotSent,
}

impl Failure {
    /// For reports, in one word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reset => "reset",
            Self::Closed => "closed_without_answer",
            Self::TimedOut => "timed_out",
            Self::Bad(bad) => bad.as_str(),
            Self::Unread => "not_read_by_server",
            Self::LostWithLane => "lost_with_connection",
            Self::NotSent => "not_sent",
        }
    }
}

/// How far a workload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More requests will come.
    Running,
    /// No further request will come; the engine ends when all that were given have ended.
    Complete,
    /// The engine ends now: what is under way fails as `LostWithLane`, what waits as `NotSent`.
    Aborted,
}

/// What happened to connections, for reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientCounts {
    /// Connections opened.
    pub connected: u64,
    /// Connects that failed.
    pub connect_failed: u64,
    /// Answers with `Connection: close`.
    pub closed_with_answer: u64,
    /// Connections that the server closed while nothing was under way.
    pub closed_idle: u64,
    /// Connections that ended with requests under way.
    pub broken: u64,
    /// Interim answers (100 Continue).
    pub interim: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Most requests under way at one time.
    pub in_flight_max: u64,
}

/// Decides what is sent when, and learns what came of it.
pub trait Workload: Send {
    /// The engine starts; nothing is connected yet.
    fn start(&mut self, now: Now);
    /// The next request that is due at `now`; `None`: nothing is due. Asked only while some connection has room.
    fn next(&mut self, now: Now) -> Option<Job>;
    /// Appends the one whole request of `job` to `out`; called once, right before it leaves on `lane`.
    fn write(&mut self, now: Now, job: &Job, lane: LaneId, out: &mut Vec<u8>);
    /// `job` has ended; exactly once for each that `next` gave.
    fn done(&mut self, now: Now, done: &Done<'_>);
    /// When `next` will have something, at the earliest; `None`: only `done` can change that.
    fn next_due(&self) -> Option<Mono>;
    /// How far it is; asked once per turn.
    fn progress(&self) -> Progress;
    /// A connect failed; `open`: connections that are open. The engine tries again for as long as it runs.
    fn connect_failed(&mut self, _now: Now, _to: SocketAddr, _error: ConnectError, _open: u32) {}
    /// The program is asked to stop (SIGTERM): give no further requests.
    fn drain(&mut self) {}
    /// The last call: every job has ended.
    fn ended(&mut self, _now: Now, _counts: &ClientCounts) {}
}
