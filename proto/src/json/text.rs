//! JSON strings: checked once, decoded lazily into the caller's buffer or compared without one.
//!
//! Called by the reader above. Invariant: a [`JsonText`] holds only well-formed escapes (RFC 8259 §7), surrogates in pairs.

use crate::text::Text;
use core::fmt;

/// Most bytes of a member's name that an error repeats: enough to recognise it, too few to abuse an answer with it.
pub const MEMBER_NAME_BYTES_MAX: usize = 32;

/// The name of a member as an error may show it: at most 32 bytes of `[A-Za-z0-9_.:-]`, others as `?`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct MemberName(Text<MEMBER_NAME_BYTES_MAX>);

impl MemberName {
    /// Keeps the first characters; what could break an answer, a log line or a page becomes `?`.
    pub fn shown(chars: impl Iterator<Item = char>) -> Self {
        let mut bytes = [0; MEMBER_NAME_BYTES_MAX];
        let mut len = 0;
        for (slot, char) in bytes.iter_mut().zip(chars) {
            let plain = char.is_ascii_alphanumeric() || matches!(char, '_' | '.' | ':' | '-');
            *slot = if plain { char as u8 } else { b'?' };
            len += 1;
        }
        Self(Text::new(&bytes[..len]).expect("only visible ASCII was put in"))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl fmt::Display for MemberName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for MemberName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// The inside of one JSON string. `Debug` shows its length only: it may be a user's.
#[derive(Clone, Copy)]
pub struct JsonText<'a> {
    /// UTF-8.
    raw: &'a [u8],
    escaped: bool,
}

impl fmt::Debug for JsonText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JsonText({} raw bytes)", self.raw.len())
    }
}

impl<'a> JsonText<'a> {
    /// Reads up to the closing quote of `bytes`, which starts after the opening one and is UTF-8; gives the raw bytes read.
    /// The error is the offset of the first byte that breaks the grammar.
    #[inline]
    pub(super) fn scan(bytes: &'a [u8]) -> Result<(Self, usize), usize> {
        let mut at = 0;
        let mut escaped = false;
        loop {
            at += plain_bytes(&bytes[at..]);
            match bytes.get(at) {
                Some(b'"') => break,
                Some(b'\\') => {
                    escaped = true;
                    at += escape_bytes(&bytes[at..]).ok_or(at)?;
                }
                _ => return Err(at), // a control character, or no closing quote
            }
        }
        let raw = &bytes[..at];
        Ok((Self { raw, escaped }, at))
    }

    /// The decoded characters.
    pub fn chars(self) -> Decoded<'a> {
        Decoded {
            rest: self.as_str().chars(),
        }
    }

    /// True when the decoded string is `text`.
    #[inline]
    pub fn is(self, text: &str) -> bool {
        if self.escaped {
            self.chars().eq(text.chars())
        } else {
            self.raw == text.as_bytes()
        }
    }

    /// The string as it stands in the input, when it has no escapes.
    pub fn plain(self) -> Option<&'a str> {
        (!self.escaped).then(|| self.as_str())
    }

    fn as_str(self) -> &'a str {
        core::str::from_utf8(self.raw).expect("cut from UTF-8 at quotes")
    }

    /// The decoded bytes, which are UTF-8: in `out` when there was something to decode; `None` when they are more than
    /// `out` holds.
    pub fn decode<'o>(self, out: &'o mut [u8]) -> Option<&'o [u8]>
    where
        'a: 'o,
    {
        if !self.escaped {
            return (self.raw.len() <= out.len()).then_some(self.raw);
        }
        let mut len = 0;
        for char in self.chars() {
            let end = len + char.len_utf8();
            char.encode_utf8(out.get_mut(len..end)?);
            len = end;
        }
        Some(&out[..len])
    }

    /// The decoded string inline; `None` when it is longer than `N` or has a byte that is not visible ASCII.
    pub fn visible<const N: usize>(self) -> Option<Text<N>> {
        Text::new(self.decode(&mut [0; N])?)
    }

    /// True when the decoded string has more than `bytes_max` bytes.
    pub fn is_longer_than(self, bytes_max: usize) -> bool {
        if !self.escaped {
            return self.raw.len() > bytes_max;
        }
        self.chars().map(char::len_utf8).sum::<usize>() > bytes_max
    }
}

