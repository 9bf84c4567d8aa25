//! Owns a desk as a shard does, and keeps asks under way on it.
//!
//! The time of a run begins with the first ask, when the link is ready, and ends with the last answer; so does the CPU
//! time of the process. One answer that is no grant ends the run: nothing else is measured here.

use super::words;
use std::net::SocketAddr;
use std::sync::mpsc::Sender;
use std::time::Instant;
use weir_core::ask::{Answer, Ask, AskId, LedgerAnswer, LedgerOp, Open, OpsRef, Outcome};
use weir_core::limit::lease::ShardId;
use weir_core::limits::LINK_SENT_MAX;
use weir_core::mail::Addr;
use weir_core::port::{ConnId, Effects, Event, Handler};
use weir_core::redis::breaker;
use weir_core::redis::desk::{Desk, DeskConfig};
use weir_core::redis::endpoint::{Endpoint, Host};
use weir_core::redis::link::Patience;
use weir_core::redis::link::greeting::{HomeId, Words};
use weir_core::time::{Mono, Now};
use weir_proto::ids::RequestId;

/// No ask of ours is late: a run is judged by its whole time.
const ASK_MS: u64 = 60_000;

/// What is to be done.
#[derive(Clone, Copy, Debug)]
pub enum Course {
    /// Put so many units on sale.
    Open {
        /// Units.
        stock: u64,
    },
    /// Reserve.
    Reserve {
        /// So often.
        count: u64,
        /// So many at a time.
        under_way: u64,
    },
}

impl Course {
    fn op(self, n: u64) -> LedgerOp {
        match self {
            Self::Open { stock } => LedgerOp::Open(Open {
                target: OpsRef {
                    sku: words::SKU,
                    request_id: RequestId::new(b"open").expect("four letters"),
                },
                stock,
                quantity_max: 1,
                once_per_activity: false,
            }),
            Self::Reserve { .. } => words::reserve(n),
        }
    }

    fn count(self) -> u64 {
        match self {
            Self::Open { .. } => 1,
            Self::Reserve { count, .. } => count,
        }
    }

    fn under_way(self) -> u64 {
        match self {
            Self::Open { .. } => 1,
            Self::Reserve { under_way, .. } => under_way,
        }
    }
}

/// What a run took.
#[derive(Clone, Copy, Debug)]
pub struct Spent {
    /// Answers that were grants.
    pub granted: u64,
    /// From the first ask to the last answer, nanoseconds.
    pub took_ns: u64,
    /// CPU time of all threads of this process in that time, nanoseconds.
    pub cpu_ns: u64,
    /// The server's name for itself.
    pub home: HomeId,
}

/// See the module.
pub struct Asker {
    desk: Desk,
    course: Course,
    asked: u64,
    answered: u64,
    granted: u64,
    begin: Option<(Instant, u64)>,
    done: Sender<Result<Spent, String>>,
    /// The link's; the loop ends once it is closed.
    conn: Option<ConnId>,
    is_over: bool,
}

impl Asker {
    /// Asks `server`; tells `done` once.
    pub fn new(server: SocketAddr, course: Course, done: Sender<Result<Spent, String>>) -> Self {
        let config = DeskConfig {
            servers: vec![Endpoint {
                host: Host::Ip(server.ip()),
                port: server.port(),
            }],
            is_cluster: false,
            tls: None,
            hears_events: false,
            wait: None,
            remembers: false,
            words: Words {
                client_name: "weir-redis".to_owned(),
                auth: None,
                database: 0,
                channels: Vec::new(),
            },
            patience: Patience {
                greeting_ms_max: 5_000,
                reply_ms_max: ASK_MS,
                ping_every_ms: 1_000,
            },
            under_way_max: LINK_SENT_MAX,
            breaker: breaker::Policy::default(),
            seed: 1,
        };
        Self {
            desk: Desk::new(config, &[words::plan()]),
            course,
            asked: 0,
            answered: 0,
            granted: 0,
            begin: None,
            done,
            conn: None,
            is_over: false,
        }
    }

    fn heard(&mut self, answer: Answer, fx: &mut Effects) {
        self.answered += 1;
        match answer.outcome {
            Outcome::Done(LedgerAnswer::Granted(_)) => self.granted += 1,
            Outcome::Done(LedgerAnswer::OpsDone(_)) => {}
            other => {
                let faults: Vec<_> = self.desk.nodes().map(|(_, fault)| fault).collect();
                let said = format!("ask {}: {other:?}; the link: {faults:?}", answer.id.0);
                self.end(Err(said), fx);
            }
        }
    }

    fn end(&mut self, what: Result<Spent, String>, fx: &mut Effects) {
        if !self.is_over {
            let _ = self.done.send(what); // nobody listens when the time is over
            self.stop(fx);
        }
    }

    fn stop(&mut self, fx: &mut Effects) {
        self.is_over = true;
        if let Some(conn) = self.conn {
            fx.close(conn);
        }
        fx.stop();
    }

    fn fill(&mut self, now: Now, fx: &mut Effects) {
        if self.begin.is_none() {
            if !self.desk.is_ready() {
                return;
            }
            self.begin = Some((Instant::now(), cpu_ns()));
        }
        let due = self
            .course
            .count()
            .min(self.answered + self.course.under_way());
        while self.asked < due {
            let ask = Ask {
                from: Addr::Shard(ShardId(0)),
                id: AskId(self.asked),
                deadline: now.mono.plus_ms(ASK_MS),
                op: self.course.op(self.asked),
            };
            self.desk.ask(now, ask, fx);
            self.asked += 1;
        }
    }
}

impl Handler for Asker {
    fn on_start(&mut self, now: Now, fx: &mut Effects) {
        self.desk.turn(now, fx);
    }

    fn on_event(&mut self, now: Now, event: Event<'_>, fx: &mut Effects) {
        match event {
            Event::Connected { conn, token } => {
                self.conn = Some(conn);
                self.desk.connected(now, conn, token, fx);
            }
            Event::ConnectFailed { token, error } => {
                self.desk.connect_failed(now, token, error);
                self.end(Err(format!("Redis cannot be reached: {error:?}")), fx);
            }
            Event::Received { conn, mut input } => {
                self.desk.received(now, conn, &mut input, fx);
            }
            Event::Closed { conn, .. } => {
                self.conn = None;
                self.desk.closed(now, conn, fx);
            }
            Event::Drain => self.stop(fx),
            Event::Accepted { .. } | Event::Sent { .. } | Event::Mail(_) | Event::Tick => {}
        }
    }

    fn on_flush(&mut self, now: Now, fx: &mut Effects) {
        if self.is_over {
            return;
        }
        self.desk.turn(now, fx);
        while let Some((_, answer)) = self.desk.next_answer() {
            self.heard(answer, fx);
        }
        while self.desk.next_news().is_some() {}
        self.fill(now, fx);
        if let Some((begin, cpu)) = self.begin
            && self.answered == self.course.count()
        {
            let spent = Spent {
                granted: self.granted,
                took_ns: begin.elapsed().as_nanos() as u64,
                cpu_ns: cpu_ns() - cpu,
                home: self.desk.here(words::plan().sku).unwrap_or_default(),
            };
            self.end(Ok(spent), fx);
        }
    }

    fn next_deadline(&self) -> Option<Mono> {
        self.desk.next_deadline().filter(|_| !self.is_over)
    }
}

/// CPU time of this process's threads so far, nanoseconds: what utime and stime are made of, not rounded to ticks.
fn cpu_ns() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    tasks
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.path().join("schedstat")).ok())
        .filter_map(|text| text.split(' ').next()?.parse::<u64>().ok())
        .sum()
}
