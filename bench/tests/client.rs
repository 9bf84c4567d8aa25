//! Stories of the client engine, told by hand: the test is the driver and the server.

#![allow(clippy::unwrap_used)] // a test may panic

use std::cell::Cell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use weir_bench::client::{
    BadAnswer, Client, ClientConfig, ClientCounts, Done, Failure, Job, LaneId, Outcome, Place,
    Progress, Then, Workload,
};
use weir_core::port::{
    CloseCause, ConnId, ConnectError, ConnectToken, Effects, Event, Handler, Input, Op,
};
use weir_core::time::{Mono, Now};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const LAST: &[u8] = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

/// What the workload was told, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Told {
    Wrote(u64, u32),
    Answer(u64, u16, Vec<u8>),
    Left(u64),
    Failed(u64, Failure),
    ConnectFailed,
    Ended,
}

#[derive(Default)]
struct Desk {
    jobs: VecDeque<Job>,
    told: Vec<Told>,
    over: bool,
    counts: ClientCounts,
}

struct Script(Arc<Mutex<Desk>>);

impl Workload for Script {
    fn start(&mut self, _now: Now) {}
    fn next(&mut self, now: Now) -> Option<Job> {
        let mut desk = self.0.lock().unwrap();
        (desk.jobs.front()?.scheduled <= now.mono).then(|| desk.jobs.pop_front().unwrap())
    }
    fn write(&mut self, _now: Now, job: &Job, lane: LaneId, out: &mut Vec<u8>) {
        out.extend_from_slice(format!("<{}>", job.id).as_bytes());
        self.0
            .lock()
            .unwrap()
            .told
            .push(Told::Wrote(job.id, lane.0));
    }
    fn done(&mut self, _now: Now, done: &Done<'_>) {
        let id = done.job.id;
        self.0.lock().unwrap().told.push(match done.outcome {
            Outcome::Answer(answer) => Told::Answer(id, answer.status, answer.body.to_vec()),
            Outcome::Left => Told::Left(id),
            Outcome::Failed(failure) => Told::Failed(id, failure),
        });
    }
    fn next_due(&self) -> Option<Mono> {
        self.0.lock().unwrap().jobs.front().map(|job| job.scheduled)
    }
    fn progress(&self) -> Progress {
        match self.0.lock().unwrap().over {
            true => Progress::Aborted,
            false => Progress::Running,
        }
    }
    fn connect_failed(&mut self, _: Now, _: SocketAddr, _: ConnectError, _: u32) {
        self.0.lock().unwrap().told.push(Told::ConnectFailed);
    }
    fn ended(&mut self, _now: Now, counts: &ClientCounts) {
        let mut desk = self.0.lock().unwrap();
        desk.told.push(Told::Ended);
        desk.counts = *counts;
    }
}

/// The driver: opens what is asked for, keeps what is not consumed, carries out the ops of each turn.
struct World {
    client: Client,
    fx: Effects,
    now_ns: u64,
    desk: Arc<Mutex<Desk>>,
    generation: u32,
    kept: Vec<Vec<u8>>,
    open: Vec<Option<ConnId>>,
    refuse_connects: bool,
    asked: Vec<ConnectToken>,
    stopped: bool,
}

impl World {
    fn new(connections: u32, pipeline_max: u32) -> Self {
        let mut config = ClientConfig::new("127.0.0.1:1".parse().unwrap(), connections);
        config.pipeline_max = pipeline_max;
        let desk = Arc::new(Mutex::new(Desk::default()));
        let client = Client::new(config, Box::new(Script(desk.clone()))).unwrap();
        let mut world = Self {
            client,
            fx: Effects::new(connections as usize),
            now_ns: 1_000_000,
            desk,
            generation: 0,
            kept: vec![Vec::new(); connections as usize],
            open: vec![None; connections as usize],
            refuse_connects: false,
            asked: Vec::new(),
            stopped: false,
        };
        let now = world.now();
        world.client.on_start(now, &mut world.fx);
        world.turn();
        world
    }

    fn now(&self) -> Now {
        Now {
            mono: Mono(self.now_ns),
            ..Now::default()
        }
    }

    fn event(&mut self, event: Event<'_>) {
        let now = self.now();
        self.client.on_event(now, event, &mut self.fx);
    }

    /// Ends turns until nothing is left to carry out.
    fn turn(&mut self) {
        loop {
            let now = self.now();
            self.client.on_flush(now, &mut self.fx);
            let mut ops = Vec::new();
            self.fx.take_ops(&mut ops);
            if ops.is_empty() {
                break;
            }
            for op in ops {
                self.carry_out(op);
            }
        }
    }

    fn carry_out(&mut self, op: Op) {
        match op {
            Op::Connect(connect) => {
                self.asked.push(connect.token);
                let token = connect.token;
                if self.refuse_connects {
                    let error = ConnectError::Refused;
                    return self.event(Event::ConnectFailed { token, error });
                }
                let slot = self.open.iter().position(Option::is_none).unwrap();
                self.generation += 1;
                let conn = ConnId {
                    slot: slot as u32,
                    generation: self.generation,
                };
                self.open[slot] = Some(conn);
                self.fx.open_conn(conn);
                self.event(Event::Connected { conn, token });
            }
            Op::Close(conn) => self.gone(conn, CloseCause::Local),
            Op::Stop => self.stopped = true,
            other => panic!("not used: {other:?}"),
        }
    }

