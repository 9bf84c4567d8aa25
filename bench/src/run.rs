//! `weir bench`: one generator thread on the uring driver, from a configuration to a report.

use crate::client::{Client, ClientConfig, ClientConfigError};
use crate::limits::{DURATION_MS_MAX, RATE_PER_S_MAX, REQUESTS_MAX, SOURCES_MAX};
use crate::load::{Live, Load, Outturn, Pace, Shelf, Span, Words};
use crate::mix::{Kind, Mix, MixError, is_path};
use crate::report::{BenchReport, ConnectionReport, GeneratorReport, KindReport};
use crate::schedule::{Phase, Schedule};
use crate::tally::Tally;
use crate::tickets::{TicketMint, Tickets};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use weir_core::mail::Addr;
use weir_core::port::ConnectError;
use weir_io::choice::{self, Wanted};
use weir_io::drain::DrainSwitch;
use weir_io::driver::DriverConfig;
use weir_io::error::DriverError;
use weir_io::post::PostOffice;
use weir_io::stats::DriverStats;
use weir_proto::ticket::MintError;

/// How fast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// Open loop at this rate, evenly.
    Constant(u64),
    /// Open loop at this rate on average, as if by many independent people.
    Poisson(u64),
    /// Closed loop: as soon as a connection has room. For ceilings; its latencies say little.
    Max,
}

/// One run.
#[derive(Clone, Debug)]
pub struct BenchConfig {
    /// The server; a loopback address.
    pub target: SocketAddr,
    /// The path of plain GETs, unless the mix names one.
    pub path: String,
    /// How fast.
    pub rate: Rate,
    /// How long requests are due, 1..=3,600,000 ms.
    pub duration_ms: u64,
    /// Of this, at the start: sent but not measured.
    pub warm_up_ms: u64,
    /// Most requests, 1..=100,000,000.
    pub requests_max: u64,
    /// Connections, 1..=16384.
    pub connections: u32,
    /// Requests under way on each at most, 1..=64.
    pub pipeline: u32,
    /// Each request asks for `Connection: close` and goes on a connection of its own; `pipeline` must be 1.
    pub close_each: bool,
    /// Local addresses to send from, taken from 127.1.0.0/16; 0: the kernel's choice.
    pub sources: u32,
    /// A request without its answer after so many milliseconds has failed.
    pub answer_ms: u64,
    /// The core of the generator; `None`: any.
    pub cpu: Option<usize>,
    /// What to send.
    pub mix: Mix,
    /// For kinds that need tickets.
    pub mint: Option<TicketMint>,
    /// Mint so many tickets and begin again with the first when they are used up; `None`: each submit has its own.
    pub tickets_max: Option<u64>,
    /// Draws kinds and distances; names the run's request ids.
    pub seed: u64,
}

impl BenchConfig {
    /// 1,000 plain GETs a second for 10 s on 64 connections.
    pub fn new(target: SocketAddr) -> Self {
        Self {
            target,
            path: "/".into(),
            rate: Rate::Constant(1_000),
            duration_ms: 10_000,
            warm_up_ms: 0,
            requests_max: REQUESTS_MAX,
            connections: 64,
            pipeline: 1,
            close_each: false,
            sources: 0,
            answer_ms: 10_000,
            cpu: None,
            mix: Mix::get_only(),
            mint: None,
            tickets_max: None,
            seed: 1,
        }
    }

