//! The processes of one sale on Redis: `weir worker`, which is number 0 and has the orders, and as many `weir serve` as
//! sell; the same keys and the same sale, each in a directory of its own.

use super::super::shop::{self, How};
use super::super::{Children, Result, TortureError};
use super::limits::FREEZE_MS;
use crate::config::{self, Host, Plan};
use crate::demo::server::Server;
use crate::keys;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use weir_io::signals::{self, Signal};

/// Units, people and money as in the other sales; the stock is the run's.
const SALE: How = How {
    shards: 1,
    stock: 0,
    budget_ms: 1_500,
    unpaid_ms: super::super::limits::UNPAID_LONG_MS,
    ask_rate: 1_000_000,
};

/// The sale's files, from which every process is started.
#[derive(Debug)]
pub struct Shops {
    /// Configuration of each process, checked.
    pub plans: Vec<Plan>,
    /// Servers that must die when the run is stopped.
    children: Arc<Children>,
}

/// What the sale is about.
#[derive(Clone, Copy, Debug)]
pub struct Offer<'a> {
    /// Units.
    pub stock: u64,
    /// Replicas that every grant waits for.
    pub wait_replicas: u64,
    /// `redis.servers`.
    pub servers: &'a str,
    /// How many sell.
    pub instances: usize,
}

impl Shops {
    /// Makes directories, keys and configurations below `dir`.
    ///
    /// # Errors
    /// Something cannot be written.
    pub fn make(
        dir: &Path,
        host: &Host,
        offer: Offer<'_>,
        children: &Arc<Children>,
    ) -> Result<Self> {
        let how = How {
            stock: offer.stock,
            ..SALE
        };
        let mut settings = shop::settings(host, how)?;
        let text = |text: String| format!("\"{text}\"");
        settings.extend([
            ("ledger", "kind", text("redis".to_owned())),
            ("redis", "servers", offer.servers.to_owned()),
            ("redis", "cluster", "true".to_owned()),
            ("redis", "accept_lua_holes", "true".to_owned()),
            ("redis", "wait_replicas", offer.wait_replicas.to_string()),
            ("redis", "freeze", text(format!("{FREEZE_MS}ms"))),
            ("orders", "made_by", text("worker".to_owned())),
        ]);
        let mut plans = Vec::new();
        for index in 0..=offer.instances {
            let place = dir.join(format!("process-{index}"));
            for made in [place.clone(), place.join("keys"), place.join("data")] {
                fs::create_dir(&made).map_err(|error| TortureError::at(&made, &error))?;
            }
            for name in ["ticket-1.key", "payment.key"] {
                share_key(dir, &place, index, name)?;
            }
            let file = place.join("weir.toml");
            let written = fs::write(&file, config::starter(&settings));
            written.map_err(|error| TortureError::at(&file, &error))?;
            plans.push(config::load(&file, host).map_err(TortureError::of)?);
        }
        Ok(Self {
            plans,
            children: Arc::clone(children),
        })
    }

    /// Starts the process of that number and waits until it serves; it dies with the calling thread.
    ///
    /// # Errors
    /// It does not start, in its own words.
    pub fn start(&self, index: usize) -> Result<Server> {
        let mut server = self.launch(index)?;
        match server.wait_until_serving() {
            Ok(()) => Ok(server),
            Err(error) => {
                self.kill(server);
                Err(TortureError::of(error))
            }
        }
    }

    fn launch(&self, index: usize) -> Result<Server> {
        let program = std::env::current_exe().map_err(TortureError::of)?;
        let name = if index == 0 { "worker" } else { "serve" };
        let mut command = Command::new(program);
        command.args([name, "--config"]);
        command.arg(&self.plans[index].file);
        command.stdin(Stdio::null());
        // Ctrl-C is for us: a server that is told by the terminal would end in order.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        signals::die_with_this_thread(&mut command);
        let server = Server::launch(command, None).map_err(TortureError::of)?;
        self.children.born(server.pid());
        Ok(server)
    }

    /// Starts it without waiting.
    ///
    /// # Errors
    /// No process, no thread.
    pub fn begin(&self, index: usize) -> Result<Starting> {
        let server = self.launch(index)?;
        let pid = server.pid();
        let wait = move || {
            let mut server = server;
            let serves = server.wait_until_serving().map_err(TortureError::of);
            (server, serves)
        };
        let waiter = std::thread::Builder::new().name("weir-starting".to_owned());
        let waiter = waiter.spawn(wait).map_err(TortureError::of)?;
        Ok(Starting { pid, waiter })
    }

    /// Waits for its end, which is near: it has said why it does not serve, or was killed.
    fn bury(&self, (server, serves): (Server, Result<()>)) -> Option<Server> {
        if serves.is_ok() {
            return Some(server);
        }
        self.kill(server);
        None
    }

    /// SIGKILL.
    pub fn kill(&self, mut server: Server) {
        let pid = server.pid();
        // It may have ended by itself; until it was waited for, its id is nobody else's.
        let _ = signals::send(pid, Signal::Kill);
        let _ = server.wait();
        self.children.gone(pid);
    }

    /// SIGTERM; what was wrong with its end.
    pub fn stop(&self, server: Server) -> Option<String> {
        let pid = server.pid();
        let problem = server.stop();
        self.children.gone(pid);
        problem
    }
}

/// A process that does not serve yet.
#[derive(Debug)]
pub struct Starting {
    pid: u32,
    waiter: JoinHandle<(Server, Result<()>)>,
}

impl Starting {
    /// True when it serves, or has said why it does not.
    pub fn is_over(&self) -> bool {
        self.waiter.is_finished()
    }

    /// The server, when it serves; otherwise it is ended. One that has not said anything yet is killed.
    pub fn take(self, shops: &Shops) -> Option<Server> {
        if !self.is_over() {
            let _ = signals::send(self.pid, Signal::Kill); // its words end, and so does the waiter
        }
        let waited = self.waiter.join().ok()?;
        shops.bury(waited)
    }
}

/// Every process has the worker's keys.
fn share_key(dir: &Path, place: &Path, index: usize, name: &str) -> Result<()> {
    let file = place.join("keys").join(name);
    if index == 0 {
        return keys::create(&file).map_err(TortureError::of);
    }
    let first = dir.join("process-0/keys").join(name);
    // A copy has the mode of its original, which nobody else may read.
    let copied = fs::copy(&first, &file);
    copied
        .map(drop)
        .map_err(|error| TortureError::at(&file, &error))
}
