//! One sale's keys, configuration and program: made once per round, started on any data directory.

use crate::recorder::Recorder;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};
use weir::config::{self, Host};
use weir::keys;
use weir_core::sale::Sale;
use weir_proto::ids::{ActivityId, SkuId, SkuKey, UserId};
use weir_proto::payment::PaymentKey;
use weir_proto::ticket::{Claims, DeviceClaim, NonceClaim, TicketKey, mint_compact, path_id};

pub const SKU: SkuKey = SkuKey {
    activity: ActivityId(7),
    sku: SkuId(3),
};
pub const PATH_ID: &str = "k111";
pub const PRICE_MINOR: u64 = 1990;
pub const STOCK: u64 = 300;
/// After a restart nothing shall be unknown for want of time; 1,900 is the most.
pub const LONG_BUDGET_MS: u64 = 1_900;

/// What differs between rounds.
#[derive(Clone, Copy, Debug)]
pub struct How {
    pub shards: u16,
    /// During the rush.
    pub request_budget_ms: u64,
    pub unpaid_ms: u64,
}

pub struct Shop {
    dir: PathBuf,
    pub how: How,
    pub payment: PaymentKey,
    ticket: TicketKey,
    opened_ms: u64,
}

impl Drop for Shop {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

pub fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}

impl Shop {
    pub fn new(name: &str, how: How) -> Self {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("kill-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        let secret = |file: &str| {
            let path = dir.join(file);
            keys::create(&path).unwrap();
            keys::read_secret(&path).unwrap()
        };
        let (ticket, payment) = (secret("t1.key"), secret("payment.key"));
        Self {
            ticket: TicketKey::new(b"t1", ticket.expose()).unwrap(),
            payment: PaymentKey::new(payment.expose()).unwrap(),
            opened_ms: wall_ms() - 10_000,
            how,
            dir,
        }
    }

    pub fn place(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The ticket of the user's `number`th request.
    pub fn ticket(&self, user: UserId, number: u64) -> Vec<u8> {
        let mut nonce = [0; 16];
        nonce[..8].copy_from_slice(&user.0.to_be_bytes());
        nonce[8..].copy_from_slice(&number.to_be_bytes());
        let claims = Claims {
            activity: SKU.activity,
            sku: SKU.sku,
            user,
            activity_version: 1,
            path_id: path_id(PATH_ID.as_bytes()).unwrap(),
            nonce: NonceClaim::Raw(nonce),
            device: DeviceClaim::Unbound,
            not_before_ms: self.opened_ms,
            expires_at_ms: self.opened_ms + 50 * 60_000,
        };
        let mut ticket = Vec::new();
        mint_compact(&claims, &self.ticket, &mut ticket).unwrap();
        ticket
    }

    /// Writes the configuration of a server on `data`, beside it.
    pub fn config(&self, data: &Path) -> PathBuf {
        self.config_with(data, LONG_BUDGET_MS)
    }

    fn config_with(&self, data: &Path, request_budget_ms: u64) -> PathBuf {
        let How {
            shards, unpaid_ms, ..
        } = self.how;
        let data_text = data.display();
        let (many, plenty) = ("\"1000000/s\"", "1000000");
        let instant = |ms| config::instant_text(weir_core::time::WallMs(ms));
        let settings = [
            ("server", "listen", "\"127.0.0.1:0\"".to_owned()),
            ("server", "shards", shards.to_string()),
            ("server", "conns_max", "256".to_owned()),
            ("server", "data_dir", format!("\"{data_text}\"")),
            ("ops", "listen", "\"127.0.0.1:0\"".to_owned()),
            ("ops", "audit_log", format!("\"{data_text}.audit\"")),
            // One address and few users send all of it: only the ledger shall refuse.
            ("limits", "connect_rate", many.to_owned()),
            ("limits", "connect_burst", plenty.to_owned()),
            ("limits", "ip_rate", many.to_owned()),
            ("limits", "ip_burst", plenty.to_owned()),
            ("limits", "ip_slots", "64".to_owned()),
            ("limits", "user_rate", many.to_owned()),
            ("limits", "user_burst", plenty.to_owned()),
            ("limits", "user_slots", "16384".to_owned()),
            ("limits", "device_slots", "64".to_owned()),
            ("limits", "status_rate", many.to_owned()),
            ("limits", "status_burst", plenty.to_owned()),
            ("limits", "status_slots", "16384".to_owned()),
            ("limits", "overflow_rate", many.to_owned()),
            ("limits", "overflow_burst", plenty.to_owned()),
            (
                "limits",
                "request_budget",
                format!("\"{request_budget_ms}ms\""),
            ),
            ("log", "path", "\"off\"".to_owned()),
            ("keys", "ticket", "[\"t1.key\"]".to_owned()),
            ("keys", "payment", "\"payment.key\"".to_owned()),
            ("activity", "id", SKU.activity.to_string()),
            ("activity", "path_id", format!("\"{PATH_ID}\"")),
            ("activity", "opens_at", instant(self.opened_ms)),
            ("activity", "closes_at", instant(self.opened_ms + 3_600_000)),
            ("activity.sku", "id", SKU.sku.to_string()),
            ("activity.sku", "stock", STOCK.to_string()),
            ("activity.sku", "price", "\"19.90 CNY\"".to_owned()),
            (
                "activity.sku",
                "unpaid_timeout",
                format!("\"{unpaid_ms}ms\""),
            ),
        ];
        let name = data.file_name().unwrap().to_string_lossy().into_owned();
        let file = self.place(&format!("{name}.toml"));
        fs::write(&file, config::starter(&settings)).unwrap();
        file
    }

    pub fn sale(&self, data: &Path) -> Sale {
        let plan = config::load(&self.config(data), &Host::read()).unwrap();
        Sale::clone(&plan.sale)
    }

    fn serve(&self, config: &Path) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command
            .args(["serve", "--config"])
            .arg(config)
            .env_remove(SYNCHRONOUS_OFF);
        command
    }

