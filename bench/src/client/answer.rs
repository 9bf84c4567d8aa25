//! Reads one HTTP/1.1 answer from the front of what a connection received.
//!
//! Called by the engine with everything that is not consumed yet. No state and no allocation: an answer that is not
//! whole says how many bytes make another look worth while. Strict, because it also tests the server: an answer must
//! state its length, and anything outside the grammar (RFC 9112 §4-6) ends the connection.

use crate::limits::{ANSWER_BODY_BYTES_MAX, ANSWER_HEAD_BYTES_MAX, ANSWER_LINES_MAX};
use std::ops::Range;

/// What the front of the bytes is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// A whole answer.
    Done(AnswerAt),
    /// An interim answer (1xx): drop so many bytes and read on (RFC 9110 §15.2).
    Interim(usize),
    /// Not whole; look again at so many bytes or more.
    NeedMore(usize),
    /// Not an answer that we accept.
    Bad(BadAnswer),
}

/// Where the parts of a whole answer are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerAt {
    /// 200..=599.
    pub status: u16,
    /// The body.
    pub body: Range<usize>,
    /// The server ends the connection after this answer.
    pub close: bool,
    /// `Retry-After` in whole seconds, when there.
    pub retry_after_s: Option<u32>,
}

impl AnswerAt {
    /// Bytes of head and body.
    pub fn bytes(&self) -> usize {
        self.body.end
    }
}

/// What is wrong with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BadAnswer {
    /// Not `HTTP/1.1 SP 3DIGIT SP reason`, or a status outside 100..=599, or 101.
    StatusLine,
    /// A header line outside the grammar, a bare CR or LF, or a folded line.
    HeaderLine,
    /// Content-Length is missing, repeated, or no number.
    Length,
    /// A transfer coding: not read here.
    TransferEncoding,
    /// Head or body above the limits.
    TooLong,
    /// Bytes that no request asked for.
    Unasked,
}

impl BadAnswer {
    /// For reports: what was wrong, in one word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::StatusLine => "bad_status_line",
            Self::HeaderLine => "bad_header_line",
            Self::Length => "bad_length",
            Self::TransferEncoding => "transfer_encoding",
            Self::TooLong => "answer_too_long",
            Self::Unasked => "unasked_bytes",
        }
    }
}

const STATUS_LINE: &[u8] = b"HTTP/1.1 ";
/// The shortest answer: `HTTP/1.1 204 CRLF CRLF`.
const ANSWER_BYTES_MIN: usize = 17;

/// Reads the answer at the front of `bytes`. `to_head`: the request was HEAD, so no body follows (RFC 9112 §6.3).
pub fn read_answer(bytes: &[u8], to_head: bool) -> Read {
    match read(bytes, to_head) {
        Ok(read) => read,
        Err(bad) => Read::Bad(bad),
    }
}

fn read(bytes: &[u8], to_head: bool) -> Result<Read, BadAnswer> {
    let common = bytes.len().min(STATUS_LINE.len());
    if bytes[..common] != STATUS_LINE[..common] {
        return Err(BadAnswer::StatusLine); // at once: garbage must not wait for its end of line
    }
    let mut lines = Lines { bytes, at: 0 };
    let Some(first) = lines.next()? else {
        return need_more(bytes);
    };
    let status = status_of(first)?;
    let mut fields = Fields::default();
    let mut count = 0;
    loop {
        let Some(line) = lines.next()? else {
            return need_more(bytes);
        };
        if line.is_empty() {
            break;
        }
        count += 1;
        if count > ANSWER_LINES_MAX {
            return Err(BadAnswer::TooLong);
        }
        fields.take(line)?;
    }
    finish(status, &fields, lines.at, bytes.len(), to_head)
}

fn finish(
    status: u16,
    fields: &Fields,
    head_bytes: usize,
    have: usize,
    to_head: bool,
) -> Result<Read, BadAnswer> {
    if status < 200 {
        // RFC 9110 §8.6: no Content-Length in a 1xx; 101 is for an Upgrade, and we never ask for one.
        return match (status, fields.length) {
            (101, _) => Err(BadAnswer::StatusLine),
            (_, None) => Ok(Read::Interim(head_bytes)),
            (_, Some(_)) => Err(BadAnswer::Length),
        };
    }
    let body_bytes = match (to_head || status == 204 || status == 304, fields.length) {
        (true, _) => 0,
        (false, Some(length)) => length,
        // RFC 9112 §6.3 would read until the end of the connection: a cut answer would look whole.
        (false, None) => return Err(BadAnswer::Length),
    };
    if body_bytes > ANSWER_BODY_BYTES_MAX {
        return Err(BadAnswer::TooLong);
    }
    let end = head_bytes + body_bytes;
    if have < end {
        return Ok(Read::NeedMore(end));
    }
    Ok(Read::Done(AnswerAt {
        status,
        body: head_bytes..end,
        close: fields.close,
        retry_after_s: fields.retry_after_s,
    }))
}

