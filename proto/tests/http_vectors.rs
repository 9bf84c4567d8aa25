//! Every row of `http1-vectors.jsonl` through the parser: in one piece, cut in two at every place, and byte by byte.

#![allow(
    clippy::unwrap_used,
    reason = "a test may stop at what it did not expect"
)]

mod vectors;

use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use weir_proto::http::{HttpReject, Method, Parsed, RequestParser, Version};
use weir_proto::limits::{BODY_BYTES_MAX, REQUEST_BYTES_MAX};

/// A request as its owner saw it.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    method: Method,
    path: Vec<u8>,
    query: Option<Vec<u8>>,
    version: Version,
    keep_alive: bool,
    body: Vec<u8>,
}

/// How a connection's bytes ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// Between requests.
    Idle,
    /// In the middle of a request.
    Waiting,
    /// After an answer that closes.
    Closed,
    Rejected(HttpReject),
}

#[derive(Debug)]
struct Outcome {
    requests: Vec<Seen>,
    end: End,
    continues: usize,
}

impl Outcome {
    /// One status per final answer; a request that was read counts as 200.
    fn statuses(&self) -> Vec<u16> {
        let mut statuses = vec![200; self.requests.len()];
        if let End::Rejected(reject) = self.end {
            statuses.push(reject.status().code());
        }
        statuses
    }
}

/// Shows `raw` to a parser as if it arrived in pieces that end at `cuts`, in rising order.
fn drive(raw: &[u8], cuts: impl IntoIterator<Item = usize>) -> Outcome {
    let mut parser = RequestParser::default();
    let mut scratch = [0; BODY_BYTES_MAX];
    let mut outcome = Outcome {
        requests: Vec::new(),
        end: End::Idle,
        continues: 0,
    };
    let mut start = 0;
    for cut in cuts {
        loop {
            match parser.parse(&raw[start..cut]) {
                Parsed::Done { request, consumed } => {
                    assert!(consumed > 0 && consumed <= REQUEST_BYTES_MAX);
                    assert!(!parser.is_open());
                    outcome.requests.push(Seen {
                        method: request.method,
                        path: request.path.to_vec(),
                        query: request.query.map(<[u8]>::to_vec),
                        version: request.version,
                        keep_alive: request.keep_alive,
                        body: request.body.in_one(&mut scratch).to_vec(),
                    });
                    assert_eq!(
                        request.body.len(),
                        outcome.requests[outcome.requests.len() - 1].body.len()
                    );
                    start += consumed;
                    if !request.keep_alive {
                        outcome.end = End::Closed;
                        return outcome;
                    }
                }
                Parsed::NeedMore => break,
                Parsed::Continue => outcome.continues += 1,
                Parsed::Reject(reject) => {
                    assert!(
                        matches!(parser.parse(&raw[start..]), Parsed::Reject(again) if again == reject),
                        "a refusal is final"
                    );
                    outcome.end = End::Rejected(reject);
                    return outcome;
                }
            }
        }
        assert!(
            cut - start <= REQUEST_BYTES_MAX,
            "the caller's buffer would not do"
        );
    }
    outcome.end = if start == raw.len() {
        End::Idle
    } else {
        End::Waiting
    };
    outcome
}

fn rows() -> Vec<Value> {
    let text = vectors::shared_data("http1-vectors.jsonl");
    let rows: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(rows.len() >= 475, "only {} rows", rows.len());
    rows
}

fn base64(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0_u32, 0);
    for byte in text.bytes().filter(|&byte| byte != b'=') {
        let six = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => panic!("not base64: {byte}"),
        };
        bits = bits << 6 | u32::from(six);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    bytes
}

fn raw_of(row: &Value) -> Vec<u8> {
    let raw = base64(row["raw_base64"].as_str().unwrap());
    assert_eq!(raw.len() as u64, row["raw_len"].as_u64().unwrap());
    raw
}

fn id_of(row: &Value) -> &str {
    row["id"].as_str().unwrap()
}

fn flag(row: &Value, name: &str) -> bool {
    row.get(name)
        .is_some_and(|value| value.as_bool() == Some(true))
}

fn allows(row: &Value, status: u16) -> bool {
    row["expected_status"]
        .as_array()
        .unwrap()
        .iter()
        .any(|allowed| match allowed {
            Value::Number(code) => code.as_u64() == Some(u64::from(status)),
            Value::String(class) => class.starts_with(char::from(b'0' + (status / 100) as u8)),
            other => panic!("{other}"),
        })
}

