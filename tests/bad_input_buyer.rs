//! Issue 3 §8, the buyer's side, over real sockets to the built program: every kind of bad request has its status and
//! code, nothing waits for ever, and what else is on the connection or the server is unharmed.
#![allow(clippy::unwrap_used)] // helpers of tests are tests too

#[path = "bad_input_world/mod.rs"]
mod bad_input_world;

use bad_input_world::*;
use std::fmt::Write;
use weir_proto::ids::{PathId, SkuId};

const ORIGIN: &str = "https://shop.example";

fn shop(name: &str) -> Shop {
    let shop = Shop::new(name);
    shop.edit("stock = 100", "stock = 100000");
    shop.set("server", &format!("origins = [\"{ORIGIN}\"]"));
    shop
}

/// Bytes that are no request: one answer, then the end of the connection.
fn broken(buyer: &Buyer) -> Vec<(&'static str, Vec<u8>, u16, &'static str)> {
    let path = buyer.path();
    let head =
        |first: &str, fields: &str| format!("{first}\r\nHost: shop\r\n{fields}\r\n").into_bytes();
    let post = |fields: &str| head(&format!("POST {path} HTTP/1.1"), fields);
    let many = |lines: usize| {
        (0..lines).fold(String::new(), |mut all, i| {
            let _ = write!(all, "X-{i}: 1\r\n");
            all
        })
    };
    let chunk = format!(
        "Transfer-Encoding: chunked\r\n\r\n2001\r\n{}",
        "x".repeat(0x2001)
    );
    vec![
        (
            "HTTP/2 preface",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
            505,
            "VERSION_NOT_SUPPORTED",
        ),
        (
            "TLS hello",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03abcdef\r\n".to_vec(),
            400,
            "INVALID_ARGUMENT",
        ),
        (
            "TLS hello without a line end",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03abcdef".to_vec(),
            400,
            "INVALID_ARGUMENT",
        ),
        (
            "TRACE",
            head("TRACE / HTTP/1.1", ""),
            405,
            "METHOD_NOT_ALLOWED",
        ),
        (
            "CONNECT",
            head("CONNECT shop:80 HTTP/1.1", ""),
            405,
            "METHOD_NOT_ALLOWED",
        ),
        (
            "unknown method",
            head("BREW /pot HTTP/1.1", ""),
            501,
            "NOT_IMPLEMENTED",
        ),
        (
            "lower-case method",
            head("get / HTTP/1.1", ""),
            501,
            "NOT_IMPLEMENTED",
        ),
        (
            "HTTP/3.0",
            head("GET / HTTP/3.0", ""),
            505,
            "VERSION_NOT_SUPPORTED",
        ),
        ("HTTP/0.9", b"GET /\r\n".to_vec(), 400, "INVALID_ARGUMENT"),
        (
            "no Host",
            b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            400,
            "INVALID_ARGUMENT",
        ),
        (
            "two Hosts",
            head("GET / HTTP/1.1", "Host: other\r\n"),
            400,
            "INVALID_ARGUMENT",
        ),
        (
            "another authority than Host",
            head("GET http://other/ HTTP/1.1", ""),
            400,
            "INVALID_ARGUMENT",
        ),
        (
            "bare LF",
            b"GET / HTTP/1.1\nHost: shop\n\n".to_vec(),
            400,
            "INVALID_ARGUMENT",
        ),
        (
            "folded header",
            head("GET / HTTP/1.1", "X: a\r\n b\r\n"),
            400,
            "INVALID_ARGUMENT",
        ),
        (
            "space before the colon",
            head("GET / HTTP/1.1", "X : a\r\n"),
            400,
            "INVALID_ARGUMENT",
        ),
        (
            "NUL in a value",
            head("GET / HTTP/1.1", "X: a\0b\r\n"),
            400,
            "INVALID_ARGUMENT",
        ),
        (
            "two lengths",
            post("Content-Length: 1\r\nContent-Length: 2\r\n"),
            400,
            "INVALID_ARGUMENT",
        ),
        (
            "signed length",
            post("Content-Length: +1\r\n"),
            400,
            "INVALID_ARGUMENT",
        ),
        (
            "length and chunked",
            post("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n"),
            400,
            "INVALID_ARGUMENT",
        ),
        (
            "gzip coding",
            post("Transfer-Encoding: gzip\r\n"),
            501,
            "NOT_IMPLEMENTED",
        ),
        (
            "chunk size that is no number",
            post("Transfer-Encoding: chunked\r\n\r\nxyz\r\n"),
            400,
            "INVALID_ARGUMENT",
        ),
        (
            "length above the limit",
            post("Content-Length: 8193\r\n"),
            413,
            "BODY_TOO_LARGE",
        ),
        (
            "chunks above the limit",
            post(&chunk),
            413,
            "BODY_TOO_LARGE",
        ),
        (
            "target above the limit",
            head(&format!("GET /{} HTTP/1.1", "a".repeat(4096)), ""),
            414,
            "TARGET_TOO_LONG",
        ),
        (
            "expectation",
            post("Content-Length: 2\r\nExpect: 200-ok\r\n"),
            417,
            "EXPECTATION_FAILED",
        ),
        (
            "head above the limit",
            head("GET / HTTP/1.1", &format!("X: {}\r\n", "a".repeat(16_384))),
            431,
            "HEAD_TOO_LARGE",
        ),
        (
            "too many lines",
            head("GET / HTTP/1.1", &many(64)),
            431,
            "HEAD_TOO_LARGE",
        ),
    ]
}

