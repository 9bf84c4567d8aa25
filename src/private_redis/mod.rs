//! Redis servers of our own: `redis-server` as children on free ports of 127.0.0.1, each in a temporary directory of
//! its own; ended by their process ids when they are dropped, and by the kernel when we are killed.
//!
//! For `weir demo --redis auto`, `weir torture --redis auto` and the tests. [`Server`] is one; [`Server::replica_of`]
//! makes it follow another; [`cluster::Cluster`] is several masters with replicas. [`link::Link`] talks to one, a
//! command at a time, and is all of this that `weir serve` uses.

pub mod cluster;
pub mod link;

use link::Link;
use std::collections::VecDeque;
use std::fmt;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use weir_io::signals::{self, Signal};

/// Nothing that is waited for here takes so long; it ends a wait for a server that hangs.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Ports that may be taken between our look and the server's start, one after another, before we give up.
const TRIES: u32 = 10;
/// Between two looks at a server that is not yet as it should be.
const LOOK: Duration = Duration::from_millis(20);
/// Lines of a server's log that are kept: enough for what it says before it ends.
const LOG_LINES_MAX: usize = 1_000;
/// What a server says when it can be asked.
const READY: &str = "Ready to accept connections";

/// Why a private Redis is not as it should be, with the remedy where there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrivateRedisError(pub String);

impl PrivateRedisError {
    fn of(what: &str, error: impl fmt::Display) -> Self {
        Self(format!("{what}: {error}"))
    }
}

impl fmt::Display for PrivateRedisError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PrivateRedisError {}

/// Of everything here.
pub type Result<T> = std::result::Result<T, PrivateRedisError>;

/// True when `redis-server` can be started.
///
/// # Errors
/// It is not on the PATH; with the remedy.
pub fn is_here() -> Result<()> {
    let found = Command::new("redis-server").arg("--version").output();
    if found.is_ok_and(|output| output.status.success()) {
        return Ok(());
    }
    Err(PrivateRedisError(
        "redis-server is not on the PATH: install it (Debian, Ubuntu: apt install redis-server), or name a Redis that runs"
            .to_owned(),
    ))
}

/// A port of 127.0.0.1 that was free a moment ago.
///
/// # Errors
/// The system has none.
pub fn free_port() -> Result<u16> {
    let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let port = bound.and_then(|listener| Ok(listener.local_addr()?.port()));
    port.map_err(|error| PrivateRedisError::of("no free port on 127.0.0.1", error))
}

