//! The operator's listener as clients see it, on the sim driver.

#![allow(clippy::unwrap_used, reason = "test code")]

mod ops_world;

use ops_world::*;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use weir::keys::OpsToken;
use weir::ops::AuditLog;
use weir_core::ask::{Failure, LedgerAnswer, LedgerOp, Mode, Outcome};
use weir_core::limit::lease::ShardId;
use weir_core::mail::Addr;
use weir_core::stats::{Label, Sample};
use weir_core::time::NS_PER_S;
use weir_io::sim::Status;
use weir_proto::answer::Reason;
use weir_proto::ticket::{DeviceClaim, authenticate, device_hash};

const SKU_PATH: &str = "/ops/v1/activities/7/skus/8";

#[test]
fn healthz_says_that_the_process_lives_whatever_the_parts_do() {
    let mut bench = Bench::new();
    bench.part(Addr::Owner).silent = true;
    let (status, head, body) = bench.get("/healthz");
    assert_eq!((status, body.as_str()), (200, "{\"status\":\"ok\"}\n"));
    assert!(head.contains("Content-Type: application/json"));
    let (status, head, body) = bench.send(b"HEAD /healthz HTTP/1.1\r\nHost: [::1]:9090\r\n\r\n");
    assert_eq!((status, body.as_str()), (200, ""));
    assert!(head.contains("Content-Length: 16"), "{head}");
}

