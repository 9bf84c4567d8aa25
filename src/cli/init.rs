//! `weir init`: a directory from which a sale can be run.

use super::{CliError, print};
use crate::config::{self, Host};
use crate::keys;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use weir_core::time::WallMs;

/// Make a directory with a commented configuration and keys: a sale of 100 units that is open now for 24 hours.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  weir init shop")]
pub struct InitArgs {
    /// The directory to make; it may exist when it is empty.
    pub dir: PathBuf,
}

/// Runs it.
/// # Errors
/// The directory is not empty or cannot be written.
pub fn run(args: &InitArgs) -> Result<(), CliError> {
    let dir = &args.dir;
    check_empty(dir)?;
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |error: io::Error| CliError::Input(format!("{path}: {}", error.kind()))
    };
    for made in [dir.clone(), dir.join("keys"), dir.join("data")] {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(&made).map_err(failed(&made))?;
    }
    for name in ["ticket-1.key", "payment.key"] {
        keys::create(&dir.join("keys").join(name)).map_err(CliError::input)?;
    }
    let file = dir.join("weir.toml");
    let settings = config::fresh_sale(WallMs(Host::read().wall_ms)).map_err(CliError::input)?;
    let mut options = fs::OpenOptions::new();
    let opened = options.write(true).create_new(true).mode(0o600).open(&file);
    let text = config::starter(&settings);
    opened
        .and_then(|mut opened| io::Write::write_all(&mut opened, text.as_bytes()))
        .map_err(failed(&file))?;
    let program = std::env::args().next().unwrap_or_else(|| "weir".to_owned());
    let (dir, file) = (dir.display(), file.display());
    print(&format!(
        "made {dir}: weir.toml, keys/ticket-1.key, keys/payment.key, data/\nNext:\n  {program} config check --config {file}\n  {program} serve --config {file}\n  {program} ticket --config {file} --user 42\n"
    ))
}

fn check_empty(dir: &Path) -> Result<(), CliError> {
    let shown = dir.display();
    match fs::read_dir(dir) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => Err(CliError::Input(format!(
                "{shown} is not empty and is left as it is; name a new or an empty directory"
            ))),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotADirectory => Err(CliError::Input(format!(
            "{shown} is a file and is left as it is; name a new or an empty directory"
        ))),
        Err(error) => Err(CliError::Input(format!("{shown}: {}", error.kind()))),
    }
}
