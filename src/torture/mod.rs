//! `weir torture`: kills real servers under real load and holds every answer against the books.
//!
//! Called by the command line. Makes a directory, runs small sales in it (`sale`: `weir serve` as a child whose file
//! operations are heard by `watch`), kills them, cuts their files back to what was synced (`cutback`), restarts them and
//! compares (`promises`); `faults` are the disks, pauses, clocks and damaged journals. Nothing in `weir serve` can be
//! switched on for this: faults come from outside, the clock from a command of its own (`cli/torture.rs`).

pub mod client;
pub mod cutback;
mod faults;
mod journal;
pub mod limits;
mod promises;
pub mod redis;
mod report;
mod running;
mod sale;
mod shop;
mod told;
mod watch;

pub use report::TortureReport;

use crate::demo::DemoError;
use crate::keys;
use limits::{
    ANSWERS_MAX, BUDGET_LONG_MS, BUDGET_SHORT_MS, DISK_STEPS_MAX, FAULTS_S, KILL_MS,
    KILLS_PER_SALE, LANES_MAX, LANES_PER_CORE, START_STEPS_MAX, STOCK_MAX, STOCK_MIN,
    UNPAID_LONG_MS, UNPAID_SHORT_MS,
};
use report::Tally;
use sale::{End, Sale};
use shop::How;
use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use watch::DiskPlan;
use weir_core::rng::Rng;
use weir_io::signals::{self, Signal};

/// One run.
#[derive(Clone, Debug)]
pub struct TortureConfig {
    /// Servers to kill, 1..=[`limits::KILLS_MAX`].
    pub kills: u64,
    /// Where everything lies, new or empty; it stays when a promise breaks.
    pub dir: PathBuf,
    /// Which instants, cuts and sizes.
    pub seed: u64,
}

/// Why there is no report: what is wrong with this machine or these arguments, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TortureError(pub String);

/// Of everything here.
pub type Result<T> = std::result::Result<T, TortureError>;

impl TortureError {
    fn of(error: impl fmt::Display) -> Self {
        Self(error.to_string())
    }

    fn at(path: &Path, error: &std::io::Error) -> Self {
        Self(format!("{}: {error}", path.display()))
    }

    fn unwatchable(error: DemoError) -> Self {
        Self(format!(
            "{error}. weir torture hears its servers' file operations through seccomp (Linux 5.8 or newer); in a container, \
             allow seccomp(2) and user notifications, or run it outside"
        ))
    }
}

impl fmt::Display for TortureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TortureError {}

/// The servers that live, so that a signal leaves none behind.
#[derive(Debug, Default)]
pub struct Children(Mutex<BTreeSet<u32>>);

impl Children {
    fn born(&self, pid: u32) {
        self.lock().insert(pid);
    }

    fn gone(&self, pid: u32) {
        self.lock().remove(&pid);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeSet<u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Kills all of them. None is born afterwards that outlives the process: each dies with the thread that made it.
    pub fn kill_all(&self) {
        for pid in self.lock().iter() {
            // It may have ended; until it was waited for, its id is nobody else's.
            let _ = signals::send(*pid, Signal::Kill);
        }
    }
}

/// What others may see while it runs.
#[derive(Debug, Default)]
pub struct Live {
    /// Servers killed.
    pub kills: AtomicU64,
    /// Answers compared.
    pub acked: AtomicU64,
    /// Something failed that ends the run.
    failed: AtomicBool,
}

/// One thing to do in a sale of its own.
#[derive(Clone, Copy, Debug)]
enum Job {
    /// So many kills.
    Kills(u64),
    /// A fault; its number in the list of its kind.
    Fault(faults::Fault),
}

/// How long it will take here, in seconds, and on how many lanes.
pub fn estimate(kills: u64) -> (u64, usize) {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let lanes = (cores * LANES_PER_CORE).min(LANES_MAX);
    (kills * KILL_MS / 1000 / lanes as u64 + FAULTS_S, lanes)
}

/// Makes `config.dir`, which must be new or empty.
///
/// # Errors
/// It is neither, or cannot be made.
pub fn make_dir(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).map_err(|error| TortureError::at(dir, &error))?;
    let mut entries = fs::read_dir(dir).map_err(|error| TortureError::at(dir, &error))?;
    match entries.next() {
        None => Ok(()),
        Some(_) => Err(TortureError(format!(
            "{} is not empty and is left as it is; name a new or an empty directory with --dir",
            dir.display()
        ))),
    }
}

/// A directory of the system's temporary ones, with a name of its own.
///
/// # Errors
/// The system gives no random bytes.
pub fn temporary_dir() -> Result<PathBuf> {
    let random = keys::random::<4>().map_err(TortureError::of)?;
    let name = format!("weir-torture-{}", keys::encode_hex(&random));
    Ok(std::env::temp_dir().join(name))
}

