//! What an idle connection costs the server: resident memory before and after so many of them.
//!
//! Opens connections to a running weir, sends one request on each (a connection that never asked is closed within
//! seconds), holds them all, reads the server's resident memory, and ends. The limit of open files bounds the client as
//! it bounds a server, so processes of this program share the connections; each is one of `weir_bench`'s clients (`hold`).

mod hold;

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};

const USAGE: &str = "usage:
  weir-idle --url http://ADDRESS/PATH --pid PID [--connections 50000] [--seconds 60]
ADDRESS: the server's, a loopback address and a port; PID: its process; any answer to a GET of PATH will do.
Prints one JSON object {\"connections\",\"rss_start_kib\",\"rss_end_kib\",\"bytes_each\"}; gives up after --seconds";

/// Connections of one process: below its limit of open files almost everywhere, and below one client's most.
const PER_PROCESS_MAX: u32 = 12_500;
/// Descriptors of a process that are no connections.
const SPARE_DESCRIPTORS: u64 = 64;
/// Most connections: four tables of 2^16 ports, far more than one machine needs to tell what each costs.
const CONNECTIONS_MAX: u32 = 262_144;
/// Longest run.
const SECONDS_MAX: u64 = 600;

/// What the command line says.
struct Wanted {
    target: SocketAddr,
    path: String,
    pid: u32,
    connections: u32,
    seconds: u64,
}

impl Wanted {
    fn read(words: &[String]) -> Result<Self, String> {
        let (mut url, mut pid, mut connections, mut seconds) = (None, None, 50_000, 60);
        for pair in words.chunks(2) {
            let wrong = || format!("{}: not understood\n{USAGE}", pair.join(" "));
            let [name, value] = pair else {
                return Err(wrong());
            };
            match name.as_str() {
                "--url" => url = Some(value.clone()),
                "--pid" => pid = Some(value.parse().map_err(|_| wrong())?),
                "--connections" => connections = value.parse().map_err(|_| wrong())?,
                "--seconds" => seconds = value.parse().map_err(|_| wrong())?,
                _ => return Err(wrong()),
            }
        }
        if !(1..=CONNECTIONS_MAX).contains(&connections) {
            return Err(format!(
                "--connections {connections}: must be 1..={CONNECTIONS_MAX}"
            ));
        }
        if !(1..=SECONDS_MAX).contains(&seconds) {
            return Err(format!("--seconds {seconds}: must be 1..={SECONDS_MAX}"));
        }
        let url = url.ok_or_else(|| format!("--url is missing\n{USAGE}"))?;
        let (target, path) = address(&url)?;
        Ok(Self {
            target,
            path,
            pid: pid.ok_or_else(|| format!("--pid is missing\n{USAGE}"))?,
            connections,
            seconds,
        })
    }
}

/// Address and path of a URL like `http://127.0.0.1:8080/idle`.
fn address(url: &str) -> Result<(SocketAddr, String), String> {
    let wrong = || format!("--url {url}: must be like http://127.0.0.1:8080/idle");
    let rest = url.strip_prefix("http://").ok_or_else(wrong)?;
    let (address, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let target: SocketAddr = address.parse().map_err(|_| wrong())?;
    if !target.is_ipv4() || !target.ip().is_loopback() {
        return Err(format!(
            "--url {url}: only 127.0.0.0/8 is measured: many connections are an attack on other machines"
        ));
    }
    if !path.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(wrong());
    }
    let path = if path.is_empty() { "/" } else { path };
    Ok((target, path.to_owned()))
}

/// Resident memory of `pid`, KiB.
fn resident_kib(pid: u32) -> Result<u64, String> {
    let file = format!("/proc/{pid}/status");
    let text = std::fs::read_to_string(&file).map_err(|error| {
        format!("{file}: {error}; is --pid {pid} the server's, and does it run?")
    })?;
    text.lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.split_ascii_whitespace().next()?.parse().ok())
        .ok_or_else(|| format!("{file} has no VmRSS: {pid} is no process of a program"))
}

