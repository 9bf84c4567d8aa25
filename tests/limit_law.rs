//! The law of Retry-After over real HTTP, for each kind of rule (C6): who was told to wait r is refused before r and let
//! in at r. A late arrival cannot falsify the second half; the first is judged only when the client's own clock shows
//! that the server must have decided before r (the exact instants are in weir-core's `limit_model.rs`). And a change of
//! policy by the operator while buyers come.
#![allow(clippy::unwrap_used)] // helpers of tests are tests too

#[path = "bad_input_world/mod.rs"]
mod bad_input_world;
#[path = "support/say.rs"]
mod say;

use bad_input_world::*;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Refusals that are followed up, per kind.
const ROUNDS: u32 = 6;
/// Tries that the machine may spoil by being slow, per kind.
const VOID_MAX: u32 = 200;
/// How long before its time the early call is sent.
const EARLY: Duration = Duration::from_millis(40);

/// The client does what it was told: nothing, for a while.
fn wait(duration: Duration) {
    let (_open, nothing) = channel::<()>();
    assert_eq!(
        nothing.recv_timeout(duration),
        Err(RecvTimeoutError::Timeout)
    );
}

/// One user who submits again and again, each time with a ticket and request id of its own.
struct Client {
    buyer: Buyer,
    wire: Wire,
    calls: u32,
}

impl Client {
    fn call(&mut self) -> Answer {
        self.calls += 1;
        let id = format!("\"request_id\":\"law-{:08}\",", self.calls);
        let submit = Submit {
            body: body(7, &id),
            ..self.buyer.submit(7)
        };
        let bytes = self.buyer.bytes(&submit);
        self.wire.ask(&bytes)
    }

    /// Calls until refused; the wait that was told, and an instant before the decision.
    fn until_refused(&mut self) -> (Answer, Instant) {
        loop {
            let before = Instant::now();
            let answer = self.call();
            if answer.status == 429 {
                return (answer, before);
            }
        }
    }
}

/// The exact wait in the body; the headers must agree with it.
fn told(answer: &Answer) -> Duration {
    let wait_ms = answer.json()["retry_after_ms"].as_u64().unwrap();
    let retry_after: u64 = answer.field("Retry-After").unwrap().parse().unwrap();
    assert!(
        wait_ms > 0 && retry_after == wait_ms.div_ceil(1_000),
        "{answer:?}"
    );
    let policy = answer.field("RateLimit-Policy").unwrap();
    assert_eq!(
        policy, "\"user\";q=2;w=1",
        "2 per half a second, in whole seconds"
    );
    let left = answer.field("RateLimit").unwrap();
    assert_eq!(left, format!("\"user\";r=0;t={retry_after}"));
    Duration::from_millis(wait_ms)
}

fn law(policy: &str) {
    let shop = Shop::new(&format!("law-{policy}"));
    shop.edit("stock = 100", "stock = 100000");
    let limit = "user_rate = \"4/s\"\nuser_burst = 2";
    shop.set("limits", &format!("{limit}\nuser_policy = \"{policy}\""));
    let server = shop.start();
    server.until_ready_is(200);
    let mut client = Client {
        buyer: Buyer::of(&shop),
        wire: server.wire(),
        calls: 0,
    };
    let (mut early, mut due, mut void) = (0, 0, 0);
    while early < ROUNDS || due < ROUNDS {
        assert!(
            void < VOID_MAX,
            "{policy}: this machine is too slow to come early"
        );
        let (refused, before) = client.until_refused();
        let first = told(&refused);
        wait(
            first
                .saturating_sub(before.elapsed() + EARLY)
                .max(Duration::from_micros(1)),
        );
        let again = client.call();
        let heard = Instant::now();
        // The body's wait is rounded up by less than a millisecond.
        let surely_early = heard.duration_since(before) + Duration::from_millis(1) < first;
        if !surely_early {
            void += 1;
            continue;
        }
        assert_eq!(again.status, 429, "{policy}: refused before its time");
        let rest = told(&again);
        assert!(rest <= first, "{policy}: a refusal lengthens no wait");
        early += 1;
        wait(
            rest.saturating_sub(heard.elapsed())
                .max(Duration::from_micros(1)),
        ); // from the answer on: never too short
        let late = client.call();
        assert_ne!(late.status, 429, "{policy}: let in at its time");
        due += 1;
    }
    server.stop();
    say::say(&format!(
        "Retry-After over HTTP: {policy}: {early} early calls refused, {due} calls at their time let in, {void} void"
    ));
}

#[test]
fn gcra_keeps_the_law() {
    law("gcra");
}

#[test]
fn the_fixed_window_keeps_the_law() {
    law("fixed-window");
}

#[test]
fn the_sliding_log_keeps_the_law() {
    law("sliding-log");
}

#[test]
fn the_sliding_counter_keeps_the_law() {
    law("sliding-counter");
}

#[test]
fn the_leaky_bucket_keeps_the_law() {
    law("leaky-bucket");
}

/// Calls in a row that pass before one is refused.
fn passing(client: &mut Client) -> u32 {
    let before = client.calls;
    client.until_refused();
    client.calls - before - 1
}

