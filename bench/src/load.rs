//! The bench's workload: a schedule (or none: as fast as answers come) and a mix.
//!
//! Called by the engine. In an open loop each request has its instant; if no connection has room then, it is sent late
//! and its latency counts from the instant. What could not be sent before the run had to end is counted.

use crate::client::{ClientCounts, Done, Failure, Job, LaneId, Outcome, Progress, Then, Workload};
use crate::latency::Latency;
use crate::limits::{OVERRUN_MS_MAX, REQUESTS_MAX, START_PAUSE_MS, UNREACHABLE_MS};
use crate::mix::{Kind, Mix};
use crate::request::{Credentials, Route, put_plain, put_status, put_submit};
use crate::schedule::Schedule;
use crate::tally::Tally;
use crate::tickets::Tickets;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use weir_core::port::ConnectError;
use weir_core::rng::Rng;
use weir_core::time::{Mono, Now};
use weir_proto::ids::RequestId;
use weir_proto::submit::Submit;

/// When requests are sent.
#[derive(Clone, Debug)]
pub(crate) enum Pace {
    /// At these instants.
    Open(Schedule),
    /// As soon as a connection has room.
    Max,
}

/// The run, as numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    /// How long requests are due.
    pub duration_ms: u64,
    /// Requests due in the first so many milliseconds are sent, and not measured.
    pub warm_up_ms: u64,
    /// Most requests.
    pub requests_max: u64,
}

/// What other threads may look at while the run goes on.
#[derive(Debug, Default)]
pub(crate) struct Live {
    /// Requests sent.
    sent: AtomicU64,
    /// Requests answered.
    answered: AtomicU64,
    /// Requests without an answer.
    failed: AtomicU64,
}

impl Live {
    /// All three now.
    pub(crate) fn look(&self) -> crate::run::Look {
        crate::run::Look {
            sent: self.sent.load(Ordering::Relaxed),
            answered: self.answered.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
        }
    }
}

/// All that was counted, at the end.
pub(crate) struct Outturn {
    pub tallies: Vec<Tally>,
    pub client: ClientCounts,
    /// From send to answer, measured requests.
    pub service: Latency,
    /// From the scheduled instant to the send, measured requests.
    pub lag: Latency,
    /// Requests that were due and never given to the engine.
    pub not_given: u64,
    /// Requests sent before the last scheduled instant (open loop).
    pub sent_in_time: u64,
    pub scheduled: u64,
    pub first_due: Mono,
    pub last_done: Mono,
    pub tickets_minted_late: u64,
    pub unreachable: Option<ConnectError>,
}

impl Outturn {
    fn new(scheduled: u64) -> Self {
        Self {
            tallies: vec![Tally::new(); Kind::ALL.len()],
            client: ClientCounts::default(),
            service: Latency::new(),
            lag: Latency::new(),
            not_given: 0,
            sent_in_time: 0,
            scheduled,
            first_due: Mono(0),
            last_done: Mono(0),
            tickets_minted_late: 0,
            unreachable: None,
        }
    }
}

/// Where the load leaves its outturn for the thread that waits.
pub(crate) type Shelf = Arc<Mutex<Option<Outturn>>>;

pub(crate) struct Load {
    pace: Pace,
    span: Span,
    mix: Mix,
    words: Words,
    tickets: Option<Tickets>,
    live: Arc<Live>,
    shelf: Shelf,
    rng: Rng,
    /// When the schedule began; `None` before the first connection.
    start: Option<Mono>,
    created: Mono,
    given: u64,
    submits: u64,
    draining: bool,
    complete: bool,
    out: Outturn,
}

/// The texts of requests.
pub(crate) struct Words {
    /// The Host header, and with it a line that asks for the end of the connection.
    pub host: String,
    /// Each connection ends with the first answer.
    pub close_each: bool,
    /// After so many submits their tickets and users come again.
    pub tickets_max: Option<u64>,
    /// The path of a plain GET.
    pub path: String,
    /// What request ids of this run begin with.
    pub run: u64,
}

