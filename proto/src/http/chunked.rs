//! Chunked bodies: a resumable check while the bytes arrive, and a walk over the data once they are all there.
//!
//! The parser drives `ChunkScan`; a request's owner reads `ChunkedBody`. Invariants: a byte of data is stepped over,
//! never looked at; sizes, extensions and trailers are bounded (limits.rs) and dropped. RFC 9112 §7.1.

use super::class::{self, QUOTED, TOKEN};
use super::cursor::Cursor;
use super::field;
use super::reject::HttpReject;
use crate::limits::{
    BODY_BYTES_MAX, CHUNK_EXTENSION_BYTES_MAX, CHUNK_EXTENSION_BYTES_SUM_MAX, CHUNK_LINE_BYTES_MAX,
    CHUNK_SIZE_DIGITS_MAX, CHUNKED_WIRE_BYTES_MAX, TRAILER_BYTES_MAX, TRAILER_LINES_MAX,
};
use core::fmt;

/// How far the check of one chunked body is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ChunkScan {
    step: Step,
    decoded_bytes: usize,
    extension_bytes: usize,
    trailer_start: usize,
    trailer_lines: usize,
}

#[derive(Clone, Copy, Debug, Default)]
enum Step {
    #[default]
    Size,
    Data {
        missing_bytes: usize,
    },
    DataCr,
    DataLf,
    Trailer,
}

impl ChunkScan {
    /// Goes on as far as `input` reaches; `body_start` is where the first chunk-size line begins.
    /// True when the body and its trailers are complete: they end at the cursor.
    ///
    /// # Errors
    /// `Chunk` and `LineEnd` for malformed bytes, `BodyTooLarge` and `HeadTooLarge` (trailers).
    pub(super) fn advance(
        &mut self,
        cursor: &mut Cursor,
        input: &[u8],
        body_start: usize,
    ) -> Result<bool, HttpReject> {
        loop {
            match self.step {
                Step::Size => {
                    let line_end_max = cursor.line_start() + CHUNK_LINE_BYTES_MAX;
                    let Some(line) = cursor.take_line(input, line_end_max, HttpReject::Chunk)?
                    else {
                        return Ok(false);
                    };
                    let wire_bytes = cursor.line_start() - body_start;
                    self.size_line(&input[line.place], wire_bytes)?;
                    self.trailer_start = cursor.line_start();
                }
                Step::Data { missing_bytes } => {
                    let step_bytes = missing_bytes.min(input.len() - cursor.at());
                    cursor.step(step_bytes);
                    if step_bytes < missing_bytes {
                        self.step = Step::Data {
                            missing_bytes: missing_bytes - step_bytes,
                        };
                        return Ok(false);
                    }
                    self.step = Step::DataCr;
                }
                Step::DataCr => match cursor.take_byte(input) {
                    None => return Ok(false),
                    Some(b'\r') => self.step = Step::DataLf,
                    Some(_) => return Err(HttpReject::Chunk),
                },
                Step::DataLf => match cursor.take_byte(input) {
                    None => return Ok(false),
                    Some(b'\n') => self.step = Step::Size,
                    Some(_) => return Err(HttpReject::Chunk),
                },
                Step::Trailer => {
                    let end_max = self.trailer_start + TRAILER_BYTES_MAX;
                    let Some(line) = cursor.take_line(input, end_max, HttpReject::HeadTooLarge)?
                    else {
                        return Ok(false);
                    };
                    if line.place.is_empty() {
                        return Ok(true);
                    }
                    self.trailer_lines += 1;
                    if self.trailer_lines > TRAILER_LINES_MAX {
                        return Err(HttpReject::HeadTooLarge);
                    }
                    // RFC 9110 §6.5.1: checked, then dropped, whatever its name.
                    let (start, line_bytes) = (line.place.start, line.place.len());
                    field::split(&input[start..], line_bytes, line.has_control)
                        .map_err(|_| HttpReject::Chunk)?;
                }
            }
        }
    }

    /// How many bytes of data the chunks so far announce.
    pub(super) fn decoded_bytes(&self) -> usize {
        self.decoded_bytes
    }

    fn size_line(&mut self, line: &[u8], wire_bytes: usize) -> Result<(), HttpReject> {
        let (size, digits) = chunk_size(line).ok_or(HttpReject::Chunk)?;
        let extension = &line[digits..];
        self.extension_bytes += extension.len();
        if extension.len() > CHUNK_EXTENSION_BYTES_MAX
            || self.extension_bytes > CHUNK_EXTENSION_BYTES_SUM_MAX
            || !is_extension(extension)
        {
            return Err(HttpReject::Chunk);
        }
        // Compared before it is added: a peer's number is not trusted with our arithmetic.
        let missing_bytes = usize::try_from(size)
            .ok()
            .filter(|&bytes| bytes <= BODY_BYTES_MAX - self.decoded_bytes)
            .ok_or(HttpReject::BodyTooLarge)?;
        if wire_bytes + missing_bytes + 2 > CHUNKED_WIRE_BYTES_MAX {
            return Err(HttpReject::BodyTooLarge);
        }
        self.decoded_bytes += missing_bytes;
        self.step = if missing_bytes == 0 {
            Step::Trailer
        } else {
            Step::Data { missing_bytes }
        };
        Ok(())
    }
}

