//! Request target and Host: where the request goes, by RFC 9112 §3.2 and RFC 3986, stricter where nobody honest notices.
//!
//! Called by the parser. Nothing is decoded or normalised: our paths are plain ASCII, so an encoded one is just not found.

use super::Method;
use super::class::{self, BLOCK_BYTES, LABEL, PATH, QUERY};
use super::reject::HttpReject;
use crate::limits::REQUEST_LINE_BYTES_MAX;
use core::net::Ipv6Addr;
use core::ops::Range;

/// The parts of a target, which lie one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// Where an authority begins; 0 for none, since a scheme is before it.
    authority_start: u16,
    path_start: u16,
    path_end: u16,
    /// Where the target ends.
    end: u16,
}

const _: () = assert!(REQUEST_LINE_BYTES_MAX <= u16::MAX as usize);

impl Target {
    /// Of absolute-form only; must name the Host.
    pub(super) fn authority(self) -> Option<Range<usize>> {
        let range = self.authority_start.into()..self.path_start.into();
        (self.authority_start > 0).then_some(range)
    }

    /// Empty when absolute-form has no path, which means `/` (RFC 9112 §3.2.1).
    pub(super) fn path(self) -> Range<usize> {
        self.path_start.into()..self.path_end.into()
    }

    /// Without its question mark.
    pub(super) fn query(self) -> Option<Range<usize>> {
        (self.path_end < self.end).then_some(usize::from(self.path_end) + 1..self.end.into())
    }
}

/// Reads a target in origin-form, absolute-form or, with OPTIONS only, asterisk-form.
///
/// # Errors
/// `Target` for every other form, a fragment, user information, or a byte outside the grammar.
pub(super) fn parse(method: Method, target: &[u8]) -> Result<Target, HttpReject> {
    match target.first() {
        Some(b'/') => path_and_query(target, 0, 0),
        Some(b'*') if target.len() == 1 && method == Method::Options => Ok(Target {
            authority_start: 0,
            path_start: 0,
            path_end: 1,
            end: 1,
        }),
        _ => absolute(target),
    }
}

fn absolute(target: &[u8]) -> Result<Target, HttpReject> {
    let starts_with = |scheme: &[u8]| {
        target
            .get(..scheme.len())
            .is_some_and(|head| head.eq_ignore_ascii_case(scheme))
    };
    let start = if starts_with(b"http://") {
        7
    } else if starts_with(b"https://") {
        8
    } else {
        return Err(HttpReject::Target);
    };
    let rest = &target[start..];
    let end = start
        + rest
            .iter()
            .position(|&byte| byte == b'/' || byte == b'?')
            .unwrap_or(rest.len());
    if !is_host(&target[start..end]) {
        return Err(HttpReject::Target);
    }
    path_and_query(target, end, start)
}

fn path_and_query(
    target: &[u8],
    path_start: usize,
    authority_start: usize,
) -> Result<Target, HttpReject> {
    let path_end = run_of(target, path_start, PATH)?;
    if path_end < target.len() {
        // Else: a space, a fragment, a control byte, a byte above 0x7F.
        let is_query = target[path_end] == b'?';
        if !is_query || run_of(target, path_end + 1, QUERY)? < target.len() {
            return Err(HttpReject::Target);
        }
    }
    Ok(Target {
        authority_start: authority_start as u16, // a target is part of a request line
        path_start: path_start as u16,
        path_end: path_end as u16,
        end: target.len() as u16,
    })
}

/// Where the run of `class` bytes from `start` ends; every `%` in it must have two hexadecimal digits (RFC 3986 §2.1).
/// `class` is of a path or a query.
fn run_of(target: &[u8], start: usize, class: u8) -> Result<usize, HttpReject> {
    let mut at = start;
    while let Some(&byte) = target.get(at) {
        let plain_bytes = plain_bytes(target, at);
        if plain_bytes > 0 {
            at += plain_bytes;
            continue;
        }
        if !class::is(byte, class) {
            break;
        }
        if byte == b'%' {
            let digits = target.get(at + 1..at + 3);
            if !digits.is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit)) {
                return Err(HttpReject::Target);
            }
            at += 2;
        }
        at += 1;
    }
    Ok(at)
}

