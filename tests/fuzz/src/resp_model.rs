//! A slow, obvious reader of Redis replies: one byte at a time, recursive, everything copied.
//!
//! Beside the value it writes the reply as redis-protocol's RESP3 reader takes it: RESP2's nulls as RESP3's. It notes
//! what that reader cannot take.

use super::resp::Narrower;
use std::collections::BTreeSet;
use weir_proto::limits::*;
use weir_proto::resp::RespReject;

/// A value with all that is in it; doubles by their bits, NaN as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    Simple(Vec<u8>),
    Error(Vec<u8>),
    Integer(i64),
    Bulk(Vec<u8>),
    Null,
    Double(u64),
    Boolean(bool),
    Big(Vec<u8>),
    Verbatim(Vec<u8>, Vec<u8>),
    Array(Vec<Node>),
    Map(Vec<Node>),
    Set(Vec<Node>),
    Push(Vec<Node>),
}

/// The bits of a double; of NaN there are many, which say the same.
pub fn bits(number: f64) -> u64 {
    if number.is_nan() {
        f64::NAN.to_bits()
    } else {
        number.to_bits()
    }
}

/// Why there is no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    NeedMore,
    Reject(RespReject),
}

/// A whole reply.
#[derive(Debug)]
pub struct Reply {
    pub node: Node,
    pub bytes: usize,
    /// The reply for redis-protocol.
    pub plain: Vec<u8>,
    /// What in it redis-protocol cannot take.
    pub narrower: BTreeSet<Narrower>,
}

struct Reader<'a> {
    input: &'a [u8],
    at: usize,
    elements: usize,
    plain: Vec<u8>,
    narrower: BTreeSet<Narrower>,
}

/// Reads the first reply of `input`.
pub fn read(input: &[u8]) -> Result<Reply, Stop> {
    let mut reader = Reader {
        input,
        at: 0,
        elements: 0,
        plain: Vec::new(),
        narrower: BTreeSet::new(),
    };
    let node = reader.element(0)?;
    Ok(Reply {
        node,
        bytes: reader.at,
        plain: reader.plain,
        narrower: reader.narrower,
    })
}

fn refuse<T>(reject: RespReject) -> Result<T, Stop> {
    Err(Stop::Reject(reject))
}

fn check(is_good: bool, reject: RespReject) -> Result<(), Stop> {
    if is_good { Ok(()) } else { refuse(reject) }
}

