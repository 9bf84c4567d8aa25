//! Real Redis servers for tests: `weir::private_redis`, where a failure is a failed test.
//!
//! Where `redis-server` or `redis-cli` is missing, a start prints SKIPPED with the reason (a failure where CI=true) and
//! gives `None`.
#![allow(dead_code, clippy::unwrap_used)] // each test binary uses what it needs; a test that meets one has failed

use std::net::TcpStream;
use std::ops::Deref;
use std::process::{Command, Stdio};
use weir::private_redis::{self, Server};
use weir_io::signals::Signal;

pub mod cluster;
pub mod link;
#[path = "../support/say.rs"]
pub mod say;

pub use private_redis::PATIENCE;

/// True when the programs are here; otherwise says SKIPPED.
pub fn is_here() -> bool {
    let cli = Command::new("redis-cli").arg("--version").output();
    let missing = match private_redis::is_here() {
        Err(error) => error.to_string(),
        Ok(()) if !cli.is_ok_and(|output| output.status.success()) => {
            "redis-cli is not here: install Debian's redis-tools".to_owned()
        }
        Ok(()) => return true,
    };
    say::skip(&missing);
    false
}

/// A port that was free a moment ago.
pub fn free_port() -> u16 {
    private_redis::free_port().unwrap()
}

/// Looks every few milliseconds until `is_so`; `what` must come true within `PATIENCE`.
pub fn until(what: &str, is_so: impl FnMut() -> bool) {
    private_redis::until(what, is_so).unwrap();
}

/// One server that answers.
pub struct Redis(Server);

impl Deref for Redis {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.0
    }
}

impl Redis {
    /// A server that keeps nothing on disk; `None`: SKIPPED.
    pub fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    /// As `start`, with more options, such as `["--maxmemory", "2mb"]`.
    pub fn start_with(options: &[&str]) -> Option<Self> {
        is_here().then(|| Self(Server::start(options).unwrap()))
    }

    /// It is killed, and one without its data takes its place.
    pub fn begin_anew(&mut self) {
        self.0.begin_anew().unwrap();
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
        // timeout(1) ends it with 124 when it hangs.
        let output = Command::new("timeout")
            .arg(PATIENCE.as_secs().to_string())
            .args(["redis-cli", "-h", "127.0.0.1", "-p"])
            .arg(self.port.to_string())
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        text.trim_end_matches('\n').to_owned()
    }

    /// Sends a signal by name: `STOP`, `CONT`, `KILL`.
    pub fn signal(&self, name: &str) {
        let signal = match name {
            "STOP" => Signal::Pause,
            "CONT" => Signal::Resume,
            "KILL" => Signal::Kill,
            _ => panic!("{name}"),
        };
        self.0.signal(signal).unwrap();
    }
}