#[test]
fn readyz_names_each_part_that_is_not_ready_and_why() {
    let mut bench = Bench::new();
    let (status, _, body) = bench.get("/readyz");
    assert_eq!(
        (status, body.as_str()),
        (200, "{\"ready\":true,\"not_ready\":[]}\n")
    );
    bench.part(SHARD).samples = shard_samples(0);
    bench.part(Addr::Owner).samples[1].value = 1; // poisoned
    bench.part(Addr::Worker).silent = true;
    let (status, _, body) = bench.get("/readyz");
    assert_eq!(status, 503);
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["ready"], false);
    let found: Vec<(&str, &str)> = body["not_ready"]
        .as_array()
        .unwrap()
        .iter()
        .map(|part| {
            (
                part["part"].as_str().unwrap(),
                part["why"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(found.len(), 3, "{found:?}");
    assert_eq!(found[0].0, "shard-0");
    assert!(found[0].1.contains("state of every SKU"));
    assert!(found[1].0 == "owner" && found[1].1.contains("until a restart"));
    assert!(found[2].0 == "worker" && found[2].1.contains("did not answer"));
    // A part that gives no word of its health is not well.
    bench.part(Addr::Owner).samples.clear();
    assert_eq!(bench.get("/readyz").0, 503);
}

#[test]
fn a_silent_part_has_one_question_in_its_box_and_is_asked_again_when_mail_may_be_lost() {
    let mut bench = Bench::new();
    bench.part(Addr::Worker).silent = true;
    for _ in 0..5 {
        assert_eq!(bench.get("/readyz").0, 503);
    }
    assert_eq!(bench.part(Addr::Worker).stats_asks, 1);
    assert_eq!(bench.part(Addr::Owner).stats_asks, 5);
    bench.part(Addr::Worker).silent = false;
    bench.world.run_for(10 * NS_PER_S);
    assert_eq!(bench.get("/readyz").0, 200);
}

/// A strict reader of the text format 0.0.4: values by name and labels; families headed once and kept together.
fn read_metrics(text: &str) -> BTreeMap<String, f64> {
    let mut values = BTreeMap::new();
    let mut family: Option<(String, String)> = None;
    let mut seen = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(!help.is_empty());
            let kind = lines.next().unwrap().strip_prefix("# TYPE ").unwrap();
            let (typed, kind) = kind.split_once(' ').unwrap();
            assert_eq!(typed, name);
            assert!(["counter", "gauge", "histogram"].contains(&kind));
            assert!(!seen.contains(&name.to_owned()), "{name} is headed twice");
            seen.push(name.to_owned());
            family = Some((name.to_owned(), kind.to_owned()));
            assert!(lines.peek().is_some_and(|next| next.starts_with(name)));
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap();
        let (name, labels) = match series.split_once('{') {
            Some((name, rest)) => (name, rest.strip_suffix('}').unwrap()),
            None => (series, ""),
        };
        let (headed, kind) = family.as_ref().unwrap();
        let suffix = name
            .strip_prefix(headed.as_str())
            .expect("a line of its family");
        if kind == "histogram" {
            assert!(["_bucket", "_sum", "_count"].contains(&suffix), "{line}");
        } else {
            assert_eq!(suffix, "", "{line}");
        }
        for pair in labels.split(',').filter(|pair| !pair.is_empty()) {
            let (label, text) = pair.split_once('=').unwrap();
            assert!(
                label
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte == b'_'),
                "{line}"
            );
            assert!(
                text.len() >= 2 && text.starts_with('"') && text.ends_with('"'),
                "{line}"
            );
            const ALLOWED: &[&str] = &[
                "stage",
                "decision",
                "reason",
                "dimension",
                "activity_id",
                "sku_id",
                "mode",
                "instance",
                "result",
                "le",
            ];
            assert!(ALLOWED.contains(&label), "{label} may have too many values");
        }
        let known = values.insert(series.to_owned(), value.parse().unwrap());
        assert!(known.is_none(), "{series} comes twice");
    }
    assert!(text.ends_with('\n'));
    values
}

#[test]
fn metrics_combine_parts_derive_what_follows_and_read_as_the_format_says() {
    let mut bench = Bench::new();
    let reason = |reason, value| Sample {
        name: "seckill_ingress_requests_total",
        label: Label::Reason(reason),
        value,
    };
    let bucket = |bound, value| Sample {
        name: "weir_reply_latency_microseconds_bucket",
        label: Label::BucketUs(bound),
        value,
    };
    bench.part(SHARD).samples.extend([
        reason(Reason::Queued, 5),
        reason(Reason::LimitedUser, 4),
        reason(Reason::BudgetEmpty, 3),
        reason(Reason::ReplayRejected, 2),
        bucket(50, 1),
        bucket(100, 7),
        bucket(u64::MAX, 8),
        well("weir_reply_latency_microseconds_sum", 900),
        well("weir_reply_latency_microseconds_count", 8),
        well("weir_connections_open", 3),
        Sample {
            name: "seckill_soldout_version",
            label: Label::Sku(KEY),
            value: 4,
        },
        Sample {
            name: "seckill_global_lease_remaining",
            label: Label::Shard(ShardId(0)),
            value: 1,
        },
        Sample {
            name: "seckill_global_lease_remaining",
            label: Label::Shard(ShardId(0)),
            value: 2,
        },
        Sample {
            name: "no_such_metric",
            label: Label::None,
            value: 1,
        },
    ]);
    bench.part(Addr::Worker).samples.extend([
        well("weir_connections_open", 4), // summed over parts
        Sample {
            name: "seckill_soldout_version",
            label: Label::Sku(KEY),
            value: 9,
        }, // the newest copy counts
    ]);
    let (status, head, body) = bench.get("/metrics");
    assert_eq!(status, 200);
    assert!(head.contains("Content-Type: text/plain; version=0.0.4; charset=utf-8"));
    let values = read_metrics(&body);
    for (series, value) in [
        (
            r#"seckill_ingress_requests_total{stage="answer",decision="ADMIT",reason="queued"}"#,
            5.0,
        ),
        (
            r#"seckill_rejected_requests_total{stage="user",reason="limited_user"}"#,
            4.0,
        ),
        (
            r#"seckill_rejected_requests_total{stage="budget",reason="budget_empty"}"#,
            3.0,
        ),
        (r#"seckill_load_shed_total{reason="budget_empty"}"#, 3.0),
        (r#"seckill_replay_claim_total{result="claimed"}"#, 5.0),
        (r#"seckill_replay_claim_total{result="rejected"}"#, 2.0),
        (r#"weir_reply_latency_microseconds_bucket{le="50"}"#, 1.0),
        (r#"weir_reply_latency_microseconds_bucket{le="+Inf"}"#, 8.0),
        ("weir_reply_latency_microseconds_sum", 900.0),
        ("weir_connections_open", 7.0),
        (
            r#"seckill_soldout_version{activity_id="7",sku_id="8"}"#,
            9.0,
        ),
        (r#"seckill_global_lease_remaining{instance="0"}"#, 3.0),
        (r#"seckill_stock_epoch{activity_id="7",sku_id="8"}"#, 6.0),
        (
            r#"seckill_stock_reopened_total{activity_id="7",sku_id="8"}"#,
            2.0,
        ),
        (
            r#"seckill_admission_mode{activity_id="7",sku_id="8",mode="DEGRADED"}"#,
            1.0,
        ),
        (
            r#"seckill_admission_rate_limit{activity_id="7",sku_id="8"}"#,
            2.5,
        ),
        ("seckill_ticket_issued_total", 0.0),
        ("process_cpu_seconds_total", 1.23),
        ("weir_ops_samples_unknown", 1.0),
        ("weir_ops_parts_silent", 0.0),
    ] {
        assert_eq!(values.get(series), Some(&value), "{series} in\n{body}");
    }
    assert!(!body.contains("no_such_metric"));
    let le: Vec<&str> = body.lines().filter(|line| line.contains("{le=")).collect();
    assert!(le[0].contains("\"50\"") && le[1].contains("\"100\"") && le[2].contains("+Inf"));
}

#[test]
fn steps_ask_the_owner_answer_the_books_and_leave_two_lines_each() {
    let mut bench = Bench::new();
    let (status, body) = bench.post(
        &format!("{SKU_PATH}/restock"),
        r#"{"request_id":"restock-0001","units":50,"actor":"alice"}"#,
    );
    assert_eq!(status, 200);
    assert_eq!(body["books"]["total"], 150);
    assert_eq!(body["books"]["quarantined"], 1);
    let LedgerOp::Restock(restock) = bench.last_op() else {
        panic!()
    };
    assert_eq!((restock.units, restock.target.sku), (50, KEY));
    assert_eq!(restock.target.request_id.as_str(), "restock-0001");
    let (status, _) = bench.post(
        &format!("{SKU_PATH}/mode"),
        r#"{"request_id":"mode-00001","mode":"QUEUE_ONLY"}"#,
    );
    assert_eq!(status, 200);
    let LedgerOp::SetMode(set) = bench.last_op() else {
        panic!()
    };
    assert_eq!(set.mode, Mode::QueueOnly);
    assert_eq!(
        bench
            .post(
                &format!("{SKU_PATH}/close"),
                r#"{"request_id":"close-0001"}"#
            )
            .0,
        200
    );
    assert!(matches!(bench.last_op(), LedgerOp::Close(_)));
    assert_eq!(
        bench
            .post(
                &format!("{SKU_PATH}/open"),
                r#"{"request_id":"open-00001"}"#
            )
            .0,
        200
    );
    let LedgerOp::Open(open) = bench.last_op() else {
        panic!()
    };
    assert_eq!(
        (open.stock, open.quantity_max, open.once_per_activity),
        (100, 2, false)
    );

    let ids: std::collections::BTreeSet<_> = bench
        .part(Addr::Owner)
        .asks
        .iter()
        .map(|ask| ask.id)
        .collect();
    assert_eq!(ids.len(), 4);
    let lines = bench.audit_lines();
    assert_eq!(lines.len(), 8);
    assert_eq!(lines[0]["result"], "ASKED");
    let done = &lines[1];
    assert_eq!(done["result"], "DONE");
    assert_eq!(done["actor"], "alice");
    assert_eq!(done["action"], "restock");
    assert_eq!(
        (done["activity_id"].as_u64(), done["sku_id"].as_u64()),
        (Some(7), Some(8))
    );
    assert_eq!(done["request_id"], "restock-0001");
    assert_eq!(done["units"], 50);
    assert_eq!(done["books"]["total"], 150);
    assert!(done["peer"].as_str().unwrap().contains(':'));
    assert!(done["time"].as_str().unwrap().starts_with("2027-01-15T"));
    assert_eq!(lines[3]["mode"], "QUEUE_ONLY");
    assert!(lines[3]["actor"].is_null());
    let mode = std::fs::metadata(bench.dir.join("audit.jsonl"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_repeated_step_is_asked_again_with_its_id_and_the_ledger_does_it_once() {
    let mut bench = Bench::new();
    let body = r#"{"request_id":"restock-0001","units":50}"#;
    let path = format!("{SKU_PATH}/restock");
    let first = bench.post(&path, body);
    let second = bench.post(&path, body);
    assert_eq!(first, second);
    let asks = &bench.part(Addr::Owner).asks;
    assert_eq!(asks[0].op, asks[1].op);
    assert_ne!(asks[0].id, asks[1].id);
    assert_eq!(bench.audit_lines().len(), 4, "each try is written down");
}

#[test]
fn what_the_ledger_refuses_is_told_by_the_public_codes() {
    let mut bench = Bench::new();
    for (outcome, status, code) in [
        (
            Outcome::Done(LedgerAnswer::RequestIdConflict),
            400,
            "REQUEST_ID_CONFLICT",
        ),
        (Outcome::Done(LedgerAnswer::NotOpen), 403, "NOT_OPEN"),
        (
            Outcome::Done(LedgerAnswer::QuantityRefused),
            400,
            "INVALID_ARGUMENT",
        ),
        (
            Outcome::Done(LedgerAnswer::TableFull),
            503,
            "SYSTEM_OVERLOADED",
        ),
        (Outcome::Failed(Failure::Busy), 503, "SYSTEM_OVERLOADED"),
        (
            Outcome::Failed(Failure::Recovering),
            503,
            "DEPENDENCY_UNAVAILABLE",
        ),
        (
            Outcome::Failed(Failure::Poisoned),
            503,
            "DEPENDENCY_UNAVAILABLE",
        ),
        (Outcome::Failed(Failure::UnknownSku), 404, "NOT_FOUND"),
        (Outcome::Unknown, 202, "SECKILL_PENDING"),
    ] {
        bench.part(Addr::Owner).answer = Some(outcome);
        let answer = bench.post(
            &format!("{SKU_PATH}/close"),
            r#"{"request_id":"close-0001"}"#,
        );
        assert_eq!(
            (answer.0, answer.1["code"].as_str()),
            (status, Some(code)),
            "{outcome:?}"
        );
        assert_eq!(bench.audit_lines().last().unwrap()["result"], code);
    }
}

#[test]
fn a_step_without_an_answer_is_unknown_and_its_late_result_is_still_written_down() {
    let mut bench = Bench::new();
    bench.part(Addr::Owner).answer = None;
    let (status, body) = bench.post(
        &format!("{SKU_PATH}/close"),
        r#"{"request_id":"close-0001"}"#,
    );
    assert_eq!(
        (status, body["code"].as_str()),
        (202, Some("SECKILL_PENDING"))
    );
    assert_eq!(bench.audit_lines().len(), 2);
    let owner = bench.part(Addr::Owner);
    let ask = owner.asks[0];
    // The owner wakes up and answers after all.
    struct Late(weir_core::ask::Ask);
    impl weir_core::port::Handler for Late {
        fn on_start(&mut self, _: weir_core::time::Now, fx: &mut weir_core::port::Effects) {
            let answer = weir_core::ask::Answer {
                id: self.0.id,
                outcome: Outcome::Done(LedgerAnswer::OpsDone(BOOKS)),
            };
            fx.post(self.0.from, weir_core::mail::Mail::Answer(answer));
        }
        fn on_event(
            &mut self,
            _: weir_core::time::Now,
            _: weir_core::port::Event<'_>,
            _: &mut weir_core::port::Effects,
        ) {
        }
        fn on_flush(&mut self, _: weir_core::time::Now, _: &mut weir_core::port::Effects) {}
        fn next_deadline(&self) -> Option<weir_core::time::Mono> {
            None
        }
    }
    bench.world.add_part(
        Addr::Store,
        Box::new(Late(ask)),
        weir_io::sim::Listen::No,
        0,
    );
    bench.world.run_for(NS_PER_S);
    let lines = bench.audit_lines();
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[2]["result"], "DONE");
}

#[test]
fn no_step_is_taken_when_it_cannot_be_written_down() {
    let full = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let mut bench = Bench::with_audit(LISTEN, None, AuditLog::over(full), fresh_dir());
    for _ in 0..2 {
        let (status, body) = bench.post(
            &format!("{SKU_PATH}/close"),
            r#"{"request_id":"close-0001"}"#,
        );
        assert_eq!(
            (status, body["code"].as_str()),
            (503, Some("DEPENDENCY_UNAVAILABLE"))
        );
    }
    assert!(bench.part(Addr::Owner).asks.is_empty());
}

#[test]
fn the_audit_log_is_refused_when_others_may_read_it_and_a_torn_line_is_ended() {
    let dir = fresh_dir();
    let path = dir.join("audit.jsonl");
    std::fs::write(&path, "{\"torn").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let error = AuditLog::open(&path).unwrap_err().to_string();
    assert!(
        error.contains("0644") && error.contains("chmod 600"),
        "{error}"
    );
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    drop(AuditLog::open(&path).unwrap());
    drop(AuditLog::open(&path).unwrap());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"torn\n");
    assert!(AuditLog::open(&dir.join("no/such/audit.jsonl")).is_err());
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_sku_shows_books_epoch_and_mode() {
    let mut bench = Bench::new();
    let (status, _, body) = bench.get(SKU_PATH);
    assert_eq!(status, 200);
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["mode"], "DEGRADED");
    assert_eq!(body["stock_epoch"], 6);
    let units = |name: &str| body["books"][name].as_u64().unwrap();
    assert_eq!(
        units("total"),
        units("free") + units("held") + units("sold") + units("quarantined")
    );
    assert_eq!(bench.get("/ops/v1/activities/7/skus/9").0, 404);
    bench.part(Addr::Owner).silent = true;
    assert_eq!(bench.get(SKU_PATH).0, 503);
}

#[test]
fn tickets_of_both_forms_verify_and_are_counted() {
    let mut bench = Bench::new();
    let mut nonces = std::collections::BTreeSet::new();
    for (form, device, ttl_s) in [
        ("jws", None, 300),
        ("compact", Some("phone-1"), 3600),
        ("jws", Some("phone-1"), 1),
    ] {
        let device_member =
            device.map_or(String::new(), |device| format!(r#","device":"{device}""#));
        let body = format!(
            r#"{{"activity_id":7,"sku_id":8,"user_id":42,"form":"{form}","ttl_s":{ttl_s}{device_member}}}"#
        );
        let (status, answer) = bench.post("/ops/v1/tickets", &body);
        assert_eq!(status, 200, "{answer}");
        assert_eq!(
            (answer["kid"].as_str(), answer["path_id"].as_str()),
            (Some("k1"), Some("p1"))
        );
        let ticket = answer["ticket"].as_str().unwrap();
        assert_eq!(ticket.starts_with("w1."), form == "compact");
        let claims = authenticate(ticket.as_bytes(), &keys()).unwrap();
        assert_eq!(
            (claims.activity, claims.sku, claims.user.0),
            (KEY.activity, KEY.sku, 42)
        );
        assert_eq!(claims.activity_version, 3);
        assert_eq!(claims.expires_at_ms - claims.not_before_ms, ttl_s * 1000);
        assert_eq!(answer["expires_at_ms"].as_u64(), Some(claims.expires_at_ms));
        let hash = device.map(|device| device_hash(&SALT, device.as_bytes()).unwrap());
        assert_eq!(
            claims.device,
            hash.map_or(DeviceClaim::Unbound, DeviceClaim::Hash)
        );
        assert!(nonces.insert(claims.nonce().as_str().to_owned()));
    }
    assert_eq!(
        bench
            .post(
                "/ops/v1/tickets",
                r#"{"activity_id":7,"sku_id":9,"user_id":1}"#
            )
            .0,
        404
    );
    let (_, _, page) = bench.get("/metrics");
    assert_eq!(read_metrics(&page)["seckill_ticket_issued_total"], 3.0);
}

#[test]
fn bad_bodies_name_the_member_and_no_value() {
    let mut bench = Bench::new();
    let restock = format!("{SKU_PATH}/restock");
    for (path, body, word) in [
        (
            "/ops/v1/tickets",
            r#"{"activity_id":7,"sku_id":8}"#,
            "user_id",
        ),
        (
            "/ops/v1/tickets",
            r#"{"activity_id":7,"sku_id":8,"user_id":1,"ttl_s":3601}"#,
            "ttl_s",
        ),
        (
            "/ops/v1/tickets",
            r#"{"activity_id":7,"sku_id":8,"user_id":1,"form":"canary"}"#,
            "jws or compact",
        ),
        (
            "/ops/v1/tickets",
            r#"{"activity_id":7,"sku_id":8,"user_id":1,"device":""}"#,
            "device",
        ),
        ("/ops/v1/tickets", "[]", "one JSON object"),
        (&restock, r#"{"request_id":"restock-0001"}"#, "units"),
        (
            &restock,
            r#"{"request_id":"restock-0001","units":0}"#,
            "units",
        ),
        (
            &restock,
            r#"{"request_id":"canary","units":1}"#,
            "request_id",
        ),
        (
            &restock,
            r#"{"request_id":"restock-0001","units":1,"mode":"NORMAL"}"#,
            "mode",
        ),
        (
            &restock,
            r#"{"request_id":"restock-0001","units":1,"actor":"a b"}"#,
            "actor",
        ),
        (&restock, r#"{"units":1}"#, "request_id"),
    ] {
        let (status, answer) = bench.post(path, body);
        assert_eq!(
            (status, answer["code"].as_str()),
            (400, Some("INVALID_ARGUMENT")),
            "{body}"
        );
        let detail = answer["detail"].as_str().unwrap();
        assert!(
            detail.contains(word) && !detail.contains("canary"),
            "{body}: {detail}"
        );
    }
    assert!(bench.part(Addr::Owner).asks.is_empty());
    assert!(
        bench.audit_lines().is_empty(),
        "what is not a step is not written down"
    );
}

#[test]
fn web_pages_and_rebound_names_are_refused() {
    let mut bench = Bench::new();
    for head in [
        "Host: evil.example",
        "Host: evil.example:9090",
        "Host: 10.0.0.1",
        "Host: localhost\r\nOrigin: http://evil.example",
        "Host: localhost\r\nOrigin: null",
    ] {
        for path in ["/healthz", "/metrics", SKU_PATH] {
            let (status, _, body) =
                bench.send(format!("GET {path} HTTP/1.1\r\n{head}\r\n\r\n").as_bytes());
            assert_eq!(status, 400, "{head} {path}");
            assert!(!body.contains("evil"), "{body}");
        }
    }
    // What a form can send without asking first.
    let text = post_text(
        &format!("{SKU_PATH}/close"),
        r#"{"request_id":"close-0001"}"#,
    );
    let (status, _, _) = bench.send(text.replace("application/json", "text/plain").as_bytes());
    assert_eq!(status, 400);
    assert!(bench.part(Addr::Owner).asks.is_empty());
}

#[test]
fn off_loopback_everything_but_the_two_probes_needs_the_token() {
    let token = OpsToken::new(TOKEN.as_bytes());
    let mut bench = Bench::on("10.0.0.1:9090", Some(token));
    let mut ask = |path: &str, authorization: &str| {
        let text = format!("GET {path} HTTP/1.1\r\nHost: 10.0.0.1:9090\r\n{authorization}\r\n");
        bench.send(text.as_bytes()).0
    };
    assert_eq!(ask("/healthz", ""), 200);
    assert_eq!(ask("/readyz", ""), 200);
    let right = format!("Authorization: Bearer {TOKEN}\r\n");
    for path in ["/metrics", SKU_PATH] {
        assert_eq!(ask(path, ""), 401, "{path}");
        assert_eq!(ask(path, &right), 200, "{path}");
        assert_eq!(ask(path, &right.replace("Bearer", "bearer")), 200, "{path}");
        let one_off = right.replace("01\r\n", "02\r\n");
        assert_ne!(one_off, right);
        for wrong in [
            one_off,
            right.replace("Bearer", "Basic"),
            right.replace("01\r\n", "\r\n"),
            right.replace("canary-", "canary-x"),
            "Authorization: Bearer \r\n".into(),
        ] {
            assert_eq!(ask(path, &wrong), 401, "{path} {wrong}");
        }
    }
    assert_eq!(
        ask("/no/such/path", ""),
        401,
        "a stranger does not learn what is here"
    );
    assert_eq!(ask("/no/such/path", &right), 404);
}

#[test]
fn paths_and_methods_have_their_codes() {
    let mut bench = Bench::new();
    assert_eq!(bench.get("/nothing").0, 404);
    let (status, head, body) = bench.get("/ops/v1/tickets");
    assert_eq!(status, 405);
    assert!(head.contains("Allow: POST") && body.contains("METHOD_NOT_ALLOWED"));
    let (status, head, _) = bench.send(b"DELETE /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(status, 405);
    assert!(head.contains("Allow: GET, HEAD"));
    assert_eq!(bench.send(b"GET /metrics HTTP/1.1\r\n\r\n").0, 400);
    assert_eq!(
        bench
            .send(b"BREW /pot HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .0,
        501
    );
    let long = post_text("/ops/v1/tickets", &" ".repeat(8 * 1024 + 1));
    assert_eq!(bench.send(long.as_bytes()).0, 413);
}

#[test]
fn one_request_per_connection_and_the_rest_is_dropped() {
    let mut bench = Bench::new();
    let twice = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(2);
    let client = bench.client(&twice);
    bench.world.run_for(10 * NS_PER_S);
    let got = bench.got(client);
    assert_eq!(
        String::from_utf8_lossy(&got.got)
            .matches("HTTP/1.1 200")
            .count(),
        1
    );
    assert_eq!((got.ended, got.closed), (true, 1));
    assert_eq!(bench.world.conns_count(Addr::Ops), 0);
}

#[test]
fn slow_heads_and_bodies_end_at_absolute_deadlines() {
    let mut bench = Bench::new();
    let silent = bench.client(b"");
    let head = bench.client(b"GET /healthz HTTP/1.1\r\n");
    let body = bench
        .client(b"POST /ops/v1/tickets HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n12");
    bench.world.run_for(30 * NS_PER_S);
    for client in [silent, head, body] {
        assert_eq!(split(&bench.got(client).got).0, 408);
    }
    assert_eq!(bench.world.conns_count(Addr::Ops), 0);
}

#[test]
fn waits_for_the_body_that_was_announced_with_expect() {
    let mut bench = Bench::new();
    let body = r#"{"activity_id":7,"sku_id":8,"user_id":1}"#;
    let text =
        post_text("/ops/v1/tickets", body).replace("\r\n\r\n", "\r\nExpect: 100-continue\r\n\r\n");
    let client = bench.client(text.as_bytes());
    bench.world.run_for(10 * NS_PER_S);
    let got = String::from_utf8(bench.got(client).got.clone()).unwrap();
    let answer = got
        .strip_prefix("HTTP/1.1 100 Continue\r\n\r\n")
        .unwrap_or(&got);
    assert_eq!(split(answer.as_bytes()).0, 200);
}

#[test]
fn more_clients_than_slots_all_get_answers_in_turn() {
    let mut bench = Bench::new();
    let text = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let clients: Vec<Addr> = (0..200).map(|_| bench.client(text)).collect();
    bench.world.run_for(60 * NS_PER_S);
    for client in clients {
        assert_eq!(split(&bench.got(client).got).0, 200);
    }
    assert_eq!(bench.world.conns_count(Addr::Ops), 0);
}

#[test]
fn drain_answers_who_waits_then_stops() {
    let mut bench = Bench::new();
    bench.part(Addr::Worker).silent = true;
    let waiting = bench.client(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let idle = bench.client(b"");
    bench.world.run_for(NS_PER_S / 10);
    bench.world.drain(Addr::Ops);
    bench.world.run_for(20 * NS_PER_S);
    assert_eq!(split(&bench.got(waiting).got).0, 503);
    assert!(bench.got(idle).got.is_empty() && bench.got(idle).closed == 1);
    assert_eq!(bench.world.status(Addr::Ops), Status::Stopped);
}

#[test]
fn no_secret_is_in_any_answer_metric_or_audit_line() {
    let token = OpsToken::new(TOKEN.as_bytes());
    let mut bench = Bench::on(LISTEN, Some(token));
    let authorized =
        |text: String| text.replacen("\r\n", &format!("\r\nAuthorization: Bearer {TOKEN}\r\n"), 1);
    let mint = r#"{"activity_id":7,"sku_id":8,"user_id":4242424242,"device":"canary-device-1","form":"jws"}"#;
    let mut texts = Vec::new();
    for text in [
        authorized(post_text("/ops/v1/tickets", mint)),
        authorized(post_text(&format!("{SKU_PATH}/close"), r#"{"request_id":"close-0001"}"#)),
        authorized(post_text("/ops/v1/tickets", r#"{"device":"canary-device-1","user_id":4242424242,"canary-x":1}"#)),
        authorized("GET /metrics?token=canary-ops HTTP/1.1\r\nHost: localhost\r\n\r\n".into()),
        "GET /metrics HTTP/1.1\r\nAuthorization: Bearer canary-wrong-token\r\nHost: localhost\r\n\r\n".into(),
        authorized("GET /canary-path HTTP/1.1\r\nHost: localhost\r\n\r\n".into()),
    ] {
        let (_, head, body) = bench.send(text.as_bytes());
        texts.push(head);
        texts.push(body);
    }
    texts.push(std::fs::read_to_string(bench.dir.join("audit.jsonl")).unwrap());
    let ops: &weir::ops::OpsListener = bench.world.part(Addr::Ops).unwrap();
    texts.push(format!("{ops:?}"));
    let ticket_texts = texts.len();
    assert!(ticket_texts > 10);
    for text in texts {
        // The name of an unknown member may be shown (MemberName), never a value.
        let text = text.replace("`canary-x`", "");
        assert!(!text.contains("canary"), "{text}");
        assert!(!text.contains("4242424242"), "{text}");
    }
}
