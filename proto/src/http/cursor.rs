//! The place in a connection's bytes: what was looked at, and where the open line began.

use super::class;
use super::reject::HttpReject;
use core::ops::Range;

/// Offsets from the first byte of the request. `line_start <= scan`; no byte before `scan` is searched again.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cursor {
    pub(super) scan: usize,
    pub(super) line_start: usize,
    /// A control byte other than HTAB is in the open line, as far as it was looked at.
    has_control: bool,
    /// A bit for each control byte of the block of bytes from `marks_from` to `marks_to`, the first one lowest.
    marks: u64,
    marks_from: usize,
    marks_to: usize,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// Where it is, its CRLF left out.
    pub(super) place: Range<usize>,
    /// A control byte other than HTAB is in it.
    pub(super) has_control: bool,
}

impl Cursor {
    /// At `at`, where a line begins.
    pub(super) const fn new(at: usize) -> Self {
        Self {
            scan: at,
            line_start: at,
            has_control: false,
            marks: 0,
            marks_from: at,
            marks_to: at,
        }
    }

    /// Where the first control byte of `input` is that was not taken yet. Looks for all of a block at once.
    #[inline(always)]
    fn next_control(&mut self, input: &[u8]) -> Option<usize> {
        if self.scan >= self.marks_to {
            (self.marks, self.marks_to) = (0, self.scan); // behind the block: data of a chunk was taken
        } else {
            self.marks &= u64::MAX << (self.scan - self.marks_from); // a block has at most 64 bytes
        }
        while self.marks == 0 {
            let (marks, bytes) = class::controls(&input[self.marks_to..]);
            if bytes == 0 {
                return None;
            }
            (self.marks, self.marks_from) = (marks, self.marks_to);
            self.marks_to += bytes;
        }
        Some(self.marks_from + self.marks.trailing_zeros() as usize)
    }

    /// Takes the open line; `None` while its end has not arrived. The search for the end is the search for control bytes:
    /// both in one walk.
    ///
    /// # Errors
    /// `too_long` when the line does not end before `end_max`; `LineEnd` for a LF without CR (RFC 9112 §2.2 would let us
    /// take it; that is how two readers come to disagree). A bare CR is a control byte for whoever checks the line.
    #[inline(always)] // one call per line: its parts are decided on at once
    pub(super) fn take_line(
        &mut self,
        input: &[u8],
        end_max: usize,
        too_long: HttpReject,
    ) -> Result<Option<Line>, HttpReject> {
        let seen = &input[..input.len().min(end_max)];
        loop {
            self.scan = self.next_control(input).unwrap_or(seen.len());
            match (seen.get(self.scan), seen.get(self.scan + 1)) {
                (Some(b'\r'), Some(b'\n')) => {
                    let line = Line {
                        place: self.line_start..self.scan,
                        has_control: self.has_control,
                    };
                    self.scan += 2;
                    self.line_start = self.scan;
                    self.has_control = false;
                    return Ok(Some(line));
                }
                (Some(b'\n'), _) => return Err(HttpReject::LineEnd),
                // A CR that came last may yet be the line's end.
                (None, _) | (Some(b'\r'), None) => {
                    return if seen.len() == end_max {
                        Err(too_long)
                    } else {
                        Ok(None)
                    };
                }
                (Some(&byte), _) => {
                    self.has_control |= byte != b'\t';
                    self.scan += 1;
                }
            }
        }
    }

    /// Takes one byte; `None` while it has not arrived.
    pub(super) fn take_byte(&mut self, input: &[u8]) -> Option<u8> {
        let byte = *input.get(self.scan)?;
        self.scan += 1;
        Some(byte)
    }
}
