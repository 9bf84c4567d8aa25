//! `weir torture`: its arguments, its words before and after; and the command of its one kind of server that needs a
//! clock of its own. The run itself is [`crate::torture`].

use super::serve::serve_until_signal;
use super::{CliError, print};
use crate::keys;
use crate::torture::redis::limits::{FAILOVERS_MAX, REPLICAS_MAX};
use crate::torture::redis::{self, RedisConfig};
use crate::torture::{self, Children, Live, TortureConfig, TortureError, limits::KILLS_MAX};
use std::fs;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Kill servers under load on this machine, and prove that no answer is ever taken back.
///
/// Starts servers of its own with small sales in one directory, loads them over loopback, kills them at chosen instants,
/// cuts their files back to what was synced as a power cut would, restarts them, and compares every answer that clients
/// got with the books. Then disks that fail or run full, servers that stand still, clocks that jump, damaged journals.
///
/// With --redis auto the stock is in a private Redis Cluster: its masters are killed, stopped, cut off and replaced under
/// load, together with instances of weir, and what every buyer was told is held against Redis and the orders.
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  weir torture\n  weir torture --kills 200 --json\n  weir torture --kills 5000 --dir /mnt/disk-under-test/torture --seed 7\n  weir torture --redis auto --failovers 30 --json\n\nIt touches nothing outside of its directory and ends only processes that it started.\nExit codes: 0 every promise held, 1 one broke, 2 this machine cannot run it."
)]
pub struct TortureArgs {
    /// How many servers to kill.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=KILLS_MAX))]
    pub kills: u64,
    /// Keep the stock in Redis and fail its masters over instead: `auto` starts a private cluster of three masters with
    /// replicas, which needs redis-server on the PATH. A Redis of yours is not taken: its masters would be killed.
    #[arg(long, value_name = "auto", conflicts_with = "kills")]
    pub redis: Option<String>,
    /// With --redis: how many times another node takes the place of the stock's master.
    #[arg(long, value_name = "N", default_value_t = 10, requires = "redis", value_parser = clap::value_parser!(u64).range(1..=FAILOVERS_MAX))]
    pub failovers: u64,
    /// With --redis: how many replicas must have a grant before its buyer hears of it, and must be there for any. With
    /// 0, what Redis loses while an instance dies, too, is taken back, each with a last word for its buyer.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "redis", value_parser = clap::value_parser!(u64).range(0..=REPLICAS_MAX))]
    pub wait_replicas: u64,
    /// Where to work, new or empty; it stays when a promise breaks. Without it, a temporary directory.
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Print one JSON object on standard output.
    #[arg(long)]
    pub json: bool,
    /// Which instants, cuts and sizes; without it, a new one each time. The clock of a real machine does not repeat
    /// itself: the same seed makes similar runs.
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

/// Instances of weir that sell in a run on Redis: two, so that one lives while the other dies.
const INSTANCES: usize = 2;
/// How often the progress line is written.
const LOOK: Duration = Duration::from_millis(250);

/// Runs it.
/// # Errors
/// `Broken` when a promise broke; `Input` when it cannot be run.
pub fn run(args: &TortureArgs) -> Result<(), CliError> {
    let input = |TortureError(what)| CliError::Input(what);
    if args.redis.as_ref().is_some_and(|redis| redis != "auto") {
        return Err(CliError::input(
            "--redis takes `auto` only: this run kills, stops and cuts off masters, which it does to a cluster of its own",
        ));
    }
    weir_io::signals::block().map_err(CliError::input)?; // before any thread: all inherit it
    let made_here = args.dir.as_deref().is_none_or(|dir| !dir.exists());
    let dir = match &args.dir {
        Some(dir) => dir.clone(),
        None => torture::temporary_dir().map_err(input)?,
    };
    torture::make_dir(&dir).map_err(input)?;
    let place = Place { dir, made_here };
    torture::make_dir(&place.sales()).map_err(input)?;
    let seed = match args.seed {
        Some(seed) => seed,
        None => u64::from(u32::from_le_bytes(keys::random().map_err(CliError::input)?)),
    };
    let job = Job::of(args, place.sales(), seed);
    job.announce(&place.dir);
    let children = Arc::new(Children::default());
    let ending = end_on_signal(&children, &place)?;
    let live = Live::default();
    let result = std::thread::scope(|scope| {
        let running = scope.spawn(|| job.run(&children, &live));
        let is_terminal = io::stderr().is_terminal();
        while !running.is_finished() {
            if is_terminal {
                job.show(&live);
            }
            std::thread::sleep(LOOK);
        }
        if is_terminal {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
        running.join()
    });
    while ending.load(Ordering::Acquire) {
        std::thread::park(); // the thread that waits for signals ends the process
    }
    let report = result
        .map_err(|_| CliError::input("the run panicked: a bug of weir; please report it"))?
        .map_err(input)?;
    let clean = report.is_clean;
    if clean {
        place.remove();
    }
    if args.json {
        let _ = io::stderr().write_all(report.text.as_bytes());
        print(&format!("{}\n", report.json))?;
    } else {
        print(&report.text)?;
    }
    if clean {
        return Ok(());
    }
    Err(CliError::Broken(format!(
        "a promise broke; the files of the sales that show it are kept in {}; run again with --seed {seed}",
        place.dir.display()
    )))
}

/// What is to be run.
enum Job {
    /// Servers with files of their own.
    Files(TortureConfig),
    /// Instances whose stock is in Redis.
    Redis(RedisConfig),
}

/// A report of either.
struct Told {
    text: String,
    json: String,
    is_clean: bool,
}

impl Told {
    fn of(text: String, report: &impl serde::Serialize, is_clean: bool) -> torture::Result<Self> {
        let json =
            serde_json::to_string(report).map_err(|error| TortureError(error.to_string()))?;
        Ok(Self {
            text,
            json,
            is_clean,
        })
    }
}

impl Job {
    fn of(args: &TortureArgs, dir: PathBuf, seed: u64) -> Self {
        match &args.redis {
            None => Self::Files(TortureConfig {
                kills: args.kills,
                dir,
                seed,
            }),
            Some(_) => Self::Redis(RedisConfig {
                failovers: args.failovers,
                wait_replicas: args.wait_replicas,
                dir,
                seed,
                instances: INSTANCES,
            }),
        }
    }

    fn run(&self, children: &Arc<Children>, live: &Live) -> torture::Result<Told> {
        match self {
            Self::Files(config) => {
                let report = torture::run(config, children, live)?;
                Told::of(report.text(), &report, report.is_clean())
            }
            Self::Redis(config) => {
                let report = redis::run(config, children, live)?;
                Told::of(report.text(), &report, report.is_clean())
            }
        }
    }

    /// What will happen, where, and for how long. Standard error may be closed; the run does not depend on it.
    fn announce(&self, dir: &Path) {
        let words = match self {
            Self::Files(config) => {
                let (seconds, lanes) = torture::estimate(config.kills);
                format!(
                    "weir torture: kills {} servers of its own under load ({lanes} at a time, on loopback) and tries failing and full disks, \
                     pauses, clock jumps and damaged journals.\n\
                     It works in {} only, needs about 200 MiB there, and ends only processes that it started. It takes about {} min; \
                     Ctrl-C ends it and cleans up. Seed {}.",
                    config.kills,
                    dir.display(),
                    seconds.div_ceil(60),
                    config.seed,
                )
            }
            Self::Redis(config) => format!(
                "weir torture: starts a private Redis Cluster and fails the master of the stock over {} times under load, on loopback.\n\
                 It works in {} only, and ends only processes that it started. It takes about {} min; Ctrl-C ends it and cleans up. \
                 Seed {}.",
                config.failovers,
                dir.display(),
                redis::estimate(config.failovers).div_ceil(60),
                config.seed,
            ),
        };
        let _ = writeln!(io::stderr(), "{words}");
    }

    fn show(&self, live: &Live) {
        let (count, what) = match self {
            Self::Files(config) => (config.kills, "kills"),
            Self::Redis(config) => (config.failovers, "failovers"),
        };
        let _ = write!(
            io::stderr(),
            "\r{} of {count} {what}, {} answers\x1b[K",
            live.kills.load(Ordering::Relaxed),
            live.acked.load(Ordering::Relaxed),
        );
    }
}

/// A signal ends the run: no server is left, and neither are files.
fn end_on_signal(children: &Arc<Children>, place: &Place) -> Result<Arc<AtomicBool>, CliError> {
    let (children, place) = (Arc::clone(children), place.clone());
    let ending = Arc::new(AtomicBool::new(false));
    let says = Arc::clone(&ending);
    let wait = move || {
        weir_io::signals::wait();
        says.store(true, Ordering::Release);
        place.take_away();
        children.kill_all();
        place.remove();
        let _ = writeln!(
            io::stderr(),
            "\nweir: ended by a signal; its servers and files are gone"
        );
        std::process::exit(2);
    };
    std::thread::Builder::new()
        .name("weir-signals".to_owned())
        .spawn(wait)
        .map_err(CliError::input)?;
    Ok(ending)
}

/// Where the run works: a directory of its own in the one that was named.
#[derive(Clone, Debug)]
struct Place {
    dir: PathBuf,
    /// The named one was not there before.
    made_here: bool,
}

impl Place {
    fn sales(&self) -> PathBuf {
        self.dir.join("sales")
    }

    fn ended(&self) -> PathBuf {
        self.dir.join("ended")
    }

    /// From here on nothing more can be made: every path of the run leads nowhere.
    fn take_away(&self) {
        let _ = fs::rename(self.sales(), self.ended());
    }

    /// Removes what the run made; a directory that was there before stays, empty as it was.
    fn remove(&self) {
        self.take_away();
        // What cannot be removed is in the directory that the first words named.
        let _ = fs::remove_dir_all(self.ended());
        if self.made_here {
            let _ = fs::remove_dir(&self.dir);
        }
    }
}

/// Part of `weir torture`, not for use by hand: a server whose wall clock its standard input moves, in milliseconds from
/// the system's, one number a line.
#[derive(clap::Args, Clone, Debug)]
pub struct ClockArgs {
    /// The configuration file.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Where the clock stands at the start.
    #[arg(long, value_name = "MS", allow_hyphen_values = true)]
    shift_ms: i64,
}

/// Runs that server; it ends when its standard input does.
/// # Errors
/// As `weir serve`.
pub fn run_clock(args: &ClockArgs) -> Result<(), CliError> {
    weir_io::clock::shift_wall(args.shift_ms);
    serve_until_signal(&args.config, None, || {
        let follow = || {
            for line in io::stdin().lock().lines().map_while(Result::ok) {
                if let Ok(shift_ms) = line.trim().parse() {
                    weir_io::clock::shift_wall(shift_ms);
                }
            }
            // Its parent is gone.
            let _ = weir_io::signals::send(std::process::id(), weir_io::signals::Signal::Terminate);
        };
        let started = std::thread::Builder::new().name("weir-clock".to_owned());
        started.spawn(follow).map(drop).map_err(CliError::input)
    })
}
