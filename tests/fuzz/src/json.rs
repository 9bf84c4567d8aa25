//! weir's JSON reader against serde_json, member by member, and the submit body on top of it.
//!
//! What weir accepts, serde_json accepts and reads alike, duplicates included. What weir refuses, serde_json refuses too,
//! but for what weir leaves out on purpose: nested values, fractions, exponents, anything but an object.

use super::{Checked, same};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use std::fmt;
use weir_proto::json::{JsonError, MemberFault, Scan, Value, field};
use weir_proto::submit::Submit;

/// The members of an object in the order of the bytes, repeated names included.
pub struct Pairs(pub Vec<(String, serde_json::Value)>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Pairs;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(Members)
    }
}

/// A value as both readers can say it. `Outside`: a number that is no u64.
#[derive(Debug, PartialEq)]
enum Plain {
    Text(String),
    Integer(u64),
    Outside,
    Bool(bool),
    Null,
    Nested,
}

fn ours(value: Value<'_>) -> Plain {
    match value {
        Value::Text(text) => Plain::Text(text.chars().collect()),
        Value::Integer(number) => Plain::Integer(number),
        Value::OutsideU64 => Plain::Outside,
        Value::Bool(yes) => Plain::Bool(yes),
        Value::Null => Plain::Null,
    }
}

fn theirs(value: &serde_json::Value) -> Plain {
    match value {
        serde_json::Value::String(text) => Plain::Text(text.clone()),
        serde_json::Value::Number(number) => number.as_u64().map_or(Plain::Outside, Plain::Integer),
        serde_json::Value::Bool(yes) => Plain::Bool(*yes),
        serde_json::Value::Null => Plain::Null,
        _ => Plain::Nested,
    }
}

fn scan(data: &[u8]) -> Result<Vec<(String, Plain)>, JsonError> {
    let mut scan = Scan::open(data)?;
    let mut members = Vec::new();
    while let Some((name, value)) = scan.next_member()? {
        members.push((name.chars().collect(), ours(value)));
    }
    Ok(members)
}

/// Checks `data` as a body.
pub fn check(data: &[u8]) -> Checked {
    let reference = serde_json::from_slice::<Pairs>(data);
    match (scan(data), &reference) {
        (Ok(members), Ok(pairs)) => {
            let pairs: Vec<_> = pairs
                .0
                .iter()
                .map(|(name, value)| (name.clone(), theirs(value)))
                .collect();
            same("members", &members, &pairs)?;
            lookups(data, &pairs)?;
        }
        // RFC 8259 §6 lets a reader limit numbers: serde_json has no f64 for this one, weir calls it out of range.
        (Ok(members), Err(error)) => {
            let huge = members.iter().any(|(_, value)| *value == Plain::Outside);
            if !(huge && error.to_string().starts_with("number out of range")) {
                return Err(format!("weir accepts, serde_json says {error}"));
            }
        }
        (Err(error), reference) => refused(data, error, reference.is_ok())?,
    }
    submit(data, reference.ok())
}

/// Each name that stands once is found, each that stands twice is a duplicate.
fn lookups(data: &[u8], pairs: &[(String, Plain)]) -> Checked {
    for (name, value) in pairs {
        let count = pairs.iter().filter(|(other, _)| other == name).count();
        match (field(data, name), count) {
            (Ok(Some(found)), 1) => same("field", &ours(found), value)?,
            (
                Err(JsonError::Member {
                    fault: MemberFault::Duplicate,
                    ..
                }),
                2..,
            ) => {}
            (other, _) => return Err(format!("field {name:?}, {count} of them: {other:?}")),
        }
    }
    Ok(())
}

/// A refusal has a cause that can be seen in the bytes.
fn refused(data: &[u8], error: JsonError, serde_accepts: bool) -> Checked {
    let has = |bytes: &[u8]| data.iter().skip(1).any(|byte| bytes.contains(byte));
    let explained = match error {
        JsonError::NotUtf8 { .. } => std::str::from_utf8(data).is_err(),
        JsonError::ByteOrderMark => data.starts_with("\u{feff}".as_bytes()),
        // RFC 8259 §2: blank, tab, line feed, carriage return, and no other white space.
        JsonError::NotObject => data.iter().find(|byte| !b" \t\n\r".contains(byte)) != Some(&b'{'),
        JsonError::Syntax { .. } | JsonError::Trailing { .. } => true,
        JsonError::Member {
            fault: MemberFault::Nested,
            ..
        } => has(b"{["),
        JsonError::Member {
            fault: MemberFault::NotInteger,
            ..
        } => has(b".eE"),
        JsonError::Member { .. } => false,
    };
    let on_purpose = matches!(
        error,
        JsonError::Member {
            fault: MemberFault::Nested | MemberFault::NotInteger,
            ..
        }
    );
    if !explained || (serde_accepts && !on_purpose) {
        return Err(format!(
            "weir says {error:?}, serde_json accepts: {serde_accepts}"
        ));
    }
    Ok(())
}

/// A submit that weir takes is the one that serde_json reads.
fn submit(data: &[u8], reference: Option<Pairs>) -> Checked {
    let Ok(submit) = Submit::parse(data, None) else {
        return Ok(());
    };
    let pairs = reference
        .ok_or("a submit is taken that serde_json does not read")?
        .0;
    let number = |name: &str| {
        let value = pairs
            .iter()
            .find(|(other, _)| other == name)
            .map(|(_, value)| value);
        value.and_then(serde_json::Value::as_u64)
    };
    let text = pairs
        .iter()
        .find(|(name, _)| name == "request_id")
        .and_then(|(_, value)| value.as_str());
    same("request_id", &Some(submit.request_id.as_str()), &text)?;
    same(
        "activity_id",
        &Some(submit.activity.0),
        &number("activity_id"),
    )?;
    same("sku_id", &Some(submit.sku.0), &number("sku_id"))?;
    same("user_id", &Some(submit.user.0), &number("user_id"))?;
    same(
        "quantity",
        &Some(u64::from(submit.quantity)),
        &number("quantity"),
    )?;
    same(
        "attempt",
        &u64::from(submit.attempt),
        &number("attempt").unwrap_or(0),
    )?;
    let known = [
        "request_id",
        "activity_id",
        "sku_id",
        "user_id",
        "quantity",
        "attempt",
    ];
    match pairs
        .iter()
        .find(|(name, _)| !known.contains(&name.as_str()))
    {
        None => Ok(()),
        Some((name, _)) => Err(format!("a submit is taken with the member {name:?}")),
    }
}