/// One process that holds a share of the connections until its standard input ends.
struct Holder {
    process: Child,
    words: BufReader<ChildStdout>,
    connections: u32,
}

impl Holder {
    fn start(wanted: &Wanted, connections: u32) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|error| format!("own path: {error}"))?;
        let mut process = Command::new(&program)
            .arg("hold")
            .args([wanted.target.to_string(), wanted.path.clone()])
            .args([connections.to_string(), wanted.seconds.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{}: {error}", program.display()))?;
        let words = process.stdout.take().expect("it was asked for a pipe");
        Ok(Self {
            process,
            words: BufReader::new(words),
            connections,
        })
    }

    /// Waits until all of them are answered. The process itself gives up in time.
    fn held(&mut self) -> Result<(), String> {
        let mut line = String::new();
        let read = self.words.read_line(&mut line);
        match read {
            Ok(_) if line == hold::HELD => Ok(()),
            _ => Err(format!(
                "not all of {} connections could be opened: see above",
                self.connections
            )),
        }
    }

    /// Lets the connections go; an error when one of them had ended before.
    fn end(mut self) -> Result<(), String> {
        drop(self.process.stdin.take());
        match self.process.wait() {
            Ok(status) if status.success() => Ok(()),
            Ok(_) => Err("connections ended while all were held: see above".to_owned()),
            Err(error) => Err(format!("a process of this program: {error}")),
        }
    }
}

/// Holds all connections and measures.
fn measure(wanted: &Wanted) -> Result<String, String> {
    let limit = weir_io::rlimit::raise_open_files().map_err(|error| error.to_string())?;
    let room = limit.soft.saturating_sub(SPARE_DESCRIPTORS);
    let most = u32::try_from(room).unwrap_or(u32::MAX).min(PER_PROCESS_MAX);
    if most == 0 {
        return Err(format!(
            "{} open files are too few for a client: raise `ulimit -n`",
            limit.soft
        ));
    }
    let start_kib = resident_kib(wanted.pid)?;
    let mut holders = Vec::new();
    let mut left = wanted.connections;
    while left > 0 {
        let share = left.min(most);
        holders.push(Holder::start(wanted, share)?);
        left -= share;
    }
    // A holder that is dropped closes its standard input, and so ends its process.
    holders.iter_mut().try_for_each(Holder::held)?;
    let end_kib = resident_kib(wanted.pid)?;
    holders.into_iter().try_for_each(Holder::end)?;
    let each = end_kib.saturating_sub(start_kib) * 1024 / u64::from(wanted.connections);
    Ok(format!(
        "{{\"connections\":{},\"rss_start_kib\":{start_kib},\"rss_end_kib\":{end_kib},\"bytes_each\":{each}}}",
        wanted.connections
    ))
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match words.split_first() {
        Some((first, rest)) if first == "hold" => hold::run(rest),
        _ => Wanted::read(&words).and_then(|wanted| {
            println!("{}", measure(&wanted)?);
            Ok(())
        }),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("weir-idle: {message}");
            ExitCode::from(2)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_urls_of_this_machine_are_taken() {
        let (target, path) = address("http://127.0.0.1:80/a/b").unwrap();
        assert_eq!((target.port(), path.as_str()), (80, "/a/b"));
        assert_eq!(address("http://127.2.0.1:80").unwrap().1, "/");
        for wrong in [
            "https://127.0.0.1:80/",
            "http://127.0.0.1/",
            "http://192.0.2.1:80/",
            "http://127.0.0.1:80/a b",
        ] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn resident_memory_is_read_of_processes_that_there_are() {
        assert!(resident_kib(std::process::id()).unwrap() > 100);
        let none = resident_kib(u32::MAX).unwrap_err();
        assert!(none.contains("--pid"), "{none}");
    }
}
