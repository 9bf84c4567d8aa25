//! Properties of the parser: it never panics, cuts do not matter, limits hold to the byte, what was written is read.

#![allow(
    clippy::unwrap_used,
    reason = "a test may stop at what it did not expect"
)]

use proptest::prelude::*;
use std::fmt::Write as _;
use weir_proto::http::{
    Body, Connection, Field, HttpReject, Method, Parsed, RequestParser, Version,
};
use weir_proto::limits::*;

fn parse(raw: &[u8]) -> Parsed<'_> {
    RequestParser::default().parse(raw)
}

fn reject_of(raw: &[u8]) -> Option<HttpReject> {
    match parse(raw) {
        Parsed::Reject(reject) => Some(reject),
        _ => None,
    }
}

fn is_done(raw: &[u8]) -> bool {
    matches!(parse(raw), Parsed::Done { consumed, .. } if consumed == raw.len())
}

/// All that happens to `raw` when its pieces end at `cuts`, as text; `Continue` left out: it depends on arrival.
fn story(raw: &[u8], cuts: impl IntoIterator<Item = usize>) -> String {
    let mut parser = RequestParser::default();
    let mut scratch = [0; BODY_BYTES_MAX];
    let mut told = String::new();
    let mut start = 0;
    for cut in cuts {
        loop {
            match parser.parse(&raw[start..cut]) {
                Parsed::Done { request, consumed } => {
                    start += consumed;
                    let host = request.field(Field::Host);
                    let forwarded: Vec<_> = request.x_forwarded_for().collect();
                    writeln!(
                        told,
                        "{request:?} {:?} {:?} {host:?} {forwarded:?} {:?}",
                        request.path,
                        request.query,
                        request.body.in_one(&mut scratch)
                    )
                    .unwrap();
                    if !request.keep_alive {
                        return told;
                    }
                }
                Parsed::Continue => {}
                Parsed::NeedMore => break,
                Parsed::Reject(reject) => {
                    writeln!(told, "{reject:?}").unwrap();
                    return told;
                }
            }
        }
    }
    told
}

