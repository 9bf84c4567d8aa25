//! Where a reply ends, and whether it is one: the only place that judges bytes from Redis.
//!
//! A reply is a sequence of lines, some of them followed by a body. What is still owed is a stack of counts, as deep as
//! aggregates may stand in one another; whatever a peer declares is compared with its limit before it is counted.
//! Invariant: a verdict depends on the bytes alone, not on how they were cut.

use super::RespReject;
use super::number::{integer, is_big, is_double, length};
use crate::limits::{
    RESP_BULK_BYTES_MAX, RESP_DEPTH_MAX, RESP_ELEMENTS_MAX, RESP_LINE_BYTES_MAX,
    RESP_REPLY_BYTES_MAX,
};

/// A type and CR LF.
const ELEMENT_BYTES_MIN: usize = 3;

/// What a look at the bytes found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan {
    /// A whole reply, attributes before it included.
    Done {
        /// 3..=`RESP_REPLY_BYTES_MAX`; the next reply starts behind them.
        bytes: usize,
    },
    /// So far valid; more bytes are needed.
    NeedMore,
    /// Not a reply, or one over a limit: the connection is to be closed.
    Reject(RespReject),
}

/// A string whose line has been read and whose bytes follow at `Scanner::at`.
#[derive(Clone, Copy, Debug)]
struct Body {
    bytes: usize,
    is_verbatim: bool,
}

/// Where a reply ends. Keeps its place between calls, so each byte is looked at once however the bytes arrive.
#[derive(Clone, Debug)]
pub struct Scanner {
    /// Start of what is read next: a line, or a body.
    at: usize,
    /// No line end stands before it; only of use while it is behind `at`.
    looked: usize,
    body: Option<Body>,
    /// Elements still to come of each open aggregate, the outermost first; `depth` of them are in use.
    owed: [u32; RESP_DEPTH_MAX],
    depth: usize,
    /// Bit N: the aggregate at depth N is an attribute, which is no element of the one around it.
    attributes: u32,
    /// Declared so far, at every depth.
    elements: usize,
}

/// What one step has come to.
enum Step {
    /// An element has ended.
    Ended,
    /// The elements of an aggregate follow, or a string's body, or what an attribute was about.
    Follows,
    NeedMore,
}

const _: () = assert!(RESP_DEPTH_MAX <= u32::BITS as usize, "one bit per depth");
const _: () = assert!(RESP_ELEMENTS_MAX <= u32::MAX as usize, "a count fits");

impl Default for Scanner {
    fn default() -> Self {
        Self::new()
    }
}

impl Scanner {
    /// At the start of a reply.
    pub const fn new() -> Self {
        Self {
            at: 0,
            looked: 0,
            body: None,
            owed: [0; RESP_DEPTH_MAX],
            depth: 0,
            attributes: 0,
            elements: 0,
        }
    }

    /// Looks at what is new in `bytes`, which always begin with the first byte of the same reply.
    ///
    /// After `Done` the scanner is ready for the next reply, whose bytes begin behind this one. After `Reject` it stays
    /// where it is and says so again.
    pub fn scan(&mut self, bytes: &[u8]) -> Scan {
        loop {
            match self.step(bytes) {
                Ok(Step::Ended) => {
                    if self.end_element() {
                        let bytes = self.at;
                        *self = Self::new();
                        return Scan::Done { bytes };
                    }
                }
                Ok(Step::Follows) => {}
                Ok(Step::NeedMore) => return Scan::NeedMore,
                Err(reject) => return Scan::Reject(reject),
            }
        }
    }

    fn step(&mut self, bytes: &[u8]) -> Result<Step, RespReject> {
        if let Some(body) = self.body {
            return self.read_body(body, bytes);
        }
        let Some((kind, line)) = self.read_line(bytes)? else {
            return Ok(Step::NeedMore);
        };
        let next = self.at + 1 + line.len() + 2;
        let step = self.judge(kind, line, next)?;
        self.at = next; // only now: a refused line stays the next one
        Ok(step)
    }

