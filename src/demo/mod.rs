//! `weir demo`: a whole sale on this machine over real sockets, and the proof that its books balance.
//!
//! Called by the command line. Makes a directory (`scene`), starts the server as a process of its own (`server`), lets a
//! crowd of buyers in (`crowd`, `story`, on the client engine and the uring driver), restocks once, stops the server, reads
//! both files (`books`) and compares everything with what buyers were told (`report`). Any difference is a broken promise.

mod act;
mod books;
mod crowd;
pub mod fleet;
mod kinds;
pub mod limits;
mod parts;
mod report;
mod scene;
pub(crate) mod server;
mod story;
mod tally;
pub(crate) mod words;

#[cfg(any(debug_assertions, weir_planted))]
pub use books::Plant;
pub use report::{BooksReport, DemoReport, KindReport, LatencyReport};
pub use tally::{Live, Phase};

use crowd::{Cast, Crowd};
use fleet::{BudgetReport, Fleet, Home, RedisChoice};
use limits::{
    BUDGET_PER_S, BUYERS_MAX, BUYERS_PER_UNIT_MIN, CONNECTIONS, PAYMENT_LANES, PIPELINE,
    REOPENING_MS, RESTOCK_DIVISOR, SHARED_REOPENING_MS, SHARED_RUSH_S, STALL_MS, STOCK_MAX,
    STOCK_MIN,
};
use report::Facts;
use scene::{Scene, Size};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tally::{Shelf, Tally};
use weir_bench::client::{Client, ClientConfig, Kept};
use weir_core::mail::Addr;
use weir_io::choice::{self, DriverKind};
use weir_io::drain::DrainSwitch;
use weir_io::driver::DriverConfig;
use weir_io::post::PostOffice;
use weir_io::stats::DriverStats;
use words::Words;

/// How often the progress is looked at.
const LOOK_MS: u64 = 100;

/// One demo.
#[derive(Clone, Debug)]
pub struct DemoConfig {
    /// Buyers.
    pub buyers: u64,
    /// Units.
    pub stock: u64,
    /// Shards of the server.
    pub shards: u16,
    /// What moves bytes, for server and crowd.
    pub driver: DriverKind,
    /// The crowd's seed.
    pub seed: u64,
    /// The Redis that holds the stock, and how many instances sell it; `None`: one process does all.
    pub shared: Option<(RedisChoice, u16)>,
    /// Where to keep the files; `None`: a temporary directory.
    pub keep: Option<PathBuf>,
    /// The fault put into the files on purpose.
    #[cfg(any(debug_assertions, weir_planted))]
    pub plant: Option<Plant>,
}

/// Why there is no report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DemoError {
    /// This machine or these arguments cannot run it; what and the remedy.
    Input(String),
}

impl DemoError {
    /// In the words of `error`.
    pub fn input(error: impl fmt::Display) -> Self {
        Self::Input(error.to_string())
    }
}

impl fmt::Display for DemoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for DemoError {}

