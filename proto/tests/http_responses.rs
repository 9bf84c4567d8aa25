//! Responses byte by byte, and read back by a reader of our own.

#![allow(
    clippy::unwrap_used,
    reason = "a test may stop at what it did not expect"
)]

use weir_proto::answer::Reason;
use weir_proto::http::cors::{allowed_origin, is_preflight, write_preflight};
use weir_proto::http::date::DateCache;
use weir_proto::http::response::{self, ContentType, Meta, Status};
use weir_proto::http::{Connection, HttpReject, Parsed, RequestParser};
use weir_proto::limits::ANSWER_DETAIL_BYTES_MAX;

fn date() -> DateCache {
    let mut date = DateCache::default();
    date.update(784_111_777_000);
    date
}

fn text(out: Vec<u8>) -> String {
    String::from_utf8(out).unwrap()
}

/// Splits one response into its status line, its header lines and what follows.
fn split(response: &str) -> (&str, Vec<&str>, &str) {
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    let mut lines = head.split("\r\n");
    (lines.next().unwrap(), lines.collect(), body)
}

#[test]
fn a_plain_answer_to_the_byte() {
    let date = date();
    let mut out = b"earlier".to_vec();
    response::write(
        &mut out,
        Status::Accepted,
        &Meta::new(&date, Connection::Keep),
        b"{}",
    );
    assert_eq!(
        text(out),
        "earlierHTTP/1.1 202 Accepted\r\nCache-Control: no-store\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
         Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
    );
}

#[test]
fn the_length_is_right_for_every_count_of_digits() {
    let date = date();
    let meta = Meta::new(&date, Connection::Close);
    for bytes in [0, 1, 9, 10, 99, 100, 999, 1000, 9999, 10_000, 123_456] {
        let body: Vec<u8> = (0..bytes).map(|at| b'a' + (at % 26) as u8).collect();
        let mut out = Vec::new();
        response::write(&mut out, Status::Ok, &meta, &body);
        response::write(&mut out, Status::Ok, &meta, b"next");
        let all = text(out);
        let (_, lines, rest) = split(&all);
        assert!(
            lines.contains(&format!("Content-Length: {bytes}").as_str()),
            "{lines:?}"
        );
        assert!(lines.contains(&"Connection: close"));
        assert_eq!(&rest.as_bytes()[..bytes], &body[..]);
        assert!(rest[bytes..].starts_with("HTTP/1.1 200 OK\r\n") && rest.ends_with("\r\n\r\nnext"));
    }
}

#[test]
fn head_keeps_the_length_and_204_and_304_have_neither_length_nor_body() {
    let date = date();
    let meta = Meta {
        head_only: true,
        content_type: ContentType::Text,
        ..Meta::new(&date, Connection::KeepNamed)
    };
    let mut out = Vec::new();
    response::write(&mut out, Status::Ok, &meta, &[b'x'; 1234]);
    let all = text(out);
    let (_, lines, body) = split(&all);
    assert_eq!(body, "");
    assert!(lines.contains(&"Content-Length: 1234") && lines.contains(&"Connection: keep-alive"));
    assert!(lines.contains(&"Content-Type: text/plain; charset=utf-8"));

    for status in [Status::NoContent, Status::NotModified] {
        let mut out = Vec::new();
        response::write(
            &mut out,
            status,
            &Meta::new(&date, Connection::Keep),
            b"dropped",
        );
        let all = text(out);
        let (_, lines, body) = split(&all);
        assert_eq!(body, "");
        assert!(
            !lines.iter().any(|line| line.starts_with("Content-")),
            "{lines:?}"
        );
    }
}

#[test]
fn every_optional_line_stands_where_it_is_asked_for() {
    let date = date();
    let meta = Meta {
        retry_after_s: Some(3600),
        allow: Some("GET, HEAD"),
        cors_origin: Some(b"https://shop.test"),
        ..Meta::new(&date, Connection::Keep)
    };
    let mut out = Vec::new();
    response::write(&mut out, Status::MethodNotAllowed, &meta, b"{}");
    let all = text(out);
    let (status, lines, _) = split(&all);
    assert_eq!(status, "HTTP/1.1 405 Method Not Allowed");
    for line in [
        "Retry-After: 3600",
        "Allow: GET, HEAD",
        "Access-Control-Allow-Origin: https://shop.test",
        "Access-Control-Expose-Headers: Retry-After, RateLimit, RateLimit-Policy",
        "Vary: Origin",
        "Cache-Control: no-store",
    ] {
        assert!(lines.contains(&line), "{line} in {lines:?}");
    }
}

#[test]
fn statuses_and_refusals_agree_with_their_codes() {
    let date = date();
    for &status in Status::ALL {
        assert_eq!(Status::from_code(status.code()), Some(status));
        for connection in [Connection::Keep, Connection::KeepNamed, Connection::Close] {
            let mut out = Vec::new();
            let meta = Meta {
                retry_after_s: Some(u32::MAX),
                allow: Some(response::ALLOW_ALL),
                cors_origin: Some(&[b'o'; 253]),
                content_type: ContentType::Metrics,
                ..Meta::new(&date, connection)
            };
            response::begin(&mut out, status, &meta).finish(&mut out);
            // With the longest origin; a head is a small part of the outbox of a connection.
            assert!(out.len() <= 768, "{}", out.len());
            assert!(text(out).starts_with(&format!("HTTP/1.1 {} ", status.code())));
        }
    }
    assert_eq!(Status::from_code(418), None);
    for &reason in Reason::ALL {
        assert_eq!(Status::of(reason).code(), reason.row().http_status);
    }
    for &reject in HttpReject::ALL {
        assert!(reject.status().code() >= 400);
        assert!(reject.detail().ends_with('.') && reject.detail().len() <= ANSWER_DETAIL_BYTES_MAX);
    }
}

#[test]
fn a_preflight_is_answered_for_a_configured_origin_only() {
    let raw = b"OPTIONS /v1/seckill/p HTTP/1.1\r\nHost: h\r\nOrigin: https://shop.test\r\n\
        Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization\r\n\r\n";
    let Parsed::Done { request, .. } = RequestParser::default().parse(raw) else {
        panic!("refused");
    };
    assert!(is_preflight(&request));
    let configured = ["https://other.test", "https://shop.test"];
    assert_eq!(allowed_origin(&configured, &request), Some(1));
    assert_eq!(
        allowed_origin(&["https://shop.tes", "https://SHOP.test", "*"], &request),
        None
    );

    let date = date();
    let mut out = Vec::new();
    let meta = Meta {
        cors_origin: Some(configured[1].as_bytes()),
        ..Meta::new(&date, Connection::Keep)
    };
    write_preflight(&mut out, &meta);
    let all = text(out);
    let (status, lines, body) = split(&all);
    assert_eq!((status, body), ("HTTP/1.1 204 No Content", ""));
    for line in [
        "Access-Control-Allow-Origin: https://shop.test",
        "Access-Control-Allow-Methods: GET, POST",
        "Access-Control-Allow-Headers: Authorization, Content-Type, Idempotency-Key, X-Weir-Device, X-Weir-Signature",
        "Access-Control-Max-Age: 600",
    ] {
        assert!(lines.contains(&line), "{line} in {lines:?}");
    }

    let mut out = Vec::new();
    write_preflight(&mut out, &Meta::new(&date, Connection::Keep));
    let all = text(out);
    assert!(
        all.ends_with("\r\n\r\n") && !all.contains("Access-Control"),
        "{all}"
    );
}
