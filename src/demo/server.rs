//! The server of the demo and of torture runs: this very program as a process of its own, watched from outside.

use super::DemoError;
use super::limits::{SERVER_LINES_MAX, SERVER_START_MS, SERVER_STOP_MS};
use crate::ops::process::cpu_us;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use weir_io::signals::{self, Signal};

/// What the server is expected to say when it serves.
const SERVING: &str = "serving http://";

type LastLines = Arc<Mutex<VecDeque<String>>>;

/// A running server; killed when it is dropped before it was stopped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    lines: LastLines,
    hears: Receiver<String>,
    /// Where buyers come in.
    pub listen: SocketAddr,
    /// Where the operator comes in.
    pub ops: SocketAddr,
}

impl Server {
    /// Starts `weir COMMAND --config CONFIG` and waits until it serves. `cpu`: the only core of the whole process.
    /// # Errors
    /// It does not start; with its own words.
    pub fn start(name: &str, config: &Path, cpu: Option<usize>) -> Result<Self, DemoError> {
        let program = std::env::current_exe().map_err(DemoError::input)?;
        let mut command = Command::new(program);
        command.arg(name).arg("--config").arg(config);
        command.stdin(Stdio::null());
        let mut server = Self::launch(command, cpu)?;
        server.wait_until_serving()?;
        Ok(server)
    }

    /// Starts `command`, a server; it does not serve yet. `cpu`: the only core of the whole process; without one, it is
    /// started by the calling thread itself.
    /// # Errors
    /// No process can be started.
    pub fn launch(mut command: Command, cpu: Option<usize>) -> Result<Self, DemoError> {
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = spawn_on(cpu, command)?;
        let (said, hears) = channel();
        let lines = LastLines::default();
        if let Some(stderr) = child.stderr.take() {
            let lines = Arc::clone(&lines);
            let listen = move || listen_to(BufReader::new(stderr), &lines, &said);
            std::thread::spawn(listen);
        }
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        Ok(Self {
            child,
            lines,
            hears,
            listen: nowhere,
            ops: nowhere,
        })
    }

    /// Waits for its first word: then it has its addresses.
    /// # Errors
    /// It ended, or is silent for too long; with its own words.
    pub fn wait_until_serving(&mut self) -> Result<(), DemoError> {
        let until = Instant::now() + Duration::from_millis(SERVER_START_MS);
        let left = || until.saturating_duration_since(Instant::now());
        while let Ok(line) = self.hears.recv_timeout(left()) {
            if let Some(addresses) = addresses(&line) {
                (self.listen, self.ops) = addresses;
                return Ok(());
            }
        }
        Err(DemoError::Input(format!(
            "the server does not start:\n{}",
            self.last_words()
        )))
    }

    /// The last lines of its standard error.
    pub fn last_words(&self) -> String {
        match self.lines.lock() {
            Ok(lines) => lines
                .iter()
                .fold(String::new(), |all, line| all + "  " + line + "\n"),
            Err(_) => String::new(),
        }
    }

    /// Its end, when it ended by itself.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Its process id; until it was seen to have ended, it is nobody else's.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it reads, when `launch` was given a pipe; once.
    pub fn take_stdin(&mut self) -> Option<std::process::ChildStdin> {
        self.child.stdin.take()
    }

    /// Waits until it has ended.
    /// # Errors
    /// Whatever the system says; not expected.
    pub fn wait(&mut self) -> std::io::Result<ExitStatus> {
        self.child.wait()
    }

    /// CPU time of the whole process so far, microseconds; 0 when it cannot be read.
    pub fn cpu_us(&self) -> u64 {
        cpu_us(self.child.id()).unwrap_or(0)
    }

    /// One request of the operator; the body of a 200.
    /// # Errors
    /// No connection, or another status.
    pub fn operate(&self, path: &str, body: &str) -> Result<String, DemoError> {
        self.ask_ops("POST", path, body)
    }

