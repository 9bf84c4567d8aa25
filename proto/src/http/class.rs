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
