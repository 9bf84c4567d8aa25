//! The engine allocates nothing per request once it is warm: counted by this binary's own allocator.

#![allow(clippy::unwrap_used)] // a test that meets one has failed

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_bench::client::{Client, ClientConfig, Done, Job, LaneId, Outcome, Progress, Workload};
use weir_bench::due::DueQueue;
use weir_bench::tally::Tally;
use weir_core::port::{ConnId, Effects, Event, Handler, Input, Op};
use weir_core::time::{Mono, Now};

#[path = "../../tests/support/counting.rs"]
mod counting;

const LANES: usize = 4;
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 27\r\n\r\n{\"code\":\"SECKILL_SOLD_OUT\"}";

/// Every answer puts its request back into the queue.
struct Again {
    due: DueQueue,
    tally: Tally,
    answered: Arc<AtomicU64>,
}

impl Workload for Again {
    fn start(&mut self, now: Now) {
        for id in 0..16 {
            self.due.push(now.mono, id).unwrap();
        }
    }
    fn next(&mut self, now: Now) -> Option<Job> {
        let (due, id) = self.due.pop_due(now.mono)?;
        Some(Job::new(id, due))
    }
    fn write(&mut self, _: Now, _: &Job, _: LaneId, out: &mut Vec<u8>) {
        out.extend_from_slice(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    }
    fn done(&mut self, now: Now, done: &Done<'_>) {
        let Outcome::Answer(answer) = done.outcome else {
            panic!("{done:?}");
        };
        self.tally.answer(&answer, done.latency_ns(), true);
        self.answered.fetch_add(1, Ordering::Relaxed);
        self.due
            .push(now.mono.plus_ns(done.job.id), done.job.id)
            .unwrap();
    }
    fn next_due(&self) -> Option<Mono> {
        self.due.next_due()
    }
    fn progress(&self) -> Progress {
        Progress::Running
    }
}

#[test]
fn a_warm_engine_allocates_nothing() {
    let mut config = ClientConfig::new("127.0.0.1:1".parse().unwrap(), LANES as u32);
    config.pipeline_max = 2;
    let answered = Arc::new(AtomicU64::new(0));
    let workload = Again {
        due: DueQueue::new(16),
        tally: Tally::new(),
        answered: answered.clone(),
    };
    let mut client = Client::new(config, Box::new(workload)).unwrap();
    let mut fx = Effects::new(LANES);
    let mut now = Now::default();
    let mut ops = Vec::new();
    client.on_start(now, &mut fx);
    fx.take_ops(&mut ops);
    let conn = |slot: usize| ConnId {
        slot: slot as u32,
        generation: 1,
    };
    for (slot, op) in ops.drain(..).enumerate() {
        let Op::Connect(connect) = op else {
            panic!("{op:?}");
        };
        fx.open_conn(conn(slot));
        let (conn, token) = (conn(slot), connect.token);
        client.on_event(now, Event::Connected { conn, token }, &mut fx);
    }
    let two = [OK, OK].concat();
    let mut buffer = Vec::with_capacity(1024);
    let mut round = || {
        now.mono = now.mono.plus_ns(10_000);
        client.on_flush(now, &mut fx);
        while let Some(conn) = fx.next_dirty() {
            fx.take_pending(conn, &mut buffer);
            let requests = buffer.len() / 27;
            fx.sent(conn, buffer.len());
            buffer.clear();
            client.on_event(now, Event::Sent { conn }, &mut fx);
            let consumed = Cell::new(0);
            let input = Input::new(&two[..requests * OK.len()], false, &consumed);
            client.on_event(now, Event::Received { conn, input }, &mut fx);
        }
    };
    (0..1_000).for_each(|_| round());
    let (before, warm) = (counting::allocations(), answered.load(Ordering::Relaxed));
    (0..10_000).for_each(|_| round());
    let requests = answered.load(Ordering::Relaxed) - warm;
    assert_eq!(requests, 80_000);
    assert_eq!(
        counting::allocations() - before,
        0,
        "in {requests} requests"
    );
}
