//! weir's reader of Redis replies against a slow model for every verdict, and against redis-protocol.
//!
//! For any bytes: however they are cut, scanner and model say the same, with the same reason, and read the same values.
//! What weir accepts, redis-protocol accepts and reads alike but for [`NARROWER`]; what weir refuses, redis-protocol
//! refuses too, but for [`STRICTER`] and weir's limits. Keys have the same slot; commands are read back.

use super::resp_model::{self as model, Node, Stop};
use super::{Checked, same, seed_of};
use redis_protocol::resp3::decode::complete::decode_range;
use redis_protocol::resp3::types::{RangeFrame, VerbatimStringFormat};
use std::ops::Range;
use weir_proto::resp::{RespReject, Scan, Scanner, Value, command, key_slot, read};

/// Where weir refuses on purpose what redis-protocol accepts, with the part of the text that is its reason.
pub const STRICTER: [(RespReject, &str); 10] = [
    (RespReject::TypeUnknown, "Streamed strings"),
    (RespReject::LineEnd, "Simple string"),
    (RespReject::Integer, "Number"),
    (RespReject::Length, "Blob string"),
    (RespReject::BulkEnd, "Blob string"),
    (RespReject::Null, "Null"),
    (RespReject::Double, "Double"),
    (RespReject::BigNumber, "Big number"),
    (RespReject::Verbatim, "Verbatim string"),
    (RespReject::PushInside, "Push type"),
];

/// Limits, which redis-protocol does not have.
const LIMITS: [RespReject; 5] = [
    RespReject::LineTooLong,
    RespReject::BulkTooLarge,
    RespReject::TooManyElements,
    RespReject::TooDeep,
    RespReject::ReplyTooLarge,
];

/// What is of the text and redis-protocol cannot take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Narrower {
    /// It keeps maps and sets in hash tables, and aggregates have no hash there.
    AggregateKey,
    /// It knows no verbatim format but the two of the text.
    VerbatimFormat,
    /// Its null has no room for attributes.
    NotedNull,
    /// It wants a value behind an attribute at once.
    AttributeOfAttribute,
}

/// All of them.
pub const NARROWER: [Narrower; 4] = [
    Narrower::AggregateKey,
    Narrower::VerbatimFormat,
    Narrower::NotedNull,
    Narrower::AttributeOfAttribute,
];

/// Inputs up to this length are also shown byte by byte.
const BYTEWISE_BYTES_MAX: usize = 1024;
/// Keys of maps are compared with each other up to this many.
const REPEATS_SOUGHT_MAX: usize = 256;

/// The replies in `raw`, whose pieces end at `cuts`, and the last verdict.
fn story(raw: &[u8], cuts: impl IntoIterator<Item = usize>) -> (Vec<Range<usize>>, Scan) {
    let mut scanner = Scanner::new();
    let (mut replies, mut start, mut last) = (Vec::new(), 0, Scan::NeedMore);
    for cut in cuts {
        while start < cut {
            last = scanner.scan(&raw[start..cut]);
            match last {
                Scan::Done { bytes } => {
                    replies.push(start..start + bytes);
                    start += bytes;
                }
                Scan::NeedMore => break,
                Scan::Reject(_) => return (replies, last),
            }
        }
    }
    (replies, last)
}

/// Checks `data` as what a Redis sends on one connection; as a key; as a command.
pub fn check(data: &[u8]) -> Checked {
    let whole = story(data, [data.len()]);
    let mut seed = seed_of(data);
    let cuts = std::iter::from_fn(|| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        Some((seed >> 33) as usize % 24)
    });
    let mut end = 0;
    let cuts: Vec<usize> = cuts
        .map(|step| {
            end = (end + step).min(data.len());
            end
        })
        .take_while(|&end| end < data.len())
        .collect();
    same(
        "cut",
        &story(data, cuts.into_iter().chain([data.len()])),
        &whole,
    )?;
    if data.len() <= BYTEWISE_BYTES_MAX {
        same("byte by byte", &story(data, 1..=data.len()), &whole)?;
    }
    let mut start = 0;
    for reply in &whole.0 {
        same("start", &reply.start, &start)?;
        accepted(&data[start..], &data[reply.clone()])?;
        start = reply.end;
    }
    if start < data.len() {
        stopped(&data[start..], whole.1)?;
    }
    same(
        "slot",
        &key_slot(data),
        &redis_protocol::redis_keyslot(data),
    )?;
    written(data)
}

