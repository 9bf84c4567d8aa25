//! Issue 3 §8, the end and the leftovers, on the built program: a signal lets what is under way end and a second one does
//! not wait; nothing that the server writes or tells holds a secret (field bug R67).
#![allow(clippy::unwrap_used)] // helpers of tests are tests too

#[path = "bad_input_world/mod.rs"]
mod bad_input_world;

use bad_input_world::*;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use weir_proto::payment::{PaymentKey, sign_callback};

/// Answered one way or the other, with its own request id.
fn is_answer_to(answer: &Answer, user: u64) {
    assert_eq!(
        answer.json()["request_id"],
        format!("req-{user:08}"),
        "{answer:?}"
    );
    assert!(matches!(answer.status, 202 | 503), "{answer:?}");
}

#[test]
fn a_signal_lets_requests_in_flight_have_their_answers() {
    for signal in ["TERM", "INT"] {
        let shop = Shop::new(&format!("end-{signal}"));
        let mut running = shop.start();
        let buyer = Buyer::of(&shop);
        let mut half = running.wire();
        let (half_bytes, mut idle) = (buyer.bytes(&buyer.submit(50)), running.wire());
        let (first, rest) = half_bytes.split_at(half_bytes.len() - 9);
        half.send(first);
        let mut busy = running.wire();
        let all: Vec<u8> = (1..=8)
            .flat_map(|user| buyer.bytes(&buyer.submit(user)))
            .collect();
        busy.send(&all);
        is_answer_to(&busy.answer(), 1); // so the server has read the segment
        running.signal(signal);
        for user in 2..=8 {
            is_answer_to(&busy.answer(), user);
        }
        busy.assert_ended();
        idle.assert_ended(); // nothing was asked, so nothing is answered
        assert_eq!(running.get_ops("/readyz").status, 503);
        half.send(rest);
        let answer = half.answer();
        is_answer_to(&answer, 50);
        assert!(answer.closes(), "{answer:?}");
        half.assert_ended();
        let (status, said) = running.ended();
        assert!(status.success(), "{status}: {said}");
        assert!(
            said.contains("every answer that was owed has left"),
            "{said}"
        );
    }
}

#[test]
fn a_second_signal_ends_at_once_and_the_next_start_has_everything() {
    for signal in ["TERM", "INT"] {
        let shop = Shop::new(&format!("twice-{signal}"));
        shop.set("server", "drain_timeout = \"10m\"\nbody_timeout = \"9s\"");
        let mut running = shop.start();
        let buyer = Buyer::of(&shop);
        let mut wire = running.wire();
        let bought = buyer.submit(1);
        assert_eq!(wire.ask(&buyer.bytes(&bought)).status, 202);
        let waits = buyer.bytes(&buyer.submit(2));
        wire.send(&waits[..waits.len() - 1]);
        wire.send(b""); // the rest never comes
        let mut other = running.wire();
        assert!(other.still_answers()); // so the part before was read: one shard reads in order of arrival
        running.signal(signal);
        assert_eq!(running.until_ready_is(503).status, 503);
        assert!(running.is_up(), "it waits for the rest");
        running.signal(signal);
        let (status, said) = running.ended();
        assert_eq!(status.code(), Some(1), "{said}");
        assert!(said.contains("second signal"), "{said}");
        let running = shop.start();
        let answer = running.wire().ask(&buyer.bytes(&bought));
        assert_eq!(answer.code(), "REQUEST_REPLAYED", "{answer:?}");
        running.stop();
    }
}

const USER: u64 = 7_700_770_077_007_700;
const DEVICE: &str = "canary-device-5e1f";