    fn gone(&mut self, conn: ConnId, cause: CloseCause) {
        self.open[conn.slot as usize] = None;
        self.kept[conn.slot as usize].clear();
        self.fx.forget_conn(conn);
        self.event(Event::Closed { conn, cause });
    }

    fn job(&mut self, id: u64) -> Job {
        Job::new(id, Mono(self.now_ns))
    }

    fn give(&mut self, jobs: &[Job]) {
        self.desk.lock().unwrap().jobs.extend(jobs);
        self.turn();
    }

    /// What the conn in `slot` sent; the kernel has taken it.
    fn sent(&mut self, slot: usize) -> String {
        let conn = self.open[slot].unwrap();
        let mut bytes = Vec::new();
        self.fx.take_pending(conn, &mut bytes);
        self.fx.sent(conn, bytes.len());
        self.event(Event::Sent { conn });
        self.turn();
        String::from_utf8(bytes).unwrap()
    }

    fn receive(&mut self, slot: usize, bytes: &[u8], ended: bool) {
        let conn = self.open[slot].unwrap();
        let mut kept = std::mem::take(&mut self.kept[slot]);
        kept.extend_from_slice(bytes);
        let consumed = Cell::new(0);
        let input = Input::new(&kept, ended, &consumed);
        self.event(Event::Received { conn, input });
        kept.drain(..consumed.get());
        self.kept[slot] = kept;
        self.turn();
    }

    fn told(&mut self) -> Vec<Told> {
        std::mem::take(&mut self.desk.lock().unwrap().told)
    }
}

fn answer(id: u64) -> Told {
    Told::Answer(id, 200, b"ok".to_vec())
}

#[test]
fn answers_match_by_order_at_every_split() {
    let three = [OK, b"HTTP/1.1 100 Continue\r\n\r\n", OK, OK].concat();
    for split in 0..=three.len() {
        let mut world = World::new(1, 3);
        let jobs = [1, 2, 3, 4].map(|id| world.job(id));
        world.give(&jobs);
        assert_eq!(world.sent(0), "<1><2><3>", "the fourth waits for room");
        world.told();
        world.receive(0, &three[..split], false);
        world.receive(0, &three[split..], false);
        let told = world.told();
        let answers: Vec<_> = told
            .iter()
            .filter(|t| !matches!(t, Told::Wrote(..)))
            .collect();
        assert_eq!(answers, [&answer(1), &answer(2), &answer(3)], "{split}");
        assert_eq!(world.sent(0), "<4>");
        assert!(world.kept[0].is_empty());
    }
}

#[test]
fn lanes_take_turns_and_places_are_kept() {
    let mut world = World::new(3, 2);
    let mut jobs = [1, 2, 3, 4, 5].map(|id| world.job(id));
    jobs[2].place = Place::On(LaneId(0));
    jobs[3].place = Place::NotOn(LaneId(2));
    jobs[4].place = Place::On(LaneId(0));
    world.give(&jobs);
    assert_eq!(world.sent(0), "<1><3>");
    assert_eq!(world.sent(1), "<2><4>");
    assert_eq!(world.sent(2), "");
    world.receive(0, OK, false);
    assert_eq!(world.sent(0), "<5>", "it waited for its own lane");
}

#[test]
fn a_close_with_an_answer_reconnects_and_gives_back_what_was_not_read() {
    let mut world = World::new(1, 4);
    let jobs = [1, 2, 3].map(|id| world.job(id));
    world.give(&jobs);
    world.sent(0);
    world.told();
    world.receive(0, &[OK, LAST, OK].concat(), true);
    assert_eq!(
        world.told(),
        [
            answer(1),
            Told::Answer(2, 400, vec![]),
            Told::Failed(3, Failure::Unread)
        ]
    );
    assert_eq!(world.asked.len(), 2, "connected again at once");
    let job = world.job(4);
    world.give(&[job]);
    assert_eq!(world.sent(0), "<4>");
}

#[test]
fn nothing_is_sent_behind_a_request_that_ends_its_connection() {
    let mut world = World::new(1, 4);
    let mut jobs = [1, 2, 3].map(|id| world.job(id));
    jobs[1].then = Then::Await;
    world.give(&jobs);
    assert_eq!(world.sent(0), "<1><2>");
    world.receive(0, OK, false);
    assert_eq!(world.sent(0), "", "not before the answer to 2");
    world.receive(0, LAST, false);
    assert_eq!(world.sent(0), "<3>", "on a new connection");
    assert_eq!(world.asked.len(), 2);
    // When the server does not close after all, the lane goes on.
    world.receive(0, OK, false);
    let mut job = world.job(4);
    job.then = Then::Await;
    let last = world.job(5);
    world.give(&[job, last]);
    assert_eq!(world.sent(0), "<4>");
    world.receive(0, OK, false);
    assert_eq!(world.sent(0), "<5>");
    assert_eq!(world.asked.len(), 2);
}

