//! `weir sim`: its arguments. Many sales on one virtual clock, with faults drawn from a seed.

#[path = "sim_planted.rs"]
mod planted;

use super::{CliError, print};
use crate::sim::{LedgerKind, Options, Report, run_range, seed_here};
use std::fmt::Write;
use std::ops::Range;
use std::path::PathBuf;

/// Run sales on a virtual clock with crashes, losses and delays drawn from a seed, and check every promise after every turn.
#[derive(clap::Args, Clone, Debug)]
#[command(
    override_usage = "weir sim --seeds <A..B> [--ledger redis] [--json]\n       weir sim --seed <N> [--ledger redis] [--json | --trace]",
    after_help = "Examples:\n  weir sim --seeds 0..5000 --json\n  weir sim --seeds 0..5000 --ledger redis --json\n  weir sim --seed 1234 --trace\n\nThe same seed gives the same events on any machine. Exit code 1: a promise broke; the message has the line that replays it.\n\nThe report names the marks: each way a request can end, each transition, each fault, and how often worlds reached it.\nWith a build of tests/planted.sh at hand it also says how many of the faults put in on purpose were found."
)]
pub struct SimArgs {
    /// All seeds from A up to, not including, B.
    #[arg(long, value_name = "A..B", value_parser = seeds, required_unless_present_any = SEED_OR_HUNT)]
    pub seeds: Option<Range<u64>>,
    /// One seed.
    #[arg(long, value_name = "N", conflicts_with = "seeds")]
    pub seed: Option<u64>,
    /// Where the stock is: in the process, or in a modelled Redis that runs the shipped scripts for one or two machines.
    #[arg(long, value_name = "embedded|redis", default_value = "embedded", value_parser = ledger)]
    pub ledger: LedgerKind,
    /// Print every event of the one seed.
    #[arg(long, requires = "seed", conflicts_with_all = ["json", "seeds"])]
    pub trace: bool,
    /// End with one JSON object on the last line.
    #[arg(long)]
    pub json: bool,
    /// A mark that no world reached is a failure, too. Some are rare: they want tens of thousands of seeds.
    #[arg(long, conflicts_with_all = ["seed", "trace"])]
    pub all_marks: bool,
    /// A build with faults put in on purpose, which must find each [default: weir-planted beside this program, if it is there].
    #[arg(long, value_name = "PROGRAM")]
    pub planted: Option<PathBuf>,
    /// Look for the planted faults at the seeds of the list, or search for seeds and print the list.
    #[cfg(weir_planted)]
    #[arg(long, value_name = "replay|search", value_parser = ["replay", "search"], conflicts_with_all = ["seeds", "seed"])]
    pub hunt: Option<String>,
}

#[cfg(not(weir_planted))]
const SEED_OR_HUNT: [&str; 1] = ["seed"];
#[cfg(weir_planted)]
const SEED_OR_HUNT: [&str; 2] = ["seed", "hunt"];

/// Reads `A..B` with A < B.
fn seeds(text: &str) -> Result<Range<u64>, String> {
    let wrong = || format!("{text:?} is not A..B with A below B, such as 0..5000");
    let (from, to) = text.split_once("..").ok_or_else(wrong)?;
    let (from, to) = (
        from.parse().map_err(|_| wrong())?,
        to.parse().map_err(|_| wrong())?,
    );
    if from < to {
        Ok(from..to)
    } else {
        Err(wrong())
    }
}

fn ledger(text: &str) -> Result<LedgerKind, String> {
    match text {
        "embedded" => Ok(LedgerKind::Embedded),
        "redis" => Ok(LedgerKind::Redis),
        _ => Err("it is embedded or redis".to_owned()),
    }
}

impl SimArgs {
    /// The seeds to run.
    pub fn range(&self) -> Range<u64> {
        let one = self.seed.map(|seed| seed..seed.saturating_add(1));
        one.or_else(|| self.seeds.clone()).unwrap_or(0..0) // clap wants one of them
    }
}

/// Sins that one failing seed shows.
const SINS_SHOWN_MAX: usize = 5;
/// Failing seeds that are shown.
const SEEDS_SHOWN_MAX: usize = 10;
/// A line of progress after so many seeds.
const PROGRESS_EVERY: u64 = 500;

