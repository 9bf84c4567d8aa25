//! Who is refused whatever they ask: networks, users and devices that an operator names (A6).
//!
//! Built by the program from configuration and the operator's listener, sent whole to every shard by mail, never
//! changed: a shard swaps one list for the next. Expiry is the builder's business. Invariants: ranges are sorted and
//! disjoint, whatever was listed twice or overlapped; a lookup is a binary search and allocates nothing; `Debug` shows
//! counts only.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;
use weir_proto::addr::{Cidr, unmapped};
use weir_proto::ids::UserId;
use weir_proto::ticket::DEVICE_HASH_BYTES;

/// A user's name in logs and on the operator's pages: the start of a keyed hash.
pub type UserHash = [u8; 8];

/// The name of `user` under `key`, which the admission log and the operator's pages share.
pub fn user_hash(key: &[u8; 32], user: UserId) -> UserHash {
    let hash = blake3::keyed_hash(key, &user.0.to_be_bytes());
    let mut short = UserHash::default();
    short.copy_from_slice(&hash.as_bytes()[..size_of::<UserHash>()]);
    short
}

/// Who is denied. `Debug` hides users and devices.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum DenySubject {
    /// Every address of a network.
    Network(Cidr),
    /// A user by id.
    User(UserId),
    /// A user by [`user_hash`].
    UserHash(UserHash),
    /// A device by the hash that its tickets carry; it differs from activity to activity.
    Device([u8; DEVICE_HASH_BYTES]),
}

impl fmt::Debug for DenySubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(network) => write!(f, "Network({network})"),
            Self::User(_) => f.write_str("User(hidden)"),
            Self::UserHash(_) => f.write_str("UserHash(hidden)"),
            Self::Device(_) => f.write_str("Device(hidden)"),
        }
    }
}

/// The list.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct DenyList {
    v4: Box<[(u32, u32)]>,
    v6: Box<[(u128, u128)]>,
    users: Box<[u64]>,
    user_hashes: Box<[UserHash]>,
    devices: Box<[[u8; DEVICE_HASH_BYTES]]>,
}

impl fmt::Debug for DenyList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DenyList")
            .field("ranges", &(self.v4.len() + self.v6.len()))
            .field("users", &(self.users.len() + self.user_hashes.len()))
            .field("devices", &self.devices.len())
            .finish()
    }
}

impl DenyList {
    /// The list of `subjects`, in any order, with any repetitions and overlaps.
    pub fn build(subjects: impl Iterator<Item = DenySubject>) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        let (mut users, mut user_hashes, mut devices) = (Vec::new(), Vec::new(), Vec::new());
        for subject in subjects {
            match subject {
                DenySubject::Network(network) => match network.bounds() {
                    (IpAddr::V4(first), IpAddr::V4(last)) => {
                        v4.push((first.to_bits(), last.to_bits()));
                    }
                    (IpAddr::V6(first), IpAddr::V6(last)) => {
                        v6.push((first.to_bits(), last.to_bits()));
                    }
                    _ => unreachable!("the bounds of a network are of its family"),
                },
                DenySubject::User(user) => users.push(user.0),
                DenySubject::UserHash(hash) => user_hashes.push(hash),
                DenySubject::Device(hash) => devices.push(hash),
            }
        }
        Self {
            v4: joined(v4),
            v6: joined(v6),
            users: sorted(users),
            user_hashes: sorted(user_hashes),
            devices: sorted(devices),
        }
    }

    /// True when `address` lies in a listed network. IPv4-mapped IPv6 counts as IPv4.
    pub fn denies_address(&self, address: IpAddr) -> bool {
        match unmapped(address) {
            IpAddr::V4(v4) => lies_in(&self.v4, v4.to_bits()),
            IpAddr::V6(v6) => lies_in(&self.v6, v6.to_bits()),
        }
    }

    /// True when `user` is listed, by id or by its hash under `hash_key`.
    pub fn denies_user(&self, user: UserId, hash_key: &[u8; 32]) -> bool {
        self.users.binary_search(&user.0).is_ok()
            || (!self.user_hashes.is_empty()
                && self
                    .user_hashes
                    .binary_search(&user_hash(hash_key, user))
                    .is_ok())
    }

    /// True when the device with this hash is listed.
    pub fn denies_device(&self, hash: &[u8; DEVICE_HASH_BYTES]) -> bool {
        self.devices.binary_search(hash).is_ok()
    }

    /// Ranges, users and devices listed, each counted once.
    pub fn len(&self) -> usize {
        self.v4.len()
            + self.v6.len()
            + self.users.len()
            + self.user_hashes.len()
            + self.devices.len()
    }

    /// True when nobody is denied.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn sorted<T: Ord>(mut all: Vec<T>) -> Box<[T]> {
    all.sort_unstable();
    all.dedup();
    all.into_boxed_slice()
}

