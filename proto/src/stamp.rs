//! A time and a MAC in one header value: `t=<unix ms>,v1=<64 lower-case hex digits>`.
//!
//! Called by `payment` and `signature`, which say what the MAC covers and which key makes it. Invariants: one spelling per
//! MAC; the time's digits are covered as sent; no allocation to read.

use crate::ticket::MAC_BYTES;
use alloc::vec::Vec;
use hmac::{Hmac, Mac};
use sha2::Sha256;

/// HMAC-SHA256 ready to use under a key that only `domain` uses: HMAC-SHA256(secret, domain).
pub(crate) fn key(secret: &[u8], domain: &[u8]) -> Hmac<Sha256> {
    let of = |key: &[u8]| -> Hmac<Sha256> {
        Hmac::new_from_slice(key).expect("HMAC takes a key of any length")
    };
    let mut outer = of(secret);
    outer.update(domain);
    of(&outer.finalize().into_bytes())
}

/// A header value, taken apart.
pub(crate) struct Stamp<'a> {
    /// The digits as sent.
    pub(crate) time: &'a [u8],
    /// What they say, wall milliseconds.
    pub(crate) time_ms: u64,
    /// The MAC that it claims.
    pub(crate) mac: [u8; MAC_BYTES],
}

impl<'a> Stamp<'a> {
    /// Reads a whole value; `None` for any other form.
    pub(crate) fn read(value: &'a [u8]) -> Option<Self> {
        let rest = value.strip_prefix(b"t=")?;
        let comma = memchr::memchr(b',', rest)?;
        let (time, rest) = rest.split_at(comma);
        let hex = rest.strip_prefix(b",v1=")?;
        if time.is_empty() || hex.len() != 2 * MAC_BYTES {
            return None;
        }
        let mut time_ms = 0u64;
        for &digit in time {
            let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
            time_ms = time_ms.checked_mul(10)?.checked_add(digit)?;
        }
        let mut mac = [0; MAC_BYTES];
        for (slot, pair) in mac.iter_mut().zip(hex.chunks_exact(2)) {
            *slot = hex_digit(pair[0])? << 4 | hex_digit(pair[1])?;
        }
        Some(Self { time, time_ms, mac })
    }
}

/// Appends a value to `out`; `mac_of` is given the time's digits.
pub(crate) fn append(
    time_ms: u64,
    mac_of: impl FnOnce(&[u8]) -> [u8; MAC_BYTES],
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(b"t=");
    let start = out.len();
    push_decimal(time_ms, out);
    let mac = mac_of(&out[start..]);
    out.extend_from_slice(b",v1=");
    for byte in mac {
        out.extend([byte >> 4, byte & 15].map(|digit| b"0123456789abcdef"[usize::from(digit)]));
    }
}

fn push_decimal(number: u64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut rest = number;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// The value of a lower-case hexadecimal digit.
pub(crate) fn hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}
