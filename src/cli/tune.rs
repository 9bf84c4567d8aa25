//! `weir tune`: prints the machine's settings beside those of the guide; the checks are [`crate::tune`].

use super::{CliError, print};
use crate::config::{self, Footprint, Host};
use crate::tune::root::Root;
use crate::tune::{Finding, Needs, Verdict, check, cpus_online};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::PathBuf;

/// Compare this machine's settings with the guide (tuning.md). Changes nothing.
///
/// Each setting comes with what was found, what is wanted, a verdict (ok, change, cannot tell), why it matters, the
/// command that changes it and its section in the guide. Not every change suits every machine: read the section first.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  weir tune --check\n  weir tune --check --config shop/weir.toml --strict\n  weir tune --check --json | jq '.findings[] | select(.verdict == \"change\")'\n\nExit codes: 0 checked, whatever was found; 1 with --strict when something should be changed; 2 bad input."
)]
pub struct TuneArgs {
    /// Look at every setting.
    #[arg(long, required = true)]
    check: bool,
    /// The server's configuration: descriptors, shards and memory are compared with what it takes. Without it, defaults.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// End with exit code 1 when something should be changed.
    #[arg(long)]
    strict: bool,
    /// Where /proc and /sys are: a copy of another machine's.
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    findings: &'a [Finding],
    ok: usize,
    change: usize,
    cannot_tell: usize,
}

/// Runs it.
/// # Errors
/// The configuration's problems, a root that is no directory; with `--strict`, that something should be changed.
pub fn run(args: &TuneArgs) -> Result<(), CliError> {
    if !args.root.is_dir() {
        return Err(CliError::Input(format!(
            "--root {}: must be a directory that holds proc/ and sys/",
            args.root.display()
        )));
    }
    let root = Root::new(&args.root);
    let findings = check(&root, needs(args, &root)?);
    let count = |verdict| findings.iter().filter(|f| f.verdict == verdict).count();
    let report = Report {
        findings: &findings,
        ok: count(Verdict::Ok),
        change: count(Verdict::Change),
        cannot_tell: count(Verdict::CannotTell),
    };
    print(&match args.json {
        true => serde_json::to_string(&report).map_err(CliError::input)? + "\n",
        false => text(&report),
    })?;
    match args.strict && report.change > 0 {
        true => Err(CliError::Broken(format!(
            "{} settings should be changed: the lines marked [change], with their sections in tuning.md",
            report.change
        ))),
        false => Ok(()),
    }
}

fn needs(args: &TuneArgs, root: &Root) -> Result<Needs, CliError> {
    let Some(file) = &args.config else {
        return Ok(Needs::by_default(cpus_online(root).len()));
    };
    let plan = config::load(file, &Host::read()).map_err(CliError::input)?;
    Ok(Needs {
        shards: usize::from(plan.shards_count),
        descriptors: plan.descriptors_max().max(plan.direct_places()),
        memory_bytes: Some(Footprint::of(&plan).all_bytes()),
    })
}

fn text(report: &Report<'_>) -> String {
    let mut out = String::new();
    for finding in report.findings {
        // Writing into a String cannot fail.
        let _ = writeln!(
            out,
            "{:<13} {}: {}\n              wanted: {}\n              {} ({})",
            format!("[{}]", finding.verdict.as_str()),
            finding.name,
            finding.found,
            finding.wanted,
            finding.why,
            finding.section,
        );
        if !finding.command.is_empty() {
            let _ = writeln!(out, "              $ {}", finding.command);
        }
    }
    let _ = writeln!(
        out,
        "{} settings: {} ok, {} to change, {} that cannot be told here",
        report.findings.len(),
        report.ok,
        report.change,
        report.cannot_tell
    );
    out
}
