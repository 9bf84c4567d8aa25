//! Strict base64url without padding (RFC 4648 §5, RFC 7515 §2).
//!
//! Called by both ticket forms. Invariant: every byte string has exactly one spelling; anything else is refused
//! (padding, white space, the `+/` alphabet, non-zero trailing bits), so no bit of a ticket can be changed unseen.

use alloc::vec::Vec;
use base64_simd::{Out, URL_SAFE_NO_PAD};

/// The characters that `bytes` bytes take.
pub const fn encoded_len(bytes: usize) -> usize {
    bytes / 3 * 4 + [0, 2, 3][bytes % 3]
}

/// The bytes that `chars` characters hold, if that many characters can be an encoding.
pub const fn decoded_len(chars: usize) -> Option<usize> {
    match chars % 4 {
        0 => Some(chars / 4 * 3),
        1 => None,
        rest => Some(chars / 4 * 3 + rest - 1),
    }
}

/// Decodes `text` into the front of `out` and gives that part; `None` when it is not the one strict spelling or
/// does not fit.
pub fn decode<'o>(text: &[u8], out: &'o mut [u8]) -> Option<&'o [u8]> {
    let out = out.get_mut(..decoded_len(text.len())?)?;
    let decoded = URL_SAFE_NO_PAD.decode(text, Out::from_slice(out)).ok()?;
    Some(decoded)
}

/// Encodes `bytes` into the front of `out` and gives the characters written.
///
/// `out` holds at least `encoded_len(bytes.len())` bytes; the callers size it from constants.
pub fn encode(bytes: &[u8], out: &mut [u8]) -> usize {
    URL_SAFE_NO_PAD.encode(bytes, Out::from_slice(out)).len()
}

/// Appends the encoding of `bytes` to `out`.
pub fn append(bytes: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + encoded_len(bytes.len()), 0);
    encode(bytes, &mut out[start..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc4648_examples_without_padding() {
        for (bytes, text) in [
            (&b""[..], &b""[..]),
            (b"f", b"Zg"),
            (b"fo", b"Zm8"),
            (b"foo", b"Zm9v"),
            (b"foob", b"Zm9vYg"),
            (b"fooba", b"Zm9vYmE"),
            (b"foobar", b"Zm9vYmFy"),
            (&[0xfb, 0xff, 0xbf], b"-_-_"),
        ] {
            let mut out = Vec::new();
            append(bytes, &mut out);
            assert_eq!(out, text);
            assert_eq!(decode(text, &mut [0; 16]), Some(bytes));
        }
    }

    #[test]
    fn every_text_that_decodes_is_the_one_that_encodes() {
        // All texts of 2 and 3 bytes of any value: at most one spelling per byte string.
        for a in 0..=255u8 {
            for b in 0..=255u8 {
                for text in [&[a, b][..], &[b'A', a, b]] {
                    if let Some(bytes) = decode(text, &mut [0; 2]) {
                        let mut back = Vec::new();
                        append(bytes, &mut back);
                        assert_eq!(back, text);
                    }
                }
            }
        }
    }

    /// Long enough for the vector code of whatever CPU this runs on.
    #[test]
    fn one_wrong_byte_anywhere_in_a_long_text_is_found() {
        let good = [b'Q'; 192];
        for at in 0..good.len() {
            for byte in 0..=255 {
                let mut text = good;
                text[at] = byte;
                let is_good = byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
                let mut out = [0; 144];
                let decoded = decode(&text, &mut out);
                assert_eq!(decoded.is_some(), is_good, "{byte} at {at}");
                if let Some(bytes) = decoded {
                    let mut back = Vec::new();
                    append(bytes, &mut back);
                    assert_eq!(back, text);
                }
            }
        }
    }

    #[test]
    fn refuses_other_spellings_and_what_does_not_fit() {
        for text in [
            &b"A"[..],
            b"AAAAA",
            b"AA==",
            b"AB",
            b"AAB",
            b"A A",
            b"AA\n",
            b"+/+/",
            b"AAA\x80",
        ] {
            assert_eq!(decode(text, &mut [0; 16]), None, "{text:?}");
        }
        assert_eq!(decode(b"AAAA", &mut [0; 2]), None);
    }
}
