//! `weir demo`: its arguments and its progress line; the sale itself is [`crate::demo`].

use super::{CliError, print};
use crate::config::Host;
use crate::demo::fleet::RedisChoice;
use crate::demo::{self, DemoConfig, DemoError, Live, limits};
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Instant;
use weir_io::choice::Wanted;

/// Sell a stock to a crowd on this machine, over real sockets, and prove that the books balance.
///
/// Starts a server of its own and a load of buyers: honest, late, double-clicking, retrying, forged, replaying. At the end
/// it prints what each kind was answered and compares ledger, orders and what the buyers were told.
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  weir demo\n  weir demo --buyers 100000 --stock 1000 --shards 2\n  weir demo --json --keep /tmp/sale\n  weir demo --redis auto --instances 2   two instances and a worker on one stock in a private Redis\n\nExit codes: 0 every promise held, 1 one broke, 2 this machine cannot run it, 78 not with the driver that was asked for."
)]
pub struct DemoArgs {
    /// How many buyers come.
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=limits::BUYERS_MAX))]
    pub buyers: u64,
    /// How many units there are.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(limits::STOCK_MIN..=limits::STOCK_MAX))]
    pub stock: u64,
    /// Threads of the server; without it, one core is left to the rest.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=crate::config::ceilings::SHARDS_MAX as i64))]
    pub shards: Option<u16>,
    /// What moves bytes, for server and crowd: auto, uring, epoll, monoio or glommio.
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = super::driver_arg)]
    pub driver: Wanted,
    /// Which crowd: the same number makes the same buyers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Keep the stock in Redis: `auto` starts a private one, or HOST:PORT
    #[arg(long, value_name = "URL", value_parser = RedisChoice::read)]
    pub redis: Option<RedisChoice>,
    /// How many instances of `weir serve` sell the stock beside one `weir worker`; needs --redis
    #[arg(long, value_name = "N", default_value_t = 1, requires = "redis", value_parser = clap::value_parser!(u16).range(1..=limits::INSTANCES_MAX))]
    pub instances: u16,
    /// End with one JSON object on the last line.
    #[arg(long)]
    pub json: bool,
    /// Keep configuration, ledger and orders in this new directory; without it they are removed.
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,
    /// Put a fault into the files before they are read, to see it found.
    #[cfg(any(debug_assertions, weir_planted))]
    #[arg(long, hide = true, value_parser = plant_arg)]
    pub plant: Option<demo::Plant>,
}

#[cfg(any(debug_assertions, weir_planted))]
fn plant_arg(text: &str) -> Result<demo::Plant, String> {
    match text {
        "double-order" => Ok(demo::Plant::DoubleOrder),
        "lost-order" => Ok(demo::Plant::LostOrder),
        _ => Err("must be double-order or lost-order".to_owned()),
    }
}

/// Runs it.
/// # Errors
/// `Broken` with every promise that broke; `Input` when it cannot be run.
pub fn run(args: &DemoArgs) -> Result<(), CliError> {
    let cores_left = Host::read().cpus_count.saturating_sub(1).max(1);
    let chosen = args.driver.choose(false).map_err(|(kind, error)| {
        CliError::Config(format!("driver {} cannot run here: {error}", kind.name()))
    })?;
    if let Some(note) = chosen.note {
        let _ = writeln!(io::stderr(), "weir: {note}");
    }
    let config = DemoConfig {
        driver: chosen.kind,
        buyers: args.buyers,
        stock: args.stock,
        shards: args
            .shards
            .unwrap_or(cores_left.min(crate::config::ceilings::SHARDS_MAX) as u16),
        seed: args.seed,
        shared: args.redis.clone().map(|redis| (redis, args.instances)),
        keep: args.keep.clone(),
        #[cfg(any(debug_assertions, weir_planted))]
        plant: args.plant,
    };
    // Without a terminal there is no progress line: whoever reads a log sees at least what is under way.
    let _ = writeln!(
        io::stderr(),
        "weir demo: {} buyers come for {} units; shards of the server: {}",
        config.buyers,
        config.stock,
        config.shards
    );
    let mut progress = ProgressLine::new();
    let result = demo::run(&config, |live| progress.show(live));
    progress.wipe();
    let report = result.map_err(|DemoError::Input(what)| CliError::Input(what))?;
    let text = report.text();
    if args.json {
        // The last line of standard output is the object alone; the table is for whoever watches.
        let _ = io::stderr().write_all(text.as_bytes());
        let json = serde_json::to_string(&report).map_err(CliError::input)?;
        print(&format!("{json}\n"))?;
    } else {
        print(&text)?;
    }
    if let Some(dir) = &args.keep
        && report.broken.is_empty()
        && !args.json
    {
        print(&format!(
            "kept in {}: weir.toml, keys/, data/ledger.sqlite, data/orders.sqlite\n",
            dir.display()
        ))?;
    }
    if report.broken.is_empty() {
        return Ok(());
    }
    Err(CliError::Broken(format!(
        "a promise broke:\n  {}",
        report.broken.join("\n  ")
    )))
}

/// One line on a terminal's standard error, written over and over.
struct ProgressLine {
    is_terminal: bool,
    last: Instant,
    last_answered: u64,
}

impl ProgressLine {
    fn new() -> Self {
        Self {
            is_terminal: io::stderr().is_terminal(),
            last: Instant::now(),
            last_answered: 0,
        }
    }

    fn show(&mut self, live: &Live) {
        if !self.is_terminal {
            return;
        }
        let answered = live.answered.load(Ordering::Relaxed);
        let seconds = self.last.elapsed().as_secs_f64().max(1e-3);
        let per_s = ((answered - self.last_answered) as f64 / seconds) as u64;
        (self.last, self.last_answered) = (Instant::now(), answered);
        let line = format!(
            "{}: {} buyers came, {answered} answers ({per_s}/s), {} units granted, {} paid",
            live.phase().text(),
            live.came.load(Ordering::Relaxed),
            live.granted.load(Ordering::Relaxed),
            live.paid.load(Ordering::Relaxed),
        );
        // A progress line that cannot be written harms nobody. `ESC [ K` wipes to the end of the line.
        let _ = write!(io::stderr(), "\r{line}\x1b[K");
    }

    fn wipe(&self) {
        if self.is_terminal {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
