//! One table that says for every byte where it may stand; used by the line, target, host and chunk readers.

/// A byte of a token: method, field name, chunk extension name (RFC 9110 §5.6.2).
pub(super) const TOKEN: u8 = 1;
/// A byte of a path, `%` included; its two digits are checked apart (RFC 3986 §3.3).
pub(super) const PATH: u8 = 2;
/// A byte of a query (RFC 3986 §3.4).
pub(super) const QUERY: u8 = 4;
/// A byte of a host name: letters, digits, `-` and `_` (labels are checked apart). RFC 3986 would also allow
/// sub-delims and percent-encoding; no shop's name has them and `a,b` reads like two hosts.
pub(super) const LABEL: u8 = 8;
/// A byte within a quoted string, quote and backslash excepted (RFC 9110 §5.6.4).
pub(super) const QUOTED: u8 = 16;

static CLASSES: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let byte = i as u8;
        if byte.is_ascii_alphanumeric() {
            table[i] |= TOKEN | PATH | QUERY | LABEL;
        }
        if matches!(byte, b'\t' | b' '..=b'~' | 0x80..) && byte != b'"' && byte != b'\\' {
            table[i] |= QUOTED;
        }
        i += 1;
    }
    mark(&mut table, b"!#$%&'*+-.^_`|~", TOKEN);
    mark(&mut table, b"-._~!$&'()*+,;=:@/%", PATH | QUERY);
    mark(&mut table, b"?", QUERY);
    mark(&mut table, b"-_", LABEL);
    table
}

const fn mark(table: &mut [u8; 256], bytes: &[u8], class: u8) {
    let mut i = 0;
    while i < bytes.len() {
        table[bytes[i] as usize] |= class;
        i += 1;
    }
}

/// True when `byte` is of `class`.
pub(super) fn is(byte: u8, class: u8) -> bool {
    CLASSES[usize::from(byte)] & class != 0
}

/// How many leading bytes of `bytes` are of `class`.
pub(super) fn run(bytes: &[u8], class: u8) -> usize {
    bytes
        .iter()
        .position(|&byte| !is(byte, class))
        .unwrap_or(bytes.len())
}

const ONES: u64 = u64::MAX / 0xff;
const HIGH: u64 = ONES << 7;

/// How many bytes at the start of `bytes` are no control bytes (RFC 5234's CTL: below 0x20 and DEL).
#[inline(always)]
pub(super) fn uncontrolled_bytes(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    // No early exit within a block: that is vector code. The words after it only find the place.
    while let Some((block, after)) = rest.split_first_chunk::<32>() {
        if block
            .iter()
            .fold(false, |found, &byte| found | is_control(byte))
        {
            break;
        }
        rest = after;
    }
    while let Some((word, after)) = rest.split_first_chunk() {
        let word = u64::from_le_bytes(*word);
        let zero_at_del = word ^ (ONES * 0x7f);
        // The lowest mark is true; a borrow may only mark bytes above it.
        let below_space = word.wrapping_sub(ONES * 0x20) & !word;
        let del = zero_at_del.wrapping_sub(ONES) & !zero_at_del;
        let marks = (below_space | del) & HIGH;
        if marks != 0 {
            return bytes.len() - rest.len() + marks.trailing_zeros() as usize / 8;
        }
        rest = after;
    }
    let found = rest.iter().position(|&byte| is_control(byte));
    bytes.len() - rest.len() + found.unwrap_or(rest.len())
}

/// Where the first colon of `bytes` is, looked for in eight bytes at a time: names are short.
#[inline(always)]
pub(super) fn until_colon(bytes: &[u8]) -> Option<usize> {
    let mut rest = bytes;
    while let Some((word, after)) = rest.split_first_chunk() {
        let zero_at_colon = u64::from_le_bytes(*word) ^ (ONES * b':' as u64);
        let marks = zero_at_colon.wrapping_sub(ONES) & !zero_at_colon & HIGH; // the lowest one is true, as above
        if marks != 0 {
            return Some(bytes.len() - rest.len() + marks.trailing_zeros() as usize / 8);
        }
        rest = after;
    }
    let found = rest.iter().position(|&byte| byte == b':')?;
    Some(bytes.len() - rest.len() + found)
}

/// True for RFC 5234's CTL.
pub(super) fn is_control(byte: u8) -> bool {
    (byte < 0x20) | (byte == 0x7f)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every byte at every place of two blocks, whatever follows it.
    #[test]
    fn what_is_looked_for_many_at_a_time_is_found_at_its_place() {
        for len in 0..=40 {
            for at in 0..len {
                for byte in 0..=255_u8 {
                    for later in [b'a', b':', b';', b'\r', 0x7f, 0x80, 0xff] {
                        let mut bytes = [b'9'; 40];
                        bytes[at + 1..].fill(later);
                        bytes[at] = byte;
                        let bytes = &bytes[..len];
                        let control = bytes.iter().position(|byte| byte.is_ascii_control());
                        assert_eq!(uncontrolled_bytes(bytes), control.unwrap_or(len));
                        let colon = bytes.iter().position(|&byte| byte == b':');
                        assert_eq!(until_colon(bytes), colon, "{bytes:?}");
                    }
                }
            }
        }
    }
}
