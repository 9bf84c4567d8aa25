//! Objects as most writers put them: known members in the documented order, no white space, no escapes, plain digits.
//!
//! Called by the readers of submits and of tickets before they go member by member. It says yes or nothing: what it takes
//! the reader above takes with the same values, and whatever it does not take goes there to be read, or refused by name.
//! A property test of each caller holds that.

use super::leading_number;
use super::text::plain_bytes;

/// What is left to read of one object.
pub(crate) struct Usual<'a> {
    rest: &'a [u8],
}

impl<'a> Usual<'a> {
    /// At the first byte of an object, its opening brace.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Steps over `expected` when it comes next: everything between two values.
    #[inline(always)] // a comparison of few words, as long as the length is known
    pub(crate) fn takes<const N: usize>(&mut self, expected: &[u8; N]) -> bool {
        match self.rest.split_first_chunk() {
            Some((next, rest)) if next == expected => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    /// [`Self::takes`] as a step that must succeed.
    #[inline(always)]
    pub(crate) fn literal<const N: usize>(&mut self, expected: &[u8; N]) -> Option<()> {
        self.takes(expected).then_some(())
    }

    /// A number that fits u64. What ends it is for the next literal to say: neither a fraction nor an exponent begins as
    /// one does.
    #[inline(always)]
    pub(crate) fn integer(&mut self) -> Option<u64> {
        let (number, digits) = leading_number(self.rest);
        let starts_with_zero = self.rest.first() == Some(&b'0');
        if digits == 0 || (starts_with_zero && digits > 1) {
            return None;
        }
        self.rest = &self.rest[digits..];
        number
    }

    /// The bytes up to the closing quote, which is stepped over; the opening one ended the literal before. They hold neither
    /// escapes nor control bytes; that they are UTF-8 is for the caller, who knows which bytes may stand there.
    #[inline(always)]
    pub(crate) fn text(&mut self) -> Option<&'a [u8]> {
        let (text, rest) = self.rest.split_at(plain_bytes(self.rest));
        self.rest = rest;
        self.literal(b"\"")?;
        Some(text)
    }

    /// The object's end, which is the end of all.
    #[inline(always)]
    pub(crate) fn end(&mut self) -> Option<()> {
        (self.rest == b"}").then_some(())
    }
}
