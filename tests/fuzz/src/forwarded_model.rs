//! Slow, obvious readers of forwarding headers, PROXY headers and networks: copies, splits, bit strings.
//!
//! The `Forwarded` model reads from the left, as RFC 7239 writes the grammar; weir reads from the right. They must agree
//! on every well-formed list.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use weir_proto::addr::proxy::ProxyParsed;

/// Dotted decimal without leading zeros.
fn v4(text: &str) -> Option<IpAddr> {
    let parts: Vec<&str> = text.split('.').collect();
    let part = |part: &&str| {
        let digits = (1..=3).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
        let plain = *part == "0" || !part.starts_with('0');
        (digits && plain).then(|| part.parse::<u8>().ok())?
    };
    let bytes: Vec<u8> = parts.iter().map(part).collect::<Option<_>>()?;
    let bytes: [u8; 4] = bytes.try_into().ok()?;
    Some(Ipv4Addr::from(bytes).into())
}

fn v6(text: &str) -> Option<IpAddr> {
    text.parse::<Ipv6Addr>().ok().map(IpAddr::V6)
}

fn is_port(text: &str) -> bool {
    text.len() <= 5
        && text.bytes().all(|b| b.is_ascii_digit())
        && text.parse::<u32>().is_ok_and(|p| p < 65536)
}

fn is_hidden(text: &str) -> bool {
    let letter = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    text.strip_prefix('_')
        .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(letter))
}

/// The last colon outside brackets ends a port, if what stands before it is an address that has one.
fn host_port(text: &str) -> (&str, Option<&str>) {
    match text.rsplit_once(':') {
        Some((host, port)) if host.ends_with(']') || !host.contains(':') => (host, Some(port)),
        _ => (text, None),
    }
}

fn unwrap(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(address, IpAddr::V4),
        v4 => v4,
    }
}

/// One entry of X-Forwarded-For.
pub fn entry(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let (host, port) = host_port(text);
    let inside = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let address = match (inside, port) {
        (Some(inside), _) => v6(inside)?,
        (None, Some(_)) => v4(host)?,
        (None, None) => v4(host).or_else(|| v6(host))?,
    };
    port.is_none_or(is_port).then(|| unwrap(address))
}

/// The node of a `for` parameter.
fn node(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let (host, port) = host_port(text);
    let inside = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let address = match inside {
        Some(inside) => v6(inside)?,
        None => v4(host)?,
    };
    port.is_none_or(|port| is_port(port) || is_hidden(port))
        .then(|| unwrap(address))
}

fn is_token(text: &[u8]) -> bool {
    super::http_model::is_token(text)
}