#[test]
fn bytes_that_are_no_request_get_one_answer_behind_the_good_ones() {
    let shop = shop("broken");
    let running = shop.start();
    for (name, bytes, status, code) in broken(&Buyer::of(&shop)) {
        let mut wire = running.wire();
        // In one segment with a good request before it and one after it, which must not be read any more.
        wire.send(&[GOOD, &bytes, GOOD].concat());
        assert_eq!(wire.answer().status, 404, "{name}: the good one before it");
        let answer = wire.answer();
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (status, code),
            "{name}: {answer:?}"
        );
        assert!(answer.closes(), "{name}: {answer:?}");
        let detail = answer.json()["detail"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        assert!(
            detail.ends_with('.'),
            "{name} says what to send instead: {answer:?}"
        );
        if status == 405 {
            assert!(
                answer
                    .field("Allow")
                    .is_some_and(|allow| allow.contains("POST")),
                "{answer:?}"
            );
        }
        wire.assert_ended();
    }
    assert!(running.wire().still_answers());
    running.stop();
}

#[test]
fn requests_that_do_not_end_are_answered_at_the_end_or_at_their_deadline() {
    let shop = shop("slow");
    shop.set("server", "head_timeout = \"1s\"\nbody_timeout = \"1s\"");
    let running = shop.start();
    let buyer = Buyer::of(&shop);
    let whole = buyer.bytes(&buyer.submit(1));
    // The client ends in the middle.
    for part in [&whole[..10], &whole[..whole.len() - 1]] {
        let mut wire = running.wire();
        wire.send(part);
        wire.end_sending();
        let answer = wire.answer();
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (400, "INVALID_ARGUMENT"),
            "{answer:?}"
        );
        wire.assert_ended();
    }
    // The client says nothing more; each has its own deadline, so they wait together.
    let mut slow: Vec<Wire> = [&whole[..10], &whole[..whole.len() - 1]]
        .into_iter()
        .map(|part| {
            let mut wire = running.wire();
            wire.send(part);
            wire
        })
        .collect();
    for wire in &mut slow {
        let answer = wire.answer();
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (408, "REQUEST_TIMEOUT"),
            "{answer:?}"
        );
        assert!(answer.closes());
        wire.assert_ended();
    }
    // Nothing was decided on parts.
    let mut wire = running.wire();
    wire.send(&whole);
    assert_eq!(wire.answer().code(), "SECKILL_QUEUED");
    running.stop();
}