/// A path id that no activity has: it is longer than any of ours that `weir init` makes.
const WRONG_PATH_ID: &str = "no-such-activity";
/// Two lengths: refused by every server that follows RFC 9112 §6.3 rule 5.
const MALFORMED: &[u8] =
    b"POST /v1/seckill/x HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n";
const KIND_BITS: u32 = 8;

impl Load {
    pub(crate) fn new(
        pace: Pace,
        span: Span,
        mix: Mix,
        words: Words,
        tickets: Option<Tickets>,
        live: Arc<Live>,
        shelf: Shelf,
    ) -> Self {
        let scheduled = match &pace {
            Pace::Open(schedule) => schedule.left(),
            Pace::Max => 0,
        };
        Self {
            rng: Rng::new(words.run),
            pace,
            span,
            mix,
            words,
            tickets,
            live,
            shelf,
            start: None,
            created: Mono(0),
            given: 0,
            submits: 0,
            draining: false,
            complete: false,
            out: Outturn::new(scheduled),
        }
    }

    /// When the next request is due, in an open loop and after the start.
    fn open_due(&self) -> Option<Mono> {
        match (&self.pace, self.start) {
            (Pace::Open(schedule), Some(start)) => Some(start.plus_ns(schedule.peek_ns()?)),
            _ => None,
        }
    }

    fn end_of_sending(&self, start: Mono) -> Mono {
        match self.pace {
            Pace::Open(_) => start.plus_ms(self.span.duration_ms + OVERRUN_MS_MAX),
            Pace::Max => start.plus_ms(self.span.duration_ms),
        }
    }

    fn stop_giving(&mut self) {
        if let Pace::Open(schedule) = &mut self.pace {
            self.out.not_given += schedule.left();
            schedule.drop_before_ns(u64::MAX);
        }
        self.complete = true;
    }

    /// The instant of the next request, when it may be given now.
    fn take_instant(&mut self, now: Now) -> Option<Mono> {
        let start = *self.start.get_or_insert_with(|| {
            self.out.first_due = now.mono.plus_ms(START_PAUSE_MS);
            self.out.first_due
        });
        if self.complete || (now.mono < start && !self.draining) {
            return None;
        }
        if self.draining || now.mono >= self.end_of_sending(start) {
            self.stop_giving();
            return None;
        }
        match &mut self.pace {
            Pace::Max if self.given >= self.span.requests_max.min(REQUESTS_MAX) => {
                self.complete = true;
                None
            }
            Pace::Max => Some(now.mono),
            Pace::Open(schedule) => {
                let Some(at) = schedule.peek_ns().map(|at| start.plus_ns(at)) else {
                    self.complete = true;
                    return None;
                };
                if at > now.mono {
                    return None;
                }
                schedule.take_ns();
                Some(at)
            }
        }
    }

    fn kind_of(job: &Job) -> Kind {
        Kind::ALL[(job.id & ((1 << KIND_BITS) - 1)) as usize]
    }

    /// The submit of ticket `n`.
    fn submit(&self, n: u64) -> Option<Submit> {
        let mint = self.tickets.as_ref()?.about();
        let mut text = *b"b0000000000000000-0000000000000000";
        put_hex(&mut text[1..17], self.words.run);
        put_hex(&mut text[18..], n);
        Some(Submit {
            request_id: RequestId::new(&text).expect("34 letters, digits and a hyphen"),
            activity: mint.activity,
            sku: mint.sku,
            user: mint.user(n),
            quantity: 1,
            attempt: 0,
        })
    }

