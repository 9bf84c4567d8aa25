//! The request parser: one value per connection that turns the bytes so far into a request, a refusal or "more, please".
//!
//! Called by weir-core with all bytes not yet consumed. Lines are checked one by one as their ends arrive, so the answer
//! depends on the bytes alone, never on how they were cut; facts are kept as offsets, so nothing is read twice.
//! What spans lines (Host present, one framing, size, expectation) is judged at the end of the head, in that order.

use super::chunked::{ChunkScan, ChunkedBody};
use super::class::{self, TOKEN};
use super::cursor::{Cursor, Line};
use super::facts::{Facts, Span};
use super::field::{self, Field, Framing, Name};
use super::reject::HttpReject;
use super::{Body, Method, Request, Version, target};
use crate::limits::{BODY_BYTES_MAX, HEAD_BYTES_MAX, HEADER_LINES_MAX, REQUEST_LINE_BYTES_MAX};
use core::ops::Range;

/// What the bytes so far amount to.
#[derive(Clone, Copy, Debug)]
pub enum Parsed<'a> {
    /// One whole request; its bytes, `consumed` of them, are to be dropped from the input after use.
    Done {
        /// The request, in slices of the input.
        request: Request<'a>,
        /// How many bytes it took, a skipped CRLF before it included.
        consumed: usize,
    },
    /// Call again with at least one byte more.
    NeedMore,
    /// The head is complete and its client waits with the body: write 100 Continue. At most once per request.
    Continue,
    /// The bytes are refused: send one answer, close. Every further call says the same.
    Reject(HttpReject),
}

/// Reads the requests of one connection, one after the other; resumable at any byte, ready for the next after `Done`.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestParser {
    stage: Stage,
    cursor: Cursor,
    /// 2 after a skipped CRLF, else 0.
    head_start: usize,
    body_start: usize,
    header_lines: usize,
    continue_due: bool,
    facts: Facts,
    chunks: ChunkScan,
}

#[derive(Clone, Copy, Debug, Default)]
enum Stage {
    #[default]
    Start,
    RequestLine,
    Fields,
    Sized {
        body_bytes: usize,
    },
    Chunked,
    Refused(HttpReject),
}

enum Step {
    Done,
    NeedMore,
    Continue,
}

