//! What a head said, as offsets into the bytes it was read from.
//!
//! Written by the parser line by line, read through `Request`. Offsets instead of slices, so that a connection's parser
//! can wait for more bytes without borrowing any.

use super::field::Field;
use super::{Method, Version};
use crate::limits::REQUEST_BYTES_MAX;
use core::ops::Range;

const _: () = assert!(
    REQUEST_BYTES_MAX <= u16::MAX as usize,
    "offsets within a head are kept in 16 bits"
);

/// A place in the head; offset 0 holds the method, so a start of 0 means "none".
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Span {
    start: u16,
    end: u16,
}

impl Span {
    /// `range` lies within a head, whose limit fits 16 bits.
    pub(super) fn new(range: Range<usize>) -> Self {
        Self {
            start: range.start as u16,
            end: range.end as u16,
        }
    }

    pub(super) fn within(base: usize, range: Range<usize>) -> Self {
        Self::new(base + range.start..base + range.end)
    }

    pub(super) fn some(self) -> Option<Self> {
        (self.start != 0).then_some(self)
    }

    pub(super) fn of(self, input: &[u8]) -> &[u8] {
        &input[usize::from(self.start)..usize::from(self.end)]
    }
}

/// Where the lines of one name lie: from the first line's start to the last one's end, other lines between them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lines(Span);

impl Lines {
    pub(super) fn include(&mut self, line: &Range<usize>) {
        let start = match self.0.some() {
            Some(span) => usize::from(span.start),
            None => line.start,
        };
        self.0 = Span::new(start..line.end + 2); // with CRLF
    }

    pub(super) fn of(self, input: &[u8]) -> &[u8] {
        self.0.of(input)
    }
}

/// What the head said, as offsets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Facts {
    pub(super) method: Method,
    pub(super) version: Version,
    pub(super) authority: Span,
    pub(super) path: Span,
    pub(super) query: Span,
    pub(super) kept: Kept,
    pub(super) content_length: Option<u32>,
    pub(super) is_chunked: bool,
    pub(super) says_close: bool,
    pub(super) says_keep_alive: bool,
    pub(super) expects_continue: bool,
    pub(super) expects_other: bool,
}

/// Those of them that a request keeps.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Kept {
    pub(super) fields: [Span; Field::COUNT],
    pub(super) forwarded: Lines,
    pub(super) x_forwarded_for: Lines,
}

impl Kept {
    pub(super) fn field(&self, field: Field) -> Option<Span> {
        self.fields[field as usize].some()
    }
}