/// Runs the worlds and tells what came of them.
/// # Errors
/// `Broken` when a promise did not hold, with the line that replays the first seed where.
pub fn run(args: &SimArgs) -> Result<(), CliError> {
    #[cfg(weir_planted)]
    if let Some(how) = &args.hunt {
        return planted::hunt(how == "search");
    }
    let options = Options::traced(args.ledger, args.trace);
    let more = args.ledger.options();
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        usual(panic);
        if let Some(seed) = seed_here() {
            eprintln!("weir sim --seed {seed}{more} --trace"); // a release build aborts after this
        }
    }));
    let seeds = args.range();
    let total = seeds.end - seeds.start;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = threads.min(usize::try_from(total).unwrap_or(usize::MAX));
    let quiet = args.trace || total < PROGRESS_EVERY;
    let mut report = run_range(seeds, threads, &options, &|done| {
        if !quiet && done.is_multiple_of(PROGRESS_EVERY) {
            eprintln!("weir sim: {done} of {total} seeds");
        }
    });
    report.planted_found = planted::found(args.planted.as_deref(), total)?;
    for failed in report.failed.iter().take(SEEDS_SHOWN_MAX) {
        for sin in failed.sins.iter().take(SINS_SHOWN_MAX) {
            eprintln!("seed {}: {:?}: {}", failed.seed, sin.kind, sin.what);
        }
        eprintln!("weir sim --seed {}{more} --trace", failed.seed);
    }
    if args.json {
        let json = serde_json::to_string(&report).map_err(CliError::input)?;
        print(&format!("{json}\n"))?;
    } else {
        print(&words(&report))?;
    }
    match report.failed.first() {
        None => complete(&report, args.all_marks),
        Some(failed) => Err(CliError::Broken(format!(
            "{} of {} seeds broke a promise; replay the first with: weir sim --seed {}{more} --trace",
            report.failed.len(),
            report.seeds,
            failed.seed
        ))),
    }
}

/// True to the word of the options: every mark, every planted fault that there is a build for.
fn complete(report: &Report, all_marks: bool) -> Result<(), CliError> {
    if let Some(found) = report.planted_found
        && found < report.planted
    {
        let planted = report.planted;
        return Err(CliError::Broken(format!(
            "{found} of {planted} planted faults were found; tests/planted.sh --rewrite looks for the others"
        )));
    }
    if all_marks && !report.marks_missing.is_empty() {
        let missing = report.marks_missing.join(", ");
        return Err(CliError::Broken(format!("no world reached {missing}")));
    }
    Ok(())
}

/// The report for a person.
fn words(report: &Report) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "seeds {}, requests {}, grants {}, unknown results {}, crashes {}, turns {}",
        report.seeds, report.requests, report.grants, report.unknowns, report.crashes, report.turns
    );
    for (kind, count) in &report.faults {
        let _ = writeln!(out, "  {kind:<16} {count}");
    }
    let _ = writeln!(
        out,
        "oversold {}, double grants {}, lost {}, limbo {}, other broken promises {}\nhash {}",
        report.oversold,
        report.double_grants,
        report.lost,
        report.limbo,
        report.broken,
        report.hash
    );
    let reached = report.marks.values().filter(|count| **count > 0).count();
    let _ = writeln!(out, "marks {reached} of {}", report.marks.len());
    if !report.marks_missing.is_empty() {
        let _ = writeln!(out, "  not reached: {}", report.marks_missing.join(", "));
    }
    if let Some(found) = report.planted_found {
        let _ = writeln!(out, "planted faults found {found} of {}", report.planted);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct One {
        #[command(flatten)]
        args: SimArgs,
    }

    fn read(line: &str) -> Result<Range<u64>, clap::Error> {
        One::try_parse_from(line.split(' ')).map(|one| one.args.range())
    }

    #[test]
    fn seeds_are_a_range_or_one() {
        assert_eq!(read("sim --seeds 0..5000 --json").unwrap(), 0..5000);
        assert_eq!(read("sim --seed 7 --trace").unwrap(), 7..8);
        for bad in [
            "sim",
            "sim --seeds 5..5",
            "sim --seeds 5",
            "sim --seeds a..b",
            "sim --seed 1 --seeds 0..2",
            "sim --seeds 0..2 --trace",
            "sim --trace",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