/// Text that is nearly HTTP: lines of real and of damaged requests in any order.
fn nearly_http() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![
        4 => Just("GET /a?b=c HTTP/1.1\r\n".to_owned()),
        4 => Just("POST /v1/x HTTP/1.1\r\n".to_owned()),
        1 => Just("POST http://h/ HTTP/1.0\r\n".to_owned()),
        5 => Just("Host: h\r\n".to_owned()),
        2 => Just("X-Forwarded-For: 1.2.3.4, 5.6.7.8\r\n".to_owned()),
        2 => Just("Connection: keep-alive\r\n".to_owned()),
        2 => Just("Content-Length: 5\r\n".to_owned()),
        2 => Just("Transfer-Encoding: chunked\r\n".to_owned()),
        1 => Just("Expect: 100-continue\r\n".to_owned()),
        5 => Just("\r\n".to_owned()),
        2 => Just("5\r\nhello\r\n0\r\n\r\n".to_owned()),
        2 => Just("3;a=\"b\"\r\nabc\r\n00\r\nT: x\r\n\r\n".to_owned()),
        2 => Just("hello".to_owned()),
        1 => "[ -~\r\n]{0,12}",
    ];
    proptest::collection::vec(line, 0..14).prop_map(|lines| lines.concat().into_bytes())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_never_panic_and_cuts_do_not_matter(
        raw in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let whole = story(&raw, [raw.len()]);
        prop_assert_eq!(story(&raw, 0..=raw.len()), whole);
    }

    #[test]
    fn cuts_do_not_matter_to_nearly_http(
        raw in nearly_http(),
        places in proptest::collection::vec(any::<proptest::sample::Index>(), 0..6),
        damage in proptest::option::of((any::<proptest::sample::Index>(), any::<u8>())),
    ) {
        let mut raw = raw;
        if let (Some((at, byte)), false) = (damage, raw.is_empty()) {
            let at = at.index(raw.len());
            raw[at] = byte;
        }
        let whole = story(&raw, [raw.len()]);
        let mut cuts: Vec<_> = places.iter().map(|place| place.index(raw.len() + 1)).collect();
        cuts.sort_unstable();
        cuts.push(raw.len());
        prop_assert_eq!(story(&raw, cuts), whole.clone());
        prop_assert_eq!(story(&raw, 0..=raw.len()), whole);
    }

    #[test]
    fn what_was_written_is_read(
        method in prop_oneof![
            Just(Method::Get), Just(Method::Head), Just(Method::Post), Just(Method::Options),
            Just(Method::Put), Just(Method::Patch), Just(Method::Delete)
        ],
        path in "/[A-Za-z0-9/._~!$&'()*+,;=:@-]{0,40}(%[0-9A-Fa-f]{2}){0,3}",
        query in proptest::option::of("[A-Za-z0-9/?._~=&-]{0,30}"),
        host in "[a-z0-9]{1,10}(\\.[a-z0-9]{1,10}){0,2}(:[0-9]{1,4})?",
        authorization in proptest::option::of("Bearer [A-Za-z0-9._-]{1,200}"),
        device in proptest::option::of("[!-~]{1,64}"),
        sources in proptest::collection::vec("[0-9]{1,3}\\.1\\.1\\.1(, [0-9]{1,3}\\.2\\.2\\.2)?", 0..4),
        chunks in proptest::option::of(proptest::collection::vec(1_usize..300, 0..8)),
        body in proptest::collection::vec(any::<u8>(), 0..300),
        blanks in ("[ \t]{0,3}", "[ \t]{0,3}"),
    ) {
        let target = match &query {
            Some(query) => format!("{path}?{query}"),
            None => path.clone(),
        };
        let (before, after) = &blanks;
        let mut head = format!("{} {target} HTTP/1.1\r\nHOST:{before}{host}{after}\r\n", method.as_str());
        for (name, value) in [("Authorization", &authorization), ("x-weir-device", &device)] {
            if let Some(value) = value {
                write!(head, "{name}:{before}{value}{after}\r\n").unwrap();
            }
        }
        for source in &sources {
            write!(head, "X-Forwarded-For:{before}{source}{after}\r\nOther: x\r\n").unwrap();
        }
        let mut raw;
        let sent: Vec<u8>;
        if let Some(sizes) = &chunks {
            raw = format!("{head}Transfer-Encoding: chunked\r\n\r\n").into_bytes();
            let mut data = Vec::new();
            for &size in sizes {
                let piece: Vec<u8> = body.iter().cycle().take(if body.is_empty() { 0 } else { size }).copied().collect();
                if !piece.is_empty() {
                    raw.extend(format!("{:x}\r\n", piece.len()).bytes());
                    raw.extend(&piece);
                    raw.extend(b"\r\n");
                    data.extend(piece);
                }
            }
            raw.extend(b"0\r\n\r\n");
            sent = data;
        } else {
            raw = format!("{head}Content-Length: {}\r\n\r\n", body.len()).into_bytes();
            raw.extend(&body);
            sent = body;
        }
        let message_bytes = raw.len();
        raw.extend(b"GET /next");
        let Parsed::Done { request, consumed } = parse(&raw) else {
            return Err(TestCaseError::fail(format!("{:?}", String::from_utf8_lossy(&raw))));
        };
        let mut scratch = [0; BODY_BYTES_MAX];
        prop_assert_eq!(consumed, message_bytes);
        prop_assert_eq!(request.method, method);
        prop_assert_eq!(request.path, path.as_bytes());
        prop_assert_eq!(request.query, query.as_deref().map(str::as_bytes));
        prop_assert_eq!(request.field(Field::Host), Some(host.as_bytes()));
        prop_assert_eq!(request.field(Field::Authorization), authorization.as_deref().map(str::as_bytes));
        prop_assert_eq!(request.field(Field::Device), device.as_deref().map(str::as_bytes));
        prop_assert_eq!(request.field(Field::Origin), None);
        let read: Vec<&[u8]> = request.x_forwarded_for().collect();
        let written: Vec<&[u8]> = sources.iter().map(String::as_bytes).collect();
        prop_assert_eq!(&read, &written);
        let mut backwards: Vec<&[u8]> = request.x_forwarded_for().rev().collect();
        backwards.reverse();
        prop_assert_eq!(backwards, written);
        prop_assert_eq!(request.body.len(), sent.len());
        prop_assert_eq!(request.body.in_one(&mut scratch), &sent[..]);
    }
}

fn with_lines(lines: usize) -> Vec<u8> {
    let mut raw = b"GET / HTTP/1.1\r\nHost: h\r\n".to_vec();
    for _ in 1..lines {
        raw.extend(b"a: b\r\n");
    }
    raw.extend(b"\r\n");
    raw
}

