//! Where each byte may stand, by one table, for the line, target, host and chunk readers; and the usual ones of them, many
//! bytes at a time.

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
pub(super) const BLOCK_BYTES: usize = 16;
/// As many bytes.
pub(super) type Block = [u8; BLOCK_BYTES];

/// Bytes that [`first_controls`] looks at together, one bit each.
const MARKED_BYTES: usize = 64;

/// The first block of `bytes` with control bytes (RFC 5234's CTL: below 0x20 and DEL): where it begins, a bit for each of
/// them, the first byte's lowest, and where it ends. Without any: no bits, at the end.
#[inline(always)]
pub(super) fn first_controls(bytes: &[u8]) -> (usize, u64, usize) {
    let mut rest = bytes;
    while let Some((block, after)) = rest.split_first_chunk() {
        let marks = marks_of_controls(block);
        if marks != 0 {
            let end = bytes.len() - after.len();
            return (end - MARKED_BYTES, marks, end);
        }
        rest = after;
    }
    let from = bytes.len() - rest.len();
    (from, marks_at_the_end(rest), bytes.len())
}

#[inline(never)]
fn marks_at_the_end(bytes: &[u8]) -> u64 {
    let mut block = [b' '; MARKED_BYTES];
    block[..bytes.len()].copy_from_slice(bytes);
    marks_of_controls(&block)
}

#[inline(always)]
fn marks_of_controls(bytes: &[u8; MARKED_BYTES]) -> u64 {
    let (space, del) = (u8x16::splat(b' '), u8x16::splat(0x7f));
    let mark = |block: Block| {
        let block = u8x16::from(block);
        u64::from((block.simd_lt(space) | block.simd_eq(del)).to_bitmask())
    };
    let (blocks, _) = bytes.as_chunks();
    mark(blocks[0]) | mark(blocks[1]) << 16 | mark(blocks[2]) << 32 | mark(blocks[3]) << 48
}

#[inline(always)]
fn letters(block: u8x16) -> u8x16 {
    ((block | u8x16::splat(0x20)) - u8x16::splat(b'a')).simd_lt(u8x16::splat(26))
}

/// How many bytes at the start of `block` are letters or hyphens, of which nearly every field name is made.
#[inline(always)]
pub(super) fn name_run(block: Block) -> usize {
    let block = u8x16::from(block);
    let found = letters(block) | block.simd_eq(u8x16::splat(b'-'));
    (!found.to_bitmask()).trailing_zeros() as usize // bits from 16 on are set
}

/// A bit for each byte that is of [`PATH`] and of [`QUERY`] and no `%`; a few of both are left out.
#[inline(always)]
pub(super) fn plain_of_target(block: Block) -> u32 {
    let block = u8x16::from(block);
    let from_ampersand_to_semicolon =
        (block - u8x16::splat(b'&')).simd_lt(u8x16::splat(b';' - b'&' + 1));
    let underscores = block.simd_eq(u8x16::splat(b'_'));
    (letters(block) | from_ampersand_to_semicolon | underscores).to_bitmask()
}

/// A bit for each byte of [`LABEL`], and one for each dot.
#[inline(always)]
pub(super) fn labels_and_dots(block: Block) -> (u32, u32) {
    let block = u8x16::from(block);
    let digits = (block - u8x16::splat(b'0')).simd_lt(u8x16::splat(10));
    let marks = block.simd_eq(u8x16::splat(b'-')) | block.simd_eq(u8x16::splat(b'_'));
    let dots = block.simd_eq(u8x16::splat(b'.'));
    (
        (letters(block) | digits | marks).to_bitmask(),
        dots.to_bitmask(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every byte at every place of more than a block, whatever follows it.
    #[test]
    fn control_bytes_are_marked_at_their_places() {
        for len in 0..=MARKED_BYTES + 2 {
            for at in 0..len {
                for byte in 0..=255_u8 {
                    for later in [b'a', b':', b'\r', 0x80] {
                        let mut bytes = [b'9'; MARKED_BYTES + 2];
                        bytes[at + 1..].fill(later);
                        bytes[at] = byte;
                        let bytes = &bytes[..len];
                        let marks_of = |block: &[u8]| {
                            block.iter().rev().fold(0, |marks, byte| {
                                marks << 1 | u64::from(byte.is_ascii_control())
                            })
                        };
                        let (first, second) = bytes.split_at(len.min(MARKED_BYTES));
                        let expected = match (marks_of(first), marks_of(second)) {
                            (0, marks) if len >= MARKED_BYTES => (MARKED_BYTES, marks, len),
                            (marks, _) => (0, marks, first.len()),
                        };
                        assert_eq!(first_controls(bytes), expected);
                    }
                }
            }
        }
    }

    /// Every byte at every place of a block.
    #[test]
    fn what_is_told_of_a_block_is_what_the_table_says() {
        for at in 0..BLOCK_BYTES {
            for byte in 0..=255_u8 {
                let mut block = [b'a'; BLOCK_BYTES];
                block[at] = byte;
                let others = u32::from(u16::MAX) & !(1 << at);
                let run = if byte.is_ascii_alphabetic() || byte == b'-' {
                    assert!(is(byte, TOKEN));
                    BLOCK_BYTES
                } else {
                    at
                };
                assert_eq!(name_run(block), run, "{byte}");
                let plain = plain_of_target(block);
                assert_eq!(plain | 1 << at, u32::from(u16::MAX));
                if plain >> at & 1 == 1 {
                    assert!(is(byte, PATH) && is(byte, QUERY) && byte != b'%', "{byte}");
                }
                let (labels, dots) = labels_and_dots(block);
                assert_eq!(labels, others | u32::from(is(byte, LABEL)) << at, "{byte}");
                assert_eq!(dots, u32::from(byte == b'.') << at);
            }
        }
        assert_eq!(plain_of_target(*b"/v1/Seckill/p_7-"), u32::from(u16::MAX));
    }
}