/// Runs it in `config.dir`, made before; `children` lists the servers that live, `live` says how far it is.
///
/// # Errors
/// This machine cannot run it; broken promises are in the report.
pub fn run(config: &TortureConfig, children: &Arc<Children>, live: &Live) -> Result<TortureReport> {
    let started = Instant::now();
    weir_io::rlimit::raise_open_files().map_err(TortureError::of)?;
    // Absolute: the kernel tells of files by such names.
    let dir = config
        .dir
        .canonicalize()
        .map_err(|error| TortureError::at(&config.dir, &error))?;
    let mut jobs: VecDeque<Job> = faults::ALL.iter().copied().map(Job::Fault).collect();
    let mut left = config.kills;
    while left > 0 {
        let kills = left.min(KILLS_PER_SALE);
        jobs.push_back(Job::Kills(kills));
        left -= kills;
    }
    let jobs = Mutex::new(jobs.into_iter().zip(0..).collect::<VecDeque<(Job, u64)>>());
    let (_, lanes) = estimate(config.kills);
    let lane = || {
        let mut tally = Tally::default();
        while let Some((job, number)) = next(&jobs, live) {
            let before = (tally.kills, tally.acked);
            let done = run_job(job, number, &dir, config.seed, children, &mut tally);
            if let Err(error) = done {
                live.failed.store(true, Ordering::Release);
                return Err(error);
            }
            live.kills
                .fetch_add(tally.kills - before.0, Ordering::Relaxed);
            live.acked
                .fetch_add(tally.acked - before.1, Ordering::Relaxed);
        }
        Ok(tally)
    };
    let mut all = Tally::default();
    let tallies: Vec<Result<Tally>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..lanes).map(|_| scope.spawn(lane)).collect();
        let panicked = |_| Err(TortureError("a lane panicked: a bug of weir".to_owned()));
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(panicked))
            .collect()
    });
    for tally in tallies {
        all.add(tally?);
    }
    let seconds = started.elapsed().as_secs();
    Ok(TortureReport::new(all, config.seed, seconds))
}

fn next(jobs: &Mutex<VecDeque<(Job, u64)>>, live: &Live) -> Option<(Job, u64)> {
    if live.failed.load(Ordering::Acquire) {
        return None;
    }
    jobs.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .pop_front()
}

fn run_job(
    job: Job,
    number: u64,
    dir: &Path,
    seed: u64,
    children: &Arc<Children>,
    tally: &mut Tally,
) -> Result<()> {
    let mut rng = Rng::new(Rng::new(seed).next_u64() ^ number);
    let how = how(&mut rng, number);
    let make = |name: &str, how| Sale::make(dir.join(name), seed ^ number << 20, how, children);
    tally.sales += 1;
    match job {
        Job::Kills(kills) => {
            let mut sale = make(&format!("sale-{number}"), how)?;
            for _ in 0..kills {
                let (end, plan) = instant(&mut rng);
                sale.kill_once(end, plan, &mut rng, tally)?;
                tally.kills += 1;
            }
            sale.close(tally)
        }
        Job::Fault(fault) => {
            let sale = make(
                &format!("{fault:?}-{number}").to_lowercase(),
                fault.how(how),
            )?;
            faults::run(fault, sale, &mut rng, tally)
        }
    }
}

fn how(rng: &mut Rng, number: u64) -> How {
    How {
        shards: 1 + (number % 2) as u16,
        stock: STOCK_MIN + rng.below(STOCK_MAX - STOCK_MIN),
        budget_ms: if rng.chance(1, 4) {
            BUDGET_SHORT_MS
        } else {
            BUDGET_LONG_MS
        },
        unpaid_ms: if rng.chance(1, 4) {
            UNPAID_SHORT_MS
        } else {
            UNPAID_LONG_MS
        },
        ask_rate: 1_000_000,
    }
}

/// When a server dies: after an answer, in a file operation, or in one of its start.
fn instant(rng: &mut Rng) -> (End, DiskPlan) {
    let answers = 1 + rng.below(ANSWERS_MAX);
    let in_step = |from_start, steps| DiskPlan {
        kill_at: Some(steps),
        from_start,
        ..DiskPlan::default()
    };
    match rng.below(10) {
        0..5 => (End::Answers(answers), DiskPlan::default()),
        5..9 => {
            let steps = 1 + rng.below(DISK_STEPS_MAX);
            (End::Disk(2 * ANSWERS_MAX), in_step(false, steps))
        }
        _ => (End::Start, in_step(true, 1 + rng.below(START_STEPS_MAX))),
    }
}
