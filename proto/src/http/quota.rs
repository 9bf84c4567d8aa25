//! `RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers-11): what a limit allows and what is left.
//!
//! Written by [`super::response`] when an answer's `Meta` has a quota. No partition key is sent: it would be made from a
//! user or an address. Invariant: `t` is never later than `Retry-After` of the same answer (§6 of the draft).

use super::response::decimal;
use alloc::vec::Vec;

/// One limit as a client may see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Name of the policy: an RFC 9651 string without characters that need escaping.
    pub name: &'static str,
    /// `q`: requests per window.
    pub quota: u32,
    /// `w`: whole seconds of the window, 1 or more.
    pub window_s: u32,
    /// `r`: requests that would pass now.
    pub remaining: u32,
    /// `t`: whole seconds until `r` grows.
    pub grows_s: u32,
}

impl Quota {
    /// Appends both header lines; allocates nothing beyond the buffer's growth.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        self.item(
            out,
            b"RateLimit-Policy: \"",
            (b";q=", self.quota),
            (b";w=", self.window_s),
        );
        self.item(
            out,
            b"RateLimit: \"",
            (b";r=", self.remaining),
            (b";t=", self.grows_s),
        );
    }

    /// One list of one item: a string with two integer parameters (RFC 9651 §3.1, §3.3.3).
    fn item(&self, out: &mut Vec<u8>, line: &[u8], first: (&[u8], u32), second: (&[u8], u32)) {
        out.extend_from_slice(line);
        out.extend_from_slice(self.name.as_bytes());
        out.push(b'"');
        for (parameter, value) in [first, second] {
            out.extend_from_slice(parameter);
            let (digits, start) = decimal(u64::from(value));
            out.extend_from_slice(&digits[start..]);
        }
        out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_fields_are_lists_of_one_string_with_integer_parameters() {
        let quota = Quota {
            name: "user",
            quota: 3,
            window_s: 2,
            remaining: 0,
            grows_s: 4_294_967_295,
        };
        let mut out = Vec::new();
        quota.write(&mut out);
        let expected: &[u8] =
            b"RateLimit-Policy: \"user\";q=3;w=2\r\nRateLimit: \"user\";r=0;t=4294967295\r\n";
        assert_eq!(out, expected);
    }
}
