//! The operator's side of the gates on the sim driver: deny-lists, bans, hot keys (A6, C4).

#![allow(clippy::unwrap_used, reason = "test code")]

mod ops_world;

use ops_world::*;
use weir_core::limit::deny::user_hash;
use weir_core::mail::{Addr, BanLift};
use weir_core::stats::{Hot, HotName, HotTable};
use weir_core::time::NS_PER_S;
use weir_proto::ids::UserId;

const ADD: &str = "/ops/v1/deny/add";
const REMOVE: &str = "/ops/v1/deny/remove";
const LIFT: &str = "/ops/v1/bans/lift";

/// The key that the world's listener hashes users with.
const HASH_KEY: [u8; 32] = [3; 32];

fn hash_text(user: u64) -> String {
    let hash = user_hash(&HASH_KEY, UserId(user));
    format!("b3:{}", weir::keys::encode_hex(&hash))
}

#[test]
fn who_is_denied_is_sent_to_every_shard_written_down_and_kept() {
    let mut bench = Bench::new();
    let (status, answer) = bench.post(ADD, r#"{"network":"203.0.113.0/24","actor":"alice"}"#);
    assert_eq!((status, answer["changed"].as_bool()), (200, Some(true)));
    let (_, again) = bench.post(ADD, r#"{"network":"203.0.113.0/24"}"#);
    assert_eq!(again["changed"], false);
    bench.post(ADD, r#"{"user_id":4242}"#);
    let list = bench.part(SHARD).denied.last().unwrap().clone();
    assert!(list.denies_address("203.0.113.9".parse().unwrap()));
    assert!(list.denies_user(UserId(4242), &HASH_KEY));
    assert_eq!(
        bench.part(SHARD).denied.len(),
        2,
        "what changes nothing is not sent"
    );
    assert!(bench.part(Addr::Owner).denied.is_empty());

    let (status, _, body) = bench.get("/ops/v1/deny");
    let page: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(status, 200);
    assert_eq!(page["entries"][0]["value"], "203.0.113.0/24");
    assert_eq!(page["entries"][1]["kind"], "user");
    assert_eq!(page["entries"][1]["from"], "operator");
    let kept = std::fs::read_to_string(bench.dir.join("deny.txt")).unwrap();
    assert!(
        kept.contains("network 203.0.113.0/24\nuser 4242\n"),
        "{kept}"
    );

    // The audit log names the user by the hash, and each act twice.
    let lines = bench.audit_lines();
    assert_eq!(lines.len(), 6);
    assert_eq!(lines[0]["actor"], "alice");
    assert_eq!(lines[1]["result"], "DONE");
    assert_eq!(lines[4]["subject"], format!("user {}", hash_text(4242)));
    assert!(lines.iter().all(|line| !line.to_string().contains("4242")));

    // By the hash that logs and the page of hot keys show.
    let hashed = format!(r#"{{"user_hash":"{}"}}"#, hash_text(77));
    assert_eq!(bench.post(ADD, &hashed).1["changed"], true);
    let list = bench.part(SHARD).denied.last().unwrap().clone();
    assert!(list.denies_user(UserId(77), &HASH_KEY));
    assert_eq!(bench.post(REMOVE, &hashed).1["changed"], true);
    assert_eq!(bench.post(REMOVE, r#"{"user_id":4242}"#).1["entries"], 1);
    assert_eq!(
        bench.post(REMOVE, r#"{"network":"203.0.113.9/32"}"#).1["changed"],
        false
    );
    let list = bench.part(SHARD).denied.last().unwrap().clone();
    assert!(!list.denies_user(UserId(4242), &HASH_KEY));
}

#[test]
fn an_entry_with_a_time_ends_by_itself() {
    let mut bench = Bench::new();
    let (_, answer) = bench.post(ADD, r#"{"network":"2001:db8::/32","ttl_s":30}"#);
    assert!(
        answer["ends_at"].as_str().unwrap().ends_with('Z'),
        "{answer}"
    );
    let denies = |bench: &mut Bench| {
        let list = bench.part(SHARD).denied.last().unwrap().clone();
        list.denies_address("2001:db8::1".parse().unwrap())
    };
    bench.world.run_for(25 * NS_PER_S);
    assert!(denies(&mut bench));
    bench.world.run_for(10 * NS_PER_S);
    assert!(!denies(&mut bench));
    let (_, _, page) = bench.get("/ops/v1/deny");
    assert!(page.contains("\"entries\":[]"), "{page}");
}

#[test]
fn wrong_wishes_are_named_and_change_nothing() {
    let mut bench = Bench::new();
    for (path, body) in [
        (ADD, r#"{}"#),
        (ADD, r#"{"user_id":1,"network":"10.0.0.0/8"}"#),
        (ADD, r#"{"network":"10.0.0.1/8"}"#),
        (ADD, r#"{"network":"everybody"}"#),
        (ADD, r#"{"user_hash":"42"}"#),
        (ADD, r#"{"user_hash":"b3:0011"}"#),
        (ADD, r#"{"device_hash":"raw-device"}"#),
        (ADD, r#"{"user_id":1,"ttl_s":0}"#),
        (ADD, r#"{"all":true}"#),
        (REMOVE, r#"{"user_id":1,"ttl_s":5}"#),
        (LIFT, r#"{"all":false}"#),
        (LIFT, r#"{"device_hash":"b3:AAECAwQFBgcICQoLDA0ODw"}"#),
    ] {
        let (status, answer) = bench.post(path, body);
        assert_eq!(status, 400, "{body}: {answer}");
        assert_eq!(answer["code"], "INVALID_ARGUMENT", "{body}");
    }
    assert!(bench.part(SHARD).denied.is_empty() && bench.part(SHARD).lifts.is_empty());
    assert!(bench.audit_lines().is_empty());
    // A list that cannot be kept is not sent either.
    std::fs::create_dir(bench.dir.join("deny.txt.new")).unwrap();
    let (status, answer) = bench.post(ADD, r#"{"user_id":1}"#);
    assert_eq!(
        (status, answer["code"].as_str()),
        (503, Some("DEPENDENCY_UNAVAILABLE"))
    );
    assert!(bench.part(SHARD).denied.is_empty());
    assert_eq!(bench.audit_lines().last().unwrap()["result"], "FAILED");
}

#[test]
fn bans_are_lifted_one_by_one_or_all() {
    let mut bench = Bench::new();
    for body in [
        r#"{"user_id":7}"#,
        r#"{"network":"198.51.100.0/24"}"#,
        r#"{"all":true,"actor":"bob"}"#,
    ] {
        let (status, answer) = bench.post(LIFT, body);
        assert_eq!(
            (status, answer["action"].as_str()),
            (200, Some("bans_lift"))
        );
    }
    let lifts = &bench.part(SHARD).lifts;
    assert_eq!(lifts[0], BanLift::User(UserId(7)));
    assert!(matches!(lifts[1], BanLift::Network(_)) && lifts[2] == BanLift::All);
}

#[test]
fn hot_keys_of_shards_add_up_within_their_error() {
    let mut bench = Bench::new();
    let hot = |user: u64, count, error| Hot {
        name: HotName::User(user_hash(&HASH_KEY, UserId(user))),
        count,
        error,
    };
    bench.part(SHARD).hot = vec![HotTable {
        dimension: "user",
        seen: 100,
        absent_max: 4,
        keys: vec![hot(1, 5, 1), hot(2, 60, 0)],
    }];
    let (status, _, body) = bench.get("/ops/v1/hot");
    let page: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, page["window_ms"].as_u64()), (200, Some(10_000)));
    let of_shard = &page["shards"][0];
    assert_eq!(of_shard["shard"], "shard-0");
    for users in [&of_shard["hot"][1], &page["all"][1]] {
        assert_eq!(users["dimension"], "user");
        assert_eq!(users["requests"], 100);
        assert_eq!(users["absent_max"], 4);
        assert_eq!(users["keys"][0]["user_hash"], hash_text(2));
        assert_eq!(users["keys"][0]["count"], 60);
        assert_eq!(users["keys"][1]["error"], 1);
    }
    assert_eq!(page["all"][0]["keys"].as_array().unwrap().len(), 0);
}
