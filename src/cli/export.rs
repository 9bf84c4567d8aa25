//! `weir export`: orders for the shop's own books.

use super::CliError;
use crate::config::{self, Host};
use crate::orders::export::{ExportError, export_to, export_to_file};
use std::io;
use std::path::PathBuf;

/// Write all orders as CSV (RFC 4180). May run while the server does.
///
/// The file holds user ids: it is made readable by you only, and an existing file is never overwritten.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  weir export orders --config shop/weir.toml --csv > orders.csv\n  weir export orders --config shop/weir.toml --csv --out orders.csv"
)]
pub struct ExportArgs {
    /// What to export.
    #[command(subcommand)]
    pub what: ExportWhat,
}

/// What to export.
#[derive(clap::Subcommand)]
pub enum ExportWhat {
    /// One line per order.
    Orders {
        /// The configuration file.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// As comma-separated values, the one format so far.
        #[arg(long, required = true)]
        csv: bool,
        /// The file to make; without it, standard output.
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
}

/// Runs it.
/// # Errors
/// The configuration's problems, or files that cannot be read or written.
pub fn run(args: &ExportArgs) -> Result<(), CliError> {
    let ExportWhat::Orders { config, out, .. } = &args.what;
    let plan = config::load(config, &Host::read()).map_err(CliError::input)?;
    let orders = plan.store.orders();
    let exported = match out {
        Some(csv) => export_to_file(&orders, csv),
        None => export_to(&orders, &mut io::BufWriter::new(io::stdout().lock())),
    };
    match exported {
        Ok(_) => Ok(()),
        // A reader that has gone (`| head`) has what it wants.
        Err(ExportError::Write(None, error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(CliError::input(error)),
    }
}