/// How many bytes from `at`, which is within `target`, a path and a query may hold as they are; some of them, at least.
#[inline(always)]
fn plain_bytes(target: &[u8], at: usize) -> usize {
    // The last block lies over the one before it.
    let from = at.min(target.len().saturating_sub(BLOCK_BYTES));
    match target[from..].first_chunk() {
        Some(block) => (!class::plain_of_target(*block) >> (at - from)).trailing_zeros() as usize,
        None => 0,
    }
}

/// True for `host` or `host:port`: a name of non-empty labels (one final dot allowed), an IPv4 address or a bracketed
/// IPv6 address; a port of at most five digits and 65535, which may be empty (RFC 9110 §4.2.3). No user information.
pub(super) fn is_host(value: &[u8]) -> bool {
    let host_bytes = if value.first() == Some(&b'[') {
        let Some(close) = value.iter().position(|&byte| byte == b']') else {
            return false;
        };
        if !is_ipv6(&value[1..close]) {
            return false;
        }
        close + 1
    } else {
        if is_name_of_middling_length(value) {
            return true;
        }
        match name_bytes(value) {
            Some(bytes) => bytes,
            None => return false,
        }
    };
    match value[host_bytes..].split_first() {
        None => true,
        Some((b':', port)) => is_port(port),
        Some(_) => false,
    }
}

/// True for a name, without a port, of one to two blocks of bytes, as most shops have; false says nothing.
#[inline(always)]
fn is_name_of_middling_length(value: &[u8]) -> bool {
    if value.len() > 2 * BLOCK_BYTES {
        return false;
    }
    let (Some(first), Some(last)) = (value.first_chunk(), value.last_chunk()) else {
        return false;
    };
    let (labels, dots) = class::labels_and_dots(*first);
    let (last_labels, last_dots) = class::labels_and_dots(*last);
    let last_at = value.len() - BLOCK_BYTES; // the last block lies over the first one
    let labels = u64::from(labels) | u64::from(last_labels) << last_at;
    let dots = u64::from(dots) | u64::from(last_dots) << last_at;
    let is_whole = (labels | dots).trailing_ones() as usize == value.len();
    is_whole && dots & (dots << 1 | 1) == 0
}

/// The length of the name that starts `value`; `None` when it is empty or has an empty label.
fn name_bytes(value: &[u8]) -> Option<usize> {
    let mut label_bytes = 0;
    for (at, &byte) in value.iter().enumerate() {
        if class::is(byte, LABEL) {
            label_bytes += 1;
        } else if byte == b'.' && label_bytes > 0 {
            label_bytes = 0;
        } else {
            return (at > 0 && byte != b'.').then_some(at);
        }
    }
    (!value.is_empty()).then_some(value.len())
}

fn is_ipv6(literal: &[u8]) -> bool {
    core::str::from_utf8(literal).is_ok_and(|text| text.parse::<Ipv6Addr>().is_ok())
}