    /// The type and the text of the line at `at`; `None` until its CR LF is there.
    fn read_line<'b>(&mut self, bytes: &'b [u8]) -> Result<Option<(u8, &'b [u8])>, RespReject> {
        // Said before the bytes are there: a link's input may be full, and then no more would come.
        if self.at + ELEMENT_BYTES_MIN > RESP_REPLY_BYTES_MAX {
            return Err(RespReject::ReplyTooLarge);
        }
        let Some(&kind) = bytes.get(self.at) else {
            return Ok(None);
        };
        if !b"+-:$*_#,(!=%~>|".contains(&kind) {
            return Err(RespReject::TypeUnknown);
        }
        let start = self.at + 1;
        // The last places where its CR may stand.
        let (line_max, reply_max) = (start + RESP_LINE_BYTES_MAX, RESP_REPLY_BYTES_MAX - 2);
        let last = line_max.min(reply_max);
        let from = self.looked.max(start);
        let until = bytes.len().min(last + 1);
        let window = bytes.get(from..until).unwrap_or_default(); // fewer than last time: none
        let Some(offset) = memchr::memchr2(b'\r', b'\n', window) else {
            self.looked = until;
            return match until > last {
                false => Ok(None),
                true if line_max <= reply_max => Err(RespReject::LineTooLong),
                true => Err(RespReject::ReplyTooLarge),
            };
        };
        let end = from + offset;
        match bytes.get(end..end + 2) {
            Some(b"\r\n") => Ok(Some((kind, &bytes[start..end]))),
            None if bytes[end] == b'\r' => {
                self.looked = end;
                Ok(None)
            }
            _ => Err(RespReject::LineEnd),
        }
    }

    /// `next`: where the bytes behind the line start.
    fn judge(&mut self, kind: u8, line: &[u8], next: usize) -> Result<Step, RespReject> {
        let or = |is_good: bool, reject| {
            if is_good {
                Ok(Step::Ended)
            } else {
                Err(reject)
            }
        };
        match kind {
            b'+' | b'-' => Ok(Step::Ended),
            b':' => or(integer(line).is_some(), RespReject::Integer),
            b'_' => or(line.is_empty(), RespReject::Null),
            b'#' => or(matches!(line, b"t" | b"f"), RespReject::Boolean),
            b',' => or(is_double(line), RespReject::Double),
            b'(' => or(is_big(line), RespReject::BigNumber),
            // RESP2's nulls (redis.io/docs/reference/protocol-spec, "Null bulk strings", "Null arrays").
            b'$' | b'*' if line == b"-1" => Ok(Step::Ended),
            b'$' | b'!' | b'=' => self.open_body(kind, line, next),
            _ => self.open_aggregate(kind, line),
        }
    }

    fn open_body(&mut self, kind: u8, line: &[u8], next: usize) -> Result<Step, RespReject> {
        let body = Body {
            bytes: declared(kind, line, RESP_BULK_BYTES_MAX, RespReject::BulkTooLarge)?,
            is_verbatim: kind == b'=',
        };
        if next + body.bytes + 2 > RESP_REPLY_BYTES_MAX {
            return Err(RespReject::ReplyTooLarge);
        }
        if body.is_verbatim && body.bytes < 4 {
            return Err(RespReject::Verbatim);
        }
        self.body = Some(body);
        Ok(Step::Follows)
    }

    /// Judged when all of it is there, and in this order, so that cuts do not matter.
    fn read_body(&mut self, body: Body, bytes: &[u8]) -> Result<Step, RespReject> {
        let end = self.at + body.bytes;
        let Some(line_end) = bytes.get(end..end + 2) else {
            return Ok(Step::NeedMore);
        };
        if line_end != b"\r\n" {
            return Err(RespReject::BulkEnd);
        }
        if body.is_verbatim && bytes[self.at + 3] != b':' {
            return Err(RespReject::Verbatim);
        }
        self.at = end + 2;
        self.body = None;
        Ok(Step::Ended)
    }

    fn open_aggregate(&mut self, kind: u8, line: &[u8]) -> Result<Step, RespReject> {
        let is_attribute = kind == b'|';
        let count = declared(kind, line, RESP_ELEMENTS_MAX, RespReject::TooManyElements)?;
        let elements = if kind == b'%' || is_attribute {
            2 * count
        } else {
            count
        };
        if kind == b'>' && self.depth > 0 {
            return Err(RespReject::PushInside);
        }
        if self.depth == RESP_DEPTH_MAX {
            return Err(RespReject::TooDeep);
        }
        if self.elements + elements > RESP_ELEMENTS_MAX {
            return Err(RespReject::TooManyElements);
        }
        self.elements += elements;
        if elements == 0 {
            return Ok(if is_attribute {
                Step::Follows
            } else {
                Step::Ended
            });
        }
        self.owed[self.depth] = elements as u32; // at most RESP_ELEMENTS_MAX
        self.attributes |= u32::from(is_attribute) << self.depth;
        self.depth += 1;
        Ok(Step::Follows)
    }

    /// Counts an element that has ended, and the aggregates that end with it; true when the reply has ended.
    fn end_element(&mut self) -> bool {
        while let Some(top) = self.depth.checked_sub(1) {
            self.owed[top] -= 1;
            if self.owed[top] > 0 {
                return false;
            }
            self.depth = top;
            let bit = 1 << top;
            if self.attributes & bit != 0 {
                self.attributes &= !bit;
                return false; // what it is about follows
            }
        }
        true
    }
}

/// The length or count in a line, held to `max`.
fn declared(kind: u8, line: &[u8], max: usize, too_large: RespReject) -> Result<usize, RespReject> {
    if line == b"?" && b"$*~%".contains(&kind) {
        return Err(RespReject::Streamed);
    }
    let count = length(line).ok_or(RespReject::Length)?;
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    if count <= max {
        Ok(count)
    } else {
        Err(too_large)
    }
}
