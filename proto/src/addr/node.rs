//! Addresses as proxies write them: bare, with a port, in brackets.
//!
//! Called by `forwarded` and `proxy`. Strict: no leading zeros in IPv4 parts (read as octal elsewhere, CVE-2021-29922),
//! no zone ids, ports of at most five digits up to 65535.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// One entry of X-Forwarded-For: `v4`, `v4:port`, `v6`, `[v6]`, `[v6]:port`; `None` for anything else.
pub(super) fn loose_address(text: &[u8]) -> Option<IpAddr> {
    let text = core::str::from_utf8(text).ok()?;
    if text.starts_with('[') {
        return bracketed(text, is_port);
    }
    match text.split_once(':') {
        Some((v4, port)) if !port.contains(':') => is_port(port).then(|| v4_address(v4))?,
        _ => text.parse().ok(),
    }
}

/// The node of `Forwarded` (RFC 7239 §6): `v4`, `v4:port`, `[v6]`, `[v6]:port`, the port perhaps obfuscated.
pub(super) fn forwarded_node(text: &[u8]) -> Option<IpAddr> {
    let text = core::str::from_utf8(text).ok()?;
    let is_node_port = |port: &str| is_port(port) || is_obfuscated(port);
    if text.starts_with('[') {
        return bracketed(text, is_node_port);
    }
    match text.split_once(':') {
        Some((v4, port)) => is_node_port(port).then(|| v4_address(v4))?,
        None => v4_address(text),
    }
}

fn bracketed(text: &str, port_ok: impl Fn(&str) -> bool) -> Option<IpAddr> {
    let (v6, rest) = text.strip_prefix('[')?.split_once(']')?;
    let v6: Ipv6Addr = v6.parse().ok()?;
    let rest_ok = rest.is_empty() || rest.strip_prefix(':').is_some_and(port_ok);
    rest_ok.then_some(IpAddr::V6(v6))
}

fn v4_address(text: &str) -> Option<IpAddr> {
    text.parse::<Ipv4Addr>().ok().map(IpAddr::V4)
}

fn is_port(text: &str) -> bool {
    (1..=5).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_digit())
        && text.parse::<u16>().is_ok()
}

/// RFC 7239 §6.3: `_` and at least one of letters, digits, `.`, `_`, `-`.
fn is_obfuscated(text: &str) -> bool {
    text.len() > 1
        && text.starts_with('_')
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}