#[test]
fn a_client_that_goes_away_waits_for_earlier_answers_and_its_own_bytes() {
    let mut world = World::new(1, 4);
    let mut jobs = [1, 2, 3].map(|id| world.job(id));
    jobs[1].then = Then::Leave;
    world.give(&jobs);
    assert_eq!(world.sent(0), "<1><2>");
    world.told();
    world.receive(0, OK, false);
    assert_eq!(world.told(), [answer(1), Told::Left(2), Told::Wrote(3, 0)]);
    assert_eq!(world.asked.len(), 2);
    world.receive(0, OK, false);
    let mut job = world.job(4);
    job.then = Then::Leave;
    world.give(&[job]);
    assert!(!world.told().contains(&Told::Left(4)), "not sent yet");
    let conn = world.open[0].unwrap();
    let mut bytes = Vec::new();
    world.fx.take_pending(conn, &mut bytes);
    world.fx.sent(conn, bytes.len());
    world.event(Event::Sent { conn });
    assert_eq!(world.told(), [Told::Left(4)]);
}

#[test]
fn a_reset_a_silent_close_and_garbage_end_everything_under_way() {
    for story in 0..4 {
        let mut world = World::new(1, 4);
        let jobs = [1, 2].map(|id| world.job(id));
        world.give(&jobs);
        world.sent(0);
        world.told();
        let first = match story {
            0 => {
                let conn = world.open[0].unwrap();
                world.gone(conn, CloseCause::Reset);
                world.turn();
                Failure::Reset
            }
            1 => {
                world.receive(0, b"HTTP/1.1 200 OK\r\nContent-Le", true);
                Failure::Closed
            }
            2 => {
                world.receive(0, b"SSH-2.0\r\n", false);
                Failure::Bad(BadAnswer::StatusLine)
            }
            _ => {
                world.now_ns += 10_000_000_000;
                world.turn();
                Failure::TimedOut
            }
        };
        let failed = [
            Told::Failed(1, first),
            Told::Failed(2, Failure::LostWithLane),
        ];
        assert_eq!(world.told(), failed);
        assert_eq!(world.asked.len(), 2, "story {story}");
    }
}

#[test]
fn bytes_that_nobody_asked_for_and_an_idle_end_only_cost_a_connection() {
    let mut world = World::new(1, 1);
    world.receive(0, OK, false);
    world.receive(0, b"", true);
    assert_eq!(world.asked.len(), 3);
    assert_eq!(world.told(), []);
}

#[test]
fn a_refused_connect_is_told_and_tried_again_after_a_pause() {
    let mut world = World::new(2, 1);
    world.refuse_connects = true;
    for slot in 0..2 {
        let conn = world.open[slot].unwrap();
        world.gone(conn, CloseCause::Reset);
    }
    world.turn();
    assert_eq!(world.told(), [Told::ConnectFailed, Told::ConnectFailed]);
    let asked = world.asked.len();
    world.turn();
    assert_eq!(world.asked.len(), asked, "not before its pause");
    world.refuse_connects = false;
    for _ in 0..60 {
        world.now_ns = world.client.next_deadline().unwrap().0;
        world.turn();
    }
    assert_eq!(world.asked.len(), asked + 2);
    let job = world.job(1);
    world.give(&[job]);
    assert_eq!(world.told(), [Told::Wrote(1, 0)]);
}

#[test]
fn the_deadline_is_the_next_request_only_while_there_is_room() {
    let mut world = World::new(1, 1);
    let mut jobs = [1, 2].map(|id| world.job(id));
    for job in &mut jobs {
        job.scheduled = Mono(world.now_ns + 1_000);
    }
    world.give(&jobs);
    assert_eq!(world.client.next_deadline(), Some(jobs[0].scheduled));
    world.now_ns += 1_000;
    world.turn();
    assert_eq!(world.sent(0), "<1>");
    // The second is due, but waits for an answer: its instant must not wake anybody.
    assert!(world.client.next_deadline().unwrap().0 > world.now_ns);
    world.receive(0, OK, false);
    assert_eq!(world.sent(0), "<2>");
}

#[test]
fn the_end_names_what_was_under_way_and_what_was_never_sent() {
    let mut world = World::new(2, 1);
    let mut jobs = [1, 2].map(|id| world.job(id));
    for job in &mut jobs {
        job.place = Place::On(LaneId(1));
    }
    world.give(&jobs);
    world.told();
    world.desk.lock().unwrap().over = true;
    world.turn();
    assert_eq!(
        world.told(),
        [
            Told::Failed(1, Failure::LostWithLane),
            Told::Failed(2, Failure::NotSent),
            Told::Ended
        ]
    );
    assert!(world.stopped);
    assert_eq!(world.client.next_deadline(), None);
    assert_eq!(world.desk.lock().unwrap().counts.broken, 1);
}