/// Runs it. `look` is called about ten times a second while the crowd runs.
/// # Errors
/// [`DemoError`] when it could not be run to its end; broken promises are in the report.
pub fn run(config: &DemoConfig, mut look: impl FnMut(&Live)) -> Result<DemoReport, DemoError> {
    let started = Instant::now();
    check(config)?;
    let cpus = weir_io::affinity::allowed_cpus().map_err(DemoError::input)?;
    weir_io::rlimit::raise_open_files().map_err(DemoError::input)?;
    let home = config.shared.as_ref();
    let home = home.map(|(choice, _)| Home::open(choice)).transpose()?;
    let shared = config.shared.as_ref().zip(home.as_ref());
    let size = Size {
        stock: config.stock,
        shards: config.shards,
        driver: config.driver,
        connections: CONNECTIONS,
        budget_per_s: match shared {
            Some(_) => config.stock / SHARED_RUSH_S,
            None => BUDGET_PER_S,
        },
        shared: shared.map(|((_, instances), home)| (home.at().to_owned(), *instances)),
    };
    let budget_per_s = size.budget_per_s;
    let scene = Scene::make(config.keep.as_deref(), size)?;
    // With two cores the server has one for all its threads and the crowd has the other.
    let is_pinned = cpus.len() >= 2 && config.shards == 1 && shared.is_none();
    let server_cpu = is_pinned.then(|| cpus[0]);
    let crowd_cpu = (cpus.len() >= 2).then(|| cpus[cpus.len() - 1]);
    let mut fleet = Fleet::start(&scene, server_cpu)?;
    let restock = config.stock / RESTOCK_DIVISOR;
    let cast = Cast {
        buyers: config.buyers,
        stock: config.stock,
        restock,
        seed: config.seed,
        payments_from: fleet.payments().map(|_| CONNECTIONS - PAYMENT_LANES),
        reopening_ms: match shared {
            Some(_) => SHARED_REOPENING_MS,
            None => REOPENING_MS,
        },
    };
    let load = Load::start(&scene, &fleet, cast, (config.driver, crowd_cpu))?;
    let watched = watch(&mut fleet, &load, (restock, budget_per_s), &mut look)?;
    let tally = load.end()?;
    let server_ends = fleet.stop();
    #[cfg(any(debug_assertions, weir_planted))]
    if let Some(plant) = config.plant {
        books::plant(&scene.plan, plant)?;
    }
    let books = books::read(&scene.plan, &tally.told)?;
    let facts = Facts {
        buyers: config.buyers,
        stock: config.stock,
        restocked: watched.restocked,
        shards: config.shards,
        instances: scene.sellers.len() as u16, // at most INSTANCES_MAX
        budget: watched.budget.filter(|_| scene.worker.is_some()),
        driver: config.driver.name(),
        seed: config.seed,
        server_cpu_us: watched.cpu_us,
        server_requests: watched.requests,
        seconds: started.elapsed().as_secs_f64(),
        server_ends,
    };
    let mut report = DemoReport::new(facts, &tally, &books);
    if report.broken.is_empty() {
        scene.strike()?;
    } else {
        report
            .broken
            .push(format!("the files are kept in {}", scene.dir.display()));
    }
    Ok(report)
}

fn check(config: &DemoConfig) -> Result<(), DemoError> {
    let DemoConfig { buyers, stock, .. } = *config;
    if !(STOCK_MIN..=STOCK_MAX).contains(&stock) {
        return Err(DemoError::Input(format!(
            "--stock {stock}: allowed are {STOCK_MIN} to {STOCK_MAX} units"
        )));
    }
    let buyers_min = stock * BUYERS_PER_UNIT_MIN;
    if !(buyers_min..=BUYERS_MAX).contains(&buyers) {
        return Err(DemoError::Input(format!(
            "--buyers {buyers}: with {stock} units, {buyers_min} to {BUYERS_MAX} buyers are allowed, so that it sells out"
        )));
    }
    Ok(())
}

/// The crowd on its thread.
struct Load {
    live: Arc<Live>,
    shelf: Arc<Shelf>,
    drain: Arc<DrainSwitch>,
    thread: std::thread::JoinHandle<Result<(), weir_io::error::DriverError>>,
}