#[test]
fn however_the_bytes_arrive_the_answers_are_the_same() {
    let shop = shop("delivery");
    let running = shop.start();
    let buyer = Buyer::of(&shop);
    let mut wire = running.wire();
    assert_eq!(wire.ask(&buyer.bytes(&buyer.submit(9))).status, 202);
    // Two in one segment, and the beginning of a third.
    let (one, two, three) = (buyer.submit(1), buyer.submit(2), buyer.submit(3));
    let third = buyer.bytes(&three);
    let (first_part, rest) = third.split_at(third.len() / 2);
    wire.send(&[&buyer.bytes(&one)[..], &buyer.bytes(&two), first_part].concat());
    for submit in [&one, &two] {
        let answer = wire.answer();
        assert_eq!(answer.status, 202);
        assert_eq!(
            answer.json()["request_id"],
            format!("req-{:08}", submit.user),
            "in request order"
        );
    }
    wire.send(rest);
    assert_eq!(wire.answer().status, 202);
    for byte in buyer.bytes(&buyer.submit(4)) {
        wire.send(&[byte]);
    }
    assert_eq!(wire.answer().code(), "SECKILL_QUEUED");

    // Chunked, with an extension and a trailer, in three segments.
    let submit = buyer.submit(5);
    let whole = String::from_utf8(buyer.bytes(&submit)).unwrap();
    let (head, body) = whole.split_once("\r\n\r\n").unwrap();
    let length = format!("Content-Length: {}", body.len());
    let head = head.replace(&length, "Transfer-Encoding: chunked");
    let (a, b) = body.split_at(7);
    wire.send(format!("{head}\r\n\r\n7;ext=1\r\n{a}\r").as_bytes());
    wire.send(format!("\n{:x}\r\n{b}\r\n0\r", b.len()).as_bytes());
    wire.send(b"\nX-Trailer: dropped\r\n\r\n");
    assert_eq!(wire.answer().code(), "SECKILL_QUEUED");

    // The body is sent when asked for.
    let mut submit = buyer.submit(6);
    submit.fields = "Expect: 100-continue\r\n".to_owned();
    let whole = buyer.bytes(&submit);
    let (head, body) = whole.split_at(whole.len() - submit.body.len());
    wire.send(head);
    assert_eq!(wire.answer().status, 100);
    wire.send(body);
    assert_eq!(wire.answer().code(), "SECKILL_QUEUED");
    assert!(wire.still_answers());
    running.stop();
}

