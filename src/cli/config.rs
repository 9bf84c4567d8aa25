//! `weir config`: explain keys, check a file.

use super::{CliError, print};
use crate::config::{self, Footprint};
use std::path::PathBuf;

/// Explain the configuration's keys, or check a file.
#[derive(clap::Args)]
pub struct ConfigArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: ConfigCommand,
}

/// What to do with the configuration.
#[derive(clap::Subcommand)]
pub enum ConfigCommand {
    /// Say what keys mean, what they allow, and what holds without them.
    #[command(
        after_help = "Examples:\n  weir config explain\n  weir config explain limits\n  weir config explain server.conns_max"
    )]
    Explain {
        /// A key (server.listen, or listen) or a section (limits); without it, everything.
        key: Option<String>,
    },
    /// Check a file, its keys, and whether this machine can carry it. Starts nothing.
    #[command(after_help = "Example:\n  weir config check --config shop/weir.toml")]
    Check {
        /// The configuration file.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
}

/// Runs it.
/// # Errors
/// An unknown key's name, or the file's problems.
pub fn run(args: &ConfigArgs) -> Result<(), CliError> {
    match &args.command {
        ConfigCommand::Explain { key } => {
            print(&config::explain(key.as_deref()).map_err(CliError::Input)?)
        }
        ConfigCommand::Check { config } => {
            let plan = config::load_for_this_host(config).map_err(CliError::input)?;
            let footprint = Footprint::of(&plan);
            let mib = |bytes: u64| bytes.div_ceil(1024 * 1024);
            let skus: usize = plan.sale.activities.iter().map(|a| a.skus.len()).sum();
            print(&format!(
                "{}: fine\n  activities: {}, SKUs: {skus}\n  memory when full: {} MiB ({} x {} MiB for shards, {} MiB for ledger and stores)\n  file descriptors: {} at most{}\n",
                config.display(),
                plan.sale.activities.len(),
                mib(footprint.all_bytes()),
                plan.shards_count,
                mib(footprint.shard_bytes),
                mib(footprint.shared_bytes),
                plan.descriptors_max(),
                match plan.direct_places() {
                    0 => String::new(),
                    places => format!(
                        "; connections are direct descriptors, in a table of {places} places on each shard"
                    ),
                },
            ))
        }
    }
}