/// The size that starts a chunk-size line and the count of its digits; `None` without a digit or with more than 16.
fn chunk_size(line: &[u8]) -> Option<(u64, usize)> {
    let mut size = 0_u64;
    let mut digits = 0;
    for &byte in line {
        let Some(value) = (byte as char).to_digit(16) else {
            break;
        };
        if digits == CHUNK_SIZE_DIGITS_MAX {
            return None;
        }
        size = size << 4 | u64::from(value); // at most 16 digits: nothing is shifted out
        digits += 1;
    }
    (digits > 0).then_some((size, digits))
}

/// True for `*( ";" token [ "=" ( token / quoted-string ) ] )`: RFC 9112 §7.1.1 without its optional blanks.
fn is_extension(mut rest: &[u8]) -> bool {
    while let Some((b';', after)) = rest.split_first() {
        let name_bytes = class::run(after, TOKEN);
        if name_bytes == 0 {
            return false;
        }
        rest = &after[name_bytes..];
        if let Some((b'=', value)) = rest.split_first() {
            let value_bytes = match value.first() {
                Some(b'"') => quoted_bytes(value),
                _ => class::run(value, TOKEN),
            };
            if value_bytes == 0 {
                return false;
            }
            rest = &value[value_bytes..];
        }
    }
    rest.is_empty()
}

/// The length of the quoted string that starts `value`, both quotes counted; 0 when it does not end.
fn quoted_bytes(value: &[u8]) -> usize {
    let mut at = 1;
    while let Some(&byte) = value.get(at) {
        match byte {
            b'"' => return at + 1,
            // A quoted pair may hold what a quoted string may hold, and the two bytes that end or escape.
            b'\\' => match value.get(at + 1) {
                Some(&next) if class::is(next, QUOTED) || matches!(next, b'"' | b'\\') => at += 2,
                _ => return 0,
            },
            _ if class::is(byte, QUOTED) => at += 1,
            _ => return 0,
        }
    }
    0
}

/// A complete chunked body, as it was sent and already checked by the parser.
#[derive(Clone, Copy)]
pub struct ChunkedBody<'a> {
    wire: &'a [u8],
    decoded_bytes: usize,
}

impl<'a> ChunkedBody<'a> {
    pub(super) fn new(wire: &'a [u8], decoded_bytes: usize) -> Self {
        Self {
            wire,
            decoded_bytes,
        }
    }

    /// Length of the data, 0..=`BODY_BYTES_MAX`.
    pub fn decoded_bytes(&self) -> usize {
        self.decoded_bytes
    }

    /// The data of each chunk in order.
    pub fn pieces(&self) -> Pieces<'a> {
        Pieces { rest: self.wire }
    }
}

/// Shows lengths only: a body may hold what no log may.
impl fmt::Debug for ChunkedBody<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChunkedBody")
            .field("wire_bytes", &self.wire.len())
            .field("decoded_bytes", &self.decoded_bytes)
            .finish()
    }
}

/// Walks the chunks of a checked body.
#[derive(Clone)]
pub struct Pieces<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Pieces<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let line_feed = memchr::memchr(b'\n', self.rest)?;
        let (size, _) = chunk_size(self.rest)?;
        let data_start = line_feed + 1;
        let data_end = data_start.checked_add(usize::try_from(size).ok()?)?;
        let data = self.rest.get(data_start..data_end)?;
        // The last chunk has no data and no CRLF of its own: trailers follow.
        self.rest = self.rest.get(data_end + 2..).unwrap_or_default();
        if data.is_empty() {
            self.rest = &[];
            return None;
        }
        Some(data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_hexadecimal_digits_and_nothing_else() {
        assert_eq!(chunk_size(b"0"), Some((0, 1)));
        assert_eq!(chunk_size(b"aF;x"), Some((0xaf, 2)));
        assert_eq!(chunk_size(b"ffffffffffffffff"), Some((u64::MAX, 16)));
        for bad in [
            &b""[..],
            b"00000000000000001",
            b"+1",
            b"-1",
            b" 1",
            b";",
            b"g",
        ] {
            assert_eq!(chunk_size(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn extensions_are_checked_before_they_are_dropped() {
        for good in [
            ";a",
            ";a=b",
            ";a;b=c",
            ";a=\"\"",
            ";a=\"x;\\\"y\\\\\";b",
            ";a=\"\u{e9}\t\"",
        ] {
            assert!(is_extension(good.as_bytes()), "{good}");
        }
        assert!(is_extension(b""));
        for bad in [
            ";",
            " ;a",
            ";a ",
            ";a=",
            ";a=\"b",
            ";a=\"b\\",
            ";a=\"b\"c",
            ";a=\"\x01\"",
            ";a b",
            "a",
            "\r",
            ";a\r",
        ] {
            assert!(!is_extension(bad.as_bytes()), "{bad:?}");
        }
    }
}