/// Looks every few milliseconds until `is_so`.
///
/// # Errors
/// `what` did not come true within [`PATIENCE`].
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) -> Result<()> {
    let begin = Instant::now();
    while !is_so() {
        if begin.elapsed() > PATIENCE {
            return Err(PrivateRedisError(format!("never: {what}")));
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// One server that was started and has answered; killed when it is dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    dir: PathBuf,
    said: Arc<Mutex<VecDeque<String>>>,
    options: Vec<String>,
    /// Of 127.0.0.1.
    pub port: u16,
}

impl Server {
    /// A server that keeps nothing on disk unless `options` say so: words as on the command line of `redis-server`, such
    /// as `["--maxmemory", "2mb"]`. It dies with the calling thread.
    ///
    /// # Errors
    /// It does not start, in its own words; `redis-server` is missing.
    pub fn start(options: &[&str]) -> Result<Self> {
        is_here()?;
        let options: Vec<String> = options.iter().map(|word| (*word).to_owned()).collect();
        let mut last = String::new();
        for _ in 0..TRIES {
            match Self::on_port(free_port()?, options.clone(), &std::env::temp_dir()) {
                Ok(server) => return Ok(server),
                Err(PrivateRedisError(said)) => last = said,
            }
        }
        Err(PrivateRedisError(last))
    }

    /// Starts it on `port`, in a new directory below `place`.
    fn on_port(port: u16, options: Vec<String>, place: &Path) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("weir-redis-{}-{count}", std::process::id());
        let dir = place.join(name);
        make_empty(&dir)?;
        let said = Arc::default();
        match spawn(port, &dir, &options, &said) {
            Ok(child) => Ok(Self {
                child,
                dir,
                said,
                options,
                port,
            }),
            Err(error) => {
                let _ = std::fs::remove_dir_all(&dir); // nothing of it is wanted
                Err(error)
            }
        }
    }

    /// Makes it follow `master` and waits until it holds what the master does.
    ///
    /// # Errors
    /// It does not within [`PATIENCE`].
    pub fn replica_of(&self, master: &Server) -> Result<()> {
        let order = format!("REPLICAOF 127.0.0.1 {}", master.port);
        let mut link = self.connect()?;
        link.order(&order)?;
        until(&order, || {
            let info = link.text("INFO replication");
            info.is_ok_and(|info| info.contains("master_link_status:up"))
        })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// A new connection that waits [`PATIENCE`] for each answer.
    ///
    /// # Errors
    /// It does not take one.
    pub fn connect(&self) -> Result<Link> {
        let what = || format!("the Redis at {}", self.addr());
        Link::connect(self.addr(), PATIENCE).map_err(|error| PrivateRedisError::of(&what(), error))
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Tells its process something.
    ///
    /// # Errors
    /// It has ended and was waited for.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let sent = signals::send(self.pid(), signal);
        sent.map_err(|error| PrivateRedisError::of("a signal", error))
    }

    /// SIGKILL, and waits for its end; its directory stays for [`Self::restart`].
    pub fn kill(&mut self) {
        // It may have ended already; a stopped one must end, too.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Kills it if it runs, and starts it on its port with its options and with what it left on disk.
    ///
    /// # Errors
    /// It does not start.
    pub fn restart(&mut self) -> Result<()> {
        self.kill();
        self.child = spawn(self.port, &self.dir, &self.options, &self.said)?;
        Ok(())
    }

    /// As [`Self::restart`], with nothing on disk.
    ///
    /// # Errors
    /// It does not start.
    pub fn begin_anew(&mut self) -> Result<()> {
        self.kill();
        make_empty(&self.dir)?;
        self.restart()
    }

    /// The last lines of its log.
    pub fn said(&self) -> String {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.iter()
            .fold(String::new(), |all, line| all + line + "\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill(); // SIGKILL: it has nothing to save
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn make_empty(dir: &Path) -> Result<()> {
    let _ = std::fs::remove_dir_all(dir); // of an earlier process with this id
    let made = std::fs::create_dir_all(dir);
    made.map_err(|error| PrivateRedisError::of(&dir.display().to_string(), error))
}

/// Starts one and waits until it can be asked; otherwise its last words are the error.
fn spawn(
    port: u16,
    dir: &Path,
    options: &[String],
    said: &Arc<Mutex<VecDeque<String>>>,
) -> Result<Child> {
    let mut command = Command::new("redis-server");
    command
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--save", "", "--appendonly", "no", "--dir"])
        .arg(dir)
        .args(options)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    // Ctrl-C is for us: a server that is told by the terminal would end in order.
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    signals::die_with_this_thread(&mut command);
    let child = command.spawn();
    let mut child = child.map_err(|error| PrivateRedisError::of("redis-server", error))?;
    let lines = follow(&mut child, Arc::clone(said));
    let mut last = String::new();
    loop {
        match lines.recv_timeout(PATIENCE) {
            Ok(line) if line.contains(READY) => return Ok(child),
            Ok(line) => last = last + &line + "\n",
            // Its output has ended, so it has; or it hangs.
            Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
                let why = format!("redis-server does not start; it said:\n{last}");
                return Err(PrivateRedisError(why));
            }
        }
    }
}

/// Reads a server's output to its end, so that it never waits for us: each line is kept and goes to the receiver.
fn follow(child: &mut Child, said: Arc<Mutex<VecDeque<String>>>) -> Receiver<String> {
    let (lines, receiver) = channel();
    let Some(output) = child.stdout.take() else {
        return receiver;
    };
    std::thread::spawn(move || {
        for line in BufReader::new(output)
            .lines()
            .map_while(std::result::Result::ok)
        {
            let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
            if said.len() == LOG_LINES_MAX {
                said.pop_front();
            }
            said.push_back(line.clone());
            drop(said);
            let _ = lines.send(line); // nobody listens once it is ready
        }
    });
    receiver
}