/// Sorted, with what overlaps made one. Ranges hold their first and last address.
fn joined<T: Ord + Copy>(ranges: Vec<(T, T)>) -> Box<[(T, T)]> {
    let mut out: Vec<(T, T)> = Vec::with_capacity(ranges.len());
    for (first, last) in sorted(ranges) {
        match out.last_mut() {
            Some(before) if first <= before.1 => before.1 = before.1.max(last),
            _ => out.push((first, last)),
        }
    }
    out.into_boxed_slice()
}

fn lies_in<T: Ord + Copy>(ranges: &[(T, T)], address: T) -> bool {
    let begun = ranges.partition_point(|&(first, _)| first <= address);
    begun > 0 && address <= ranges[begun - 1].1
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{Ipv4Addr, Ipv6Addr};
    use proptest::prelude::*;

    fn list(networks: &[&str]) -> DenyList {
        let parse = |text: &&str| DenySubject::Network(Cidr::parse(text).unwrap());
        DenyList::build(networks.iter().map(parse))
    }

    #[test]
    fn overlaps_repeats_and_mapped_networks_are_one() {
        let list = list(&[
            "10.0.0.0/8",
            "10.1.0.0/16",
            "10.0.0.0/8",
            "::ffff:10.2.0.0/112",
            "11.0.0.0/8",
            "2001:db8::/32",
            "2001:db8:1::/48",
        ]);
        assert_eq!(list.len(), 3, "{list:?}");
        for (address, denied) in [
            ("10.0.0.0", true),
            ("10.255.255.255", true),
            ("11.255.255.255", true),
            ("9.255.255.255", false),
            ("12.0.0.0", false),
            ("::ffff:10.3.4.5", true),
            ("2001:db8:ffff::1", true),
            ("2001:db9::", false),
            ("::", false),
        ] {
            assert_eq!(
                list.denies_address(address.parse().unwrap()),
                denied,
                "{address}"
            );
        }
    }

    #[test]
    fn everything_and_nothing() {
        let all = list(&["0.0.0.0/0", "::/0"]);
        for address in ["0.0.0.0", "255.255.255.255", "::", "ffff::"] {
            assert!(all.denies_address(address.parse().unwrap()), "{address}");
            assert!(!DenyList::default().denies_address(address.parse().unwrap()));
        }
        assert!(DenyList::default().is_empty() && !all.is_empty());
    }

    #[test]
    fn users_by_id_and_by_hash_and_devices() {
        let key = [7; 32];
        let list = DenyList::build(
            [
                DenySubject::User(UserId(5)),
                DenySubject::User(UserId(5)),
                DenySubject::UserHash(user_hash(&key, UserId(6))),
                DenySubject::Device([9; 16]),
            ]
            .into_iter(),
        );
        assert_eq!(list.len(), 3);
        assert!(list.denies_user(UserId(5), &key) && list.denies_user(UserId(6), &key));
        assert!(!list.denies_user(UserId(7), &key) && !list.denies_user(UserId(6), &[8; 32]));
        assert!(list.denies_device(&[9; 16]) && !list.denies_device(&[8; 16]));
        assert!(!alloc::format!("{:?}", DenySubject::User(UserId(5))).contains('5'));
    }

    proptest! {
        /// Against the plain walk over all networks.
        #[test]
        fn agrees_with_each_network_in_turn(
            v4 in proptest::collection::vec((0_u32..1 << 12, 18_u8..=32), 0..12),
            v6 in proptest::collection::vec((0_u128..1 << 12, 114_u8..=128), 0..12),
            probes in proptest::collection::vec(0_u32..1 << 13, 64),
        ) {
            let v4 = v4.iter().map(|&(bits, prefix)| {
                let masked = Ipv4Addr::from_bits(bits & !(u32::MAX.checked_shr(prefix.into()).unwrap_or(0)));
                Cidr::parse(&alloc::format!("{masked}/{prefix}")).unwrap()
            });
            let high = 0x2001_0db8_u128 << 96;
            let v6 = v6.iter().map(|&(bits, prefix)| {
                let masked = Ipv6Addr::from_bits(high | bits & !(u128::MAX.checked_shr(prefix.into()).unwrap_or(0)));
                Cidr::parse(&alloc::format!("{masked}/{prefix}")).unwrap()
            });
            let networks: Vec<Cidr> = v4.chain(v6).collect();
            let list = DenyList::build(networks.iter().copied().map(DenySubject::Network));
            for bits in probes {
                for address in [IpAddr::V4(Ipv4Addr::from_bits(bits)), IpAddr::V6(Ipv6Addr::from_bits(high | u128::from(bits)))] {
                    let expected = networks.iter().any(|network| network.contains(address));
                    prop_assert_eq!(list.denies_address(address), expected, "{}", address);
                }
            }
        }
    }
}