/// The decoded characters of a [`JsonText`].
pub struct Decoded<'a> {
    rest: core::str::Chars<'a>,
}

impl Decoded<'_> {
    fn unit(&mut self) -> Option<u32> {
        let mut unit = 0;
        for _ in 0..4 {
            unit = unit << 4 | self.rest.next()?.to_digit(16)?;
        }
        Some(unit)
    }
}

impl Iterator for Decoded<'_> {
    type Item = char;

    fn next(&mut self) -> Option<char> {
        let char = self.rest.next()?;
        if char != '\\' {
            return Some(char);
        }
        match self.rest.next()? {
            'b' => Some('\u{8}'),
            'f' => Some('\u{c}'),
            'n' => Some('\n'),
            'r' => Some('\r'),
            't' => Some('\t'),
            'u' => {
                let unit = self.unit()?;
                if !is_high(unit) {
                    return char::from_u32(unit);
                }
                self.rest.nth(1)?; // the `\u` of the low half
                let low = self.unit()?;
                char::from_u32(0x1_0000 + ((unit - 0xd800) << 10) + (low - 0xdc00))
            }
            other => Some(other), // quote, backslash, slash
        }
    }
}

/// How many bytes at the start of `bytes` need no escape (RFC 8259 §7), eight at a time.
#[inline]
pub(crate) fn plain_bytes(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    while let Some((word, after)) = rest.split_first_chunk() {
        let special = special_of_eight(u64::from_le_bytes(*word));
        if special != 0 {
            return bytes.len() - rest.len() + special.trailing_zeros() as usize / 8;
        }
        rest = after;
    }
    let is_special = |&byte: &u8| byte < 0x20 || byte == b'"' || byte == b'\\';
    let found = rest.iter().position(is_special);
    bytes.len() - rest.len() + found.unwrap_or(rest.len())
}

/// The high bit of bytes below 0x20, quotes and backslashes. A borrow may mark bytes above the lowest of them, never below.
fn special_of_eight(eight: u64) -> u64 {
    const ONES: u64 = u64::MAX / 0xff;
    const HIGH: u64 = ONES << 7;
    let zero_or_above = |word: u64| word.wrapping_sub(ONES) & !word;
    let control = eight.wrapping_sub(ONES * 0x20) & !eight;
    let quote = zero_or_above(eight ^ (ONES * b'"' as u64));
    let backslash = zero_or_above(eight ^ (ONES * b'\\' as u64));
    (control | quote | backslash) & HIGH
}

fn is_high(unit: u32) -> bool {
    (0xd800..0xdc00).contains(&unit)
}

/// The length of the escape at the start of `bytes`; `None` when it is not one.
fn escape_bytes(bytes: &[u8]) -> Option<usize> {
    match bytes.get(1)? {
        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(2),
        b'u' => match hex_unit(bytes)? {
            // RFC 8259 §8.2: a lone surrogate has no meaning that two parsers share.
            unit if is_high(unit) => {
                let low = hex_unit(&bytes[6..])?;
                (0xdc00..0xe000).contains(&low).then_some(12)
            }
            0xdc00..0xe000 => None,
            _ => Some(6),
        },
        _ => None,
    }
}

/// The unit of a `\uXXXX` at the start of `bytes`.
fn hex_unit(bytes: &[u8]) -> Option<u32> {
    if bytes.get(..2)? != b"\\u" {
        return None;
    }
    bytes.get(2..6)?.iter().try_fold(0, |unit, &byte| {
        Some(unit << 4 | char::from(byte).to_digit(16)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every byte value at every place of two words, before and after another special byte.
    #[test]
    fn plain_bytes_ends_at_the_first_byte_that_needs_an_escape() {
        let is_special = |byte: u8| byte < 0x20 || byte == b'"' || byte == b'\\';
        for len in 0..=20 {
            for at in 0..len {
                for byte in 0..=255 {
                    for later in [b'a', b'"', 0x1f, 0x20, 0x80, 0xff] {
                        let mut bytes = [b'!'; 20];
                        bytes[at + 1..].fill(later);
                        bytes[at] = byte;
                        let first = bytes[..len].iter().position(|&byte| is_special(byte));
                        assert_eq!(
                            plain_bytes(&bytes[..len]),
                            first.unwrap_or(len),
                            "{bytes:?}"
                        );
                    }
                }
            }
        }
    }
}