impl Reader<'_> {
    fn next(&mut self) -> Result<u8, Stop> {
        let byte = *self.input.get(self.at).ok_or(Stop::NeedMore)?;
        self.at += 1;
        Ok(byte)
    }

    fn line(&mut self) -> Result<(u8, Vec<u8>), Stop> {
        check(
            self.at + 3 <= RESP_REPLY_BYTES_MAX,
            RespReject::ReplyTooLarge,
        )?;
        let kind = self.next()?;
        let kinds = "+-:$*_#,(!=%~>|";
        check(kinds.contains(char::from(kind)), RespReject::TypeUnknown)?;
        let mut line = Vec::new();
        loop {
            match self.next()? {
                b'\r' => break,
                b'\n' => return refuse(RespReject::LineEnd),
                _ if line.len() == RESP_LINE_BYTES_MAX => return refuse(RespReject::LineTooLong),
                _ if self.at == RESP_REPLY_BYTES_MAX - 1 => {
                    return refuse(RespReject::ReplyTooLarge);
                }
                byte => line.push(byte),
            }
        }
        let end = self.next()?;
        check(end == b'\n', RespReject::LineEnd)?;
        Ok((kind, line))
    }

    /// The string whose length is in `line`.
    fn body(&mut self, line: &[u8], is_verbatim: bool) -> Result<Vec<u8>, Stop> {
        let count = count(line)?;
        check(
            count <= RESP_BULK_BYTES_MAX as u128,
            RespReject::BulkTooLarge,
        )?;
        let count = count as usize;
        check(
            self.at + count + 2 <= RESP_REPLY_BYTES_MAX,
            RespReject::ReplyTooLarge,
        )?;
        check(!is_verbatim || count >= 4, RespReject::Verbatim)?;
        let rest = &self.input[self.at..];
        if rest.len() < count + 2 {
            return Err(Stop::NeedMore);
        }
        check(rest[count..].starts_with(b"\r\n"), RespReject::BulkEnd)?;
        check(!is_verbatim || rest[3] == b':', RespReject::Verbatim)?;
        self.at += count + 2;
        Ok(rest[..count].to_vec())
    }

    /// The elements that `line` counts, `each` of them per count.
    fn items(
        &mut self,
        line: &[u8],
        each: usize,
        depth: usize,
        is_push: bool,
    ) -> Result<Vec<Node>, Stop> {
        let count = count(line)?;
        check(
            count <= RESP_ELEMENTS_MAX as u128,
            RespReject::TooManyElements,
        )?;
        check(!is_push || depth == 0, RespReject::PushInside)?;
        check(depth < RESP_DEPTH_MAX, RespReject::TooDeep)?;
        let count = count as usize * each;
        self.elements += count;
        check(
            self.elements <= RESP_ELEMENTS_MAX,
            RespReject::TooManyElements,
        )?;
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(self.element(depth + 1)?);
        }
        Ok(items)
    }

    /// Notes keys and members that redis-protocol does not put into its tables.
    fn hashed<'n>(&mut self, mut keys: impl Iterator<Item = &'n Node>) {
        let is_aggregate =
            |node: &Node| matches!(node, Node::Array(_) | Node::Map(_) | Node::Set(_));
        if keys.any(is_aggregate) {
            self.narrower.insert(Narrower::AggregateKey);
        }
    }

    fn element(&mut self, depth: usize) -> Result<Node, Stop> {
        self.element_behind(depth, false)
    }

    /// `is_noted`: an attribute stands before it.
    fn element_behind(&mut self, depth: usize, is_noted: bool) -> Result<Node, Stop> {
        let start = self.at;
        let (kind, line) = self.line()?;
        let is_null = kind == b'_' || (b"$*".contains(&kind) && line == b"-1");
        let shown = if is_null && kind != b'_' {
            b"_\r\n"
        } else {
            &self.input[start..self.at]
        };
        self.plain.extend_from_slice(shown);
        if is_noted && is_null {
            self.narrower.insert(Narrower::NotedNull);
        }
        if line == b"?" && b"$*~%".contains(&kind) {
            return refuse(RespReject::Streamed);
        }
        let body_at = self.at;
        let node = match kind {
            _ if is_null => {
                check(kind != b'_' || line.is_empty(), RespReject::Null)?;
                Node::Null
            }
            b'+' => Node::Simple(line),
            b'-' => Node::Error(line),
            b':' => Node::Integer(integer(&line).ok_or(Stop::Reject(RespReject::Integer))?),
            b'#' if line == b"t" => Node::Boolean(true),
            b'#' if line == b"f" => Node::Boolean(false),
            b'#' => return refuse(RespReject::Boolean),
            b',' => Node::Double(bits(double(&line).ok_or(Stop::Reject(RespReject::Double))?)),
            b'(' => {
                let digits = line
                    .strip_prefix(b"-")
                    .or(line.strip_prefix(b"+"))
                    .unwrap_or(&line);
                check(
                    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit),
                    RespReject::BigNumber,
                )?;
                Node::Big(line)
            }
            b'$' => Node::Bulk(self.body(&line, false)?),
            b'!' => Node::Error(self.body(&line, false)?),
            b'=' => {
                let body = self.body(&line, true)?;
                if ![&b"txt"[..], b"mkd"].contains(&&body[..3]) {
                    self.narrower.insert(Narrower::VerbatimFormat);
                }
                Node::Verbatim(body[..3].to_vec(), body[4..].to_vec())
            }
            b'|' => {
                if is_noted {
                    self.narrower.insert(Narrower::AttributeOfAttribute);
                }
                let pairs = self.items(&line, 2, depth, false)?;
                self.hashed(pairs.iter().step_by(2));
                return self.element_behind(depth, true);
            }
            b'%' => {
                let items = self.items(&line, 2, depth, false)?;
                self.hashed(items.iter().step_by(2));
                Node::Map(items)
            }
            b'~' => {
                let items = self.items(&line, 1, depth, false)?;
                self.hashed(items.iter());
                Node::Set(items)
            }
            b'*' => Node::Array(self.items(&line, 1, depth, false)?),
            _ => Node::Push(self.items(&line, 1, depth, true)?),
        };
        if b"$!=".contains(&kind) && !is_null {
            self.plain.extend_from_slice(&self.input[body_at..self.at]);
        }
        Ok(node)
    }
}

/// A count: what its own decimal digits write; too many digits for 128 bits are too many for every limit.
fn count(line: &[u8]) -> Result<u128, Stop> {
    let text = String::from_utf8_lossy(line);
    match text.parse::<u128>() {
        Ok(count) if count.to_string() == text => Ok(count),
        Err(_)
            if text.len() > 38
                && text.bytes().all(|b| b.is_ascii_digit())
                && !text.starts_with('0') =>
        {
            Ok(u128::MAX)
        }
        _ => refuse(RespReject::Length),
    }
}

/// An integer that is written as it would be printed, but for a plus or the sign of zero.
fn integer(line: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(line).ok()?;
    let number = text.parse::<i64>().ok()?;
    let printed = number.to_string();
    (printed == text || format!("+{printed}") == text || text == "-0").then_some(number)
}

/// The text's grammar, from the outside in: exponent, fraction, sign.
fn double(line: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(line).ok()?;
    match text {
        "inf" => return Some(f64::INFINITY),
        "-inf" => return Some(f64::NEG_INFINITY),
        "nan" | "-nan" => return Some(f64::NAN),
        _ => {}
    }
    let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, "0"));
    let is_signed = |part: &str| is_digits(part.strip_prefix(['+', '-']).unwrap_or(part));
    let is_good = is_signed(whole) && is_digits(fraction) && is_signed(exponent);
    is_good.then(|| text.parse().ok())?
}