impl RequestParser {
    /// Reads on. `input` starts with the first byte not yet consumed and holds every byte of the call before.
    /// A request in parts costs no more than one in a piece: each call looks at the new bytes only.
    pub fn parse<'a>(&mut self, input: &'a [u8]) -> Parsed<'a> {
        assert!(
            input.len() >= self.cursor.at(),
            "the caller keeps all bytes of an open request"
        );
        match self.advance(input) {
            Ok(Step::Done) => {
                let request = self.request(input);
                let consumed = self.cursor.at();
                *self = Self::default();
                Parsed::Done { request, consumed }
            }
            Ok(Step::NeedMore) => Parsed::NeedMore,
            Ok(Step::Continue) => Parsed::Continue,
            Err(reject) => {
                self.stage = Stage::Refused(reject);
                Parsed::Reject(reject)
            }
        }
    }

    /// True when a request has begun and is not complete (for deadlines). A skipped CRLF begins nothing.
    pub fn is_open(&self) -> bool {
        !matches!(self.stage, Stage::Start)
    }

    /// True when the head is complete and the body is awaited (for deadlines).
    pub fn is_in_body(&self) -> bool {
        matches!(self.stage, Stage::Sized { .. } | Stage::Chunked)
    }

    /// Goes through the stages from the one it stands at. Each of the first three says whether it is over.
    #[inline(always)]
    fn advance(&mut self, input: &[u8]) -> Result<Step, HttpReject> {
        let is_over = (!matches!(self.stage, Stage::Start) || self.start(input)?)
            && (!matches!(self.stage, Stage::RequestLine) || self.request_line(input)?)
            && (!matches!(self.stage, Stage::Fields) || self.fields(input)?);
        match self.stage {
            Stage::Sized { body_bytes } if is_over => {
                let body_end = self.body_start + body_bytes;
                if input.len() < body_end {
                    return Ok(self.wait_for_body(input));
                }
                self.cursor = Cursor::new(body_end);
                Ok(Step::Done)
            }
            Stage::Chunked if is_over => {
                let chunks = &mut self.chunks;
                if chunks.advance(&mut self.cursor, input, self.body_start)? {
                    Ok(Step::Done)
                } else {
                    Ok(self.wait_for_body(input))
                }
            }
            Stage::Refused(reject) => Err(reject),
            _ => Ok(Step::NeedMore),
        }
    }

    /// RFC 9112 §2.2: one empty line before a request is skipped (old clients send it after a body); a second is refused.
    /// What cannot start a method is refused at its first byte: a TLS hello may never send a line end.
    fn start(&mut self, input: &[u8]) -> Result<bool, HttpReject> {
        if input.first() == Some(&b'\r') && self.head_start == 0 {
            match input.get(1) {
                None => return Ok(false),
                Some(b'\n') => {
                    self.head_start = 2;
                    self.cursor = Cursor::new(2);
                }
                Some(_) => return Err(HttpReject::LineEnd),
            }
        }
        match input.get(self.head_start) {
            None => Ok(false),
            Some(b'\r' | b'\n') => Err(HttpReject::LineEnd),
            Some(&byte) if class::is(byte, TOKEN) => {
                self.stage = Stage::RequestLine;
                Ok(true)
            }
            Some(_) => Err(HttpReject::RequestLine),
        }
    }

    fn request_line(&mut self, input: &[u8]) -> Result<bool, HttpReject> {
        let end_max = self.head_start + REQUEST_LINE_BYTES_MAX + 2;
        let seen = &input[..input.len().min(end_max)];
        let mut place = None;
        self.cursor.each_usual_line(seen, |line| {
            place = Some(line);
            Ok(false)
        })?;
        let place = match place {
            Some(place) => place,
            None => {
                let too_long = HttpReject::RequestLineTooLong;
                match self.cursor.take_line(seen, end_max, too_long)? {
                    Some(line) => line.place,
                    None => return Ok(false),
                }
            }
        };
        let start = place.start;
        let line = &input[place];
        // RFC 9112 §3: single spaces only, so the version is the last eight bytes and the target lies between.
        let method_bytes = method_bytes(line).ok_or(HttpReject::RequestLine)?;
        let Some((rest, version)) = line.split_last_chunk() else {
            return Err(HttpReject::RequestLine);
        };
        let version_start = rest.len();
        if version_start < method_bytes + 3 {
            return Err(HttpReject::RequestLine); // no room for a target between two spaces
        }
        self.facts.version = version_of(version)?;
        if line[version_start - 1] != b' ' {
            return Err(HttpReject::Version);
        }
        let target_start = method_bytes + 1;
        let target = &line[target_start..version_start - 1];
        self.facts.method = match method_of(&line[..method_bytes]) {
            // A line of four words is malformed rather than a strange method.
            Err(HttpReject::MethodUnknown) if target.contains(&b' ') => {
                return Err(HttpReject::RequestLine);
            }
            method => method?,
        };
        let target = target::parse(self.facts.method, target)?;
        let base = start + target_start;
        self.facts.path = Span::within(base, target.path());
        if let Some(query) = target.query() {
            self.facts.query = Span::within(base, query);
        }
        if let Some(authority) = target.authority() {
            self.facts.authority = Span::within(base, authority);
        }
        self.stage = Stage::Fields;
        Ok(true)
    }

    fn fields(&mut self, input: &[u8]) -> Result<bool, HttpReject> {
        let end_max = self.head_start + HEAD_BYTES_MAX;
        let seen = &input[..input.len().min(end_max)];
        loop {
            let (mut header_lines, mut is_over) = (self.header_lines, false);
            let facts = &mut self.facts;
            self.cursor.each_usual_line(seen, |line| {
                if line.is_empty() {
                    is_over = true;
                    return Ok(false);
                }
                header_lines += 1;
                field_line(facts, input, &line, false, header_lines)?;
                Ok(true)
            })?;
            self.header_lines = header_lines;
            if is_over {
                break;
            }
            let too_long = HttpReject::HeadTooLarge;
            match self.cursor.take_line(seen, end_max, too_long)? {
                None => return Ok(false),
                Some(line) if line.place.is_empty() => break,
                Some(line) => {
                    self.header_lines += 1;
                    unusual_line(&mut self.facts, input, &line, self.header_lines)?;
                }
            }
        }
        self.body_start = self.cursor.at();
        self.stage = self.end_head(input)?;
        Ok(true)
    }

    /// Judges the head as a whole and says how the body is read.
    fn end_head(&mut self, input: &[u8]) -> Result<Stage, HttpReject> {
        let facts = &self.facts;
        match facts.kept.field(Field::Host) {
            // RFC 9112 §3.2: required since 1.1; load balancers check health in 1.0 without it.
            None if facts.version == Version::Http11 => return Err(HttpReject::Host),
            host => {
                // RFC 9112 §3.2.2 would prefer the target's authority; two different names are refused instead.
                if let Some(authority) = facts.authority.some() {
                    let named = host.map(|span| span.of(input)).unwrap_or_default();
                    if !named.eq_ignore_ascii_case(authority.of(input)) {
                        return Err(HttpReject::Host);
                    }
                }
            }
        }
        if facts.is_chunked && facts.content_length.is_some() {
            return Err(HttpReject::FramingConflict); // RFC 9112 §6.1
        }
        let body_bytes = facts.content_length.unwrap_or(0) as usize;
        if body_bytes > BODY_BYTES_MAX {
            return Err(HttpReject::BodyTooLarge);
        }
        if facts.expects_other {
            return Err(HttpReject::Expectation);
        }
        self.continue_due = facts.expects_continue;
        Ok(if facts.is_chunked {
            Stage::Chunked
        } else {
            Stage::Sized { body_bytes }
        })
    }

    /// RFC 9110 §10.1.1: no 100 is needed once any byte of the body is here.
    fn wait_for_body(&mut self, input: &[u8]) -> Step {
        let is_due = self.continue_due && input.len() == self.body_start;
        self.continue_due = false;
        if is_due {
            Step::Continue
        } else {
            Step::NeedMore
        }
    }

    fn request<'a>(&self, input: &'a [u8]) -> Request<'a> {
        let facts = &self.facts;
        let body = &input[self.body_start..self.cursor.at()];
        let path = facts.path.of(input);
        Request {
            method: facts.method,
            path: if path.is_empty() { b"/" } else { path }, // RFC 9112 §3.2.1
            query: facts.query.some().map(|span| span.of(input)),
            version: facts.version,
            // RFC 9112 §9.3
            keep_alive: !facts.says_close
                && (facts.version == Version::Http11 || facts.says_keep_alive),
            body: if facts.is_chunked {
                Body::Chunked(ChunkedBody::new(body, self.chunks.decoded_bytes()))
            } else {
                Body::Whole(body)
            },
            input,
            kept: facts.kept,
        }
    }
}

