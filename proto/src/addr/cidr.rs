//! Networks an operator trusts, in CIDR notation (RFC 4632 §3.1, RFC 4291 §2.3).
//!
//! Parsed at start-up; matched per request with one AND and one comparison per network.

use super::unmapped;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A network: address bits above the prefix length. IPv4-mapped networks are kept as IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cidr {
    network: IpAddr,
    prefix_bits: u8,
}

/// Why a text is not a network. `Display` names the allowed form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CidrError {
    /// The part before `/` is no IPv4 or IPv6 address.
    Address,
    /// The part after `/` is no number in 0..=32 (IPv4) or 0..=128 (IPv6).
    Prefix {
        /// 32 or 128.
        bits_max: u8,
    },
    /// Bits below the prefix are set; the operator probably meant the network given here.
    HostBits(Cidr),
}

impl fmt::Display for CidrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address => {
                f.write_str("not an address: write a network such as 10.0.0.0/8 or 2001:db8::/32")
            }
            Self::Prefix { bits_max } => write!(
                f,
                "the prefix length after '/' must be a number in 0..={bits_max}"
            ),
            Self::HostBits(network) => write!(
                f,
                "the address has bits below its prefix length: did you mean {network}?"
            ),
        }
    }
}

impl core::error::Error for CidrError {}

impl Cidr {
    /// Reads `address/prefix`, or an address alone as the network of just that address.
    ///
    /// # Errors
    /// See [`CidrError`]; leading zeros in an IPv4 part, zone ids and white space are refused.
    pub fn parse(text: &str) -> Result<Self, CidrError> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| CidrError::Address)?;
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        let prefix_bits = match prefix {
            None => bits_max,
            Some(text) => prefix_bits(text)
                .filter(|&bits| bits <= bits_max)
                .ok_or(CidrError::Prefix { bits_max })?,
        };
        let given = Self {
            network: address,
            prefix_bits,
        };
        let masked = Self {
            network: mask(address, prefix_bits),
            prefix_bits,
        };
        if given != masked {
            return Err(CidrError::HostBits(masked));
        }
        // ::ffff:10.0.0.0/104 is 10.0.0.0/8: addresses are compared unwrapped (RFC 4291 §2.5.5.2).
        match unmapped(address) {
            IpAddr::V4(v4) if address.is_ipv6() && prefix_bits >= 96 => Ok(Self {
                network: IpAddr::V4(v4),
                prefix_bits: prefix_bits - 96,
            }),
            _ => Ok(given),
        }
    }

    /// Its first and its last address, both of one family.
    pub fn bounds(&self) -> (IpAddr, IpAddr) {
        let prefix_bits = u32::from(self.prefix_bits);
        let last = match self.network {
            IpAddr::V4(v4) => {
                let below = u32::MAX.checked_shr(prefix_bits).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() | below))
            }
            IpAddr::V6(v6) => {
                let below = u128::MAX.checked_shr(prefix_bits).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() | below))
            }
        };
        (self.network, last)
    }

    /// True when `address` (unwrapped first) lies in this network. An IPv4 address never lies in an IPv6 network.
    pub fn contains(&self, address: IpAddr) -> bool {
        mask(unmapped(address), self.prefix_bits) == self.network
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.prefix_bits)
    }
}

/// True when `address` lies in one of `networks`.
pub fn is_trusted(address: IpAddr, networks: &[Cidr]) -> bool {
    networks.iter().any(|network| network.contains(address))
}

/// Digits only, no leading zero, at most 128.
fn prefix_bits(text: &str) -> Option<u8> {
    let canonical = text == "0" || !text.starts_with('0');
    if !canonical || text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

/// `address` with the bits below the prefix cleared; a prefix longer than the address keeps all bits.
fn mask(address: IpAddr, prefix_bits: u8) -> IpAddr {
    let prefix_bits = u32::from(prefix_bits);
    match address {
        IpAddr::V4(v4) => {
            let below = u32::MAX.checked_shr(prefix_bits).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & !below))
        }
        IpAddr::V6(v6) => {
            let below = u128::MAX.checked_shr(prefix_bits).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !below))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn holds(network: &str, address: &str) -> bool {
        Cidr::parse(network)
            .unwrap()
            .contains(address.parse().unwrap())
    }

    #[test]
    fn edges_of_networks() {
        assert!(holds("10.0.0.0/8", "10.255.255.255") && holds("10.0.0.0/8", "10.0.0.0"));
        assert!(!holds("10.0.0.0/8", "11.0.0.0") && !holds("10.0.0.0/8", "9.255.255.255"));
        assert!(holds("10.0.0.1", "10.0.0.1") && !holds("10.0.0.1", "10.0.0.2"));
        assert!(holds("0.0.0.0/0", "203.0.113.9") && !holds("0.0.0.0/0", "2001:db8::1"));
        assert!(holds("::/0", "2001:db8::1") && !holds("::/0", "203.0.113.9"));
        assert!(
            holds("2001:db8::/33", "2001:db8:7fff::1")
                && !holds("2001:db8::/33", "2001:db8:8000::1")
        );
        assert!(holds("::1/128", "::1") && !holds("::1/128", "::2"));
    }

    #[test]
    fn mapped_addresses_and_networks_are_ipv4() {
        assert!(holds("10.0.0.0/8", "::ffff:10.1.2.3"));
        assert!(holds("::ffff:10.0.0.0/104", "10.1.2.3"));
        assert_eq!(
            Cidr::parse("::ffff:10.0.0.0/104").unwrap().to_string(),
            "10.0.0.0/8"
        );
    }

    #[test]
    fn errors_name_what_was_meant() {
        assert_eq!(
            Cidr::parse("10.1.2.3/8").unwrap_err().to_string(),
            "the address has bits below its prefix length: did you mean 10.0.0.0/8?"
        );
        for bad in [
            "10.0.0.0/33",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "10.0.0.0/08",
            "10.0.0.0/-1",
            "10.0.0.0/999",
        ] {
            assert_eq!(
                Cidr::parse(bad),
                Err(CidrError::Prefix { bits_max: 32 }),
                "{bad}"
            );
        }
        assert_eq!(
            Cidr::parse("::/129"),
            Err(CidrError::Prefix { bits_max: 128 })
        );
        for bad in [
            "",
            "/8",
            "10.0.0/8",
            "010.0.0.0/8",
            "fe80::%eth0/64",
            " 10.0.0.0/8",
            "localhost",
        ] {
            assert_eq!(Cidr::parse(bad), Err(CidrError::Address), "{bad}");
        }
    }
}
