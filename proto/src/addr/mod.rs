//! Who is calling: the client's address, and the key under which it is limited (requirement A3).
//!
//! Called once per connection (PROXY protocol) and once per request (headers) by weir-core. One configured [`Source`]
//! per listener; a header is believed only from a peer within the trusted networks, and then only its rightmost hop
//! that is not one of them. Invariant: every address that leaves this module is unwrapped (never `::ffff:a.b.c.d`), so
//! one client has one key in both notations.

mod cidr;
mod forwarded;
mod node;
pub mod proxy;

pub use cidr::{Cidr, CidrError, is_trusted};
pub use forwarded::client_address;

use core::fmt;
use core::net::{IpAddr, Ipv6Addr};

/// Where a listener learns the client's address; exactly one per listener, so that nothing is guessed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Source {
    /// The socket's peer; headers are never read.
    #[default]
    Peer,
    /// `X-Forwarded-For`, believed from trusted peers only.
    XForwardedFor,
    /// `Forwarded` (RFC 7239), believed from trusted peers only.
    Forwarded,
    /// A PROXY protocol header in front of the first request; required, and accepted from trusted peers only.
    ProxyProtocol,
}

impl Source {
    /// The configured name: `peer`, `x-forwarded-for`, `forwarded`, `proxy-protocol`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Peer => "peer",
            Self::XForwardedFor => "x-forwarded-for",
            Self::Forwarded => "forwarded",
            Self::ProxyProtocol => "proxy-protocol",
        }
    }

    /// The source of that name; `None` when there is none.
    pub fn from_text(text: &str) -> Option<Self> {
        [
            Self::Peer,
            Self::XForwardedFor,
            Self::Forwarded,
            Self::ProxyProtocol,
        ]
        .into_iter()
        .find(|source| source.as_str() == text)
    }
}

/// What an address is limited by: an IPv4 address, or the /64 that one IPv6 subscriber holds at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IpKey {
    /// The /32.
    V4(u32),
    /// The upper 64 bits.
    V6(u64),
}

impl IpKey {
    /// The key of `address`; IPv4-mapped IPv6 counts as IPv4.
    pub fn new(address: IpAddr) -> Self {
        match unmapped(address) {
            IpAddr::V4(v4) => Self::V4(v4.to_bits()),
            IpAddr::V6(v6) => Self::V6((v6.to_bits() >> 64) as u64),
        }
    }

    /// The first address that has this key.
    pub const fn first_address(self) -> IpAddr {
        match self {
            Self::V4(bits) => IpAddr::V4(core::net::Ipv4Addr::from_bits(bits)),
            Self::V6(bits) => IpAddr::V6(Ipv6Addr::from_bits((bits as u128) << 64)),
        }
    }

    /// Family (4 or 6) and the key's bits, for a hash of words; different keys give different words.
    #[inline]
    pub const fn to_words(self) -> [u64; 2] {
        match self {
            Self::V4(bits) => [4, bits as u64],
            Self::V6(bits) => [6, bits],
        }
    }

    /// The same as bytes, for a keyed hash; different keys give different bytes.
    pub const fn to_bytes(self) -> [u8; 9] {
        let (family, bits) = match self {
            Self::V4(bits) => (4, bits as u64),
            Self::V6(bits) => (6, bits),
        };
        let b = bits.to_be_bytes();
        [family, b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]
    }
}

impl fmt::Display for IpKey {
    /// In CIDR notation: `198.51.100.7/32`, `2001:db8:1:2::/64`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::V4(bits) => write!(f, "{}/32", core::net::Ipv4Addr::from_bits(bits)),
            Self::V6(bits) => write!(f, "{}/64", Ipv6Addr::from_bits(u128::from(bits) << 64)),
        }
    }
}

/// `::ffff:a.b.c.d` as `a.b.c.d` (RFC 4291 §2.5.5.2); every other address as it is.
pub fn unmapped(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn one_client_has_one_key_in_both_notations() {
        let plain = IpKey::new("198.51.100.7".parse().unwrap());
        assert_eq!(plain, IpKey::new("::ffff:198.51.100.7".parse().unwrap()));
        assert_eq!(plain.to_string(), "198.51.100.7/32");
        let left = IpKey::new("2001:db8:1:2:aaaa::1".parse().unwrap());
        assert_eq!(left, IpKey::new("2001:db8:1:2:ffff::2".parse().unwrap()));
        assert_ne!(left, IpKey::new("2001:db8:1:3::".parse().unwrap()));
        assert_eq!(left.to_string(), "2001:db8:1:2::/64");
    }

    #[test]
    fn families_never_share_a_key() {
        assert_ne!(IpKey::V4(7).to_bytes(), IpKey::V6(7).to_bytes());
        assert_ne!(IpKey::V4(7).to_words(), IpKey::V6(7).to_words());
    }

    #[test]
    fn sources_read_as_written() {
        for text in ["peer", "x-forwarded-for", "forwarded", "proxy-protocol"] {
            assert_eq!(Source::from_text(text).unwrap().as_str(), text);
        }
        assert_eq!(Source::from_text("x-real-ip"), None);
    }
}