    /// Ticket and submit `n`, sent to `path_id` (`None`: the activity's), its MAC broken on demand.
    fn write_submit(&mut self, n: u64, wrong_path: bool, bad_mac: bool, out: &mut Vec<u8>) {
        let Some(submit) = self.submit(n) else {
            return;
        };
        let Some(tickets) = &mut self.tickets else {
            return;
        };
        let path_id = tickets.about().path_id;
        let ticket = tickets.get(n);
        let route = Route {
            host: &self.words.host,
            path_id: match wrong_path {
                true => WRONG_PATH_ID,
                false => path_id.as_str(),
            },
        };
        let ticket_bytes = ticket.len();
        let credentials = Credentials {
            ticket,
            device: None,
        };
        let before = out.len();
        put_submit(out, route, credentials, &submit);
        if bad_mac {
            // Ten characters before its end: within the MAC of both forms, and no spare bits of base64.
            let found = memchr::memmem::find(&out[before..], b"Bearer ");
            let ticket_at = before + found.expect("put_submit writes it") + b"Bearer ".len();
            let byte = &mut out[ticket_at + ticket_bytes - 10];
            *byte = if *byte == b'A' { b'B' } else { b'A' };
        }
    }

    fn write_status(&mut self, n: u64, out: &mut Vec<u8>) {
        let submit = self.submit(n);
        if let (Some(submit), Some(tickets)) = (submit, &mut self.tickets) {
            let credentials = Credentials {
                ticket: tickets.get(n),
                device: None,
            };
            put_status(out, &self.words.host, credentials, &submit);
        }
    }
}

impl Workload for Load {
    fn start(&mut self, now: Now) {
        self.created = now.mono;
    }

    fn next(&mut self, now: Now) -> Option<Job> {
        let at = self.take_instant(now)?;
        let kind = self.mix.pick(&mut self.rng);
        let number = match kind {
            Kind::Submit => {
                let number = self.submits;
                self.submits += 1;
                self.words
                    .tickets_max
                    .map_or(number, |tickets| number % tickets)
            }
            // Nobody submits: the tickets that were minted, in turn.
            _ if self.mix.weights.submit == 0 => self.given % self.words.tickets_max.unwrap_or(1),
            // One that was submitted, or will be first.
            _ => {
                let submitted = self
                    .words
                    .tickets_max
                    .map_or(self.submits, |tickets| tickets.min(self.submits));
                self.rng.below(submitted.max(1))
            }
        };
        let mut job = Job::new(number << KIND_BITS | kind as u64, at);
        if kind == Kind::Malformed || self.words.close_each {
            job.then = Then::Await;
        }
        self.given += 1;
        self.out.tallies[kind as usize].given += 1;
        Some(job)
    }

    fn write(&mut self, now: Now, job: &Job, _lane: LaneId, out: &mut Vec<u8>) {
        let number = job.id >> KIND_BITS;
        match Self::kind_of(job) {
            Kind::Get => put_plain(out, "GET", &self.words.path, &self.words.host, ""),
            Kind::Submit => self.write_submit(number, false, false, out),
            Kind::BadMac => self.write_submit(number, false, true, out),
            Kind::BadPath => self.write_submit(number, true, false, out),
            Kind::Malformed => out.extend_from_slice(MALFORMED),
            Kind::Status => self.write_status(number, out),
        }
        let start = self.start.unwrap_or(now.mono);
        self.out.sent_in_time += u64::from(now.mono <= start.plus_ms(self.span.duration_ms));
        self.live.sent.fetch_add(1, Ordering::Relaxed);
    }

    fn done(&mut self, _now: Now, done: &Done<'_>) {
        let tally = &mut self.out.tallies[Self::kind_of(&done.job) as usize];
        let start = self.start.unwrap_or(Mono(0));
        let measured = done.job.scheduled >= start.plus_ms(self.span.warm_up_ms);
        self.out.last_done = done.done;
        match done.outcome {
            Outcome::Answer(answer) => {
                tally.answer(&answer, done.latency_ns(), measured);
                self.live.answered.fetch_add(1, Ordering::Relaxed);
            }
            Outcome::Failed(failure) => {
                tally.failure(failure);
                self.live.failed.fetch_add(1, Ordering::Relaxed);
            }
            Outcome::Left => tally.failure(Failure::LostWithLane), // the bench never leaves
        }
        if measured && !matches!(done.outcome, Outcome::Failed(Failure::NotSent)) {
            self.out.lag.record_ns(done.lag_ns());
            if let Outcome::Answer(_) = done.outcome {
                self.out.service.record_ns(done.done.since(done.sent));
            }
        }
    }