/// `rest` begins with the reply `frame`.
fn accepted(rest: &[u8], frame: &[u8]) -> Checked {
    let reply = match model::read(rest) {
        Ok(reply) => reply,
        Err(stop) => return Err(format!("weir accepts, the model says {stop:?}")),
    };
    same("bytes", &frame.len(), &reply.bytes)?;
    same("value", &node(read(frame)), &reply.node)?;
    match decode_range(&reply.plain) {
        Ok(Some((theirs, bytes))) => {
            same("bytes of redis-protocol", &reply.plain.len(), &bytes)?;
            if agrees(&reply.node, &theirs, &reply.plain) {
                return Ok(());
            }
            Err(format!("weir {:?}, redis-protocol {theirs:?}", reply.node))
        }
        _ if !reply.narrower.is_empty() => Ok(()),
        other => Err(format!(
            "weir accepts {:?}, redis-protocol says {other:?}",
            reply.node
        )),
    }
}

/// `rest` does not begin with a whole reply, and `verdict` says why.
fn stopped(rest: &[u8], verdict: Scan) -> Checked {
    let wanted = match model::read(rest) {
        Ok(reply) => {
            return Err(format!(
                "weir says {verdict:?}, the model reads {:?}",
                reply.node
            ));
        }
        Err(Stop::NeedMore) => Scan::NeedMore,
        Err(Stop::Reject(reject)) => Scan::Reject(reject),
    };
    same("verdict", &verdict, &wanted)?;
    let is_explained = match verdict {
        Scan::Reject(reject) => {
            LIMITS.contains(&reject) || STRICTER.iter().any(|(stricter, _)| *stricter == reject)
        }
        _ => false,
    };
    if !is_explained && matches!(decode_range(rest), Ok(Some(_))) {
        return Err(format!("weir says {verdict:?}, redis-protocol accepts"));
    }
    Ok(())
}

/// The reason why weir refuses the first reply of `raw`, if redis-protocol accepts it.
pub fn stricter(raw: &[u8]) -> Option<RespReject> {
    match Scanner::new().scan(raw) {
        // Never asked about what is over a limit: it recurses as deep as its input says.
        Scan::Reject(reject) if !LIMITS.contains(&reject) => {
            matches!(decode_range(raw), Ok(Some(_))).then_some(reject)
        }
        _ => None,
    }
}

/// What in the first reply of `raw` makes redis-protocol refuse what weir accepts.
pub fn narrower(raw: &[u8]) -> Vec<Narrower> {
    match model::read(raw) {
        Ok(reply) if !matches!(decode_range(&reply.plain), Ok(Some(_))) => {
            reply.narrower.into_iter().collect()
        }
        _ => Vec::new(),
    }
}

/// A value of weir's, copied.
fn node(value: Value<'_>) -> Node {
    match value {
        Value::Simple(text) => Node::Simple(text.to_vec()),
        Value::Error(error) => Node::Error(error.text.to_vec()),
        Value::Integer(number) => Node::Integer(number),
        Value::Bulk(bytes) => Node::Bulk(bytes.to_vec()),
        Value::Null => Node::Null,
        Value::Double(number) => Node::Double(model::bits(number)),
        Value::Boolean(is_true) => Node::Boolean(is_true),
        Value::BigNumber(digits) => Node::Big(digits.to_vec()),
        Value::Verbatim { format, text } => Node::Verbatim(format.to_vec(), text.to_vec()),
        Value::Array(items) => Node::Array(items.map(node).collect()),
        Value::Map(items) => Node::Map(items.map(node).collect()),
        Value::Set(items) => Node::Set(items.map(node).collect()),
        Value::Push(items) => Node::Push(items.map(node).collect()),
    }
}

