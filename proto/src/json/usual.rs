//! Objects as most writers put them: known members in the documented order, no white space, no escapes, plain digits.
//!
//! Called by the readers of submits and of tickets before they go member by member. It says yes or nothing: what it takes
//! the reader above takes with the same values, and whatever it does not take goes there to be read, or refused by name.
//! A property test of each caller holds that.

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

    /// A number of at most 15 digits, eight read at a time. What ends it is for the next literal to say: neither a fraction
    /// nor an exponent begins as one does.
    #[inline(always)]
    pub(crate) fn integer(&mut self) -> Option<u64> {
        let first = *self.rest.first()?;
        let (mut number, mut digits) = digits_of_eight(self.rest)?;
        self.rest = self.rest.get(digits..)?;
        if digits == 8 {
            let (low, more) = digits_of_eight(self.rest)?;
            if more == 8 {
                return None; // or 17 digits; so many are rare
            }
            self.rest = self.rest.get(more..)?;
            (number, digits) = (number * POWERS[more] + low, digits + more);
        }
        (digits > 0 && (digits == 1 || first != b'0')).then_some(number)
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

const POWERS: [u64; 8] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000];

/// The number that the digits among the first eight bytes of `bytes` write, up to the first byte that is none, and how many
/// they are. `None` when there are fewer bytes and all of them are digits.
#[inline(always)]
fn digits_of_eight(bytes: &[u8]) -> Option<(u64, usize)> {
    let Some(word) = bytes.first_chunk() else {
        return digits_of_few(bytes);
    };
    const ZEROS: u64 = 0x3030_3030_3030_3030;
    let values = u64::from_le_bytes(*word) ^ ZEROS; // a digit's value, or above 9
    // A carry may mark bytes above the first that is no digit, never below.
    let others = (values.wrapping_add(0x7676_7676_7676_7676) | values) & 0x8080_8080_8080_8080;
    let digits = others.trailing_zeros() as usize / 8; // 8 when there is none
    // Zeros take the place before the digits; then pairs, fours and all eight are added up.
    let values = values.checked_shl(64 - 8 * digits as u32).unwrap_or(0);
    let pairs = values.wrapping_mul(10).wrapping_add(values >> 8);
    let even = (pairs & 0x0000_00ff_0000_00ff).wrapping_mul(100 + (1_000_000 << 32));
    let odd = (pairs >> 16 & 0x0000_00ff_0000_00ff).wrapping_mul(1 + (10_000 << 32));
    Some((even.wrapping_add(odd) >> 32, digits))
}

/// The same at the end of an object, where few bytes are left.
fn digits_of_few(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut number = 0;
    for (digits, byte) in bytes.iter().enumerate() {
        if !byte.is_ascii_digit() {
            return Some((number, digits));
        }
        number = number * 10 + u64::from(byte - b'0');
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    /// Numbers of every length, and every byte behind them.
    #[test]
    fn digits_are_read_as_they_are_written() {
        for text in [
            "",
            "0",
            "00",
            "7",
            "10",
            "1234567",
            "12345678",
            "9999999999999999",
        ] {
            for len in 0..=text.len() {
                for end in 0..=255_u8 {
                    for after in ["", "9", ",\"user_id\":1234567}"] {
                        let digits = &text[..len];
                        let mut bytes = digits.as_bytes().to_vec();
                        bytes.push(end);
                        bytes.extend_from_slice(after.as_bytes());
                        let all = bytes
                            .iter()
                            .take_while(|byte| byte.is_ascii_digit())
                            .count();
                        let is_number = all == 1 || (all > 1 && bytes[0] != b'0');
                        let number = format!("0{}", core::str::from_utf8(&bytes[..all]).unwrap());
                        let expected = (is_number && all < 16 && all < bytes.len())
                            .then(|| number.parse::<u64>().unwrap());
                        let mut usual = Usual::new(&bytes);
                        assert_eq!(usual.integer(), expected, "{bytes:?}");
                        if expected.is_some() {
                            assert_eq!(usual.rest, &bytes[all..]);
                        }
                    }
                }
            }
        }
    }
}