/// Bodies, request ids and tickets that are refused while the connection goes on: what, status, code, part of `detail`.
fn refused(buyer: &Buyer) -> Vec<(&'static str, Submit, u16, &'static str, &'static str)> {
    let user = 100;
    let with_body = |body: String| Submit {
        body,
        ..buyer.submit(user)
    };
    let with_ticket = |ticket: String| Submit {
        ticket,
        ..buyer.submit(user)
    };
    let with_fields = |fields: &str, body: String| Submit {
        fields: fields.to_owned(),
        ..with_body(body)
    };
    let id = "\"request_id\":\"req-00000100\",";
    let named = |first: &str| body(user, &format!("{id}{first}"));
    let key = |value: &str| with_fields(&format!("Idempotency-Key: {value}\r\n"), body(user, ""));
    let bad = "INVALID_ARGUMENT";
    let other =
        |name: &'static str, ticket: String| (name, with_ticket(ticket), 403, "TOKEN_INVALID", "");
    let device = buyer.device_claim("phone-1");
    let bound = buyer.ticket(user, |claims| claims.device = device);
    let now = weir::config::Host::read().wall_ms;
    let good = buyer.ticket(user, |_| {});
    let mut flipped = good.clone().into_bytes();
    let last = flipped.len() - 2;
    flipped[last] = if flipped[last] == b'A' { b'B' } else { b'A' };
    vec![
        (
            "no JSON",
            with_body("hello".into()),
            400,
            bad,
            "one JSON object",
        ),
        (
            "cut JSON",
            with_body("{\"activity_id\":1".into()),
            400,
            bad,
            "not valid JSON",
        ),
        (
            "two objects",
            with_body(named("") + "{}"),
            400,
            bad,
            "goes on after",
        ),
        (
            "not UTF-8 escape",
            with_body(named("\"attempt\":\"\\ud800\",")),
            400,
            bad,
            "",
        ),
        (
            "unknown member",
            with_body(named("\"price\":1,")),
            400,
            bad,
            "`price` is not a member",
        ),
        (
            "duplicate member",
            with_body(named("\"user_id\":1,")),
            400,
            bad,
            "`user_id` is given twice",
        ),
        (
            "duplicate by escape",
            with_body(named("\"us\\u0065r_id\":1,")),
            400,
            bad,
            "`user_id` is given twice",
        ),
        (
            "missing member",
            with_body(format!("{{{id}\"activity_id\":1}}")),
            400,
            bad,
            "`sku_id` is missing",
        ),
        (
            "text for a number",
            with_body(named("").replace("\"quantity\":1", "\"quantity\":\"1\"")),
            400,
            bad,
            "`quantity` must be a whole number",
        ),
        (
            "fraction",
            with_body(named("").replace("\"quantity\":1", "\"quantity\":1.0")),
            400,
            bad,
            "`quantity`",
        ),
        (
            "zero units",
            with_body(named("").replace("\"quantity\":1", "\"quantity\":0")),
            400,
            bad,
            "`quantity` must be a number from 1",
        ),
        (
            "nested value",
            with_body(named("\"attempt\":{},")),
            400,
            bad,
            "`attempt` must not be an object",
        ),
        (
            "short request id",
            with_body(body(user, "\"request_id\":\"short\",")),
            400,
            bad,
            "`request_id` must have 8 to 64 bytes",
        ),
        (
            "odd request id",
            with_body(body(user, "\"request_id\":\"req 0000 0001\",")),
            400,
            bad,
            "`request_id` may hold only",
        ),
        (
            "no request id",
            with_body(body(user, "")),
            400,
            bad,
            "Idempotency-Key",
        ),
        (
            "two different ids",
            with_fields("Idempotency-Key: other-000001\r\n", named("")),
            400,
            bad,
            "differ",
        ),
        (
            "short key",
            key("abc"),
            400,
            bad,
            "Idempotency-Key must have",
        ),
        (
            "odd key",
            key("\"req-00000100"),
            400,
            bad,
            "Idempotency-Key must have",
        ),
        (
            "more than allowed",
            with_body(named("").replace("\"quantity\":1", "\"quantity\":2")),
            400,
            bad,
            "",
        ),
        (
            "another activity",
            with_body(named("").replace("\"activity_id\":1", "\"activity_id\":2")),
            404,
            "NOT_FOUND",
            "",
        ),
        (
            "another SKU",
            with_body(named("").replace("\"sku_id\":1", "\"sku_id\":2")),
            404,
            "NOT_FOUND",
            "",
        ),
        (
            "no ticket",
            with_ticket(String::new()),
            401,
            "UNAUTHENTICATED",
            "",
        ),
        other("no ticket at all but text", "hello".into()),
        other("flipped MAC", String::from_utf8(flipped).unwrap()),
        other("cut ticket", good[..good.len() - 1].to_owned()),
        other("long ticket", "a".repeat(4000)),
        other("another user's", buyer.ticket(101, |_| {})),
        other(
            "another SKU's",
            buyer.ticket(user, |claims| claims.sku = SkuId(2)),
        ),
        other(
            "another version's",
            buyer.ticket(user, |claims| claims.activity_version = 9),
        ),
        other(
            "another path's",
            buyer.ticket(user, |claims| {
                claims.path_id = PathId::new(b"other").unwrap()
            }),
        ),
        other(
            "of the future",
            buyer.ticket(user, |claims| {
                claims.not_before_ms = now + 1_800_000;
                claims.expires_at_ms = now + 3_600_000;
            }),
        ),
        (
            "expired",
            with_ticket(buyer.ticket(user, |claims| {
                claims.not_before_ms = now - 3_600_000;
                claims.expires_at_ms = now - 1_800_000;
            })),
            403,
            "TOKEN_EXPIRED",
            "",
        ),
        other("bound to a device, without one", bound.clone()),
        (
            "bound to another device",
            Submit {
                ticket: bound,
                fields: "X-Weir-Device: phone-2\r\n".into(),
                ..buyer.submit(user)
            },
            403,
            "TOKEN_INVALID",
            "",
        ),
    ]
}

