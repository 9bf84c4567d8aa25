//! `weir-idle` against the null server: its object, and what it says when a connection is not held.

#![allow(clippy::unwrap_used)] // a test that meets one has failed

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

/// A null server with room for so many connections; killed when dropped.
struct Server {
    process: Child,
    url: String,
}

impl Server {
    fn start(connections: &str) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_weir-null"))
            .args(["serve", "--connections", connections])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut words = BufReader::new(process.stdout.take().unwrap());
        words.read_line(&mut line).unwrap();
        let url = line.split_ascii_whitespace().nth(1).unwrap().to_owned();
        Self { process, url }
    }

    fn measure(&self, pid: u32, more: [&str; 4]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_weir-idle"))
            .args(["--url", &self.url, "--pid", &pid.to_string()])
            .args(more)
            .output()
            .unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn idle_connections_are_held_and_the_servers_memory_is_told() {
    let server = Server::start("400");
    let of_server = server.process.id();
    let output = server.measure(of_server, ["--connections", "300", "--seconds", "60"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let text = String::from_utf8(output.stdout).unwrap();
    let number = |name: &str| -> u64 {
        let (_, rest) = text.split_once(&format!("\"{name}\":")).unwrap();
        let end = rest.find([',', '}']).unwrap();
        rest[..end].parse().unwrap()
    };
    let (start, end) = (number("rss_start_kib"), number("rss_end_kib"));
    assert_eq!(number("connections"), 300);
    assert!(start > 0 && end >= start, "{text}");
    assert_eq!(number("bytes_each"), (end - start) * 1024 / 300, "{text}");
}

#[test]
fn a_server_without_room_and_a_process_that_is_none_are_told() {
    let server = Server::start("100");
    let of_server = server.process.id();
    let output = server.measure(of_server, ["--connections", "300", "--seconds", "2"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2));
    assert!(said.contains("has the server room"), "{said}");
    assert!(output.stdout.is_empty(), "no figure without all of them");

    let output = server.measure(u32::MAX, ["--connections", "1", "--seconds", "2"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2));
    assert!(said.contains("--pid"), "{said}");
}