#[test]
fn limits_hold_to_the_byte() {
    let line = |target_bytes: usize| {
        format!(
            "GET /{} HTTP/1.1\r\nHost: h\r\n\r\n",
            "a".repeat(target_bytes - 1)
        )
        .into_bytes()
    };
    let fixed = "GET  HTTP/1.1".len();
    assert!(is_done(&line(REQUEST_LINE_BYTES_MAX - fixed)));
    let over = line(REQUEST_LINE_BYTES_MAX - fixed + 1);
    assert_eq!(reject_of(&over), Some(HttpReject::RequestLineTooLong));
    // An endless line is refused when its last allowed byte has come, not when it ends.
    let endless = vec![b'A'; REQUEST_LINE_BYTES_MAX + 2];
    assert_eq!(reject_of(&endless), Some(HttpReject::RequestLineTooLong));
    assert_eq!(reject_of(&endless[1..]), None);

    assert!(is_done(&with_lines(HEADER_LINES_MAX)));
    assert_eq!(
        reject_of(&with_lines(HEADER_LINES_MAX + 1)),
        Some(HttpReject::HeadTooLarge)
    );

    let head = |bytes: usize| {
        let frame = "GET / HTTP/1.1\r\nHost: h\r\na: \r\n\r\n".len();
        format!(
            "GET / HTTP/1.1\r\nHost: h\r\na: {}\r\n\r\n",
            "b".repeat(bytes - frame)
        )
        .into_bytes()
    };
    assert!(is_done(&head(HEAD_BYTES_MAX)));
    assert_eq!(
        reject_of(&head(HEAD_BYTES_MAX + 1)),
        Some(HttpReject::HeadTooLarge)
    );
    // A skipped CRLF does not count.
    assert!(is_done(&[b"\r\n", &head(HEAD_BYTES_MAX)[..]].concat()));

    let sized = |bytes: usize| {
        let mut raw =
            format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {bytes}\r\n\r\n").into_bytes();
        raw.resize(raw.len() + bytes, b'x');
        raw
    };
    assert!(is_done(&sized(BODY_BYTES_MAX)));
    assert_eq!(
        reject_of(&sized(BODY_BYTES_MAX + 1)),
        Some(HttpReject::BodyTooLarge)
    );
}

fn chunked(body: &str) -> Vec<u8> {
    format!("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n{body}").into_bytes()
}

#[test]
fn limits_of_chunked_bodies_hold_to_the_byte() {
    let one = |bytes: usize| chunked(&format!("{bytes:x}\r\n{}\r\n0\r\n\r\n", "x".repeat(bytes)));
    assert!(is_done(&one(BODY_BYTES_MAX)));
    assert_eq!(
        reject_of(&one(BODY_BYTES_MAX + 1)),
        Some(HttpReject::BodyTooLarge)
    );
    let two = |bytes: usize| {
        let data = "x".repeat(bytes);
        chunked(&format!("{bytes:x}\r\n{data}\r\n1\r\ny\r\n0\r\n\r\n"))
    };
    assert!(is_done(&two(BODY_BYTES_MAX - 1)));
    assert_eq!(
        reject_of(&two(BODY_BYTES_MAX)),
        Some(HttpReject::BodyTooLarge)
    );

    // R10: one-byte chunks stop at the wire limit, whatever they decode to.
    let tiny = |count: usize| chunked(&format!("{}0\r\n\r\n", "1\r\nA\r\n".repeat(count)));
    let most = (CHUNKED_WIRE_BYTES_MAX - "0\r\n\r\n".len()) / 6;
    assert!(is_done(&tiny(most)));
    assert_eq!(reject_of(&tiny(100_000)), Some(HttpReject::BodyTooLarge));

    // R09: extensions, per chunk and per request.
    let extended = |bytes: usize, count: usize| {
        let chunk = format!("1;{}\r\nA\r\n", "e".repeat(bytes - 1));
        chunked(&format!("{}0\r\n\r\n", chunk.repeat(count)))
    };
    assert!(is_done(&extended(CHUNK_EXTENSION_BYTES_MAX, 8)));
    assert_eq!(
        reject_of(&extended(CHUNK_EXTENSION_BYTES_MAX + 1, 1)),
        Some(HttpReject::Chunk)
    );
    assert_eq!(
        reject_of(&extended(CHUNK_EXTENSION_BYTES_MAX, 9)),
        Some(HttpReject::Chunk)
    );

    let trailers = |lines: usize| chunked(&format!("0\r\n{}\r\n", "T: x\r\n".repeat(lines)));
    assert!(is_done(&trailers(TRAILER_LINES_MAX)));
    assert_eq!(
        reject_of(&trailers(TRAILER_LINES_MAX + 1)),
        Some(HttpReject::HeadTooLarge)
    );
    let trailer = |bytes: usize| {
        let frame = "T: \r\n\r\n".len();
        chunked(&format!("0\r\nT: {}\r\n\r\n", "x".repeat(bytes - frame)))
    };
    assert!(is_done(&trailer(TRAILER_BYTES_MAX)));
    assert_eq!(
        reject_of(&trailer(TRAILER_BYTES_MAX + 1)),
        Some(HttpReject::HeadTooLarge)
    );
}