impl Load {
    fn start(
        scene: &Scene,
        fleet: &Fleet,
        cast: Cast,
        (kind, cpu): (DriverKind, Option<usize>),
    ) -> Result<Self, DemoError> {
        let start_ms = weir_io::clock::read().wall.0;
        let listens = fleet.listens();
        let host = listens[0].to_string();
        let words = Words::new(&scene.plan, host, cast.seed, start_ms);
        let mut words = words.ok_or_else(|| {
            DemoError::Input(
                "the demo's own configuration has no sale or no payment key".to_owned(),
            )
        })?;
        words.check().map_err(DemoError::input)?;
        let (live, shelf) = (Arc::new(Live::default()), Arc::new(Shelf::default()));
        let crowd = Crowd::new(cast, words, Arc::clone(&live), Arc::clone(&shelf));
        let mut engine = ClientConfig::new(listens[0], CONNECTIONS);
        engine.others = listens[1..].to_vec();
        let kept = |target| Kept {
            lanes: PAYMENT_LANES,
            target,
        };
        engine.kept = fleet.payments().map(kept);
        engine.sources = ClientConfig::loopback_sources(CONNECTIONS);
        engine.seed = cast.seed;
        engine.pipeline_max = PIPELINE;
        let client = Client::new(engine, Box::new(crowd)).map_err(DemoError::input)?;
        // The crowd gets no mail; the box is only the bell that the drain switch rings.
        let post = Arc::new(PostOffice::new([Addr::Ops]).map_err(DemoError::input)?);
        let drain = Arc::new(DrainSwitch::new(Arc::clone(&post)));
        let driver = DriverConfig {
            conns_max: CONNECTIONS,
            cpu,
            ..DriverConfig::new(Addr::Ops)
        };
        let switch = Arc::clone(&drain);
        let body = move || {
            choice::run(
                kind,
                driver,
                Box::new(client),
                post,
                switch,
                Arc::new(DriverStats::default()),
            )
            .map(drop)
        };
        let thread = std::thread::Builder::new()
            .name("weir-demo-crowd".into())
            .spawn(body);
        Ok(Self {
            live,
            shelf,
            drain,
            thread: thread.map_err(DemoError::input)?,
        })
    }

    fn end(self) -> Result<Tally, DemoError> {
        let lost = || {
            DemoError::Input(
                "the crowd ended without its counts; this is a bug, please report it".to_owned(),
            )
        };
        self.thread
            .join()
            .map_err(|_| lost())?
            .map_err(DemoError::input)?;
        let tally = self.shelf.lock().map_err(|_| lost())?.take();
        tally.ok_or_else(lost)
    }
}

/// What the main thread saw.
struct Watched {
    cpu_us: u64,
    requests: u64,
    restocked: u64,
    budget: Option<BudgetReport>,
}

/// Waits for the crowd's end; restocks when everybody came; ends a load that hangs.
fn watch(
    fleet: &mut Fleet,
    load: &Load,
    (restock, budget_per_s): (u64, u64),
    look: &mut impl FnMut(&Live),
) -> Result<Watched, DemoError> {
    let cpu_before = fleet.cpu_us();
    let mut watched = Watched {
        cpu_us: 0,
        requests: 0,
        restocked: 0,
        budget: None,
    };
    let (mut answered, mut news) = (0, Instant::now());
    while !load.thread.is_finished() {
        std::thread::sleep(Duration::from_millis(LOOK_MS));
        look(&load.live);
        let now_answered = load.live.answered.load(Ordering::Relaxed);
        if now_answered != answered {
            (answered, news) = (now_answered, Instant::now());
        }
        let ended = fleet.ended();
        if ended.is_some() || news.elapsed() > Duration::from_millis(STALL_MS) {
            load.drain.throw();
        }
        if let Some((status, said)) = ended {
            return Err(DemoError::Input(format!(
                "the server ended in the middle of the sale with {status}:\n{said}"
            )));
        }
        if load.live.phase() == Phase::Restocking && watched.restocked == 0 {
            watched.cpu_us = fleet.cpu_us().saturating_sub(cpu_before);
            watched.requests = now_answered;
            let body = format!("{{\"request_id\":\"demo-restock-1\",\"units\":{restock}}}");
            watched.budget = Some(fleet.spent(budget_per_s)?);
            fleet.operate("/ops/v1/activities/1/skus/1/restock", &body)?;
            watched.restocked = restock;
            load.live.restocked.store(true, Ordering::Release);
        }
    }
    Ok(watched)
}
