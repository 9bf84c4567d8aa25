//! Every row of `proxy-protocol-vectors.jsonl` through the PROXY parser, whole and at every split.
#![allow(clippy::unwrap_used)] // in a test a panic is the report

#[path = "vectors/base64.rs"]
mod base64;
#[path = "vectors/mod.rs"]
mod vectors;

use base64::decode_base64;
use serde_json::Value;
use std::net::SocketAddr;
use weir_proto::addr::Cidr;
use weir_proto::addr::proxy::{ProxyParsed, parse, parse_from};
use weir_proto::http::{Parsed, RequestParser};

/// Where the data allows both, what weir does.
const OWN_CHOICES: [(&str, bool); 2] = [
    ("v2-unspec", true), // the socket's address stands, as for UNKNOWN in version 1
    ("v2-udp4", false),  // a datagram cannot have come over a stream
];

/// The verdict on each prefix must be `NeedMore` until it is the final one, and then stay.
fn check_every_prefix(id: &str, raw: &[u8], end: ProxyParsed) {
    let mut decided = false;
    for bytes in 0..=raw.len() {
        let verdict = parse(&raw[..bytes]);
        if decided || verdict != ProxyParsed::NeedMore {
            assert_eq!(verdict, end, "{id}: prefix of {bytes} bytes");
            decided = true;
        }
        if let ProxyParsed::Done { consumed, .. } = end {
            assert_eq!(decided, bytes >= consumed, "{id}: prefix of {bytes} bytes");
        }
    }
    assert!(decided, "{id}");
}

fn accepted(row: &Value) -> ProxyParsed {
    let client: Option<SocketAddr> = match row["client"].as_str().unwrap() {
        "socket" => None,
        address => Some(address.parse().unwrap()),
    };
    ProxyParsed::Done {
        client,
        consumed: usize::try_from(row["header_len"].as_u64().unwrap()).unwrap(),
    }
}

fn expected(row: &Value) -> ProxyParsed {
    let id = row["id"].as_str().unwrap();
    match row["expect"].as_str().unwrap() {
        "accept" => accepted(row),
        // This parser is called only where a header is required.
        "reject" | "reject-when-required" => ProxyParsed::Reject,
        "accept-or-reject" => {
            let (_, accepts) = OWN_CHOICES.iter().find(|choice| choice.0 == id).unwrap();
            if *accepts {
                accepted(row)
            } else {
                ProxyParsed::Reject
            }
        }
        other => panic!("{id}: unknown expectation {other}"),
    }
}

#[test]
fn every_row_whole_and_at_every_split() {
    let data = vectors::shared_data("proxy-protocol-vectors.jsonl");
    let rows: Vec<Value> = data
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(rows.len(), 42);
    let proxies = [Cidr::parse("127.0.0.0/8").unwrap()];
    for row in &rows {
        let id = row["id"].as_str().unwrap();
        let raw = decode_base64(row["raw_base64"].as_str().unwrap());
        match id {
            // A valid line, but its sender may not choose an address: refused from the first byte on.
            "v1-untrusted-peer" => {
                let peer = row["peer"].as_str().unwrap().parse().unwrap();
                for bytes in 0..=raw.len() {
                    assert_eq!(
                        parse_from(peer, &proxies, &raw[..bytes]),
                        ProxyParsed::Reject
                    );
                }
                let proxy = "::ffff:127.0.0.1".parse().unwrap();
                assert!(matches!(
                    parse_from(proxy, &proxies, &raw),
                    ProxyParsed::Done { .. }
                ));
            }
            // The first header is valid and its address stands; the second is left for HTTP, which refuses it.
            "v1-twice" => {
                let first = ProxyParsed::Done {
                    client: Some("1.2.3.4:1".parse().unwrap()),
                    consumed: 32,
                };
                check_every_prefix(id, &raw, first);
                let second = RequestParser::default().parse(&raw[32..]);
                assert!(matches!(second, Parsed::Reject(_)), "{second:?}");
            }
            _ => {
                let expected = expected(row);
                assert_eq!(parse(&raw), expected, "{id}");
                check_every_prefix(id, &raw, expected);
            }
        }
    }
}
