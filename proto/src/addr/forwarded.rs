//! The client's address from `X-Forwarded-For` or `Forwarded` (RFC 7239), walked from the right.
//!
//! Each trusted proxy appends the address it saw, so only what stands right of the first untrusted address is vouched
//! for. The walk reads from the right and stops there: what a client writes on the left is never looked at, neither
//! its length nor its broken quotes can move the result. An entry that is no address stops the walk too.

use super::node::{forwarded_node, loose_address};
use super::{Cidr, Source, is_trusted, unmapped};
use crate::limits::FORWARDED_PAIRS_MAX;
use core::net::IpAddr;

/// The client's address, unwrapped.
///
/// `peer`: the socket's peer, or with [`Source::ProxyProtocol`] the client that the PROXY header named. `lines`: the
/// values of the header that `source` names, one per header line, in order of arrival (they form one list,
/// RFC 9110 §5.3; trailers must not be among them, RFC 9110 §6.5.1). The result is `peer` unless the peer is trusted;
/// then the rightmost untrusted entry; the leftmost entry when all are trusted; the last good one when an entry is bad.
pub fn client_address<'a>(
    source: Source,
    peer: IpAddr,
    trusted: &[Cidr],
    lines: impl DoubleEndedIterator<Item = &'a [u8]>,
) -> IpAddr {
    let peer = unmapped(peer);
    let entry_address: fn(&[u8]) -> Option<IpAddr> = match source {
        Source::Peer | Source::ProxyProtocol => return peer,
        Source::XForwardedFor => loose_address,
        Source::Forwarded => element_address,
    };
    if !is_trusted(peer, trusted) {
        return peer;
    }
    let quotes = source == Source::Forwarded;
    let mut client = peer;
    for line in lines.rev() {
        let mut rest = Some(line);
        while let Some(left) = rest {
            let entry;
            (rest, entry) = split_last_element(left, quotes);
            let entry = trim_blanks(entry);
            if entry.is_empty() {
                continue; // empty list elements do not count (RFC 9110 §5.6.1.2)
            }
            match entry_address(entry) {
                Some(address) => client = unmapped(address),
                None => return client,
            }
            if !is_trusted(client, trusted) {
                return client;
            }
        }
    }
    client
}

/// Cuts at the last comma; with `quotes`, at the last one outside a quoted string, the strings matched from the right.
fn split_last_element(list: &[u8], quotes: bool) -> (Option<&[u8]>, &[u8]) {
    let mut quoted = false;
    for at in (0..list.len()).rev() {
        match list[at] {
            b'"' if quotes && !is_escaped(list, at) => quoted = !quoted,
            b',' if !quoted => return (Some(&list[..at]), &list[at + 1..]),
            _ => {}
        }
    }
    (None, list)
}

/// True when an odd number of backslashes stands before `at`. Each is counted for one quote only, so a walk stays linear.
fn is_escaped(list: &[u8], at: usize) -> bool {
    list[..at].iter().rev().take_while(|&&b| b == b'\\').count() % 2 == 1
}

fn trim_blanks(text: &[u8]) -> &[u8] {
    let is_blank = |b: &u8| matches!(b, b' ' | b'\t');
    let start = text.iter().position(|b| !is_blank(b)).unwrap_or(text.len());
    let end = text
        .iter()
        .rposition(|b| !is_blank(b))
        .map_or(start, |last| last + 1);
    &text[start..end]
}

/// The address of one forwarded-element (RFC 7239 §4); `None` when the element is malformed, repeats a parameter,
/// has no `for`, or its `for` is `unknown` or obfuscated.
fn element_address(element: &[u8]) -> Option<IpAddr> {
    let mut names: [&[u8]; FORWARDED_PAIRS_MAX] = [b""; FORWARDED_PAIRS_MAX];
    let mut names_count = 0;
    let mut address = None;
    let mut rest = element;
    loop {
        rest = trim_blanks(rest);
        if !rest.is_empty() && rest[0] != b';' {
            let (name, value, after) = pair(rest)?;
            let repeated = names[..names_count]
                .iter()
                .any(|known| known.eq_ignore_ascii_case(name));
            if repeated || names_count == FORWARDED_PAIRS_MAX {
                return None;
            }
            names[names_count] = name;
            names_count += 1;
            if name.eq_ignore_ascii_case(b"for") {
                address = Some(forwarded_node(value)?);
            }
            rest = trim_blanks(after);
        }
        match rest.split_first() {
            None => return address,
            Some((b';', after)) => rest = after,
            Some(_) => return None,
        }
    }
}

