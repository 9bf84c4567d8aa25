//! `weir reconcile`: the ledger, its file or Redis, against the orders' file.

use super::{CliError, print};
use crate::config::{self, Host, Plan, RedisPlan};
use crate::orders::facts::LedgerFacts;
use crate::orders::report::Report;
use crate::orders::{reconcile, schema};
use crate::serve;
use crate::store::{LOCK_FILE, read_image};
use std::fs::{File, TryLockError};
use std::path::PathBuf;
use weir_core::ledger::{LedgerConfig, recover};

/// Compare ledger and orders, row by row, and prove that total = free + held + sold + quarantined.
///
/// With an embedded ledger the server must be stopped. With one in Redis the sale may go on: what differs is looked at twice,
/// and only --repair wants the process that makes the orders stopped. Repairs only what is safe, in the order store, by
/// deltas, and only when asked to.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  weir reconcile --config shop/weir.toml\n  weir reconcile --config shop/weir.toml --repair\n\nExit codes: 0 the books balance, 1 a difference was found, 2 the files cannot be read, 75 Redis is away (try again).\nWith `weir worker` it runs with the worker's configuration: the orders are there."
)]
pub struct ReconcileArgs {
    /// The configuration file.
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Carry out the repairs that the report calls safe, then compare again.
    #[arg(long)]
    pub repair: bool,
    /// Print the report as one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Runs it.
/// # Errors
/// `Broken` when the books differ; `Input` when a file cannot be read or a server runs.
pub fn run(args: &ReconcileArgs) -> Result<(), CliError> {
    let plan = config::load(&args.config, &Host::read()).map_err(CliError::input)?;
    if let Some(redis) = &plan.redis {
        return run_on_redis(args, &plan, redis);
    }
    // Held to the end: no server starts between reading the ledger and comparing or repairing the orders.
    let _lock = keep_servers_away(&plan, "both files stand still")?;
    let image = read_image(&plan.store.dir).map_err(CliError::input)?;
    let ledger = recover(LedgerConfig::of_sale(&plan.sale, 0), &image).map_err(CliError::input)?;
    let facts = LedgerFacts::of(&ledger.ledger);
    let mut report = compare(&plan, &facts)?;
    if args.repair && !report.balanced {
        repair(args, &plan, &facts, &report)?;
        report = compare(&plan, &facts)?;
    }
    tell(args, &report)
}

/// With the ledger in Redis, which others may go on writing.
fn run_on_redis(args: &ReconcileArgs, plan: &Plan, redis: &RedisPlan) -> Result<(), CliError> {
    let path = plan.store.orders();
    if !plan.shard.role.makes_orders() && !path.exists() {
        return Err(CliError::Input(format!(
            "{}: this instance makes no orders (orders.made_by is \"worker\"), and {} is not there: run it where `weir worker` runs, with its configuration",
            args.config.display(),
            path.display()
        )));
    }
    let _lock = match args.repair {
        true => keep_servers_away(plan, "no order moves under the repair")?,
        false => None,
    };
    let compare = || {
        serve::compare_redis(redis, &path).map_err(|error| match error.is_away() {
            true => CliError::Away(error.to_string()),
            false => CliError::input(error),
        })
    };
    let (facts, mut report) = compare()?;
    if args.repair && !report.balanced {
        repair(args, plan, &facts, &report)?;
        report = compare()?.1;
    }
    tell(args, &report)
}

fn repair(
    args: &ReconcileArgs,
    plan: &Plan,
    facts: &LedgerFacts,
    report: &Report,
) -> Result<(), CliError> {
    let path = plan.store.orders();
    if report.counts.contains_key("other_store") {
        return Err(CliError::Input(format!(
            "{report}\n\n{}: nothing is repaired here, because another order store makes the orders of this stock: run it there",
            path.display()
        )));
    }
    let mut orders = schema::open(&path).map_err(CliError::input)?;
    let changed = reconcile::repair(facts, report, &mut orders)
        .map_err(|error| CliError::Input(format!("{}: {error}", path.display())))?;
    if args.json {
        return Ok(());
    }
    print(&format!(
        "{report}\n\nrepaired {changed} rows; once more:\n"
    ))
}

fn tell(args: &ReconcileArgs, report: &Report) -> Result<(), CliError> {
    if args.json {
        let json = serde_json::to_string(report).map_err(CliError::input)?;
        print(&format!("{json}\n"))?;
    } else {
        print(&format!("{report}\n"))?;
    }
    if report.balanced {
        return Ok(());
    }
    let count: u64 = report.counts.values().sum();
    let advice = if args.repair {
        "these need a person"
    } else {
        "see the remedies above"
    };
    Err(CliError::Broken(format!("{count} differences; {advice}")))
}

fn compare(plan: &Plan, facts: &LedgerFacts) -> Result<Report, CliError> {
    let path = plan.store.orders();
    let orders = schema::open_to_read(&path).map_err(CliError::input)?;
    reconcile::reconcile(facts, &orders)
        .map_err(|error| CliError::Input(format!("{}: {error}", path.display())))
}

/// A shared lock; a server needs the exclusive one. `None` when no server ever wrote here.
fn keep_servers_away(plan: &Plan, why: &str) -> Result<Option<File>, CliError> {
    let path = plan.store.dir.join(LOCK_FILE);
    let Ok(file) = File::open(&path) else {
        return Ok(None);
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Err(CliError::Input(format!(
            "{} is in use by a server; stop it first, so that {why}",
            plan.store.dir.display()
        ))),
        Err(TryLockError::Error(error)) => Err(CliError::Input(format!(
            "{}: {}",
            path.display(),
            error.kind()
        ))),
    }
}
