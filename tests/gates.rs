//! The gates on the built program, over real sockets: limits by source (A2), deny-lists and bans (A6), live.

#![allow(clippy::unwrap_used)] // helpers of tests are tests too

mod bad_input_world;

use bad_input_world::*;
use std::time::{Duration, Instant};

fn post(running: &Running, path: &str, body: &str) -> Answer {
    running.ops(&format!(
        "POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        running.ops,
        body.len()
    ))
}

/// Asks until the answer is as wanted: mail reaches a shard an instant after the operator's answer.
fn until(what: &str, mut ask: impl FnMut() -> Answer, wanted: impl Fn(&Answer) -> bool) -> Answer {
    let end = Instant::now() + PATIENCE;
    loop {
        let answer = ask();
        if wanted(&answer) {
            return answer;
        }
        assert!(Instant::now() < end, "{what}: {answer:?}");
    }
}

fn metric(running: &Running, line: &str) -> Option<u64> {
    let page = running.get_ops("/metrics").body;
    let found = page.lines().find_map(|text| text.strip_prefix(line));
    found.map(|value| value.trim().parse().unwrap())
}

fn until_metric(running: &Running, line: &str, wanted: u64) {
    let end = Instant::now() + PATIENCE;
    while metric(running, line) != Some(wanted) {
        assert!(
            Instant::now() < end,
            "{line} is {:?}",
            metric(running, line)
        );
    }
}

#[test]
fn a_deny_list_is_live_survives_a_restart_and_lets_in_again() {
    let shop = Shop::new("deny");
    shop.set("deny", "users = [\"66\"]");
    let running = shop.start();
    let buyer = Buyer::of(&shop);
    let mut wire = running.wire();
    let won = buyer.submit(1);
    assert_eq!(wire.ask(&buyer.bytes(&won)).status, 202);
    let denied = wire.ask(&buyer.bytes(&buyer.submit(66)));
    assert_eq!(
        (denied.status, denied.code().as_str()),
        (403, "ACCESS_DENIED")
    );

    let added = post(&running, "/ops/v1/deny/add", r#"{"user_id":1}"#);
    assert_eq!(
        (added.status, added.json()["entries"].as_u64()),
        (200, Some(2))
    );
    let again = buyer.bytes(&buyer.submit(1));
    until(
        "user denied",
        || wire.ask(&again),
        |answer| answer.status == 403,
    );
    assert_eq!(
        wire.ask(&buyer.status(&won)).status,
        200,
        "who holds a unit can ask"
    );

    let body = r#"{"network":"127.0.0.0/8"}"#;
    assert_eq!(post(&running, "/ops/v1/deny/add", body).status, 200);
    let at_the_door = until(
        "address denied",
        || running.wire().ask(GOOD),
        |answer| answer.status == 403,
    );
    assert_eq!(at_the_door.code(), "ACCESS_DENIED");
    assert!(at_the_door.closes());
    assert_eq!(
        wire.ask(&buyer.status(&won)).status,
        403,
        "also on an open connection"
    );
    running.stop();

    let running = shop.start();
    let mut wire = running.wire();
    assert_eq!(wire.answer().status, 403, "told before it asks");
    wire.assert_ended();
    for body in [body, r#"{"user_id":1}"#, r#"{"user_id":66}"#] {
        let removed = post(&running, "/ops/v1/deny/remove", body);
        assert_eq!(removed.json()["changed"], true, "{removed:?}");
    }
    until(
        "let in",
        || running.wire().ask(GOOD),
        |answer| answer.status == 404,
    );
    let let_in = buyer.bytes(&buyer.submit(66));
    until(
        "user let in",
        || running.wire().ask(&let_in),
        |answer| answer.status == 202,
    );
    let audit = std::fs::read_to_string(shop.path("data/audit.jsonl")).unwrap();
    assert!(audit.contains("\"subject\":\"user b3:") && !audit.contains("\"user 66\""));
    running.stop();
}

#[test]
fn a_source_over_its_limits_is_told_and_nothing_is_left_over() {
    let shop = Shop::new("source");
    shop.set("server", "conns_per_source_max = 4");
    let running = shop.start();
    let mut inside: Vec<Wire> = (0..4).map(|_| running.wire()).collect();
    assert!(inside.iter_mut().all(Wire::still_answers));
    let mut fifth = running.wire();
    let told = fifth.answer();
    assert_eq!((told.status, told.code().as_str()), (429, "RATE_LIMITED"));
    assert_eq!(told.field("Retry-After"), Some("1"));
    assert!(told.closes());
    fifth.assert_ended();
    assert!(
        inside.iter_mut().all(Wire::still_answers),
        "the others stay"
    );
    assert_eq!(metric(&running, "weir_connections_counted "), Some(4));
    inside.pop();
    until(
        "a place is free",
        || running.wire().ask(GOOD),
        |answer| answer.status == 404,
    );
    drop((inside, fifth));
    for gauge in [
        "weir_connections_open ",
        "weir_connections_counted ",
        "weir_connection_sources ",
        "weir_connections_turned_away_open ",
    ] {
        until_metric(&running, gauge, 0);
    }
    let refused =
        r#"seckill_ingress_requests_total{stage="ip",decision="REJECT",reason="limited_conns"} "#;
    assert!(metric(&running, refused).unwrap() >= 1);
    running.stop();
}

#[test]
fn who_keeps_ignoring_429_is_refused_until_an_operator_or_time_lets_back() {
    let shop = Shop::new("ban");
    shop.set(
        "limits",
        "user_rate = \"1/m\"\nuser_burst = 1\nban_strikes = 2\nban_first = \"10m\"\nban_max = \"10m\"",
    );
    let running = shop.start();
    let buyer = Buyer::of(&shop);
    let mut wire = running.wire();
    assert_eq!(wire.ask(&buyer.bytes(&buyer.submit(1))).status, 202);
    let mut request = 0;
    let mut next = |user: u64| {
        request += 1;
        let mut submit = buyer.submit(user);
        submit.body = body(user, &format!("\"request_id\":\"again-{request:06}\","));
        buyer.bytes(&submit)
    };
    let banned = until(
        "banned",
        || wire.ask(&next(1)),
        |answer| answer.status != 429,
    );
    assert_eq!(
        (banned.status, banned.code().as_str()),
        (403, "TEMPORARILY_BANNED")
    );
    let wait_s: u64 = banned.field("Retry-After").unwrap().parse().unwrap();
    assert!((590..=600).contains(&wait_s), "{banned:?}");
    assert!(
        Duration::from_secs(wait_s) > PATIENCE,
        "time alone does not end it here"
    );
    assert_eq!(
        wire.ask(&next(2)).status,
        202,
        "another user of the same address"
    );
    assert_eq!(
        metric(&running, "weir_bans_active{dimension=\"user\"} "),
        Some(1)
    );
    assert_eq!(
        post(&running, "/ops/v1/bans/lift", r#"{"user_id":1}"#).status,
        200
    );
    until(
        "lifted",
        || wire.ask(&next(1)),
        |answer| answer.status == 429,
    );
    assert_eq!(
        metric(&running, "weir_bans_lifted_total{dimension=\"user\"} "),
        Some(1)
    );
    running.stop();
}