#[inline(never)]
fn unusual_line(
    facts: &mut Facts,
    input: &[u8],
    line: &Line,
    number: usize,
) -> Result<(), HttpReject> {
    field_line(facts, input, &line.place, line.has_control, number)
}

#[inline(always)]
fn field_line(
    facts: &mut Facts,
    input: &[u8],
    line: &Range<usize>,
    has_control: bool,
    number: usize,
) -> Result<(), HttpReject> {
    if number > HEADER_LINES_MAX {
        return Err(HttpReject::HeadTooLarge);
    }
    let (name, value) = field::split(&input[line.start..], line.len(), has_control)?;
    let value = line.start + value.start..line.start + value.end;
    match name {
        Name::Other => Ok(()),
        Name::Kept(field) => kept_line(facts, input, field, value),
        Name::Framing(name) => framing_line(facts, input, name, line, value),
    }
}

#[inline(always)]
fn kept_line(
    facts: &mut Facts,
    input: &[u8],
    field: Field,
    place: Range<usize>,
) -> Result<(), HttpReject> {
    let slot = &mut facts.kept.fields[field as usize];
    let is_first = slot.some().is_none();
    if field == Field::Host && !(is_first && target::is_host(&input[place.clone()])) {
        return Err(HttpReject::Host);
    }
    if is_first {
        *slot = Span::new(place);
    } else if !field.may_repeat() {
        return Err(HttpReject::FieldRepeated);
    }
    Ok(())
}

