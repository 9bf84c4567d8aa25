//! `weir demo`: its arguments. A whole sale on this machine, and the proof that its books balance.

use std::path::PathBuf;

/// Sell a stock to a crowd on this machine, over real sockets, and prove that the books balance.
///
/// Starts a server of its own and a load of buyers: honest, late, double-clicking, retrying, forged, replaying. At the end
/// it prints what each kind was answered and compares ledger, orders and what the buyers were told.
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  weir demo\n  weir demo --buyers 100000 --stock 1000 --shards 2\n  weir demo --json --keep /tmp/sale\n\nExit codes: 0 every promise held, 1 one broke, 2 this machine cannot run it."
)]
pub struct DemoArgs {
    /// How many buyers come.
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub buyers: u64,
    /// How many units there are.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=crate::config::ceilings::STOCK_MAX))]
    pub stock: u64,
    /// Threads of the server; without it, one core is left to the rest.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=crate::config::ceilings::SHARDS_MAX as i64))]
    pub shards: Option<u16>,
    /// Which crowd: the same number makes the same buyers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// End with one JSON object on the last line.
    #[arg(long)]
    pub json: bool,
    /// Keep configuration, ledger and orders in this new directory; without it they are removed.
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,
}
