//! `weir torture` as a program: a short run is clean and has met every fault, a planted one is found, and it leaves
//! nothing behind, however it ends.
#![allow(clippy::unwrap_used)] // a test that meets one has failed

use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use weir_io::signals::{self, Signal};

/// Read by the servers of a test build: they say that they commit, and sync nothing.
const SYNCHRONOUS_OFF: &str = "WEIR_PLANT_SYNCHRONOUS_OFF";

fn place(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("torture-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    dir
}

fn torture(dir: &Path, kills: u64) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command
        .args(["torture", "--json", "--seed", "3", "--kills"])
        .arg(kills.to_string())
        .arg("--dir")
        .arg(dir)
        .env_remove(SYNCHRONOUS_OFF);
    command
}

fn report(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)))
}

/// Processes whose command line names `dir`: servers that were left behind.
fn servers_in(dir: &Path) -> usize {
    let name = dir.to_string_lossy().into_owned();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines
        .filter(|line| {
            let line = String::from_utf8_lossy(line);
            line.contains(&name) && line.contains("--config")
        })
        .count()
}

#[test]
fn a_short_run_is_clean_and_meets_every_fault() {
    let dir = place("clean");
    let output = torture(&dir, 16).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let report = report(&output);
    let count = |key: &str| report[key].as_u64().unwrap();
    assert_eq!(count("kills"), 16);
    for zero in ["lost", "oversold", "double_grants", "other_broken"] {
        assert_eq!(count(zero), 0, "{report}");
    }
    for met in [
        "acked",
        "grants",
        "payments",
        "unanswered",
        "unsynced_writes",
        "pauses",
        "clock_jumps",
        "torn_tails",
        "flipped_bits",
    ] {
        assert!(count(met) > 0, "{met}: {report}");
    }
    // Where no file system may be mounted, the report says so, and the watch refused the writes of a full disk.
    let (disks, file_systems) = (count("full_disks"), report["full_disk_by"] == "tmpfs+quota");
    assert_eq!(disks, 1 + u64::from(file_systems), "{report}");
    let not_possible = report["not_possible"].as_array().unwrap();
    assert_eq!(not_possible.is_empty(), file_systems, "{report}");
    assert_eq!((count("sync_errors"), count("write_errors")), (2, 2));
    assert_eq!(count("disk_faults"), 4 + disks);
    // What it does is said before, the verdict last; the directory that it made is gone.
    assert!(
        said.contains(&format!("It works in {} only", dir.display())),
        "{said}"
    );
    assert!(said.ends_with("verdict: every promise held\n"), "{said}");
    assert!(!dir.exists() && servers_in(&dir) == 0);
}

#[test]
fn stores_that_never_sync_are_found() {
    let dir = place("planted");
    let mut command = torture(&dir, 8);
    let output = command.env(SYNCHRONOUS_OFF, "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let report = report(&output);
    assert!(report["lost"].as_u64().unwrap() > 0, "{report}");
    assert!(!report["findings"].as_array().unwrap().is_empty());
    assert!(said.contains("verdict: BROKEN"), "{said}");
    // The evidence is there, and where is said; no server is.
    assert!(
        said.contains(&format!("kept in {}", dir.display())),
        "{said}"
    );
    assert!(fs::read_dir(&dir).unwrap().count() > 0);
    assert_eq!(servers_in(&dir), 0);
    fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_directory_in_use_is_left_as_it_is() {
    let dir = place("used");
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("mine"), "precious").unwrap();
    let output = torture(&dir, 1).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("is not empty and is left as it is"), "{said}");
    assert_eq!(fs::read_to_string(dir.join("mine")).unwrap(), "precious");
    fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_signal_ends_it_and_leaves_neither_servers_nor_files() {
    let dir = place("signal");
    let mut child = torture(&dir, 1_000)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut first = String::new();
    stderr.read_line(&mut first).unwrap();
    assert!(
        first.starts_with("weir torture: kills 1000 servers"),
        "{first}"
    );
    while servers_in(&dir) == 0 {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::yield_now();
    }
    signals::send(child.id(), Signal::Terminate).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(2));
    assert!(!dir.exists());
    // Each dies with the thread that made it; its end takes the kernel a moment.
    while servers_in(&dir) > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn masters_fail_in_a_cluster_of_its_own_only() {
    let dir = place("redis");
    let run = |redis: &str, path: Option<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(["torture", "--redis", redis, "--failovers", "1", "--dir"]);
        command.arg(&dir);
        if let Some(path) = path {
            command.env("PATH", path);
        }
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let said = run("redis://127.0.0.1:6379", None);
    assert!(said.contains("a cluster of its own"), "{said}");
    assert!(!dir.exists());
    let said = run("auto", Some("/nowhere"));
    assert!(said.contains("redis-server is not on the PATH"), "{said}");
    fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn no_configuration_and_no_environment_moves_the_clock_of_weir_serve() {
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["serve", "--shift-ms=5", "--config", "nowhere.toml"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("unexpected argument '--shift-ms'"), "{said}");
    let help = Command::new(env!("CARGO_BIN_EXE_weir"))
        .arg("--help")
        .output()
        .unwrap();
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    assert!(
        help.contains("torture") && !help.contains("torture-clock"),
        "{help}"
    );
}