    fn check(&self) -> Result<(), BenchError> {
        let wrong = |key, value, allowed| {
            Err(BenchError::Client(ClientConfigError {
                key,
                value,
                allowed,
            }))
        };
        if !self.target.ip().to_canonical().is_loopback() {
            return Err(BenchError::NotLoopback(self.target));
        }
        if !is_path(&self.path) {
            return Err(BenchError::Mix(MixError::Path));
        }
        if let Rate::Constant(rate) | Rate::Poisson(rate) = self.rate
            && !(1..=RATE_PER_S_MAX).contains(&rate)
        {
            return wrong("rate", rate, "1..=10000000 requests a second");
        }
        if !(1..=DURATION_MS_MAX).contains(&self.duration_ms) {
            return wrong("duration in ms", self.duration_ms, "1..=3600000 (one hour)");
        }
        if self.warm_up_ms >= self.duration_ms {
            return wrong("warm-up in ms", self.warm_up_ms, "less than the duration");
        }
        if !(1..=REQUESTS_MAX).contains(&self.requests_max) {
            return wrong("requests", self.requests_max, "1..=100000000");
        }
        if self.sources > SOURCES_MAX {
            return wrong("sources", self.sources.into(), "0..=4096");
        }
        if self.sources > 0 && !self.target.is_ipv4() {
            return wrong("sources", self.sources.into(), "0 with an IPv6 target");
        }
        if self.close_each && self.pipeline != 1 {
            return wrong(
                "pipeline",
                self.pipeline.into(),
                "1 with a connection for each request",
            );
        }
        if self.tickets_max == Some(0) {
            return wrong("tickets", 0, "1 or more");
        }
        self.mix.check().map_err(BenchError::Mix)?;
        if self.mix.needs_tickets() && self.mint.is_none() {
            return Err(BenchError::NoKeys);
        }
        Ok(())
    }

    /// Requests of an open loop.
    fn scheduled(&self, rate: u64) -> u64 {
        let all = u128::from(rate) * u128::from(self.duration_ms) / 1_000;
        (all.max(1)).min(u128::from(self.requests_max)) as u64
    }

    fn pace(&self) -> Pace {
        match self.rate {
            Rate::Max => Pace::Max,
            Rate::Constant(rate) => {
                Pace::Open(Schedule::constant(rate, self.scheduled(rate), Phase::ALONE))
            }
            Rate::Poisson(rate) => {
                Pace::Open(Schedule::poisson(rate, self.scheduled(rate), self.seed))
            }
        }
    }

    /// Tickets to mint ahead: one per submit of an open loop; of a closed loop nobody knows, so as many as fit.
    fn tickets_wanted(&self) -> u64 {
        let requests = match self.rate {
            Rate::Constant(rate) | Rate::Poisson(rate) => self.scheduled(rate),
            Rate::Max => self.requests_max,
        };
        if let Some(tickets) = self.tickets_max {
            return tickets;
        }
        // A hundredth more than the weights say: kinds are drawn.
        let submits = u128::from(requests) * u128::from(self.mix.share_ppm(Kind::Submit));
        (submits * 101 / 100_000_000) as u64 + 1_000
    }
}

/// Why there is no report.
#[derive(Debug)]
pub enum BenchError {
    /// A value out of range.
    Client(ClientConfigError),
    /// The mix.
    Mix(MixError),
    /// The target is another machine.
    NotLoopback(SocketAddr),
    /// The mix needs tickets, and there is no key.
    NoKeys,
    /// Keys and sale do not make a ticket.
    Mint(MintError),
    /// Nobody listens there.
    Unreachable(SocketAddr, ConnectError),
    /// The driver could not run.
    Driver(DriverError),
    /// A thread or a descriptor could not be had.
    System(std::io::Error),
    /// The generator's thread ended without a report: a bug of ours.
    Lost,
}

impl fmt::Display for BenchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(error) => error.fmt(f),
            Self::Mix(error) => write!(f, "mix: {error}"),
            Self::NotLoopback(target) => write!(
                f,
                "{target} is not on this machine: weir bench only loads loopback addresses (127.0.0.0/8 or ::1), \
                 so that a mistyped address cannot harm anybody"
            ),
            Self::NoKeys => f.write_str(
                "the mix needs tickets: name the server's configuration with --config FILE, so that they can be signed",
            ),
            Self::Mint(error) => write!(f, "cannot mint tickets for this sale: {error}"),
            Self::Unreachable(target, error) => {
                let why = match error {
                    ConnectError::Refused => "nobody listens there; start `weir serve` first",
                    ConnectError::TimedOut => "no answer to connecting",
                    ConnectError::LocalLimit => {
                        "no descriptors or ports left; raise `ulimit -n` or lower --connections"
                    }
                    ConnectError::Tls(_) | ConnectError::Other(_) => "the system refused",
                };
                write!(f, "cannot connect to {target}: {why}")
            }
            Self::Driver(error) => error.fmt(f),
            Self::System(error) => write!(f, "the system refused a thread or a descriptor: {error}"),
            Self::Lost => f.write_str("the generator ended without a report; this is a bug, please report it"),
        }
    }
}