    fn next_due(&self) -> Option<Mono> {
        match (self.complete, &self.pace) {
            (true, _) => None, // a past instant would wake the engine again and again
            (false, Pace::Max) => self.start,
            (false, Pace::Open(_)) => self.open_due(),
        }
    }

    fn progress(&self) -> Progress {
        match (self.out.unreachable, self.complete) {
            (Some(_), _) => Progress::Aborted,
            (None, true) => Progress::Complete,
            (None, false) => Progress::Running,
        }
    }

    fn connect_failed(&mut self, now: Now, _to: SocketAddr, error: ConnectError, open: u32) {
        let last_answer = self.created.max(self.out.last_done);
        if open == 0 && now.mono.since(last_answer) >= UNREACHABLE_MS * 1_000_000 {
            self.stop_giving();
            self.out.unreachable = Some(error);
        }
    }

    fn drain(&mut self) {
        self.draining = true;
    }

    fn ended(&mut self, _now: Now, counts: &ClientCounts) {
        let mut out = std::mem::replace(&mut self.out, Outturn::new(0));
        out.client = *counts;
        out.tickets_minted_late = self.tickets.as_ref().map_or(0, Tickets::minted_late);
        if let Ok(mut shelf) = self.shelf.lock() {
            *shelf = Some(out);
        }
    }
}