fn need_more(bytes: &[u8]) -> Result<Read, BadAnswer> {
    if bytes.len() >= ANSWER_HEAD_BYTES_MAX {
        return Err(BadAnswer::TooLong);
    }
    Ok(Read::NeedMore((bytes.len() + 1).max(ANSWER_BYTES_MIN)))
}

/// RFC 9112 §4: `HTTP-version SP status-code SP [ reason-phrase ]`; a missing last space is forgiven by many, not here.
fn status_of(line: &[u8]) -> Result<u16, BadAnswer> {
    let rest = line
        .strip_prefix(STATUS_LINE)
        .ok_or(BadAnswer::StatusLine)?;
    let [a, b, c, b' ', reason @ ..] = rest else {
        return Err(BadAnswer::StatusLine);
    };
    if !(b'1'..=b'5').contains(a) || !b.is_ascii_digit() || !c.is_ascii_digit() {
        return Err(BadAnswer::StatusLine);
    }
    if !reason.iter().all(|&byte| is_field_byte(byte)) {
        return Err(BadAnswer::StatusLine);
    }
    let digit = |byte: &u8| u16::from(byte - b'0');
    Ok(100 * digit(a) + 10 * digit(b) + digit(c))
}

/// Lines that end in CRLF; a bare CR or LF is refused.
struct Lines<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Lines<'a> {
    fn next(&mut self) -> Result<Option<&'a [u8]>, BadAnswer> {
        let rest = &self.bytes[self.at..];
        let Some(end) = memchr::memchr(b'\n', rest) else {
            return Ok(None);
        };
        let line = rest[..end]
            .strip_suffix(b"\r")
            .ok_or(BadAnswer::HeaderLine)?;
        self.at += end + 1;
        if self.at > ANSWER_HEAD_BYTES_MAX {
            return Err(BadAnswer::TooLong);
        }
        Ok(Some(line))
    }
}

/// The fields that we act on.
#[derive(Default)]
struct Fields {
    length: Option<usize>,
    close: bool,
    retry_after_s: Option<u32>,
}

impl Fields {
    fn take(&mut self, line: &[u8]) -> Result<(), BadAnswer> {
        let colon = memchr::memchr(b':', line).ok_or(BadAnswer::HeaderLine)?;
        let (name, value) = (&line[..colon], trim(&line[colon + 1..]));
        // An empty name is no token; a space at the front would be a folded line (RFC 9112 §5.2).
        if name.is_empty() || !name.iter().all(|&byte| is_token_byte(byte)) {
            return Err(BadAnswer::HeaderLine);
        }
        if !value.iter().all(|&byte| is_field_byte(byte)) {
            return Err(BadAnswer::HeaderLine);
        }
        match name.len() {
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                let length = number(value).ok_or(BadAnswer::Length)?;
                if self.length.replace(length as usize).is_some() {
                    return Err(BadAnswer::Length);
                }
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                return Err(BadAnswer::TransferEncoding);
            }
            10 if name.eq_ignore_ascii_case(b"connection") => {
                self.close |= value
                    .split(|&byte| byte == b',')
                    .any(|option| trim(option).eq_ignore_ascii_case(b"close"));
            }
            11 if name.eq_ignore_ascii_case(b"retry-after") => self.retry_after_s = number(value),
            _ => {}
        }
        Ok(())
    }
}

/// Digits only, at most nine: more is above every limit of ours.
fn number(digits: &[u8]) -> Option<u32> {
    if digits.is_empty() || digits.len() > 9 {
        return None;
    }
    digits.iter().try_fold(0_u32, |sum, byte| {
        byte.is_ascii_digit()
            .then(|| 10 * sum + u32::from(byte - b'0'))
    })
}

/// Without spaces and tabs around it (RFC 9110 §5.5).
fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// RFC 9110 §5.5: visible bytes, obs-text, space and tab.
const fn is_field_byte(byte: u8) -> bool {
    byte == b'\t' || (byte >= 0x20 && byte != 0x7f)
}