fn check_row(row: &Value, outcome: &Outcome) {
    let id = id_of(row);
    let statuses = outcome.statuses();
    let max = row["max_responses"].as_u64().unwrap();
    assert!(statuses.len() as u64 <= max, "{id}: smuggled: {outcome:?}");
    assert!(outcome.continues <= 1, "{id}: {outcome:?}");
    if flag(row, "incomplete") {
        assert!(statuses.is_empty(), "{id}: answered too early: {outcome:?}");
        return;
    }
    match row["expect"].as_str().unwrap() {
        "accept" if flag(row, "half_request") => {
            assert!(allows(row, 100), "{id}");
            assert_eq!(
                (outcome.continues, &outcome.end),
                (1, &End::Waiting),
                "{id}"
            );
        }
        "accept" => {
            assert!(!outcome.requests.is_empty(), "{id}: {outcome:?}");
            assert!(allows(row, 200), "{id}");
            assert!(
                !matches!(outcome.end, End::Rejected(_)),
                "{id}: {outcome:?}"
            );
            if let Some(responses) = row.get("responses") {
                assert_eq!(responses.as_u64(), Some(statuses.len() as u64), "{id}");
            }
            if flag(row, "must_close") {
                assert_eq!(outcome.end, End::Closed, "{id}");
            }
        }
        "reject" => match statuses.first() {
            Some(&status) => assert!(allows(row, status), "{id}: {outcome:?}"),
            None => assert!(
                allows(row, 408) || flag(row, "or_silent_close"),
                "{id}: never answered: {outcome:?}"
            ),
        },
        "either" => {}
        other => panic!("{id}: unknown expectation {other}"),
    }
    if let (Some(body), Some(first)) = (row.get("decoded_body_base64"), outcome.requests.first()) {
        assert_eq!(base64(body.as_str().unwrap()), first.body, "{id}");
    }
    if flag(row, "no_1xx") {
        assert_eq!(outcome.continues, 0, "{id}");
    }
}

#[test]
fn every_row_has_its_answer_in_one_piece() {
    let mut counts = BTreeMap::new();
    for row in rows() {
        let raw = raw_of(&row);
        check_row(&row, &drive(&raw, [raw.len()]));
        *counts
            .entry(row["expect"].as_str().unwrap().to_owned())
            .or_insert(0) += 1;
    }
    assert!(
        counts["accept"] >= 80 && counts["reject"] >= 250 && counts["either"] >= 100,
        "{counts:?}"
    );
}

#[test]
fn every_row_has_the_same_answer_cut_in_two_anywhere_and_byte_by_byte() {
    for row in rows() {
        let raw = raw_of(&row);
        let whole = drive(&raw, [raw.len()]);
        let check = |cut: Outcome, place: &str| {
            assert_eq!(cut.requests, whole.requests, "{} cut {place}", id_of(&row));
            assert_eq!(cut.end, whole.end, "{} cut {place}", id_of(&row));
            check_row(&row, &cut);
        };
        for cut in 0..raw.len() {
            check(drive(&raw, [cut, raw.len()]), &format!("at {cut}"));
        }
        check(drive(&raw, 0..=raw.len()), "at each byte");
    }
}

/// Where the vectors leave the choice to us, the choice is written down, so that a change of it is seen.
/// `WEIR_WRITE_TABLES=1 cargo test -p weir-proto --test http_vectors` writes the table anew.
#[test]
fn our_choices_are_those_of_the_table() {
    let mut table = String::from(
        "# vector id, then one entry per answer: 200, or status(HttpReject); `waits`: bytes are missing\n",
    );
    for row in rows().iter().filter(|row| row["expect"] == "either") {
        let outcome = {
            let raw = raw_of(row);
            drive(&raw, [raw.len()])
        };
        write!(table, "{}", id_of(row)).unwrap();
        for _ in &outcome.requests {
            table.push_str(" 200");
        }
        match outcome.end {
            End::Rejected(reject) => {
                write!(table, " {}({reject:?})", reject.status().code()).unwrap();
            }
            End::Waiting => table.push_str(" waits"),
            End::Idle | End::Closed => {}
        }
        table.push('\n');
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/http_either.txt");
    if std::env::var_os("WEIR_WRITE_TABLES").is_some() {
        std::fs::write(path, &table).unwrap();
    }
    let known = std::fs::read_to_string(path).unwrap();
    for (ours, written) in table.lines().zip(known.lines()) {
        assert_eq!(ours, written, "left: now, right: {path}");
    }
    assert_eq!(table.lines().count(), known.lines().count());
}