#[test]
fn an_operator_changes_a_budget_while_it_sells_and_an_older_version_is_refused() {
    let shop = Shop::new("law-budget");
    shop.edit("# budget = \"40000/s\"", "budget = \"30/s\"");
    let server = shop.start();
    server.until_ready_is(200);
    let change = |sku: u64, body: &str| {
        server.post_ops(&format!("/ops/v1/activities/1/skus/{sku}/budget"), body)
    };
    let shown = |wanted: &str| {
        let page = server.get_ops("/metrics").body;
        let rate = "seckill_admission_rate_limit{activity_id=\"1\",sku_id=\"1\"} ";
        let line = page.lines().find_map(|line| line.strip_prefix(rate));
        assert_eq!(line, Some(wanted));
    };
    shown("30.000");
    let done = change(1, r#"{"version":4,"rate":"0.5/s","actor":"alice"}"#);
    assert_eq!(
        (done.status, done.code()),
        (200, "OK".to_owned()),
        "{done:?}"
    );
    assert_eq!(done.json()["rate_per_s"], 0.5);
    shown("0.500");
    let older = change(1, r#"{"version":3,"rate":"900/s"}"#);
    assert_eq!(
        (older.status, &*older.code()),
        (400, "INVALID_ARGUMENT"),
        "{older:?}"
    );
    let same = change(1, r#"{"version":4,"rate":"900/s"}"#);
    assert_eq!(same.json()["rate_per_s"], 0.5, "what holds: {same:?}");
    shown("0.500");
    // What is saved is little, and no more comes in: most of many buyers are refused.
    let mut client = Client {
        buyer: Buyer::of(&shop),
        wire: server.wire(),
        calls: 0,
    };
    let mut refused = 0;
    for user in 1..=200 {
        client
            .wire
            .send(&client.buyer.bytes(&client.buyer.submit(user)));
        refused += u64::from(client.wire.answer().code() == "SYSTEM_OVERLOADED");
    }
    assert!(refused > 100, "{refused}");
    for body in [
        r#"{"version":5}"#,
        r#"{"rate":"5/s"}"#,
        r#"{"version":0,"rate":"5/s"}"#,
        r#"{"version":5,"rate":"fast"}"#,
        r#"{"version":5,"rate":"5/s","weights":0}"#,
    ] {
        assert_eq!(change(1, body).status, 400, "{body}");
    }
    assert_eq!(change(9, r#"{"version":5,"rate":"5/s"}"#).status, 404);
    let audit = std::fs::read_to_string(shop.plan().ops.audit_log).unwrap();
    let results: Vec<&str> = ["ASKED", "DONE", "REFUSED"]
        .into_iter()
        .filter(|result| audit.contains(&format!("\"result\":\"{result}\"")))
        .collect();
    assert_eq!(results, ["ASKED", "DONE", "REFUSED"], "{audit}");
    assert_eq!(
        audit.lines().count(),
        6,
        "three changes, two lines each: {audit}"
    );
    server.stop();
}

#[test]
fn an_operator_changes_a_limit_while_it_runs_and_each_buyer_keeps_what_was_earned() {
    let shop = Shop::new("law-change");
    shop.edit("stock = 100", "stock = 100000");
    let limits = "user_rate = \"2/h\"\nuser_burst = 2\ndevice_policy = \"sliding-log\"";
    shop.set("limits", limits);
    let server = shop.start();
    server.until_ready_is(200);
    let change =
        |dimension: &str, body: &str| server.post_ops(&format!("/ops/v1/limits/{dimension}"), body);
    let mut client = Client {
        buyer: Buyer::of(&shop),
        wire: server.wire(),
        calls: 0,
    };
    assert_eq!(passing(&mut client), 2);
    let done = change("user", r#"{"rate":"5/h","burst":5,"actor":"alice"}"#);
    assert_eq!(
        (done.status, done.code()),
        (200, "OK".to_owned()),
        "{done:?}"
    );
    assert_eq!(done.json()["policy"], "gcra");
    let applied = "weir_limiter_policy_changes_total{dimension=\"user\"} 1";
    let until = Instant::now() + PATIENCE;
    while !server.get_ops("/metrics").body.contains(applied) {
        assert!(Instant::now() < until, "the shard applies the change");
    }
    assert_eq!(
        passing(&mut client),
        3,
        "the difference, and no fresh burst"
    );
    assert_eq!(change("user", r#"{"rate":"5/h","burst":5}"#).status, 200);
    assert_eq!(passing(&mut client), 0, "the same again changes nothing");
    for (dimension, body, code) in [
        ("user", r#"{"rate":"5/h"}"#, "INVALID_ARGUMENT"),
        ("user", r#"{"rate":"fast","burst":5}"#, "INVALID_ARGUMENT"),
        ("user", r#"{"rate":"5/h","burst":0}"#, "INVALID_ARGUMENT"),
        ("device", r#"{"rate":"5/h","burst":50}"#, "INVALID_ARGUMENT"), // a log has room for its first burst
    ] {
        let refused = change(dimension, body);
        assert_eq!(
            (refused.status, &*refused.code()),
            (400, code),
            "{body}: {refused:?}"
        );
    }
    assert_eq!(change("route", "{}").status, 404);
    let audit = std::fs::read_to_string(shop.plan().ops.audit_log).unwrap();
    let lines: Vec<&str> = audit.lines().collect();
    assert_eq!(lines.len(), 4, "two changes, each asked and done: {audit}");
    assert!(
        lines[0].contains("\"alice\"") && lines[0].contains("user 5/h 5"),
        "{audit}"
    );
    server.stop();
}