impl std::error::Error for BenchError {}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Requests sent.
    pub sent: u64,
    /// Requests answered.
    pub answered: u64,
    /// Requests without an answer.
    pub failed: u64,
}

/// How often `look` is called: often enough that a span of a second has its ends within a tenth.
const LOOK_MS: u64 = 100;

/// Runs the load to its end on a thread of its own. `look` is called about ten times a second on this thread; when it says
/// false, no more requests are sent, and the report is about what was.
///
/// # Errors
/// [`BenchError`]; nothing was sent, except with `Unreachable`.
pub fn run(
    config: &BenchConfig,
    mut look: impl FnMut(Look) -> bool,
) -> Result<BenchReport, BenchError> {
    config.check()?;
    let (live, shelf) = (Arc::new(Live::default()), Shelf::default());
    let client = client(config, live.clone(), shelf.clone())?;
    // The generator gets no mail; the box is only the bell that the drain switch rings.
    let post = Arc::new(PostOffice::new([Addr::Ops]).map_err(BenchError::System)?);
    let drain = Arc::new(DrainSwitch::new(post.clone()));
    // Where io_uring is refused the generator is on epoll: its own cost is in the report either way.
    let chosen = Wanted::Auto.choose(false);
    let kind = chosen.map_err(|(_, error)| BenchError::Driver(error))?.kind;
    let mut driver = DriverConfig::new(Addr::Ops);
    driver.conns_max = config.connections;
    driver.cpu = config.cpu;
    let switch = drain.clone();
    let (ended, waiting) = std::sync::mpsc::channel();
    let thread = std::thread::Builder::new()
        .name("weir-bench".into())
        .spawn(move || {
            let before = OwnCpu::read();
            let stats = Arc::new(DriverStats::default());
            let result = choice::run(kind, driver, Box::new(client), post, switch, stats);
            let used = OwnCpu::read().since(before);
            let _ = ended.send(()); // nobody listens when the caller panicked
            result.map(|_| used)
        })
        .map_err(BenchError::System)?;
    while waiting.recv_timeout(Duration::from_millis(LOOK_MS))
        == Err(std::sync::mpsc::RecvTimeoutError::Timeout)
    {
        if !look(live.look()) {
            drain.throw();
        }
    }
    let used = thread
        .join()
        .map_err(|_| BenchError::Lost)?
        .map_err(BenchError::Driver)?;
    let outturn = shelf.lock().map_err(|_| BenchError::Lost)?.take();
    let outturn = outturn.ok_or(BenchError::Lost)?;
    match outturn.unreachable {
        Some(error) => Err(BenchError::Unreachable(config.target, error)),
        None => Ok(report(config, &outturn, used)),
    }
}

fn client(config: &BenchConfig, live: Arc<Live>, shelf: Shelf) -> Result<Client, BenchError> {
    let tickets = match &config.mint {
        Some(mint) if config.mix.needs_tickets() => {
            Some(Tickets::mint(mint.clone(), config.tickets_wanted()).map_err(BenchError::Mint)?)
        }
        _ => None,
    };
    let words = Words {
        host: match config.close_each {
            true => format!("{}\r\nConnection: close", config.target),
            false => config.target.to_string(),
        },
        close_each: config.close_each,
        tickets_max: config.tickets_max,
        path: config
            .mix
            .get
            .clone()
            .unwrap_or_else(|| config.path.clone()),
        run: config.seed,
    };
    let span = Span {
        duration_ms: config.duration_ms,
        warm_up_ms: config.warm_up_ms,
        requests_max: config.requests_max,
    };
    let load = Load::new(
        config.pace(),
        span,
        config.mix.clone(),
        words,
        tickets,
        live,
        shelf,
    );
    let mut engine = ClientConfig::new(config.target, config.connections);
    engine.pipeline_max = config.pipeline;
    engine.sources = ClientConfig::loopback_sources(config.sources);
    engine.answer_ms = config.answer_ms;
    engine.seed = config.seed;
    Client::new(engine, Box::new(load)).map_err(BenchError::Client)
}

