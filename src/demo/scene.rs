//! The demo's directory: configuration and keys as `weir init` makes them, with a sale of the demo's size.

use super::DemoError;
use super::limits::UNPAID_TIMEOUT_MS;
use crate::config::{self, Host, Plan};
use crate::keys;
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use weir_core::time::WallMs;
use weir_io::choice::DriverKind;

/// A directory of the demo; a temporary one is removed at the end unless a promise broke.
#[derive(Debug)]
pub struct Scene {
    /// Where.
    pub dir: PathBuf,
    /// The configuration, checked.
    pub plan: Plan,
    is_temporary: bool,
}

/// What the sale is like.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Units.
    pub stock: u64,
    /// Shards.
    pub shards: u16,
    /// What moves bytes.
    pub driver: DriverKind,
    /// Connections of the load; each shard must take them all.
    pub connections: u32,
}

impl Scene {
    /// Makes the directory (`keep`, or a temporary one), keys and configuration.
    /// # Errors
    /// The directory is not empty, or something cannot be written.
    pub fn make(keep: Option<&Path>, size: Size) -> Result<Self, DemoError> {
        let dir = match keep {
            Some(dir) => dir.to_owned(),
            None => {
                let random = keys::random::<4>().map_err(DemoError::input)?;
                std::env::temp_dir().join(format!("weir-demo-{}", keys::encode_hex(&random)))
            }
        };
        check_empty(&dir)?;
        let failed = |path: &Path, error: std::io::Error| {
            DemoError::Input(format!("{}: {}", path.display(), error.kind()))
        };
        for made in [dir.clone(), dir.join("keys"), dir.join("data")] {
            let mut builder = fs::DirBuilder::new();
            builder.recursive(true).mode(0o700);
            builder
                .create(&made)
                .map_err(|error| failed(&made, error))?;
        }
        for name in ["ticket-1.key", "payment.key"] {
            keys::create(&dir.join("keys").join(name)).map_err(DemoError::input)?;
        }
        let host = Host::read();
        let file = dir.join("weir.toml");
        let text = toml_text(WallMs(host.wall_ms), size)?;
        let mut options = fs::OpenOptions::new();
        let opened = options.write(true).create_new(true).mode(0o600).open(&file);
        opened
            .and_then(|mut opened| opened.write_all(text.as_bytes()))
            .map_err(|error| failed(&file, error))?;
        let plan = config::load(&file, &host).map_err(DemoError::input)?;
        let is_temporary = keep.is_none();
        Ok(Self {
            dir,
            plan,
            is_temporary,
        })
    }

    /// The configuration file.
    pub fn file(&self) -> PathBuf {
        self.dir.join("weir.toml")
    }

    /// Removes a temporary directory.
    /// # Errors
    /// It cannot be removed.
    pub fn strike(&self) -> Result<(), DemoError> {
        if !self.is_temporary {
            return Ok(());
        }
        fs::remove_dir_all(&self.dir)
            .map_err(|error| DemoError::Input(format!("{}: {}", self.dir.display(), error.kind())))
    }
}

fn check_empty(dir: &Path) -> Result<(), DemoError> {
    let shown = dir.display();
    match fs::read_dir(dir) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => Err(DemoError::Input(format!(
                "{shown} is not empty and is left as it is; name a new or an empty directory with --keep"
            ))),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotADirectory => Err(DemoError::Input(format!(
            "{shown} is a file and is left as it is; name a new or an empty directory with --keep"
        ))),
        Err(error) => Err(DemoError::Input(format!("{shown}: {}", error.kind()))),
    }
}

/// `weir init`'s file with the demo's sizes. Limits per user are a real shop's; limits per address are wide, because
/// half a thousand addresses stand for a million people; the budget is what the ledger can take.
fn toml_text(now: WallMs, size: Size) -> Result<String, DemoError> {
    let mut settings = config::fresh_sale(now).map_err(DemoError::input)?;
    let text = |text: &str| format!("\"{text}\"");
    settings.extend([
        ("server", "listen", text("127.0.0.1:0")),
        ("server", "shards", size.shards.to_string()),
        ("server", "driver", text(size.driver.name())),
        ("server", "conns_max", (size.connections * 2).to_string()),
        ("ops", "listen", text("127.0.0.1:0")),
        ("limits", "instance_rate", text("1000000/s")),
        ("limits", "instance_burst", "100000".to_owned()),
        ("limits", "ip_rate", text("100000/s")),
        ("limits", "ip_burst", "10000".to_owned()),
        ("limits", "ip_slots", "65536".to_owned()),
        ("limits", "user_rate", text("0.5/s")),
        ("limits", "user_burst", "3".to_owned()),
        ("limits", "status_rate", text("4/s")),
        ("limits", "request_budget", text("1s")),
        ("log", "path", text("data/admission.jsonl")),
        ("activity", "id", "1".to_owned()),
        ("activity.sku", "id", "1".to_owned()),
        ("activity.sku", "stock", size.stock.to_string()),
        ("activity.sku", "price", text("19.90 CNY")),
        (
            "activity.sku",
            "unpaid_timeout",
            text(&format!("{UNPAID_TIMEOUT_MS}ms")),
        ),
        ("activity.sku", "budget", text("1000000/s")),
    ]);
    Ok(config::starter(&settings))
}
