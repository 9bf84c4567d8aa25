//! Client addresses from `X-Forwarded-For`, `Forwarded` and the PROXY protocol, and networks, against slow models.
//!
//! For any bytes: nobody but a trusted hop moves the result, and what a trusted hop appends is what counts, whatever
//! stands left of it.

use super::forwarded_model as model;
use super::{Checked, same};
use std::net::IpAddr;
use weir_proto::addr::proxy::{ProxyParsed, parse, parse_from};
use weir_proto::addr::{Cidr, Source, client_address};

const TRUSTED: [&str; 2] = ["10.0.0.0/8", "2001:db8::/32"];
const APPENDED: &str = "198.51.100.7";
/// Inputs up to this length are also shown prefix by prefix.
const PREFIXES_BYTES_MAX: usize = 256;

fn trusted() -> Vec<Cidr> {
    TRUSTED
        .iter()
        .map(|text| Cidr::parse(text).expect("a network"))
        .collect()
}

/// Checks `data`: its first byte says as what.
pub fn check(data: &[u8]) -> Checked {
    let Some((&mode, rest)) = data.split_first() else {
        return Ok(());
    };
    match mode % 4 {
        0 => header(Source::XForwardedFor, rest),
        1 => header(Source::Forwarded, rest),
        2 => proxy(rest),
        _ => network(rest),
    }
}

fn client(source: Source, peer: IpAddr, lines: &[&[u8]]) -> IpAddr {
    client_address(source, peer, &trusted(), lines.iter().copied())
}

/// The lines are the bytes between line feeds, as the parser would hand them over.
fn header(source: Source, text: &[u8]) -> Checked {
    let lines: Vec<&[u8]> = text
        .split(|&byte| byte == b'\n')
        .map(super::http_model::trim)
        .collect();
    let stranger: IpAddr = "203.0.113.9".parse().expect("an address");
    same(
        "an untrusted peer",
        &client(source, stranger, &lines),
        &stranger,
    )?;
    for peer in ["10.0.0.1", "::ffff:10.0.0.1", "2001:db8::1"] {
        let peer: IpAddr = peer.parse().expect("an address");
        let ours = client(source, peer, &lines);
        let entries = if source == Source::XForwardedFor {
            let entries = lines.iter().flat_map(|line| line.split(|&b| b == b','));
            let entries = entries
                .map(super::http_model::trim)
                .filter(|entry| !entry.is_empty());
            Some(entries.map(model::entry).collect::<Vec<_>>())
        } else {
            model::elements(&lines)
        };
        if let Some(entries) = entries {
            same("the walk", &ours, &model::walk(peer, &TRUSTED, &entries))?;
        }
        appended(source, peer, &lines)?;
    }
    Ok(())
}

/// Whatever the client wrote: what the nearest trusted hop appends is the answer, on its own line or on the same one.
fn appended(source: Source, peer: IpAddr, lines: &[&[u8]]) -> Checked {
    let entry = match source {
        Source::Forwarded => format!("for={APPENDED}"),
        _ => APPENDED.to_owned(),
    };
    let wanted: IpAddr = APPENDED.parse().expect("an address");
    let mut own_line = lines.to_vec();
    own_line.push(entry.as_bytes());
    same(
        "appended as a line",
        &client(source, peer, &own_line),
        &wanted,
    )?;
    let (last, before) = lines.split_last().expect("split gives one part at least");
    let longer = [last, &b", "[..], entry.as_bytes()].concat();
    let mut same_line = before.to_vec();
    same_line.push(&longer);
    same(
        "appended to the line",
        &client(source, peer, &same_line),
        &wanted,
    )
}

fn proxy(input: &[u8]) -> Checked {
    let whole = parse(input);
    same("PROXY", &whole, &model::proxy(input))?;
    let [proxy, stranger] =
        ["10.0.0.1", "203.0.113.9"].map(|text| text.parse().expect("an address"));
    same(
        "from a proxy",
        &parse_from(proxy, &trusted(), input),
        &whole,
    )?;
    same(
        "from a stranger",
        &parse_from(stranger, &trusted(), input),
        &ProxyParsed::Reject,
    )?;
    if input.len() > PREFIXES_BYTES_MAX {
        return Ok(());
    }
    let mut decided = None;
    for bytes in 0..=input.len() {
        let verdict = parse(&input[..bytes]);
        match decided {
            Some(first) => same("more bytes", &verdict, &first)?,
            None if verdict != ProxyParsed::NeedMore => decided = Some(verdict),
            None => {}
        }
    }
    same(
        "prefix by prefix",
        &decided.unwrap_or(ProxyParsed::NeedMore),
        &whole,
    )
}

/// A network, and behind a line feed an address that may lie in it.
fn network(text: &[u8]) -> Checked {
    let Ok(text) = std::str::from_utf8(text) else {
        return Ok(());
    };
    let (network, address) = text.split_once('\n').unwrap_or((text, "10.1.2.3"));
    let expected = model::network(network);
    let Ok(cidr) = Cidr::parse(network) else {
        return same("a network", &None, &expected);
    };
    let Some((base, prefix)) = expected else {
        return Err(format!("weir takes the network {network:?}"));
    };
    let written = format!("{base}/{prefix}");
    same("as text", &cidr.to_string(), &written)?;
    same("read again", &Cidr::parse(&written), &Ok(cidr))?;
    let Ok(address) = address.parse::<IpAddr>() else {
        return Ok(());
    };
    same(
        "contains",
        &cidr.contains(address),
        &model::lies_in(address, &written),
    )
}