/// True when redis-protocol has read the same from `plain`. Its maps and sets have no order, and equal keys once.
fn agrees(ours: &Node, theirs: &RangeFrame, plain: &[u8]) -> bool {
    let is = |text: &[u8], range: &(usize, usize)| plain.get(range.0..range.1) == Some(text);
    let in_order = |ours: &[Node], theirs: &[RangeFrame]| {
        ours.len() == theirs.len()
            && ours
                .iter()
                .zip(theirs)
                .all(|(ours, theirs)| agrees(ours, theirs, plain))
    };
    let sizes = |ours: Vec<&Node>, theirs: usize| {
        ours.len() == theirs
            || (theirs < ours.len()
                && (ours.len() > REPEATS_SOUGHT_MAX
                    || ours
                        .iter()
                        .enumerate()
                        .any(|(at, key)| ours[..at].contains(key))))
    };
    match (ours, theirs) {
        (Node::Simple(text), RangeFrame::SimpleString { data, .. })
        | (Node::Error(text), RangeFrame::SimpleError { data, .. })
        | (Node::Error(text), RangeFrame::BlobError { data, .. })
        | (Node::Bulk(text), RangeFrame::BlobString { data, .. })
        | (Node::Big(text), RangeFrame::BigNumber { data, .. }) => is(text, data),
        (Node::Integer(number), RangeFrame::Number { data, .. }) => number == data,
        (Node::Null, RangeFrame::Null) => true,
        (Node::Double(bits), RangeFrame::Double { data, .. }) => *bits == model::bits(*data),
        (Node::Boolean(is_true), RangeFrame::Boolean { data, .. }) => is_true == data,
        (
            Node::Verbatim(format, text),
            RangeFrame::VerbatimString {
                data,
                format: theirs,
                ..
            },
        ) => {
            let theirs = match theirs {
                VerbatimStringFormat::Text => b"txt",
                VerbatimStringFormat::Markdown => b"mkd",
            };
            format == theirs && is(text, data)
        }
        (Node::Array(items), RangeFrame::Array { data, .. })
        | (Node::Push(items), RangeFrame::Push { data, .. }) => in_order(items, data),
        (Node::Map(items), RangeFrame::Map { data, .. }) => {
            let is_ours = |(key, value): (&RangeFrame, &RangeFrame)| {
                let mut pairs = items.chunks(2);
                pairs.any(|pair| agrees(&pair[0], key, plain) && agrees(&pair[1], value, plain))
            };
            sizes(items.iter().step_by(2).collect(), data.len()) && data.iter().all(is_ours)
        }
        (Node::Set(items), RangeFrame::Set { data, .. }) => {
            let is_ours =
                |member: &RangeFrame| items.iter().any(|ours| agrees(ours, member, plain));
            sizes(items.iter().collect(), data.len()) && data.iter().all(is_ours)
        }
        _ => false,
    }
}

/// The words of `data` as a command: redis-protocol reads them back.
fn written(data: &[u8]) -> Checked {
    let parts: Vec<&[u8]> = data.split(|&byte| byte == b' ').collect();
    let mut raw = Vec::new();
    command(&mut raw, &parts);
    let parts = parts.iter().map(|part| Node::Bulk(part.to_vec())).collect();
    match decode_range(&raw) {
        Ok(Some((theirs, bytes)))
            if bytes == raw.len() && agrees(&Node::Array(parts), &theirs, &raw) =>
        {
            Ok(())
        }
        other => Err(format!("a command that redis-protocol reads as {other:?}")),
    }
}