/// CPU time of the calling thread, nanoseconds; 0 where the kernel keeps no such books.
pub fn own_cpu_ns() -> u64 {
    OwnCpu::read().cpu_ns
}

/// CPU time and waiting time of the calling thread.
#[derive(Clone, Copy, Default)]
struct OwnCpu {
    cpu_ns: u64,
    run_delay_ns: u64,
}

impl OwnCpu {
    /// From the scheduler's own books (Linux: Documentation/scheduler/sched-stats); zero where there are none.
    fn read() -> Self {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let mut numbers = text
            .split_ascii_whitespace()
            .map(|word| word.parse().unwrap_or(0));
        Self {
            cpu_ns: numbers.next().unwrap_or(0),
            run_delay_ns: numbers.next().unwrap_or(0),
        }
    }

    fn since(self, earlier: Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
            run_delay_ns: self.run_delay_ns.saturating_sub(earlier.run_delay_ns),
        }
    }
}

fn report(config: &BenchConfig, out: &Outturn, used: OwnCpu) -> BenchReport {
    let mut all = Tally::new();
    let mut kinds = std::collections::BTreeMap::new();
    for (kind, tally) in Kind::ALL.iter().zip(&out.tallies) {
        all.add(tally);
        if config.mix.weights.of(*kind) > 0 {
            kinds.insert(
                kind.as_str(),
                KindReport {
                    requests: tally.given,
                    answered: tally.answered,
                    statuses: tally.by_status(),
                    answers: tally.by_code(),
                    failures: tally.by_failure(),
                    latency_us: tally.latency.summary(),
                },
            );
        }
    }
    let elapsed_ns = out.last_done.since(out.first_due).max(1);
    let (mode, target_per_s) = match config.rate {
        Rate::Max => ("max", None),
        Rate::Constant(rate) | Rate::Poisson(rate) => ("open", Some(rate)),
    };
    let counts = &out.client;
    let mut report = BenchReport {
        mode,
        target: config.target.to_string(),
        connections: config.connections,
        pipeline: config.pipeline,
        target_per_s,
        achieved_ppm: target_per_s.map(|_| out.sent_in_time * 1_000_000 / out.scheduled.max(1)),
        answered_per_s: per(all.answered, elapsed_ns, 1_000_000_000),
        elapsed_ms: elapsed_ns / 1_000_000,
        requests: all.given + out.not_given,
        answered: all.answered,
        transport_errors: all.failed,
        not_sent: out.not_given,
        statuses: all.by_status(),
        answers: all.by_code(),
        failures: all.by_failure(),
        latency_us: all.latency.summary(),
        service_us: out.service.summary(),
        lag_us: out.lag.summary(),
        kinds,
        connections_seen: ConnectionReport {
            opened: counts.connected,
            connect_failed: counts.connect_failed,
            closed_with_answer: counts.closed_with_answer,
            closed_idle: counts.closed_idle,
            broken: counts.broken,
            in_flight_max: counts.in_flight_max,
            received_bytes: counts.received_bytes,
        },
        generator: GeneratorReport {
            cpu_us: used.cpu_ns / 1_000,
            busy_ppm: per(used.cpu_ns, elapsed_ns, 1_000_000),
            run_delay_us: used.run_delay_ns / 1_000,
            cpu_ns_per_request: used.cpu_ns / all.given.max(1),
        },
        tickets_minted_late: out.tickets_minted_late,
        watched: None,
        void_because: Vec::new(),
        latency: all.latency,
    };
    report.judge();
    report
}

/// `amount * scale / span`, without overflow.
fn per(amount: u64, span: u64, scale: u64) -> u64 {
    (u128::from(amount) * u128::from(scale) / u128::from(span.max(1))) as u64
}