/// `token "=" ( token / quoted-string )`: name, the value without its quotes, and what follows.
///
/// A value with an escape is handed on as written: no address needs one, so as a `for` it is refused.
fn pair(text: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let name_bytes = text.iter().take_while(|&&b| is_token_byte(b)).count();
    let value = text[name_bytes..].strip_prefix(b"=")?;
    if name_bytes == 0 {
        return None;
    }
    let name = &text[..name_bytes];
    if let Some(inside) = value.strip_prefix(b"\"") {
        let end = (0..inside.len()).find(|&at| inside[at] == b'"' && !is_escaped(inside, at))?;
        return Some((name, &inside[..end], &inside[end + 1..]));
    }
    let value_bytes = value.iter().take_while(|&&b| is_token_byte(b)).count();
    (value_bytes > 0).then_some((name, &value[..value_bytes], &value[value_bytes..]))
}

/// RFC 9110 §5.6.2, tchar.
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn client(source: Source, lines: &[&[u8]]) -> alloc::string::String {
        let trusted = [Cidr::parse("10.0.0.0/8").unwrap()];
        client_address(
            source,
            "10.0.0.1".parse().unwrap(),
            &trusted,
            lines.iter().copied(),
        )
        .to_string()
    }

    #[test]
    fn broken_quotes_on_the_left_do_not_swallow_what_the_proxy_wrote() {
        for line in [
            r#"for="1.1.1.1, for=198.51.100.7"#,
            r#"for="1.1.1.1\, for="198.51.100.7:80""#,
            r#"""", for=198.51.100.7"#,
            r#"for=1.1.1.1\", for=198.51.100.7;proto=https"#,
            r#"for=1.1.1.1,for="198.51.100.7:_p" ; host="a\"b,c""#,
            r#"for=2.2.2.2, for=198.51.100.7, for=10.0.0.9, ,"#,
        ] {
            assert_eq!(
                client(Source::Forwarded, &[line.as_bytes()]),
                "198.51.100.7",
                "{line}"
            );
        }
    }

    #[test]
    fn malformed_elements_stop_the_walk() {
        for line in [
            "for=198.51.100.7:80",
            "for=198.51.100.7 proto=http",
            "for =198.51.100.7",
            "for=\"2001:db8::1\"",
            "for=\"[2001:db8::1]x\"",
            "for=\"198.51.100.7:65536\"",
            "for=\"198.51.100.7:_\"",
            "for=\"1\\98.51.100.7\"",
            "For=198.51.100.7;FOR=198.51.100.7",
            "proto=http",
            "=198.51.100.7",
            "for=",
            ";",
            "for=198.51.100.7;a=1;b=1;c=1;d=1;e=1;f=1;g=1;h=1;i=1;j=1;k=1;l=1;m=1;n=1;o=1;p=1",
        ] {
            assert_eq!(
                client(Source::Forwarded, &[line.as_bytes()]),
                "10.0.0.1",
                "{line}"
            );
        }
    }

    #[test]
    fn other_entries_of_x_forwarded_for() {
        for (line, expected) in [
            ("[2001:db8::5]", "2001:db8::5"),
            ("\t198.51.100.7 \t", "198.51.100.7"),
            ("198.51.100.7:", "10.0.0.1"),
            ("198.51.100.7:123456", "10.0.0.1"),
            ("198.51.100.7:+1", "10.0.0.1"),
            ("[::ffff:198.51.100.7]:1", "198.51.100.7"),
            ("[198.51.100.7]", "10.0.0.1"),
            ("\"198.51.100.7\"", "10.0.0.1"),
            ("1.1.1.1,\u{e9}", "10.0.0.1"),
        ] {
            assert_eq!(
                client(Source::XForwardedFor, &[line.as_bytes()]),
                expected,
                "{line}"
            );
        }
        assert_eq!(client(Source::Peer, &[b"198.51.100.7"]), "10.0.0.1");
        assert_eq!(
            client(Source::ProxyProtocol, &[b"198.51.100.7"]),
            "10.0.0.1"
        );
    }

    proptest! {
        /// The promise of this module: nothing that a client sends moves the address that the proxy appends.
        #[test]
        fn a_client_cannot_move_the_result(
            left in proptest::collection::vec(any::<u8>(), 0..60),
            quotes in "[\"\\\\,;= for0-9.]{0,40}",
        ) {
            for sent in [left.as_slice(), quotes.as_bytes()] {
                for (source, appended) in [
                    (Source::XForwardedFor, ", 198.51.100.7"),
                    (Source::Forwarded, ", for=198.51.100.7;proto=https"),
                    (Source::Forwarded, ", for=\"198.51.100.7:4711\""),
                ] {
                    let line: Vec<u8> = [sent, appended.as_bytes()].concat();
                    prop_assert_eq!(client(source, &[&line]), "198.51.100.7");
                    prop_assert_eq!(client(source, &[sent, appended.as_bytes()]), "198.51.100.7");
                }
            }
        }
    }
}
