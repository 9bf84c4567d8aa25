//! The place in a connection's bytes: what was looked at, and where the open line began.

use super::reject::HttpReject;
use core::ops::Range;

/// Offsets from the first byte of the request. `line_start <= scan`; no byte before `scan` is searched again.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cursor {
    pub(super) scan: usize,
    pub(super) line_start: usize,
}

impl Cursor {
    /// Takes the open line, its CRLF left out; `None` while its end has not arrived.
    ///
    /// # Errors
    /// `too_long` when the line does not end before `end_max`; `LineEnd` for a LF without CR (RFC 9112 §2.2 would let us
    /// take it; that is how two readers come to disagree). A bare CR is found by whoever checks the line's bytes.
    pub(super) fn take_line(
        &mut self,
        input: &[u8],
        end_max: usize,
        too_long: HttpReject,
    ) -> Result<Option<Range<usize>>, HttpReject> {
        let seen_end = input.len().min(end_max);
        let Some(ahead) = memchr::memchr(b'\n', &input[self.scan..seen_end]) else {
            self.scan = seen_end;
            return if seen_end == end_max {
                Err(too_long)
            } else {
                Ok(None)
            };
        };
        let line_feed = self.scan + ahead;
        if line_feed == self.line_start || input[line_feed - 1] != b'\r' {
            return Err(HttpReject::LineEnd);
        }
        let line = self.line_start..line_feed - 1;
        self.scan = line_feed + 1;
        self.line_start = self.scan;
        Ok(Some(line))
    }

    /// Takes one byte; `None` while it has not arrived.
    pub(super) fn take_byte(&mut self, input: &[u8]) -> Option<u8> {
        let byte = *input.get(self.scan)?;
        self.scan += 1;
        Some(byte)
    }
}
