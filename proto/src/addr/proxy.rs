//! The PROXY protocol, versions 1 and 2 (HAProxy, doc/proxy-protocol.txt, called "the text" below).
//!
//! Called with the first bytes of a connection whose listener is configured for it. Stateless: call again with all
//! bytes when more have come; a header is at most `PROXY_V2_BYTES_MAX`, so reading it again costs little. Any deviation
//! is a refusal: the receiver must not guess whether a header is there (the text, §2).

use super::{Cidr, is_trusted, unmapped};
use crate::limits::{PROXY_V1_BYTES_MAX, PROXY_V2_BYTES_MAX};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The result of looking at the first bytes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyParsed {
    /// A whole, valid header.
    Done {
        /// The client as the proxy saw it, unwrapped; `None`: use the socket's peer (health checks, unknown families).
        client: Option<SocketAddr>,
        /// Bytes of the header; the first request starts behind them.
        consumed: usize,
    },
    /// So far valid; more bytes are needed.
    NeedMore,
    /// Not a PROXY header: the connection is refused.
    Reject,
}

/// The text, §2.2.
const V2_SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Signature, version and command, family and transport, length of the rest.
const V2_FIXED_BYTES: usize = 16;
const V1_START: &[u8] = b"PROXY ";

/// Reads the header at the start of `input` if `peer` is trusted to send one; any other peer is refused at once.
///
/// Refused and not ignored: the bytes of an untrusted peer would otherwise be read as HTTP, and the listener is meant
/// for the proxies alone (the text, §2: the receiver must only accept connections from trusted sources).
pub fn parse_from(peer: IpAddr, trusted: &[Cidr], input: &[u8]) -> ProxyParsed {
    if is_trusted(unmapped(peer), trusted) {
        parse(input)
    } else {
        ProxyParsed::Reject
    }
}

/// Reads the header at the start of `input`, whoever sent it; see [`parse_from`].
pub fn parse(input: &[u8]) -> ProxyParsed {
    match input.first() {
        None => ProxyParsed::NeedMore,
        Some(b'P') => parse_v1(input),
        Some(_) => parse_v2(input),
    }
}

/// True when `input` begins with `expected`, as far as it goes.
fn agrees(input: &[u8], expected: &[u8]) -> bool {
    let shared = input.len().min(expected.len());
    input[..shared] == expected[..shared]
}

/// The text, §2.1.
fn parse_v1(input: &[u8]) -> ProxyParsed {
    if !agrees(input, V1_START) {
        return ProxyParsed::Reject;
    }
    let window = &input[..input.len().min(PROXY_V1_BYTES_MAX)];
    let Some(end) = memchr::memchr2(b'\r', b'\n', window) else {
        // CR LF needs two of the bytes that may come, so one byte before the limit the line is lost already.
        return if window.len() + 1 >= PROXY_V1_BYTES_MAX {
            ProxyParsed::Reject
        } else {
            ProxyParsed::NeedMore
        };
    };
    match window.get(end..end + 2) {
        Some(b"\r\n") => {}
        None if window[end] == b'\r' && end + 2 <= PROXY_V1_BYTES_MAX => {
            return ProxyParsed::NeedMore;
        }
        _ => return ProxyParsed::Reject,
    }
    match v1_client(&input[..end]) {
        Some(client) => ProxyParsed::Done {
            client,
            consumed: end + 2,
        },
        None => ProxyParsed::Reject,
    }
}

/// The line without CR LF; the outer `None` is a refusal, the inner one "use the socket's peer".
fn v1_client(line: &[u8]) -> Option<Option<SocketAddr>> {
    let fields = core::str::from_utf8(line.strip_prefix(V1_START)?).ok()?;
    // "the receiver must ignore anything presented before the CRLF" after UNKNOWN.
    if fields == "UNKNOWN" || fields.starts_with("UNKNOWN ") {
        return Some(None);
    }
    let mut fields = fields.split(' ');
    let mut next = || fields.next();
    let (family, source, target) = (next()?, next()?, next()?);
    let (source_port, target_port) = (v1_port(next()?)?, v1_port(next()?)?);
    let source: IpAddr = match family {
        "TCP4" => (
            source.parse::<Ipv4Addr>().ok()?,
            target.parse::<Ipv4Addr>().ok()?,
        )
            .0
            .into(),
        "TCP6" => (
            source.parse::<Ipv6Addr>().ok()?,
            target.parse::<Ipv6Addr>().ok()?,
        )
            .0
            .into(),
        _ => return None,
    };
    let _ = target_port; // checked for its form only
    next()
        .is_none()
        .then_some(Some(SocketAddr::new(unmapped(source), source_port)))
}

/// "a decimal integer in the range [0..65535] without leading zeroes".
fn v1_port(text: &str) -> Option<u16> {
    let canonical = text == "0" || text.starts_with(|c: char| ('1'..='9').contains(&c));
    canonical.then(|| text.parse().ok())?
}

