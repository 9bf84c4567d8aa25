//! `weir keygen`: a new secret in a file of its own.

use super::{CliError, print};
use crate::keys;
use std::path::PathBuf;

/// Make a key file: 32 random bytes as hexadecimal text, readable by you only.
///
/// Never overwrites a file and never prints the key. Fit for ticket keys, the payment key and the operator's token.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  weir keygen shop/keys/ticket-2.key")]
pub struct KeygenArgs {
    /// The file to make; its directory must exist.
    pub file: PathBuf,
}

/// Runs it.
/// # Errors
/// The file exists or cannot be made.
pub fn run(args: &KeygenArgs) -> Result<(), CliError> {
    keys::create(&args.file).map_err(CliError::input)?;
    print(&format!("made {} (mode 0400)\n", args.file.display()))
}