#[test]
fn a_connection_stays_open_only_when_both_sides_know_it() {
    for (version, connection, expected) in [
        ("1.1", "", Connection::Keep),
        ("1.1", "Connection: keep-alive\r\n", Connection::Keep),
        ("1.1", "Connection: x, CLOSE ,y\r\n", Connection::Close),
        (
            "1.1",
            "Connection: keep-alive\r\nConnection: close\r\n",
            Connection::Close,
        ),
        ("1.1", "Connection: closed\r\n", Connection::Keep),
        ("1.0", "", Connection::Close),
        ("1.0", "Connection: Keep-Alive\r\n", Connection::KeepNamed),
        (
            "1.0",
            "Connection: keep-alive, close\r\n",
            Connection::Close,
        ),
    ] {
        let raw = format!("GET / HTTP/{version}\r\nHost: h\r\n{connection}\r\n");
        let Parsed::Done { request, .. } = parse(raw.as_bytes()) else {
            panic!("{raw}");
        };
        assert_eq!(request.connection(), expected, "{raw}");
        assert_eq!(request.keep_alive, expected != Connection::Close);
        assert_eq!(request.version == Version::Http10, version == "1.0");
    }
}

#[test]
fn continue_is_asked_for_once_and_only_while_the_client_waits() {
    let head = b"POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n";
    let raw = [&head[..], b"ab"].concat();
    let mut parser = RequestParser::default();
    assert!(matches!(
        parser.parse(&raw[..head.len() - 1]),
        Parsed::NeedMore
    ));
    assert!(parser.is_open() && !parser.is_in_body());
    assert!(matches!(parser.parse(&raw[..head.len()]), Parsed::Continue));
    assert!(parser.is_in_body());
    assert!(matches!(parser.parse(&raw[..head.len()]), Parsed::NeedMore));
    assert!(matches!(parser.parse(&raw), Parsed::Done { consumed, .. } if consumed == raw.len()));

    let mut parser = RequestParser::default();
    assert!(matches!(
        parser.parse(&raw[..head.len() + 1]),
        Parsed::NeedMore
    ));
    assert!(matches!(parser.parse(&raw), Parsed::Done { .. }));
}

#[test]
fn a_chunked_body_is_read_piece_by_piece_and_nothing_of_it_is_shown() {
    let raw = chunked("5;x\r\nsecre\r\n1\r\nt\r\n0\r\nT: y\r\n\r\n");
    let Parsed::Done { request, .. } = parse(&raw) else {
        panic!("refused");
    };
    let Body::Chunked(body) = request.body else {
        panic!("not chunked");
    };
    assert_eq!(body.pieces().collect::<Vec<_>>(), [&b"secre"[..], b"t"]);
    assert!(!format!("{request:?} {:?}", parse(&raw)).contains("secre"));
}

#[test]
fn a_skipped_line_end_opens_no_request() {
    let mut parser = RequestParser::default();
    let raw = b"\r\nG";
    for (bytes, is_open) in [(0, false), (1, false), (2, false), (3, true)] {
        assert!(matches!(parser.parse(&raw[..bytes]), Parsed::NeedMore));
        assert_eq!(parser.is_open(), is_open, "after {bytes} bytes");
    }
}

#[test]
fn one_valued_fields_come_once_and_lists_keep_their_first_line() {
    let twice = |name: &str| {
        format!("GET / HTTP/1.1\r\nHost: h\r\n{name}: a\r\n{name}: b\r\n\r\n").into_bytes()
    };
    for name in [
        "Authorization",
        "Origin",
        "Idempotency-Key",
        "X-Weir-Device",
        "X-Weir-Signature",
    ] {
        assert_eq!(
            reject_of(&twice(name)),
            Some(HttpReject::FieldRepeated),
            "{name}"
        );
    }
    // Also when the first value is empty.
    let raw = b"GET / HTTP/1.1\r\nHost: h\r\nOrigin:\r\nOrigin: b\r\n\r\n";
    assert_eq!(reject_of(raw), Some(HttpReject::FieldRepeated));
    let raw = twice("Accept-Language");
    let Parsed::Done { request, .. } = parse(&raw) else {
        panic!("refused");
    };
    assert_eq!(request.field(Field::AcceptLanguage), Some(&b"a"[..]));
}
