//! The place in a connection's bytes: what was looked at, and where the open line began.

use super::class;
use super::reject::HttpReject;
use core::ops::Range;

/// Offsets from the first byte of the request. `line_start <= scan`; no byte before `scan` is searched again.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cursor {
    scan: usize,
    line_start: usize,
    /// A control byte other than HTAB is in the open line, as far as it was looked at.
    has_control: bool,
    controls: Controls,
}

/// Control bytes found ahead of the cursor.
#[derive(Clone, Copy, Debug, Default)]
struct Controls {
    /// A bit for each one that was not taken yet, of the block of bytes from `from` on, the first one lowest.
    marks: u64,
    from: usize,
    /// The end of that block.
    to: usize,
}

impl Controls {
    /// Where the first one in `input` is that was not taken yet; at `from` at the earliest, when the block ends before.
    /// Looks for all of a block at once.
    #[inline(always)]
    fn next(&mut self, input: &[u8], from: usize) -> Option<usize> {
        if self.marks == 0 {
            let from = self.to.max(from); // a line's end may lie over a block's
            let (block, marks, end) = class::first_controls(input.get(from..)?);
            *self = Self {
                marks,
                from: from + block,
                to: from + end,
            };
            if marks == 0 {
                return None;
            }
        }
        Some(self.from + self.marks.trailing_zeros() as usize)
    }

    fn take(&mut self) {
        self.marks &= self.marks.wrapping_sub(1);
    }

    /// Drops those before `at`.
    fn step_to(&mut self, at: usize) {
        self.marks = match at.checked_sub(self.from) {
            Some(bytes) if at < self.to => self.marks & u64::MAX << bytes, // a block has at most 64 bytes
            _ => 0,
        };
    }
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
            controls: Controls {
                marks: 0,
                from: at,
                to: at,
            },
        }
    }

    /// What was taken ends here, or what was searched in vain.
    pub(super) fn at(&self) -> usize {
        self.scan
    }

    /// Where the open line begins.
    pub(super) fn line_start(&self) -> usize {
        self.line_start
    }

    /// Hands whole lines without control bytes to `line`, one after the other; false: it wants no more. Ends without a
    /// word before a line that is not here yet, or has one: [`Self::take_line`] tells.
    #[inline(always)]
    pub(super) fn each_usual_line<E>(
        &mut self,
        seen: &[u8],
        mut line: impl FnMut(Range<usize>) -> Result<bool, E>,
    ) -> Result<(), E> {
        if self.has_control {
            return Ok(());
        }
        // In registers from line to line; what an error leaves behind is not read again.
        let (mut start, mut controls) = (self.line_start, self.controls);
        let mut goes_on = true;
        while goes_on
            && let Some(end) = controls.next(seen, start)
            && seen.get(end..end + 2) == Some(b"\r\n")
        {
            goes_on = line(start..end)?;
            controls.take();
            controls.take(); // the LF; if that is behind the block, no mark is left
            start = end + 2;
        }
        (self.scan, self.line_start, self.controls) = (start, start, controls);
        Ok(())
    }

    /// Takes the open line; `None` while its end has not arrived. The search for the end is the search for control bytes:
    /// both in one walk.
    ///
    /// # Errors
    /// `too_long` when the line does not end before `end_max`; `LineEnd` for a LF without CR (RFC 9112 §2.2 would let us
    /// take it; that is how two readers come to disagree). A bare CR is a control byte for whoever checks the line.
    #[inline(never)] // the usual lines were taken before
    pub(super) fn take_line(
        &mut self,
        input: &[u8],
        end_max: usize,
        too_long: HttpReject,
    ) -> Result<Option<Line>, HttpReject> {
        let seen = &input[..input.len().min(end_max)];
        loop {
            let at = self.controls.next(seen, self.scan).unwrap_or(seen.len());
            self.scan = at;
            match (seen.get(at), seen.get(at + 1)) {
                (Some(b'\r'), Some(b'\n')) => return Ok(Some(self.end_line(at))),
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
                    self.controls.take();
                }
            }
        }
    }

    /// `end`: where the CR of the open line's CRLF is, which is the first control byte that was not taken yet.
    fn end_line(&mut self, end: usize) -> Line {
        let line = Line {
            place: self.line_start..end,
            has_control: self.has_control,
        };
        self.step_to(end + 2);
        self.has_control = false;
        line
    }

    fn step_to(&mut self, at: usize) {
        self.controls.step_to(at);
        (self.scan, self.line_start) = (at, at);
    }

    /// Steps over bytes that are no part of a line; the next line begins after them.
    pub(super) fn step(&mut self, bytes: usize) {
        self.step_to(self.scan + bytes);
    }

    /// Takes one byte, which is no part of a line; `None` while it has not arrived.
    pub(super) fn take_byte(&mut self, input: &[u8]) -> Option<u8> {
        let byte = *input.get(self.scan)?;
        self.step(1);
        Some(byte)
    }
}