/// Cuts at every `separator` outside quoted strings, read from the left; `None` when a quote does not end.
fn split_outside_quotes(text: &[u8], separator: u8) -> Option<Vec<&[u8]>> {
    let (mut parts, mut start, mut quoted, mut at) = (Vec::new(), 0, false, 0);
    while at < text.len() {
        match text[at] {
            b'"' => quoted = !quoted,
            b'\\' if quoted => at += 1,
            b'\\' => return None,
            byte if byte == separator && !quoted => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    parts.push(&text[start..]);
    (!quoted && at == text.len()).then_some(parts)
}

/// One parameter: its name in lower case and its value as written between quotes or bare.
fn parameter(text: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let equals = text.iter().position(|&b| b == b'=')?;
    let (name, value) = (&text[..equals], &text[equals + 1..]);
    let inside = value
        .strip_prefix(b"\"")
        .and_then(|rest| rest.strip_suffix(b"\""));
    let value = match inside {
        Some(inside) if value.len() > 1 && !inside.is_empty() => {
            let mut rest = inside.iter();
            while let Some(&byte) = rest.next() {
                let letter = if byte == b'\\' { *rest.next()? } else { byte };
                if (byte == b'"') || (letter < b' ' && letter != b'\t') || letter == 0x7f {
                    return None;
                }
            }
            inside
        }
        Some(inside) if value.len() > 1 => inside,
        _ => Some(value).filter(|value| is_token(value))?,
    };
    is_token(name).then(|| (name.to_ascii_lowercase(), value.to_vec()))
}

/// The elements of well-formed `Forwarded` lines, empty ones left out, each with the address that its `for` means;
/// `None` when a line is not of the grammar and only the promises for bad lines hold.
pub fn elements(lines: &[&[u8]]) -> Option<Vec<Option<IpAddr>>> {
    let mut found = Vec::new();
    for line in lines {
        for element in split_outside_quotes(line, b',')? {
            let element = super::http_model::trim(element);
            if element.is_empty() {
                continue;
            }
            let pairs = split_outside_quotes(element, b';')?;
            let pairs = pairs
                .into_iter()
                .map(super::http_model::trim)
                .filter(|pair| !pair.is_empty());
            let pairs: Vec<_> = pairs.map(parameter).collect::<Option<_>>()?;
            let twice =
                (1..pairs.len()).any(|at| pairs[..at].iter().any(|(name, _)| *name == pairs[at].0));
            let node_text = pairs
                .iter()
                .find(|(name, _)| name == b"for")
                .map(|(_, value)| value);
            let address = node_text.and_then(|text| node(text));
            found.push(address.filter(|_| !twice && pairs.len() <= 16));
        }
    }
    Some(found)
}

/// The walk: from the last entry on, as long as a trusted hop vouches for the next.
pub fn walk(peer: IpAddr, trusted: &[&str], entries: &[Option<IpAddr>]) -> IpAddr {
    let mut client = unwrap(peer);
    let mut rest = entries.iter().rev();
    while trusted.iter().any(|network| lies_in(client, network)) {
        match rest.next() {
            Some(Some(address)) => client = *address,
            _ => break,
        }
    }
    client
}

fn bits(address: IpAddr) -> String {
    match address {
        IpAddr::V4(v4) => v4
            .octets()
            .iter()
            .map(|byte| format!("{byte:08b}"))
            .collect(),
        IpAddr::V6(v6) => v6
            .octets()
            .iter()
            .map(|byte| format!("{byte:08b}"))
            .collect(),
    }
}

/// True when the address lies in a well-formed network: the first bits are the same characters.
pub fn lies_in(address: IpAddr, network: &str) -> bool {
    let (base, prefix) = network.split_once('/').expect("a network with its prefix");
    let base: IpAddr = base.parse().expect("an address");
    let address = unwrap(address);
    let prefix: usize = prefix.parse().expect("a number");
    address.is_ipv4() == base.is_ipv4() && bits(address)[..prefix] == bits(base)[..prefix]
}

/// A PROXY header (HAProxy's proxy-protocol.txt §2.1, §2.2) at the start of bytes that are all there.
pub fn proxy(input: &[u8]) -> ProxyParsed {
    let verdict = match input.first() {
        None => Ok(None),
        Some(b'P') => proxy_v1(input),
        Some(_) => proxy_v2(input),
    };
    match verdict {
        Err(()) => ProxyParsed::Reject,
        Ok(None) => ProxyParsed::NeedMore,
        Ok(Some((client, consumed))) => ProxyParsed::Done { client, consumed },
    }
}

type Header = Result<Option<(Option<SocketAddr>, usize)>, ()>;

fn proxy_v1(input: &[u8]) -> Header {
    if input
        .iter()
        .zip(b"PROXY ")
        .any(|(byte, wanted)| byte != wanted)
    {
        return Err(());
    }
    let window = &input[..input.len().min(107)];
    let Some(end) = window.iter().position(|byte| b"\r\n".contains(byte)) else {
        return if window.len() >= 106 {
            Err(())
        } else {
            Ok(None)
        };
    };
    match (window[end], window.get(end + 1)) {
        (b'\r', Some(b'\n')) => {}
        (b'\r', None) if end < 106 => return Ok(None),
        _ => return Err(()),
    }
    let text = std::str::from_utf8(&input[..end]).map_err(|_| ())?;
    let words: Vec<&str> = text.split(' ').collect();
    let port = |text: &str| {
        let plain = text == "0" || !text.starts_with('0');
        if plain && is_port(text) {
            text.parse().map_err(|_| ())
        } else {
            Err(())
        }
    };
    let client = match words[..] {
        ["PROXY", "UNKNOWN", ..] => None,
        ["PROXY", family, source, target, source_port, target_port] => {
            let read = match family {
                "TCP4" => v4,
                "TCP6" => v6,
                _ => return Err(()),
            };
            let (source, _) = (read(source).ok_or(())?, read(target).ok_or(())?);
            port(target_port)?;
            Some(SocketAddr::new(unwrap(source), port(source_port)?))
        }
        _ => return Err(()),
    };
    Ok(Some((client, end + 2)))
}

fn proxy_v2(input: &[u8]) -> Header {
    let signature = b"\r\n\r\n\0\r\nQUIT\n";
    if input
        .iter()
        .zip(signature)
        .any(|(byte, wanted)| byte != wanted)
    {
        return Err(());
    }
    let command = match input.get(12) {
        None => return Ok(None),
        Some(byte @ (0x20 | 0x21)) => byte & 15,
        Some(_) => return Err(()),
    };
    let Some(&family) = input.get(13) else {
        return Ok(None);
    };
    let (least, source, port) = match (command, family) {
        (0, _) | (_, 0x00) => (0, 0..0, 0),
        (_, 0x11) => (12, 16..20, 24),
        (_, 0x21) => (36, 16..32, 48),
        (_, 0x31) => (216, 0..0, 0),
        _ => return Err(()),
    };
    let Some(length) = input.get(14..16) else {
        return Ok(None);
    };
    let length = usize::from(length[0]) * 256 + usize::from(length[1]);
    if length < least || 16 + length > 4096 {
        return Err(());
    }
    if input.len() < 16 + length {
        return Ok(None);
    }
    let mut extras = &input[16 + least..16 + length];
    while least > 0 && !extras.is_empty() {
        let Some(&[_, high, low]) = extras.get(..3) else {
            return Err(());
        };
        let value = usize::from(high) * 256 + usize::from(low);
        extras = extras.get(3 + value..).ok_or(())?;
    }
    let address: Option<IpAddr> = match &input[source] {
        four if four.len() == 4 => Some(Ipv4Addr::new(four[0], four[1], four[2], four[3]).into()),
        sixteen if sixteen.len() == 16 => {
            Some(IpAddr::from(<[u8; 16]>::try_from(sixteen).map_err(|_| ())?))
        }
        _ => None,
    };
    let client = address.map(|address| {
        let number = u16::from(input[port]) * 256 + u16::from(input[port + 1]);
        SocketAddr::new(unwrap(address), number)
    });
    Ok(Some((client, 16 + length)))
}

/// A network as weir would read it, as base bits, prefix and family; `None` when it must refuse.
pub fn network(text: &str) -> Option<(IpAddr, usize)> {
    let (base, prefix) = match text.split_once('/') {
        None => (text, None),
        Some((base, prefix)) => (base, Some(prefix)),
    };
    let base = v4(base).or_else(|| v6(base))?;
    let most = bits(base).len();
    let prefix = match prefix {
        None => most,
        Some(digits) => {
            let plain = digits == "0" || !digits.starts_with('0');
            let number = digits.bytes().all(|b| b.is_ascii_digit()) && plain;
            number
                .then(|| digits.parse::<usize>().ok())?
                .filter(|prefix| *prefix <= most)?
        }
    };
    if bits(base)[prefix..].contains('1') {
        return None;
    }
    // ::ffff:0:0/96 and longer is a network of IPv4.
    match unwrap(base) {
        inner @ IpAddr::V4(_) if base.is_ipv6() && prefix >= 96 => Some((inner, prefix - 96)),
        _ => Some((base, prefix)),
    }
}