/// A line that says how the message is read or what becomes of the connection, or that names sources.
#[inline(never)] // few lines of a head, and much code
fn framing_line(
    facts: &mut Facts,
    input: &[u8],
    name: Framing,
    line: &Range<usize>,
    place: Range<usize>,
) -> Result<(), HttpReject> {
    let value = &input[place];
    match name {
        Framing::Connection => {
            for option in value.split(|&byte| byte == b',') {
                let option = &option[field::trimmed(option, 0..option.len())];
                facts.says_close |= option.eq_ignore_ascii_case(b"close");
                facts.says_keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
            }
        }
        Framing::ContentLength => {
            let length = content_length(value).ok_or(HttpReject::ContentLength)?;
            // RFC 9112 §6.3 rule 5 would let equal ones pass; two are refused even then.
            if facts.content_length.replace(length).is_some() {
                return Err(HttpReject::ContentLength);
            }
        }
        Framing::TransferEncoding => {
            if facts.version == Version::Http10 || facts.is_chunked {
                return Err(HttpReject::TransferEncoding); // RFC 9112 §6.1
            }
            if !value.eq_ignore_ascii_case(b"chunked") {
                let is_coding = !value.is_empty() && class::run(value, TOKEN) == value.len();
                return Err(if is_coding {
                    HttpReject::CodingUnknown
                } else {
                    HttpReject::TransferEncoding
                });
            }
            facts.is_chunked = true;
        }
        Framing::Expect if facts.version == Version::Http10 => {} // RFC 9110 §10.1.1
        Framing::Expect if value.eq_ignore_ascii_case(b"100-continue") => {
            facts.expects_continue = true;
        }
        Framing::Expect => facts.expects_other = true,
        Framing::Forwarded => facts.kept.forwarded.include(line),
        Framing::XForwardedFor => facts.kept.x_forwarded_for.include(line),
    }
    Ok(())
}

/// The length of the token that starts `line`; `None` when no space follows it.
#[inline(always)]
fn method_bytes(line: &[u8]) -> Option<usize> {
    let method_bytes = if line.first_chunk() == Some(b"POST ") {
        4 // as every submit begins
    } else {
        class::run(line, TOKEN)
    };
    (line.get(method_bytes) == Some(&b' ')).then_some(method_bytes)
}

#[inline(always)]
fn version_of(bytes: &[u8; 8]) -> Result<Version, HttpReject> {
    const HTTP_1_1: u64 = u64::from_le_bytes(*b"HTTP/1.1"); // compared at once
    const HTTP_1_0: u64 = u64::from_le_bytes(*b"HTTP/1.0");
    match u64::from_le_bytes(*bytes) {
        HTTP_1_1 => Ok(Version::Http11),
        HTTP_1_0 => Ok(Version::Http10),
        _ => Err(other_version(bytes)),
    }
}

fn other_version(bytes: &[u8; 8]) -> HttpReject {
    match bytes {
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            HttpReject::VersionUnsupported
        }
        _ => HttpReject::Version,
    }
}

/// Methods are case-sensitive (RFC 9110 §9.1).
#[inline(always)]
fn method_of(token: &[u8]) -> Result<Method, HttpReject> {
    if token == b"POST" {
        return Ok(Method::Post);
    }
    match token {
        b"GET" => Ok(Method::Get),
        b"HEAD" => Ok(Method::Head),
        b"OPTIONS" => Ok(Method::Options),
        b"PUT" => Ok(Method::Put),
        b"PATCH" => Ok(Method::Patch),
        b"DELETE" => Ok(Method::Delete),
        b"TRACE" | b"CONNECT" => Err(HttpReject::MethodRefused),
        _ => Err(HttpReject::MethodUnknown),
    }
}

/// Digits only, at least one; a number past the range stays at its top, which is over every limit.
fn content_length(value: &[u8]) -> Option<u32> {
    const { assert!(BODY_BYTES_MAX < u32::MAX as usize) };
    let is_short = value.len() < 10; // as many digits always fit
    let mut length = 0_u32;
    for byte in value {
        if !byte.is_ascii_digit() {
            return None;
        }
        let digit = u32::from(byte - b'0');
        length = if is_short {
            length * 10 + digit
        } else {
            length.saturating_mul(10).saturating_add(digit)
        };
    }
    (!value.is_empty()).then_some(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_length_is_its_digits_or_more_than_any_limit() {
        for length in [0, 7, 8_192, 8_193, 999_999_999, 1_000_000_000, u64::MAX] {
            let expected = u32::try_from(length).unwrap_or(u32::MAX);
            for zeros in ["", "0", "0000000000"] {
                let text = [zeros, &length.to_string()].concat();
                assert_eq!(content_length(text.as_bytes()), Some(expected), "{text}");
            }
        }
        for wrong in ["", "-1", "+1", "1 1", "0x1", "1,1", "12345678901 "] {
            assert_eq!(content_length(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
