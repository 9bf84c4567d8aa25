//! `weir demo` as a program: a small sale on one and on two shards, and on every driver, keeps every promise, and a planted fault breaks one.

#![allow(clippy::unwrap_used)] // a test may panic

#[path = "support/compiler.rs"]
mod compiler;
#[path = "support/say.rs"]
mod say;

use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output};

const WEIR: &str = env!("CARGO_BIN_EXE_weir");

fn demo(arguments: &[&str]) -> Output {
    let mut command = Command::new(WEIR);
    command.args(["demo", "--json"]).args(arguments);
    command.output().unwrap()
}

/// The object on the last line.
fn report(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().next_back().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {last}\n{}", words(output)))
}

fn words(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A directory that does not exist, in the tests' own place.
fn new_dir(name: &str) -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&dir); // of an earlier run, if any
    dir
}

fn keeps_every_promise(output: &Output, stock: u64) {
    let report = report(output);
    assert!(output.status.success(), "{report:#}\n{}", words(output));
    for sin in [
        "oversold",
        "double_grants",
        "lost_orders",
        "limbo",
        "transport_errors",
        "untold_orders",
        "untrue_ends",
    ] {
        assert_eq!(report[sin], 0, "{sin}: {report:#}");
    }
    let units = |name: &str| report["books"][name].as_u64().unwrap();
    assert_eq!(
        units("total"),
        stock + report["restocked"].as_u64().unwrap()
    );
    assert_eq!(
        units("total"),
        ["free", "held", "sold", "quarantined"]
            .into_iter()
            .map(units)
            .sum::<u64>()
    );
    assert!(units("sold") >= stock * 9 / 10, "{report:#}");
    let kinds = report["kinds"].as_object().unwrap();
    for (kind, told) in kinds {
        assert!(told["count"].as_u64().unwrap() > 0, "nobody was {kind}");
        assert_eq!(told["wrong"], 0, "{kind}: {told}");
    }
    // The answers that only some kinds get were really given.
    for code in [
        "SECKILL_QUEUED",
        "SECKILL_SOLD_OUT",
        "REQUEST_REPLAYED",
        "REQUEST_ID_CONFLICT",
        "ALREADY_PURCHASED",
        "REPLAY_REJECTED",
        "TOKEN_INVALID",
        "TOKEN_EXPIRED",
        "UNAUTHENTICATED",
        "NOT_FOUND",
        "RATE_LIMITED",
        "PAYMENT_ACCEPTED",
        "PAYMENT_REPEATED",
        "PAYMENT_REFUND_DUE",
    ] {
        assert!(
            report["answers"][code].as_u64() > Some(0),
            "no {code}: {report:#}"
        );
    }
    assert!(kinds["returning"]["answers"]["SECKILL_QUEUED"].as_u64() > Some(0));
    for number in ["p50", "p99", "p999", "max"] {
        assert!(report["latency_us"][number].as_u64() > Some(0));
    }
    assert!(report["requests"].as_u64().unwrap() > report["buyers"].as_u64().unwrap());
    assert!(report["server_cpu_us_per_request"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_small_sale_keeps_every_promise_and_its_files_say_the_same() {
    let dir = new_dir("demo-kept");
    let output = demo(&[
        "--buyers",
        "20000",
        "--stock",
        "200",
        "--shards",
        "1",
        "--keep",
        dir.to_str().unwrap(),
    ]);
    keeps_every_promise(&output, 200);
    let orders = rusqlite::Connection::open(dir.join("data/orders.sqlite")).unwrap();
    let number = |sql: &str| {
        orders
            .query_row(sql, [], |row| row.get::<_, u64>(0))
            .unwrap()
    };
    let sold = number("SELECT sum(quantity) FROM orders WHERE state = 'PAID'");
    assert_eq!(report(&output)["books"]["sold"], sold);
    assert_eq!(
        report(&output)["orders"],
        number("SELECT count(*) FROM orders")
    );
    assert!(number("SELECT count(*) FROM orders WHERE state = 'CLOSED'") > 0);
    // The directory is a shop's like any other.
    let config = dir.join("weir.toml");
    let again = Command::new(WEIR)
        .args(["reconcile", "--config"])
        .arg(config)
        .output()
        .unwrap();
    assert!(again.status.success(), "{}", words(&again));
    // It is in use now: a second demo leaves it alone.
    let second = demo(&["--keep", dir.to_str().unwrap()]);
    assert_eq!(second.status.code(), Some(2));
    assert!(
        words(&second).contains("is not empty and is left as it is"),
        "{}",
        words(&second)
    );
}

#[test]
fn the_same_on_two_shards() {
    let output = demo(&[
        "--buyers", "20000", "--stock", "200", "--shards", "2", "--seed", "7",
    ]);
    keeps_every_promise(&output, 200);
    assert_eq!(report(&output)["shards"], 2);
}

/// R66: under a filter that answers EPERM to every io_uring call the whole sale runs on epoll, with the same results.
#[test]
fn where_io_uring_is_refused_the_same_sale_runs_on_epoll() {
    let wrapper = new_dir(&format!("no-uring-{}", std::process::id()));
    compiler::compile("tests/hostile/no_uring.c", &wrapper, &[]);
    let output = Command::new(&wrapper)
        .args(["all", WEIR, "demo", "--json"])
        .args(["--buyers", "20000", "--stock", "200", "--shards", "1"])
        .output()
        .unwrap();
    let _ = std::fs::remove_file(wrapper);
    keeps_every_promise(&output, 200);
    assert_eq!(report(&output)["driver"], "epoll");
    let said = words(&output);
    let why = said
        .lines()
        .find(|line| line.starts_with("weir: runs on epoll, not on uring: io_uring"));
    let why = why.unwrap_or_else(|| panic!("no line says why:\n{said}"));
    println!("{why}");
}

#[test]
fn the_same_on_monoio() {
    let output = demo(&[
        "--buyers", "20000", "--stock", "200", "--driver", "monoio", "--seed", "3",
    ]);
    keeps_every_promise(&output, 200);
    assert_eq!(report(&output)["driver"], "monoio");
}

#[test]
#[cfg(any(debug_assertions, weir_planted))]
fn planted_faults_break_their_promises_and_are_named() {
    for (plant, member, promise) in [
        (
            "double-order",
            "double_grants",
            "second units of one user (double grants)",
        ),
        (
            "lost-order",
            "lost_orders",
            "acknowledged buyers without their order (lost orders)",
        ),
    ] {
        let dir = new_dir(&format!("demo-{plant}"));
        let keep = dir.to_str().unwrap();
        let output = demo(&[
            "--buyers", "2000", "--stock", "100", "--shards", "1", "--plant", plant, "--keep", keep,
        ]);
        assert_eq!(output.status.code(), Some(1), "{plant}: {}", words(&output));
        assert_eq!(report(&output)[member], 1, "{plant}");
        assert!(
            words(&output).contains(&format!("1 {promise}")),
            "{}",
            words(&output)
        );
    }
}

#[test]
fn what_cannot_sell_out_is_refused_with_what_is_allowed() {
    for (arguments, remedy) in [
        (
            ["--buyers", "499", "--stock", "100"],
            "500 to 100000000 buyers are allowed",
        ),
        (["--buyers", "20000", "--stock", "99"], "99"),
    ] {
        let output = demo(&arguments);
        assert_eq!(output.status.code(), Some(2), "{}", words(&output));
        assert!(words(&output).contains(remedy), "{}", words(&output));
    }
}

#[test]
fn two_instances_and_a_worker_on_one_redis_keep_every_promise() {
    if let Err(why) = weir::private_redis::is_here() {
        return say::skip(&why.to_string());
    }
    let output = demo(&[
        "--redis",
        "auto",
        "--instances",
        "2",
        "--buyers",
        "5000",
        "--stock",
        "400",
    ]);
    keeps_every_promise(&output, 400);
    let report = report(&output);
    let budget = &report["budget"];
    let number = |name: &str| budget[name].as_u64().unwrap();
    assert!(number("admitted") <= number("allowed"), "{budget}");
    assert_eq!(budget["by_instance"].as_array().unwrap().len(), 2);
    // Nobody else's Redis is touched, and one instance needs none.
    let output = demo(&["--instances", "2"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(words(&output).contains("--redis"), "{}", words(&output));
}