fn is_port(digits: &[u8]) -> bool {
    digits.len() <= 5
        && digits.iter().all(u8::is_ascii_digit)
        && digits
            .iter()
            .fold(0, |port, digit| port * 10 + u32::from(digit - b'0'))
            <= 65535
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is looked at in blocks is what is looked at byte by byte.
    #[test]
    fn names_of_every_length_are_hosts_or_not_whichever_way_they_are_read() {
        for len in 1..=2 * BLOCK_BYTES + 2 {
            for at in 0..len {
                for byte in 0..=255_u8 {
                    for dot_at in [0, at.saturating_sub(1), at + 1, len - 1, len] {
                        let mut name = [b'a'; 2 * BLOCK_BYTES + 2];
                        name[at] = byte;
                        if let Some(slot) = name.get_mut(dot_at) {
                            *slot = b'.';
                        }
                        let name = &name[..len];
                        let by_byte = name_bytes(name) == Some(len);
                        assert!(by_byte || !is_name_of_middling_length(name), "{name:?}");
                        if (BLOCK_BYTES..=2 * BLOCK_BYTES).contains(&len) {
                            assert_eq!(is_name_of_middling_length(name), by_byte, "{name:?}");
                        }
                    }
                }
            }
        }
    }

    /// The same of paths and queries.
    #[test]
    fn a_run_ends_where_it_ends_byte_by_byte() {
        for len in 0..=2 * BLOCK_BYTES + 2 {
            for at in 0..len {
                for byte in 0..=255_u8 {
                    for class in [PATH, QUERY] {
                        let mut target = [b'g'; 2 * BLOCK_BYTES + 2];
                        target[at] = byte;
                        let target = &target[..len];
                        let is_of_class = class::is(byte, class);
                        let expected = match byte {
                            b'%' => Err(HttpReject::Target), // digits are missing
                            _ if is_of_class => Ok(len),
                            _ => Ok(at),
                        };
                        for start in [0, at / 2, at] {
                            assert_eq!(run_of(target, start, class), expected, "{target:?}");
                        }
                    }
                }
            }
        }
        let digits = b"/a%41/0123456789/0123456789%zz";
        assert_eq!(run_of(digits, 0, PATH), Err(HttpReject::Target));
        assert_eq!(run_of(&digits[..27], 0, PATH), Ok(27));
    }

    #[test]
    fn hosts() {
        for good in [
            "weir.test",
            "weir.test.",
            "WEIR.test:80",
            "weir.test:",
            "a_b-c.d:65535",
            "127.0.0.1:8080",
            "[::1]",
            "[::1]:80",
            "[::ffff:1.2.3.4]:0",
        ] {
            assert!(is_host(good.as_bytes()), "{good}");
        }
        for bad in [
            "",
            ".",
            ":80",
            "..a",
            ".a",
            "a..b",
            "a..",
            "a:65536",
            "a:000080",
            "a:8x",
            "a:80:80",
            "u@h",
            "a b",
            "a,b",
            "a%41",
            "a/b",
            "[::1",
            "::1",
            "[::1]x",
            "[::1].",
            "[::g]",
            "[v1.a:b]",
            "[]",
            "[fe80::1%25eth0]",
            "a\u{e9}",
        ] {
            assert!(!is_host(bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn targets_fall_into_their_parts() {
        let parts = |text: &str| {
            let target = parse(Method::Get, text.as_bytes()).ok()?;
            Some((
                target.authority().map(|range| text[range].to_owned()),
                text[target.path()].to_owned(),
                target.query().map(|range| text[range].to_owned()),
            ))
        };
        let own = |text: &str| Some(text.to_owned());
        assert_eq!(
            parts("/a%2Fb?x=?/"),
            Some((None, "/a%2Fb".into(), own("x=?/")))
        );
        assert_eq!(parts("/?"), Some((None, "/".into(), own(""))));
        assert_eq!(
            parts("HTTP://h:1?q"),
            Some((own("h:1"), "".into(), own("q")))
        );
        assert_eq!(
            parts("https://[::1]/x"),
            Some((own("[::1]"), "/x".into(), None))
        );
        for bad in [
            "",
            "*",
            "*/x",
            "a",
            "?a",
            "/#f",
            "/?#f",
            "/a b",
            "/%4",
            "/%zz",
            "/\"",
            "/\\",
            "/^",
            "/\u{e9}",
            "http:/h/",
            "http:///p",
            "http://u@h/",
            "ftp://h/",
            "h:80",
        ] {
            assert_eq!(parts(bad), None, "{bad}");
        }
        assert!(parse(Method::Options, b"*").is_ok());
    }

    extern crate std;
    use std::borrow::ToOwned;
}