/// The text, §2.2.
fn parse_v2(input: &[u8]) -> ProxyParsed {
    if !agrees(input, V2_SIGNATURE) {
        return ProxyParsed::Reject;
    }
    // Version 2 in the upper half of byte 13; commands LOCAL (0) and PROXY (1) in the lower.
    let is_local = match input.get(12) {
        None => return ProxyParsed::NeedMore,
        Some(0x20) => true,
        Some(0x21) => false,
        Some(_) => return ProxyParsed::Reject,
    };
    // Bytes of addresses that the family needs. A datagram cannot have come over this stream; other values are
    // unassigned. LOCAL: "discard the protocol block including the family which is ignored".
    let address_bytes = match input.get(13) {
        None => return ProxyParsed::NeedMore,
        Some(_) if is_local => 0,
        Some(0x00) => 0,
        Some(0x11) => 12,
        Some(0x21) => 36,
        Some(0x31) => 216,
        Some(_) => return ProxyParsed::Reject,
    };
    let Some(&[high, low]) = input.get(14..V2_FIXED_BYTES) else {
        return ProxyParsed::NeedMore;
    };
    let rest_bytes = usize::from(u16::from_be_bytes([high, low]));
    let consumed = V2_FIXED_BYTES + rest_bytes;
    if rest_bytes < address_bytes || consumed > PROXY_V2_BYTES_MAX {
        return ProxyParsed::Reject;
    }
    let Some(rest) = input.get(V2_FIXED_BYTES..consumed) else {
        return ProxyParsed::NeedMore;
    };
    let (addresses, extras) = rest.split_at(address_bytes);
    // Without addresses there is no telling where the extras start: they are skipped unread.
    if address_bytes > 0 && !extras_are_whole(extras) {
        return ProxyParsed::Reject;
    }
    ProxyParsed::Done {
        client: v2_client(addresses),
        consumed,
    }
}

/// The source of an address block: IPv4 4+4+2+2 bytes, IPv6 16+16+2+2; any other block names no client.
fn v2_client(addresses: &[u8]) -> Option<SocketAddr> {
    let (address, port): (IpAddr, &[u8]) = match addresses.len() {
        12 => (
            Ipv4Addr::from(*addresses.first_chunk::<4>()?).into(),
            &addresses[8..10],
        ),
        36 => (
            Ipv6Addr::from(*addresses.first_chunk::<16>()?).into(),
            &addresses[32..34],
        ),
        _ => return None,
    };
    let port = u16::from_be_bytes(*port.first_chunk::<2>()?);
    Some(SocketAddr::new(unmapped(address), port))
}

/// True when type-length-value triples fill `extras` exactly (the text, §2.2.x: type 1 byte, length 2 bytes).
fn extras_are_whole(mut extras: &[u8]) -> bool {
    while let Some((&[_kind, high, low], rest)) = extras.split_first_chunk::<3>() {
        match rest.get(usize::from(u16::from_be_bytes([high, low]))..) {
            Some(after) => extras = after,
            None => return false,
        }
    }
    extras.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    #[test]
    fn a_v1_line_has_107_bytes_at_most() {
        let longest = [b"PROXY UNKNOWN ".as_slice(), &[b'x'; 91], b"\r\n"].concat();
        assert_eq!(longest.len(), 107);
        assert_eq!(
            parse(&longest),
            ProxyParsed::Done {
                client: None,
                consumed: 107
            }
        );
        let longer = [b"PROXY UNKNOWN ".as_slice(), &[b'x'; 92], b"\r\n"].concat();
        assert_eq!(parse(&longer[..105]), ProxyParsed::NeedMore);
        assert_eq!(parse(&longer[..106]), ProxyParsed::Reject);
        assert_eq!(parse(&longer), ProxyParsed::Reject);
    }

    #[test]
    fn a_v2_header_has_its_limit_and_local_ignores_the_family() {
        let head = |command: u8, family: u8, rest_bytes: usize| {
            let mut bytes = V2_SIGNATURE.to_vec();
            bytes.extend_from_slice(&[command, family, (rest_bytes >> 8) as u8, rest_bytes as u8]);
            bytes
        };
        let rest_max = PROXY_V2_BYTES_MAX - V2_FIXED_BYTES;
        assert_eq!(parse(&head(0x21, 0x11, rest_max)), ProxyParsed::NeedMore);
        assert_eq!(parse(&head(0x21, 0x11, rest_max + 1)), ProxyParsed::Reject);
        assert_eq!(
            parse(&head(0x20, 0xff, 0)),
            ProxyParsed::Done {
                client: None,
                consumed: 16
            }
        );
        assert_eq!(parse(&head(0x21, 0x12, 12)), ProxyParsed::Reject);
    }

    #[test]
    fn a_mapped_client_is_unwrapped() {
        let line = b"PROXY TCP6 ::ffff:198.51.100.7 ::1 7 8\r\n";
        let client = Some("198.51.100.7:7".parse().unwrap());
        assert_eq!(
            parse(line),
            ProxyParsed::Done {
                client,
                consumed: line.len()
            }
        );
    }

    proptest! {
        #[test]
        fn more_bytes_never_change_a_verdict(start in 0..3_usize, tail in proptest::collection::vec(any::<u8>(), 0..120)) {
            let starts: [&[u8]; 3] = [b"PROXY TCP4 1.2.3.4 ", b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c", b""];
            let input: Vec<u8> = [starts[start], &tail].concat();
            let whole = parse(&input);
            let mut decided = None;
            for end in 0..=input.len() {
                let verdict = parse(&input[..end]);
                if let Some(first) = decided {
                    prop_assert_eq!(verdict, first);
                } else if verdict != ProxyParsed::NeedMore {
                    decided = Some(verdict);
                }
            }
            prop_assert_eq!(decided.unwrap_or(ProxyParsed::NeedMore), whole);
        }
    }
}