/// RFC 9110 §5.6.2.
const fn is_token_byte(byte: u8) -> bool {
    matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'z' | b'|' | b'~')
        || byte.is_ascii_digit()
        || byte.is_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PLAIN: &[u8] =
        b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\nContent-Length: 5\r\n\r\nhello";

    fn done(bytes: &[u8], to_head: bool) -> AnswerAt {
        match read_answer(bytes, to_head) {
            Read::Done(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_prefix_needs_more_and_names_no_more_than_the_whole() {
        for end in 0..PLAIN.len() {
            match read_answer(&PLAIN[..end], false) {
                Read::NeedMore(at_least) => assert!(at_least > end && at_least <= PLAIN.len()),
                other => panic!("{end}: {other:?}"),
            }
        }
        let answer = done(PLAIN, false);
        assert_eq!((answer.status, answer.close), (429, false));
        assert_eq!(answer.retry_after_s, Some(7));
        assert_eq!(&PLAIN[answer.body.clone()], b"hello");
        assert_eq!(answer.bytes(), PLAIN.len());
        // What follows is another answer.
        assert_eq!(done(&[PLAIN, PLAIN].concat(), false), answer);
    }

    #[test]
    fn head_204_and_304_have_no_body_whatever_their_length_says() {
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
        assert_eq!(done(head, true).body, head.len()..head.len());
        for status in ["204", "304"] {
            let bytes = format!("HTTP/1.1 {status} x\r\nConnection: keep-alive, Close\r\n\r\nH");
            let answer = done(bytes.as_bytes(), false);
            assert!(answer.close && answer.body.is_empty());
            assert_eq!(answer.bytes(), bytes.len() - 1);
        }
    }

    #[test]
    fn interim_answers_are_dropped() {
        let bytes = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1";
        assert_eq!(read_answer(bytes, false), Read::Interim(25));
        assert_eq!(
            read_answer(b"HTTP/1.1 101 x\r\n\r\n", false),
            Read::Bad(BadAnswer::StatusLine)
        );
    }

    #[test]
    fn what_is_outside_the_grammar_is_refused() {
        for (bytes, bad) in [
            (
                "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
                BadAnswer::StatusLine,
            ),
            ("HTTQ", BadAnswer::StatusLine),
            (
                "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n",
                BadAnswer::StatusLine,
            ),
            ("HTTP/1.1 600 x\r\n", BadAnswer::StatusLine),
            ("HTTP/1.1 099 x\r\n", BadAnswer::StatusLine),
            ("HTTP/1.1 200 x\n", BadAnswer::HeaderLine),
            ("HTTP/1.1 200 x\r\nA b: c\r\n", BadAnswer::HeaderLine),
            ("HTTP/1.1 200 x\r\nA: b\r\n c\r\n", BadAnswer::HeaderLine),
            ("HTTP/1.1 200 x\r\nA: b\rc\r\n", BadAnswer::HeaderLine),
            ("HTTP/1.1 200 x\r\n: c\r\n", BadAnswer::HeaderLine),
            ("HTTP/1.1 200 x\r\n\r\n", BadAnswer::Length),
            (
                "HTTP/1.1 200 x\r\nContent-Length: +1\r\n",
                BadAnswer::Length,
            ),
            (
                "HTTP/1.1 200 x\r\nContent-Length: 1\r\nContent-Length: 1\r\n",
                BadAnswer::Length,
            ),
            (
                "HTTP/1.1 200 x\r\nTransfer-Encoding: chunked\r\n",
                BadAnswer::TransferEncoding,
            ),
            (
                "HTTP/1.1 200 x\r\nContent-Length: 999999\r\n\r\n",
                BadAnswer::TooLong,
            ),
        ] {
            assert_eq!(
                read_answer(bytes.as_bytes(), false),
                Read::Bad(bad),
                "{bytes:?}"
            );
        }
        let endless = [b"HTTP/1.1 200 x\r\nA: ".as_slice(), &[b'y'; 9000]].concat();
        assert_eq!(read_answer(&endless, false), Read::Bad(BadAnswer::TooLong));
    }

    proptest! {
        #[test]
        fn garbage_never_panics_and_never_reaches_past_its_end(
            prefix in 0..40_usize, noise in proptest::collection::vec(any::<u8>(), 0..200), to_head in any::<bool>(),
        ) {
            let bytes = [&PLAIN[..prefix], &noise].concat();
            match read_answer(&bytes, to_head) {
                Read::Done(answer) => prop_assert!(answer.bytes() <= bytes.len()),
                Read::Interim(n) => prop_assert!(n > 0 && n <= bytes.len()),
                Read::NeedMore(at_least) => prop_assert!(at_least > bytes.len()),
                Read::Bad(_) => {}
            }
        }
    }
}