#[test]
fn refused_submits_leave_their_connection_and_their_user_unharmed() {
    let shop = shop("refused");
    let running = shop.start();
    let buyer = Buyer::of(&shop);
    let mut wire = running.wire();
    for (name, submit, status, code, detail) in refused(&buyer) {
        wire.send(&[&buyer.bytes(&submit)[..], GOOD].concat());
        let answer = wire.answer();
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (status, code),
            "{name}: {answer:?}"
        );
        assert!(!answer.closes(), "{name}: {answer:?}");
        let said = answer.json()["detail"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        assert!(
            said.contains(detail),
            "{name}: {detail:?} is not in {answer:?}"
        );
        assert_eq!(
            wire.answer().status,
            404,
            "{name}: the next request of the connection"
        );
    }
    // None of that cost the user anything: the first good one wins.
    assert_eq!(
        wire.ask(&buyer.bytes(&buyer.submit(100))).code(),
        "SECKILL_QUEUED"
    );
    running.stop();
}

#[test]
fn every_good_spelling_of_a_submit_is_taken() {
    let shop = shop("spellings");
    let running = shop.start();
    let buyer = Buyer::of(&shop);
    let mut wire = running.wire();
    let bound = |user: u64| {
        let claim = buyer.device_claim("phone-1");
        Submit {
            ticket: buyer.ticket(user, |claims| claims.device = claim),
            fields: "X-Weir-Device: phone-1\r\n".into(),
            ..buyer.submit(user)
        }
    };
    let key = |user: u64, value: &str, inner: &str| Submit {
        fields: format!("Idempotency-Key: {value}\r\n"),
        body: body(user, inner),
        ..buyer.submit(user)
    };
    for (name, submit) in [
        ("key instead of request_id", key(1, "req-00000001", "")),
        ("quoted key", key(2, "\"req-00000002\"", "")),
        (
            "both alike",
            key(3, "req-00000003", "\"request_id\":\"req-00000003\","),
        ),
        ("device", bound(4)),
        (
            "JWS",
            Submit {
                ticket: buyer.jws(5),
                ..buyer.submit(5)
            },
        ),
        (
            "attempt",
            Submit {
                body: body(6, "\"request_id\":\"req-00000006\",\"attempt\":3,"),
                ..buyer.submit(6)
            },
        ),
        (
            "any device for an unbound ticket",
            Submit {
                fields: "X-Weir-Device: any\r\n".into(),
                ..buyer.submit(7)
            },
        ),
    ] {
        let answer = wire.ask(&buyer.bytes(&submit));
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (202, "SECKILL_QUEUED"),
            "{name}: {answer:?}"
        );
    }
    // Again: the first result; other content under the same id; the ticket under another id; the user again.
    let first = key(1, "req-00000001", "");
    let again = |ticket: String, fields: &str, text: String| Submit {
        user: 1,
        ticket,
        fields: fields.into(),
        body: text,
    };
    let first_ticket = first.ticket.clone();
    assert_eq!(wire.ask(&buyer.bytes(&first)).code(), "REQUEST_REPLAYED");
    let two = first.body.replace("\"quantity\":1", "\"quantity\":2");
    assert_eq!(
        wire.ask(&buyer.bytes(&again(first_ticket, &first.fields, two)))
            .code(),
        "REQUEST_ID_CONFLICT"
    );
    let spent = buyer.submit(8);
    assert_eq!(wire.ask(&buyer.bytes(&spent)).code(), "SECKILL_QUEUED");
    let other_id = Submit {
        body: body(8, "\"request_id\":\"req-other-8\","),
        ..spent
    };
    assert_eq!(wire.ask(&buyer.bytes(&other_id)).code(), "REPLAY_REJECTED");
    let fresh = Submit {
        ticket: buyer.ticket(8, |_| {}),
        ..other_id
    };
    let answer = wire.ask(&buyer.bytes(&fresh));
    assert_eq!(
        (answer.status, answer.code().as_str()),
        (409, "ALREADY_PURCHASED")
    );
    running.stop();
}

