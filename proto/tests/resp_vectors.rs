//! Every row of `resp-vectors.jsonl` through the scanner and the reader: whole, at every split, byte by byte.
#![allow(clippy::unwrap_used)] // in a test a panic is the report

#[path = "vectors/base64.rs"]
mod base64;
#[path = "vectors/mod.rs"]
mod vectors;

use base64::decode_base64;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use weir_proto::resp::{Items, RespReject, Scan, Scanner, Value, read};

/// What each refused row breaks.
const REFUSED: [(&str, RespReject); 20] = [
    ("int-over", RespReject::Integer),
    ("int-under", RespReject::Integer),
    ("int-empty", RespReject::Integer),
    ("int-junk", RespReject::Integer),
    ("bulk-neg2", RespReject::Length),
    ("bulk-huge", RespReject::BulkTooLarge),
    ("bulk-over512m", RespReject::BulkTooLarge),
    ("bulk-noterm", RespReject::BulkEnd),
    ("bulk-lf", RespReject::LineEnd),
    ("arr-neg2", RespReject::Length),
    ("arr-huge", RespReject::TooManyElements),
    ("arr-1m", RespReject::TooManyElements),
    ("deep-1025", RespReject::TooDeep),
    ("deep-100000", RespReject::TooDeep),
    ("type-unknown", RespReject::TypeUnknown),
    ("r3-null-bad", RespReject::Null),
    ("r3-bool-bad", RespReject::Boolean),
    ("r3-bool-empty", RespReject::Boolean),
    ("r3-verbatim-short", RespReject::Verbatim),
    // The data allows both: no Redis sends them, and a reply of unknown length has no bound.
    ("r3-stream-str", RespReject::Streamed),
];