/// A whole small sale; every secret that went through it.
fn session(shop: &Shop, running: &Running) -> Vec<(&'static str, String)> {
    let buyer = Buyer::of(shop);
    let token = fs::read_to_string(shop.path("keys/ops.token"))
        .unwrap()
        .trim()
        .to_owned();
    let ops = |method_path: &str, body: &str| {
        let request = format!(
            "{method_path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            running.ops,
            body.len()
        );
        running.ops(&request)
    };
    let minted = ops(
        "POST /ops/v1/tickets",
        &format!("{{\"activity_id\":1,\"sku_id\":1,\"user_id\":{USER},\"device\":\"{DEVICE}\"}}"),
    );
    assert_eq!(minted.status, 200, "{minted:?}");
    let ticket = minted.json()["ticket"].as_str().unwrap().to_owned();
    let submit = Submit {
        user: USER,
        ticket: ticket.clone(),
        fields: format!("X-Weir-Device: {DEVICE}\r\n"),
        body: body(USER, "\"request_id\":\"req-canary-1\","),
    };
    let mut wire = running.wire();
    let answer = wire.ask(&buyer.bytes(&submit));
    assert_eq!(answer.code(), "SECKILL_QUEUED", "{answer:?}");
    let reservation = answer.json()["reservation_id"].as_str().unwrap().to_owned();
    // Refusals of every stage that sees a secret.
    let forged = format!("{}AAAA", &ticket[..ticket.len() - 4]);
    let jws = buyer.jws(USER);
    for (ticket, device) in [
        (&forged, DEVICE),
        (&ticket, "canary-device-wrong"),
        (&jws, DEVICE),
    ] {
        let submit = Submit {
            user: USER,
            ticket: ticket.clone(),
            fields: format!("X-Weir-Device: {device}\r\n"),
            body: body(USER, "\"request_id\":\"req-canary-2\","),
        };
        assert!(wire.ask(&buyer.bytes(&submit)).status >= 400);
    }
    let key_text = fs::read_to_string(shop.path("keys/payment.key")).unwrap();
    let key =
        PaymentKey::new(&weir::keys::decode_hex(key_text.trim().as_bytes()).unwrap()).unwrap();
    let now = weir::config::Host::read().wall_ms;
    let paid = format!(
        "{{\"payment_id\":\"pay-1\",\"reservation_id\":\"{reservation}\",\"activity_id\":1,\"sku_id\":1,\
         \"amount_minor\":1990,\"currency\":\"CNY\",\"paid_at_ms\":{now}}}"
    );
    let mut signature = Vec::new();
    sign_callback(paid.as_bytes(), &key, now, &mut signature);
    let signature = String::from_utf8(signature).unwrap();
    for header in [
        signature.clone(),
        format!("{}00", &signature[..signature.len() - 2]),
    ] {
        let request = format!(
            "POST /v1/payments/callback HTTP/1.1\r\nHost: shop\r\nContent-Type: application/json\r\n\
             X-Weir-Signature: {header}\r\nContent-Length: {}\r\n\r\n{paid}",
            paid.len()
        );
        let answer = wire.ask(request.as_bytes());
        assert!(matches!(answer.status, 200 | 401 | 404), "{answer:?}");
    }
    for step in ["close", "open"] {
        let answer = ops(
            &format!("POST /ops/v1/activities/1/skus/1/{step}"),
            &format!("{{\"request_id\":\"step-{step}-1\",\"actor\":\"ada\"}}"),
        );
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    let wrong = format!(
        "GET /metrics HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}x\r\n\r\n",
        running.ops
    );
    assert_eq!(running.ops(&wrong).status, 401);
    let mac = |ticket: &str| ticket[ticket.len() - 24..].to_owned();
    let salt = shop.plan().sale.activities[0].device_salt;
    let ticket_key = fs::read_to_string(shop.path("keys/ticket-1.key")).unwrap();
    vec![
        ("user id", USER.to_string()),
        ("user id in hexadecimal", format!("{USER:x}")),
        ("device", "canary-device".to_owned()),
        ("the ticket's MAC", mac(&ticket)),
        ("the forged ticket", forged[..forged.len() - 5].to_owned()),
        ("the JWS ticket's MAC", mac(&jws)),
        (
            "payment signature",
            signature[signature.len() - 24..].to_owned(),
        ),
        ("ops token", token),
        ("ticket key", ticket_key.trim().to_owned()),
        ("payment key", key_text.trim().to_owned()),
        ("device salt", weir::keys::encode_hex(&salt)),
    ]
}

#[test]
fn no_secret_is_in_any_log_metric_or_message() {
    let shop = Shop::new("secrets");
    let token = shop.path("keys/ops.token");
    fs::write(&token, "canary-operator-token-canary-operator-token").unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o400)).unwrap();
    shop.set("ops", "token_file = \"keys/ops.token\"");
    shop.set(
        "log",
        "path = \"data/admission.jsonl\"\nadmitted_every = 1\nrefused_every = 1\nfailed_every = 1",
    );
    let running = shop.start();
    let secrets = session(&shop, &running);
    let metrics = running.ops(&format!(
        "GET /metrics HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer canary-operator-token-canary-operator-token\r\n\r\n",
        running.ops
    ));
    assert_eq!(metrics.status, 200);
    let ready = running.get_ops("/readyz");
    let stderr = running.stop();
    let mut places = vec![
        ("metrics".to_owned(), metrics.body.into_bytes()),
        ("readyz".to_owned(), ready.body.into_bytes()),
        ("standard error".to_owned(), stderr.into_bytes()),
    ];
    for entry in fs::read_dir(shop.path("data")).unwrap() {
        let path = entry.unwrap().path();
        places.push((path.display().to_string(), fs::read(&path).unwrap()));
    }
    let logs = |name: &str| {
        places
            .iter()
            .any(|(place, bytes)| place.ends_with(name) && !bytes.is_empty())
    };
    assert!(
        logs("admission.jsonl") && logs("audit.jsonl"),
        "both logs were written"
    );
    for (place, bytes) in &places {
        for (what, secret) in &secrets {
            // The books must know whom a unit belongs to; they are files of their owner only.
            if what.starts_with("user id") && place.ends_with(".sqlite") {
                continue;
            }
            let found = bytes
                .windows(secret.len())
                .any(|window| window == secret.as_bytes());
            assert!(!found, "the {what} is in {place}");
        }
    }
    for name in [
        "ledger.sqlite",
        "orders.sqlite",
        "admission.jsonl",
        "audit.jsonl",
    ] {
        let mode = fs::metadata(shop.path("data").join(name))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o077, 0, "{name} is its owner's only");
    }
}