    pub fn start(&self, data: &Path) -> Result<Running, String> {
        Running::of(self.serve(&self.config(data)))
    }

    /// Starts with every write and sync below `data` recorded in `log`.
    pub fn start_watched(
        &self,
        data: &Path,
        log: &Path,
        recorder: &Recorder,
        syncs: Syncs,
    ) -> Running {
        let mut command = self.serve(&self.config_with(data, self.how.request_budget_ms));
        recorder.watch(&mut command, data, log);
        if syncs == Syncs::PlantedOff {
            command.env(SYNCHRONOUS_OFF, "1");
        }
        Running::of(command).unwrap()
    }
}

const SYNCHRONOUS_OFF: &str = "WEIR_PLANT_SYNCHRONOUS_OFF";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syncs {
    Honest,
    PlantedOff,
}

/// A server that said it serves.
pub struct Running {
    child: Mutex<Child>,
    pub listen: SocketAddr,
    said: Option<JoinHandle<String>>,
}

impl Running {
    fn of(mut command: Command) -> Result<Self, String> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        loop {
            let start = said.len();
            if stderr.read_line(&mut said).unwrap() == 0 {
                let status = child.wait().unwrap();
                return Err(format!("{status}: {said}"));
            }
            let Some((_, rest)) = said[start..].split_once("serving http://") else {
                continue;
            };
            let listen = rest.split_whitespace().next().unwrap().parse().unwrap();
            let rest = std::thread::spawn(move || {
                let mut rest = String::new();
                let _ = stderr.read_to_string(&mut rest);
                rest
            });
            return Ok(Self {
                child: Mutex::new(child),
                listen,
                said: Some(rest),
            });
        }
    }

    /// SIGKILL.
    pub fn kill(&self) {
        self.child.lock().unwrap().kill().unwrap();
    }

    pub fn wait(mut self) -> (ExitStatus, String) {
        let status = self.child.lock().unwrap().wait().unwrap();
        (status, self.said.take().unwrap().join().unwrap())
    }

    /// SIGTERM, and how it ended.
    pub fn stop(self) -> (ExitStatus, String) {
        let pid = self.child.lock().unwrap().id();
        let sent = Command::new("sh")
            .args(["-c", &format!("kill -TERM {pid}")])
            .status();
        assert!(sent.unwrap().success());
        self.wait()
    }
}

impl Drop for Running {
    /// A failed test leaves no server behind.
    fn drop(&mut self) {
        if let Ok(child) = self.child.get_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