/// The replies in `raw`, whose pieces end at `cuts`, and the last verdict.
fn story(raw: &[u8], cuts: impl IntoIterator<Item = usize>) -> (Vec<Value<'_>>, Scan) {
    let mut scanner = Scanner::new();
    let (mut replies, mut start, mut last) = (Vec::new(), 0, Scan::NeedMore);
    for cut in cuts {
        while start < cut {
            last = scanner.scan(&raw[start..cut]);
            match last {
                Scan::Done { bytes } => {
                    replies.push(read(&raw[start..start + bytes]));
                    start += bytes;
                }
                Scan::NeedMore => break,
                Scan::Reject(_) => return (replies, last),
            }
        }
    }
    (replies, last)
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// An item as maps and sets of the rows have it: without its type.
fn bare(value: Value<'_>) -> Json {
    match value {
        Value::Simple(bytes) | Value::Bulk(bytes) => text(bytes).into(),
        Value::Integer(number) => number.into(),
        other => panic!("{other:?}"),
    }
}

fn number(double: f64) -> Json {
    if double.is_finite() {
        double.into()
    } else {
        double.to_string().into()
    }
}

/// A value in the words of the rows; `expected` chooses where there are two.
fn told(value: Value<'_>, expected: &Json) -> Json {
    let object =
        |name: &str, value: Json| Json::Object([(name.to_owned(), value)].into_iter().collect());
    let list = |items: Items<'_>| items.map(bare).collect::<Vec<Json>>();
    match value {
        Value::Simple(bytes) => object("simple", text(bytes).into()),
        Value::Bulk(bytes) => match expected["bulk_base64"].as_str() {
            Some(wanted) if decode_base64(wanted) == bytes => expected.clone(),
            _ => object("bulk", text(bytes).into()),
        },
        Value::Integer(number) => object("int", number.into()),
        Value::Null => object("null", true.into()),
        Value::Boolean(is_true) => object("bool", is_true.into()),
        Value::Double(double) => object("double", number(double)),
        Value::BigNumber(digits) => object("big", text(digits).into()),
        Value::Verbatim {
            format,
            text: shown,
        } => object(
            "verbatim",
            Json::Array(vec![text(&format).into(), text(shown).into()]),
        ),
        Value::Error(error) => object("error", text(error.code).into()),
        Value::Array(items) => {
            let told = items
                .enumerate()
                .map(|(at, item)| told(item, &expected["array"][at]));
            object("array", told.collect())
        }
        Value::Map(items) => {
            let members = list(items);
            object(
                "map",
                members
                    .chunks(2)
                    .map(|pair| Json::Array(pair.to_vec()))
                    .collect(),
            )
        }
        Value::Set(items) => object("set", list(items).into()),
        Value::Push(items) => object("push", list(items).into()),
    }
}

/// Holds the replies and the last verdict against the row.
fn judge(row: &Json, raw: &[u8], cut: &str, (mut replies, last): (Vec<Value<'_>>, Scan)) {
    let id = row["id"].as_str().unwrap();
    let expect = row["expect"].as_str().unwrap();
    if let Some((_, reject)) = REFUSED.iter().find(|(refused, _)| *refused == id) {
        assert!(
            ["protocol-error", "either"].contains(&expect),
            "{id}: {expect}"
        );
        assert_eq!(
            (replies.len(), last),
            (0, Scan::Reject(*reject)),
            "{id} {cut}"
        );
        return;
    }
    if expect == "incomplete" {
        assert_eq!((replies.len(), last), (0, Scan::NeedMore), "{id} {cut}");
        return;
    }
    assert!(
        matches!(last, Scan::Done { .. }),
        "{id} {cut}: {last:?} of {} bytes",
        raw.len()
    );
    let expected = &row["value"];
    if expect == "value+value" {
        let told: Vec<Json> = replies
            .into_iter()
            .map(|value| told(value, &Json::Null))
            .collect();
        assert_eq!(&Json::Array(told), expected, "{id} {cut}");
        return;
    }
    let [_] = replies.as_slice() else {
        panic!("{id} {cut}: {replies:?}");
    };
    match (expect, replies.remove(0)) {
        ("value", value) => assert_eq!(&told(value, expected), expected, "{id} {cut}"),
        ("server-error", Value::Error(error)) => {
            assert_eq!(text(error.code), expected["code"], "{id} {cut}");
            let inner = expected.get("inner").unwrap_or(&expected["code"]);
            assert_eq!(text(error.cause()), inner, "{id} {cut}");
            assert!(error.text.starts_with(error.code), "{id} {cut}");
            assert!(raw.ends_with(&[error.text, b"\r\n"].concat()), "{id} {cut}");
        }
        ("push", push @ Value::Push(_)) => {
            let expected = serde_json::json!({ "push": ["message", "ch", "hi"] });
            assert_eq!(told(push, &Json::Null), expected, "{id} {cut}");
        }
        ("either", Value::Double(double)) if id == "r3-nan" => assert!(double.is_nan(), "{cut}"),
        (expect, value) => panic!("{id} {cut}: {expect}, and it is {value:?}"),
    }
}

#[test]
fn every_row_whole_at_every_split_and_byte_by_byte() {
    let data = vectors::shared_data("resp-vectors.jsonl");
    let mut judged = BTreeMap::<String, u32>::new();
    for line in data.lines() {
        let row: Json = serde_json::from_str(line).unwrap();
        let raw = decode_base64(row["raw_base64"].as_str().unwrap());
        let end = raw.len();
        judge(&row, &raw, "whole", story(&raw, [end]));
        judge(&row, &raw, "byte by byte", story(&raw, 1..=end));
        for split in 1..end {
            judge(
                &row,
                &raw,
                &format!("split at {split}"),
                story(&raw, [split, end]),
            );
        }
        *judged
            .entry(row["expect"].as_str().unwrap().to_owned())
            .or_default() += 1;
    }
    let counts: Vec<(&str, u32)> = judged
        .iter()
        .map(|(expect, &count)| (expect.as_str(), count))
        .collect();
    assert_eq!(
        counts,
        [
            ("either", 2),
            ("incomplete", 3),
            ("protocol-error", 19),
            ("push", 1),
            ("server-error", 24),
            ("value", 28),
            ("value+value", 1),
        ]
    );
    assert_eq!(judged.values().sum::<u32>(), 78);
}

/// A judge that cannot refuse guards nothing.
#[test]
#[should_panic(expected = "int-0")]
fn a_wrong_value_is_seen() {
    let row = serde_json::json!({ "id": "int-0", "expect": "value", "value": { "int": 0 } });
    judge(&row, b":1\r\n", "whole", story(b":1\r\n", [4]));
}

#[test]
#[should_panic(expected = "bulk-noterm")]
fn an_acceptance_of_what_must_be_refused_is_seen() {
    let row = serde_json::json!({ "id": "bulk-noterm", "expect": "protocol-error" });
    judge(&row, b"$1\r\na\r\n", "whole", story(b"$1\r\na\r\n", [7]));
}