    /// The page of its metrics.
    /// # Errors
    /// No connection, or another status.
    pub fn metrics(&self) -> Result<String, DemoError> {
        self.ask_ops("GET", "/metrics", "")
    }

    fn ask_ops(&self, method: &str, path: &str, body: &str) -> Result<String, DemoError> {
        let ask = || -> std::io::Result<String> {
            let patience = Duration::from_secs(10);
            let mut socket = TcpStream::connect_timeout(&self.ops, patience)?;
            socket.set_read_timeout(Some(patience))?;
            write!(
                socket,
                "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                self.ops,
                body.len(),
            )?;
            let mut text = String::new();
            socket.read_to_string(&mut text)?;
            Ok(text)
        };
        let text =
            ask().map_err(|error| DemoError::Input(format!("operator's {path}: {error}")))?;
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        if head.starts_with("HTTP/1.1 200") {
            return Ok(body.to_owned());
        }
        let status = head.lines().next().unwrap_or_default();
        Err(DemoError::Input(format!(
            "operator's {path}: {status}: {body}"
        )))
    }

    /// SIGTERM; then it must end by itself in time with exit code 0. What is wrong with its end, if anything.
    pub fn stop(mut self) -> Option<String> {
        if let Err(error) = signals::send(self.child.id(), Signal::Terminate) {
            return Some(format!("the server cannot be stopped: {error}"));
        }
        let until = Instant::now() + Duration::from_millis(SERVER_STOP_MS);
        while Instant::now() < until {
            match self.ended() {
                Some(status) if status.success() => return None,
                Some(status) => {
                    return Some(format!(
                        "the server ended with {status}:\n{}",
                        self.last_words()
                    ));
                }
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        }
        Some(format!(
            "the server did not end within {} s of SIGTERM",
            SERVER_STOP_MS / 1_000
        ))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.ended().is_none() {
            // The demo failed half way: nothing of it may be left running.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// A child has the cores of the thread that starts it.
fn spawn_on(cpu: Option<usize>, mut command: Command) -> Result<Child, DemoError> {
    let mut spawn = move || {
        command
            .spawn()
            .map_err(|error| DemoError::Input(format!("the server cannot be started: {error}")))
    };
    let Some(cpu) = cpu else {
        return spawn();
    };
    let start = move || {
        weir_io::affinity::pin_this_thread(cpu).map_err(DemoError::input)?;
        spawn()
    };
    let thread = std::thread::Builder::new()
        .name("weir-demo-start".into())
        .spawn(start);
    let started = thread.map_err(DemoError::input)?.join();
    started.unwrap_or_else(|_| Err(DemoError::Input("the starting thread panicked".to_owned())))
}

fn listen_to(stderr: impl BufRead, lines: &LastLines, said: &Sender<String>) {
    for line in stderr.lines().map_while(Result::ok) {
        if let Ok(mut lines) = lines.lock() {
            if lines.len() == SERVER_LINES_MAX {
                lines.pop_front();
            }
            lines.push_back(line.clone());
        }
        // After the start nobody waits for words any more; the lines above are what is kept.
        let _ = said.send(line);
    }
}

/// `… serving http://ADDR (ops http://ADDR)`.
fn addresses(line: &str) -> Option<(SocketAddr, SocketAddr)> {
    let rest = &line[line.find(SERVING)? + SERVING.len()..];
    let (listen, rest) = rest.split_once(" (ops http://")?;
    Some((listen.parse().ok()?, rest.strip_suffix(')')?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_first_words_name_both_addresses() {
        let found = addresses("weir: serving http://127.0.0.1:8080 (ops http://127.0.0.1:9090)");
        let wanted = (
            "127.0.0.1:8080".parse().unwrap(),
            "127.0.0.1:9090".parse().unwrap(),
        );
        assert_eq!(found, Some(wanted));
        assert_eq!(addresses("weir: 1 shard(s)"), None);
    }
}