fn put_hex(out: &mut [u8], mut value: u64) {
    for digit in out.iter_mut().rev() {
        *digit = b"0123456789abcdef"[(value & 15) as usize];
        value >>= 4;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Client, ClientConfig};
    use crate::mix::{TicketForm, Weights};
    use crate::schedule::Phase;
    use crate::tickets::TicketMint;
    use weir_core::mail::Addr;
    use weir_core::port::{Effects, Event, Handler};
    use weir_core::time::NS_PER_MS;
    use weir_io::sim::{Config, Listen, Status, World};
    use weir_proto::http::{Parsed, RequestParser};
    use weir_proto::ids::{ActivityId, SkuId};
    use weir_proto::ticket::{KeyRing, TicketKey, authenticate, path_id};

    const SERVER: Addr = Addr::Ops;
    const GENERATOR: Addr = Addr::Log;
    const OK: &[u8] =
        b"HTTP/1.1 200 OK\r\nContent-Length: 27\r\n\r\n{\"code\":\"SECKILL_SOLD_OUT\"}";
    const BAD: &[u8] =
        b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

    /// Reads requests with the server's own parser; says sold out, or refuses and closes.
    struct SoldOut {
        ring: KeyRing,
        /// Submits with a valid ticket, those with an invalid one, status queries, plain GETs, refused bytes.
        seen: [u64; 5],
    }

    impl SoldOut {
        fn count(&mut self, request: &[u8]) {
            let text = String::from_utf8_lossy(request);
            let ticket = text
                .split("Bearer ")
                .nth(1)
                .and_then(|rest| rest.split('\r').next());
            let valid = ticket.map(|ticket| authenticate(ticket.as_bytes(), &self.ring).is_ok());
            self.seen[match (text.starts_with("POST"), valid) {
                (true, Some(true)) => 0,
                (true, _) => 1,
                (false, Some(_)) => 2,
                (false, None) => 3,
            }] += 1;
        }
    }

    impl Handler for SoldOut {
        fn on_start(&mut self, _: Now, _: &mut Effects) {}
        fn on_event(&mut self, _: Now, event: Event<'_>, fx: &mut Effects) {
            let Event::Received { conn, mut input } = event else {
                return;
            };
            while !input.bytes().is_empty() {
                match RequestParser::default().parse(input.bytes()) {
                    Parsed::Done { consumed, .. } => {
                        self.count(&input.bytes()[..consumed]);
                        input.consume(consumed);
                        fx.outbox(conn).extend_from_slice(OK);
                    }
                    Parsed::Reject(_) => {
                        self.seen[4] += 1;
                        input.consume(input.bytes().len());
                        fx.outbox(conn).extend_from_slice(BAD);
                        fx.finish(conn);
                    }
                    Parsed::NeedMore | Parsed::Continue => break,
                }
            }
            if input.ended() {
                fx.close(conn);
            }
        }
        fn on_flush(&mut self, _: Now, _: &mut Effects) {}
        fn next_deadline(&self) -> Option<Mono> {
            None
        }
    }

    fn key() -> TicketKey {
        TicketKey::new(b"k1", &[7; 32]).unwrap()
    }

    fn tickets(form: TicketForm) -> Tickets {
        let mint = TicketMint {
            key: key(),
            form,
            activity: ActivityId(9001),
            sku: SkuId(1),
            activity_version: 1,
            path_id: path_id(b"p9f3a1").unwrap(),
            not_before_ms: 1,
            expires_at_ms: 1_000,
            first_user: 1,
            nonce_seed: 5,
        };
        Tickets::mint(mint, 10).unwrap()
    }

    struct Story {
        world: World,
        shelf: Shelf,
    }

    impl Story {
        fn new(pace: Pace, span: Span, mix: Mix, connections: u32, form: TicketForm) -> Self {
            let target: SocketAddr = "10.0.0.1:80".parse().unwrap();
            let words = Words {
                host: target.to_string(),
                close_each: false,
                tickets_max: None,
                path: "/".into(),
                run: 11,
            };
            let shelf = Shelf::default();
            let load = Load::new(
                pace,
                span,
                mix,
                words,
                Some(tickets(form)),
                Arc::new(Live::default()),
                shelf.clone(),
            );
            let engine = ClientConfig::new(target, connections);
            let client = Client::new(engine, Box::new(load)).unwrap();
            let mut world = World::new(3, Config::default());
            let server = SoldOut {
                ring: KeyRing::new(key(), None).unwrap(),
                seen: [0; 5],
            };
            let conns_max = connections as usize;
            world.add_part(SERVER, Box::new(server), Listen::On(target), 2 * conns_max);
            world.add_part(GENERATOR, Box::new(client), Listen::No, conns_max);
            Self { world, shelf }
        }

        fn end(mut self) -> (Outturn, [u64; 5]) {
            let stopped = |world: &World| world.status(GENERATOR) == Status::Stopped;
            assert!(self.world.run_until(60_000 * NS_PER_MS, stopped));
            let seen = self.world.part::<SoldOut>(SERVER).unwrap().seen;
            let out = self.shelf.lock().unwrap().take().unwrap();
            (out, seen)
        }
    }

    fn span(duration_ms: u64) -> Span {
        Span {
            duration_ms,
            warm_up_ms: 0,
            requests_max: 1_000_000,
        }
    }

    #[test]
    fn a_stall_of_the_server_is_in_the_latencies_though_nothing_was_sent_meanwhile() {
        let (rate, seconds) = (2_000, 5);
        let schedule = Schedule::constant(rate, rate * seconds, Phase::ALONE);
        let pace = Pace::Open(schedule);
        let mut story = Story::new(
            pace,
            span(seconds * 1_000),
            Mix::get_only(),
            4,
            TicketForm::Jws,
        );
        story.world.run_for(2_000 * NS_PER_MS);
        story.world.pause(SERVER, 200 * NS_PER_MS);
        let (out, seen) = story.end();
        let get = &out.tallies[Kind::Get as usize];
        assert_eq!(
            (get.given, get.answered, get.failed, seen[3]),
            (10_000, 10_000, 0, 10_000)
        );
        // 400 of 10,000 were due in the stall; four of them were on the wire.
        let latency = get.latency.summary();
        assert!(latency.p999 >= 190_000, "{latency:?}");
        assert!(latency.p99 >= 140_000, "{latency:?}");
        assert!(latency.p50 < 10_000, "{latency:?}");
        let service = out.service.summary();
        assert!(
            service.p99 < 10_000 && service.max >= 190_000,
            "{service:?}"
        );
        assert!(out.lag.summary().max >= 190_000, "what went late is said");
        assert_eq!((out.not_given, out.sent_in_time), (0, 10_000));
    }

    #[test]
    fn every_kind_of_a_mix_is_what_its_name_says() {
        for form in [TicketForm::Compact, TicketForm::Jws] {
            let mut mix = Mix::get_only();
            mix.weights = Weights {
                get: 1,
                submit: 1,
                bad_mac: 1,
                bad_path: 1,
                malformed: 1,
                status: 1,
            };
            let pace = Pace::Open(Schedule::poisson(1_000, 1_200, 5));
            let (out, seen) = Story::new(pace, span(2_000), mix, 8, form).end();
            let given: Vec<u64> = out.tallies.iter().map(|tally| tally.given).collect();
            assert!(given.iter().all(|&count| count > 100), "{given:?}");
            let of = |kind: Kind| given[kind as usize];
            assert_eq!(
                seen,
                [
                    of(Kind::Submit) + of(Kind::BadPath),
                    of(Kind::BadMac),
                    of(Kind::Status),
                    of(Kind::Get),
                    of(Kind::Malformed)
                ]
            );
            for tally in &out.tallies {
                assert_eq!((tally.given, tally.failed), (tally.answered, 0));
            }
            assert_eq!(
                out.tallies[Kind::Malformed as usize].by_status(),
                [("400".into(), of(Kind::Malformed))].into()
            );
            assert_eq!(
                out.tallies[Kind::Submit as usize].by_code(),
                [("SECKILL_SOLD_OUT".into(), of(Kind::Submit))].into()
            );
            assert_eq!(out.client.closed_with_answer, of(Kind::Malformed));
            assert!(out.tickets_minted_late > 0, "only ten were minted ahead");
        }
    }

    #[test]
    fn a_closed_loop_keeps_every_connection_busy_and_ends_in_time_and_in_count() {
        let story = Story::new(
            Pace::Max,
            span(1_000),
            Mix::get_only(),
            8,
            TicketForm::Compact,
        );
        let (out, seen) = story.end();
        assert_eq!(out.client.in_flight_max, 8);
        assert!(
            seen[3] > 1_000 && out.tallies[0].answered == seen[3],
            "{seen:?}"
        );
        let mut few = span(10_000);
        few.requests_max = 777;
        let (out, seen) = Story::new(Pace::Max, few, Mix::get_only(), 8, TicketForm::Compact).end();
        assert_eq!((out.tallies[0].answered, seen[3]), (777, 777));
    }

    #[test]
    fn what_a_slow_server_left_unsent_is_counted() {
        // One connection answers a few hundred requests a second; 5,000 were asked for.
        let pace = Pace::Open(Schedule::constant(5_000, 50_000, Phase::ALONE));
        let story = Story::new(pace, span(10_000), Mix::get_only(), 1, TicketForm::Compact);
        let (out, seen) = story.end();
        assert_eq!(out.tallies[0].given, seen[3]);
        assert_eq!(out.not_given, 50_000 - seen[3]);
        assert!(out.sent_in_time < 25_000 && out.not_given > 0);
    }

    #[test]
    fn a_drain_stops_giving_and_a_dead_server_ends_the_run() {
        let pace = Pace::Open(Schedule::constant(100, 1_000, Phase::ALONE));
        let mut story = Story::new(
            pace.clone(),
            span(10_000),
            Mix::get_only(),
            2,
            TicketForm::Compact,
        );
        story.world.run_for(1_000 * NS_PER_MS);
        story.world.drain(GENERATOR);
        let (out, _) = story.end();
        assert!(out.tallies[0].answered > 50 && out.not_given > 800);
        assert_eq!(out.tallies[0].given + out.not_given, 1_000);

        let mut story = Story::new(pace, span(10_000), Mix::get_only(), 2, TicketForm::Compact);
        story.world.run_for(1_000 * NS_PER_MS);
        story.world.crash(SERVER);
        let stopped = |world: &World| world.status(GENERATOR) == Status::Stopped;
        assert!(story.world.run_until(60_000 * NS_PER_MS, stopped));
        let out = story.shelf.lock().unwrap().take().unwrap();
        assert_eq!(out.unreachable, Some(ConnectError::Refused));
    }
}
