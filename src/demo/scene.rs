//! The demo's directory: configuration and keys as `weir init` makes them, with a sale of the demo's size.

use super::DemoError;
use super::limits::UNPAID_TIMEOUT_MS;
use crate::config::{self, Host, Plan, Setting};
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
    /// The configuration of who makes the orders, checked.
    pub plan: Plan,
    /// Files of the processes that sell.
    pub sellers: Vec<PathBuf>,
    /// The file of `weir worker`; `None`: the one seller makes its orders itself.
    pub worker: Option<PathBuf>,
    is_temporary: bool,
}

/// What the sale is like.
#[derive(Clone, Debug)]
pub struct Size {
    /// Units.
    pub stock: u64,
    /// Shards.
    pub shards: u16,
    /// What moves bytes.
    pub driver: DriverKind,
    /// Connections of the load; each shard must take them all.
    pub connections: u32,
    /// Submits per second that may ask the ledger.
    pub budget_per_s: u64,
    /// The Redis that holds the stock, and how many instances sell it; `None`: one process does all.
    pub shared: Option<(String, u16)>,
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
        let settings = settings(WallMs(host.wall_ms), &size)?; // once: all sell the same under the same names
        let write = |name: &str, number: u16| {
            let file = dir.join(format!("{name}.toml"));
            let mut all = settings.clone();
            if let Some((redis, instances)) = &size.shared {
                all.extend(shared_settings(name, number, redis, *instances));
            }
            let text = config::starter(&all);
            let mut options = fs::OpenOptions::new();
            let opened = options.write(true).create_new(true).mode(0o600).open(&file);
            opened
                .and_then(|mut opened| opened.write_all(text.as_bytes()))
                .map_err(|error| failed(&file, error))?;
            Ok(file)
        };
        let (sellers, worker) = match size.shared {
            None => (vec![write("weir", 0)?], None),
            Some((_, instances)) => {
                let numbers = 1..=instances;
                let sellers = numbers.map(|number| write(&format!("instance-{number}"), number));
                (
                    sellers.collect::<Result<_, DemoError>>()?,
                    Some(write("worker", 0)?),
                )
            }
        };
        let of_orders = worker.as_ref().unwrap_or(&sellers[0]);
        Ok(Self {
            plan: config::load(of_orders, &host).map_err(DemoError::input)?,
            dir,
            sellers,
            worker,
            is_temporary: keep.is_none(),
        })
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
fn settings(now: WallMs, size: &Size) -> Result<Vec<Setting<'static>>, DemoError> {
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
        (
            "activity.sku",
            "budget",
            text(&format!("{}/s", size.budget_per_s)),
        ),
    ]);
    Ok(settings)
}

/// What differs where several processes share a stock in `redis`; they stand in one directory.
fn shared_settings(name: &str, number: u16, redis: &str, instances: u16) -> [Setting<'static>; 10] {
    let text = |text: &str| format!("\"{text}\"");
    [
        ("ledger", "kind", text("redis")),
        ("redis", "servers", format!("[{}]", text(redis))),
        // A distribution's server has the number of a version with holes, and only the demo's own scripts run there.
        ("redis", "accept_lua_holes", "true".to_owned()),
        ("orders", "made_by", text("worker")),
        ("limiter", "instance", text(&format!("demo-{number}"))),
        ("limiter", "weights", instances.to_string()),
        ("server", "data_dir", text(&format!("data/{name}"))),
        (
            "ops",
            "audit_log",
            text(&format!("data/{name}-audit.jsonl")),
        ),
        ("deny", "file", text(&format!("data/{name}-deny.jsonl"))),
        ("log", "path", text(&format!("data/{name}.jsonl"))),
    ]
}
