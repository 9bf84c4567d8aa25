//! Where each byte may stand, by one table, for the line, target, host and chunk readers; and the search for control bytes
//! and colons, many bytes at a time.

use wide::u8x16;

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

/// Bytes looked at together.
const BLOCK_BYTES: usize = 16;

/// Bytes that [`controls`] looks at, one bit each.
const MARKED_BYTES: usize = 64;

/// A bit for each control byte (RFC 5234's CTL: below 0x20 and DEL) among the first 64 of `bytes`; and how many those are.
#[inline(always)]
pub(super) fn controls(bytes: &[u8]) -> (u64, usize) {
    let (space, del) = (u8x16::splat(0x20), u8x16::splat(0x7f));
    let mark = |block: &[u8; MARKED_BYTES]| {
        let blocks = block.as_chunks::<BLOCK_BYTES>().0.iter().rev();
        blocks.fold(0, |marks, block| {
            let block = u8x16::from(*block);
            let found = (block.simd_lt(space) | block.simd_eq(del)).to_bitmask();
            marks << BLOCK_BYTES | u64::from(found)
        })
    };
    if let Some(block) = bytes.first_chunk() {
        return (mark(block), MARKED_BYTES);
    }
    let mut block = [b' '; MARKED_BYTES];
    block[..bytes.len()].copy_from_slice(bytes);
    (mark(&block), bytes.len())
}

/// Where the first colon of `bytes` is.
#[inline(always)]
pub(super) fn until_colon(bytes: &[u8]) -> Option<usize> {
    let colon = u8x16::splat(b':');
    let mut rest = bytes;
    while let Some((block, after)) = rest.split_first_chunk::<BLOCK_BYTES>() {
        let marks = u8x16::from(*block).simd_eq(colon).to_bitmask();
        if marks != 0 {
            return Some(bytes.len() - rest.len() + marks.trailing_zeros() as usize);
        }
        rest = after;
    }
    let found = rest.iter().position(|&byte| byte == b':')?;
    Some(bytes.len() - rest.len() + found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every byte at every place of more than a block, whatever follows it.
    #[test]
    fn what_is_looked_for_many_at_a_time_is_found_at_its_place() {
        for len in 0..=MARKED_BYTES + 2 {
            for at in 0..len {
                for byte in 0..=255_u8 {
                    for later in [b'a', b':', b'\r', 0x80] {
                        let mut bytes = [b'9'; MARKED_BYTES + 2];
                        bytes[at + 1..].fill(later);
                        bytes[at] = byte;
                        let bytes = &bytes[..len];
                        let looked_at = len.min(MARKED_BYTES);
                        let marks = bytes[..looked_at].iter().rev().fold(0, |marks, byte| {
                            marks << 1 | u64::from(byte.is_ascii_control())
                        });
                        assert_eq!(controls(bytes), (marks, looked_at));
                        let colon = bytes.iter().position(|&byte| byte == b':');
                        assert_eq!(until_colon(bytes), colon, "{bytes:?}");
                    }
                }
            }
        }
    }
}