#[test]
fn methods_languages_and_origins() {
    let shop = shop("manner");
    let running = shop.start();
    let path = Buyer::of(&shop).path();
    let mut wire = running.wire();
    let mut ask = |text: String| {
        wire.send(text.as_bytes());
        wire.answer()
    };
    let answer = ask(format!("GET {path} HTTP/1.1\r\nHost: shop\r\n\r\n"));
    assert_eq!(
        (answer.status, answer.field("Allow")),
        (405, Some("POST, OPTIONS"))
    );
    let status = "/v1/activities/1/skus/1/requests/req-00000001";
    let answer = ask(format!(
        "POST {status} HTTP/1.1\r\nHost: shop\r\nContent-Length: 0\r\n\r\n"
    ));
    assert_eq!(
        (answer.status, answer.field("Allow")),
        (405, Some("GET, HEAD, OPTIONS"))
    );
    let answer = ask("OPTIONS * HTTP/1.1\r\nHost: shop\r\n\r\n".to_owned());
    assert_eq!(answer.status, 204);

    for (languages, message) in [
        ("", "路径不存在"),
        ("Accept-Language: zh-CN,zh;q=0.9,en;q=0.8\r\n", "路径不存在"),
        (
            "Accept-Language: en-GB, zh;q=0.5\r\n",
            "There is nothing at this path.",
        ),
        ("Accept-Language: fr\r\n", "There is nothing at this path."),
    ] {
        let answer = ask(format!(
            "GET /nothing HTTP/1.1\r\nHost: shop\r\n{languages}\r\n"
        ));
        assert_eq!(answer.json()["message"], message, "{languages}");
    }

    let preflight = |origin: &str| {
        format!(
            "OPTIONS {path} HTTP/1.1\r\nHost: shop\r\nOrigin: {origin}\r\nAccess-Control-Request-Method: POST\r\n\
             Access-Control-Request-Headers: authorization,content-type\r\n\r\n"
        )
    };
    let answer = ask(preflight(ORIGIN));
    assert_eq!(
        (answer.status, answer.field("Access-Control-Allow-Origin")),
        (204, Some(ORIGIN))
    );
    let headers = answer
        .field("Access-Control-Allow-Headers")
        .unwrap()
        .to_ascii_lowercase();
    for name in [
        "authorization",
        "content-type",
        "idempotency-key",
        "x-weir-device",
    ] {
        assert!(headers.contains(name), "{name} is not in {headers}");
    }
    let answer = ask(preflight("https://evil.example"));
    assert_eq!(
        answer.field("Access-Control-Allow-Origin"),
        None,
        "{answer:?}"
    );
    let answer = ask(format!(
        "GET /nothing HTTP/1.1\r\nHost: shop\r\nOrigin: {ORIGIN}\r\n\r\n"
    ));
    assert_eq!(answer.field("Access-Control-Allow-Origin"), Some(ORIGIN));
    running.stop();
}

#[test]
fn a_status_is_told_to_its_owner_only() {
    let shop = shop("status");
    let running = shop.start();
    let buyer = Buyer::of(&shop);
    let mut wire = running.wire();
    let mine = buyer.submit(1);
    assert_eq!(wire.ask(&buyer.bytes(&mine)).status, 202);
    assert_eq!(wire.ask(&buyer.status(&mine)).code(), "SECKILL_STATUS");
    // Another user's ticket asks for the same id: nothing is known of it.
    let theirs = Submit {
        user: 1,
        ..buyer.submit(2)
    };
    assert_eq!(wire.ask(&buyer.status(&theirs)).code(), "NOT_ACCEPTED");
    let nobody = Submit {
        ticket: String::new(),
        ..buyer.submit(1)
    };
    assert_eq!(wire.ask(&buyer.status(&nobody)).status, 401);
    let unclear =
        b"GET /v1/activities/1/skus/1/requests/%72eq-00000001 HTTP/1.1\r\nHost: shop\r\n\r\n";
    wire.send(unclear);
    assert_eq!(wire.answer().status, 400);
    assert!(wire.still_answers());
    running.stop();
}
