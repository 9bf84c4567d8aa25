//! Real Redis servers for tests: started as children on free ports of 127.0.0.1, in a directory of their own, ended by
//! their process id when they go out of scope, also when the test panics.
//!
//! Where `redis-server` is missing, a start prints SKIPPED with the reason (a failure where CI=true) and gives `None`.
#![allow(dead_code, clippy::unwrap_used)] // each test binary uses what it needs; a test that meets one has failed

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub mod cluster;
pub mod link;
#[path = "../support/say.rs"]
pub mod say;

/// Nothing that a test waits for takes so long; it only ends a test whose server hangs.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Ports that may be taken between our look and the server's start, one after another, before the test gives up.
const TRIES: u32 = 10;

/// True when the programs are here; otherwise says SKIPPED.
pub fn is_here() -> bool {
    for program in ["redis-server", "redis-cli"] {
        let found = Command::new(program).arg("--version").output();
        if !found.is_ok_and(|output| output.status.success()) {
            say::skip(&format!(
                "{program} is not here: install Debian's redis-server and redis-tools"
            ));
            return false;
        }
    }
    true
}

/// A port that was free a moment ago.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

/// Looks every few milliseconds until `is_so`; `what` must come true within `PATIENCE`.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let (_open, nothing) = channel::<()>();
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "never: {what}");
        let _ = nothing.recv_timeout(Duration::from_millis(20)); // leaves the processor to the servers
    }
}

/// One server that answers.
pub struct Redis {
    child: Child,
    dir: PathBuf,
    said: Arc<Mutex<String>>,
    /// Of 127.0.0.1.
    pub port: u16,
}

impl Redis {
    /// A server that keeps nothing on disk; `None`: SKIPPED.
    pub fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    /// As `start`, with more options, such as `["--maxmemory", "2mb"]`.
    pub fn start_with(options: &[&str]) -> Option<Self> {
        if !is_here() {
            return None;
        }
        let mut last = String::new();
        for _ in 0..TRIES {
            match Self::on_port(free_port(), options) {
                Ok(server) => return Some(server),
                Err(said) => last = said,
            }
        }
        panic!("redis-server does not start; the last one said:\n{last}");
    }

    /// What it said when it did not start.
    fn on_port(port: u16, options: &[&str]) -> Result<Self, String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("weir-redis-{}-{count}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&dir); // of an earlier process with this id
        std::fs::create_dir_all(&dir).unwrap();
        let mut child = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no", "--dir"])
            .arg(&dir)
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let said = Arc::new(Mutex::new(String::new()));
        let lines = follow(&mut child, Arc::clone(&said));
        let server = Self {
            child,
            dir,
            said,
            port,
        };
        loop {
            match lines.recv_timeout(PATIENCE) {
                Ok(line) if line.contains("Ready to accept connections") => return Ok(server),
                Ok(_) => {}
                // Its output has ended, so it has; or it hangs. Dropping it ends it and clears up.
                Err(_) => return Err(server.said()),
            }
        }
    }

    /// It is killed, and one without its data takes its place.
    pub fn begin_anew(&mut self) {
        let port = self.port;
        let _ = self.child.kill();
        let _ = self.child.wait();
        *self = Self::on_port(port, &[]).unwrap_or_else(|said| panic!("port {port}: {said}"));
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// A new connection whose reads and writes end with an error after `PATIENCE`.
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.addr()).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// What `redis-cli ARGUMENTS` prints, without the last line end; error replies are text like any other.
    pub fn cli(&self, arguments: &[&str]) -> String {
        let output = cli(self.port, arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        text.trim_end_matches('\n').to_owned()
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by name: `STOP`, `CONT`, `KILL`.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args(["-s", name, &self.pid().to_string()])
            .status();
        assert!(sent.unwrap().success());
    }

    /// Its log so far.
    pub fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // SIGKILL: it has nothing to save, and a stopped one must end too.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn cli(port: u16, arguments: &[&str]) -> Output {
    // timeout(1) ends it with 124 when it hangs.
    Command::new("timeout")
        .arg(PATIENCE.as_secs().to_string())
        .args(["redis-cli", "-h", "127.0.0.1", "-p", &port.to_string()])
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Reads a server's output to its end, so that it never waits for us: each line goes to `said` and to the receiver.
fn follow(child: &mut Child, said: Arc<Mutex<String>>) -> Receiver<String> {
    let output = BufReader::new(child.stdout.take().unwrap());
    let (lines, receiver) = channel();
    std::thread::spawn(move || {
        for line in output.lines().map_while(Result::ok) {
            let mut said = said.lock().unwrap();
            said.push_str(&line);
            said.push('\n');
            drop(said);
            let _ = lines.send(line); // nobody listens once it is ready
        }
    });
    receiver
}
