//! `weir worker`: makes the orders of what several instances sell from one stock in Redis, until SIGTERM.

use super::{CliError, serve};
use crate::config::{self, Plan};
use std::path::{Path, PathBuf};
use weir_core::shard::config::Role;
use weir_io::choice::Wanted;

/// Make the orders of what several instances of `weir serve` sell, until SIGTERM or Ctrl-C.
///
/// One process for each stock. It puts the SKUs on sale, makes the orders in its data_dir, takes the payments and answers
/// status queries on server.listen; submits go to the instances. Stopped, it loses nothing: reservations wait in Redis.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  weir worker --config worker/weir.toml     [ledger] kind = \"redis\", [orders] made_by = \"worker\", as its instances have\n\nExit codes: 0 stopped in order, 1 a part failed, 2 bad input or environment, 75 Redis is away or not ready yet (try again), 78 the driver that was asked for cannot run here.\nIt prints `serving` with both addresses once every part is ready."
)]
pub struct WorkerArgs {
    /// The configuration file: the same sale as its instances'
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// What moves bytes, whatever the configuration says: auto, uring, epoll, monoio or glommio
    #[arg(long, value_name = "NAME", value_parser = super::driver_arg)]
    driver: Option<Wanted>,
}

/// Runs it.
/// # Errors
/// `Input` when it does not start, `Broken` when a part ends by itself.
pub fn run(args: &WorkerArgs) -> Result<(), CliError> {
    weir_io::signals::block().map_err(CliError::input)?; // before any thread: all inherit it
    let mut plan = config::load_for_this_host(&args.config).map_err(CliError::input)?;
    check(&plan, &args.config)?;
    plan.shard.role = Role::MakesOrders;
    serve::run_plan(plan, args.driver)
}

/// Two processes that both make the orders of a stock would each make a part of them.
fn check(plan: &Plan, config: &Path) -> Result<(), CliError> {
    let file = config.display();
    if plan.redis.is_none() {
        return Err(CliError::Input(format!(
            "{file}: ledger.kind is \"embedded\": nobody but `weir serve` can read that ledger, and it makes its orders itself. `weir worker` is for a stock in Redis: set ledger.kind = \"redis\" and orders.made_by = \"worker\" here and for every instance"
        )));
    }
    if plan.shard.role != Role::Sells {
        return Err(CliError::Input(format!(
            "{file}: orders.made_by is \"here\": instances with this setting make their orders themselves. Set orders.made_by = \"worker\" here and for every instance"
        )));
    }
    Ok(())
}
