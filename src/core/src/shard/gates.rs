//! The gates: who is refused by name (deny-list) or for what they did (bans), and which keys are hot (A6, C4).
//!
//! Asked by the pipeline. An address closes everything, before anything else is spent on the request. A user or device
//! closes submits only: status stays open, so that nobody who holds a unit is left without a word. Users count when a
//! ticket proved them, so that nobody can have another one banned. Bans by address are off unless configured: behind a
//! carrier's NAT many who each wait look like one who does not.

use super::Shard;
use super::admit::Refusal;
use super::config::ShardConfig;
use super::skus::SkuIndex;
use crate::limit::bans::{BanKey, Bans};
use crate::limit::deny::user_hash;
use crate::limit::topk::{HotKeys, TopK};
use crate::mail::BanLift;
use crate::rng::Rng;
use crate::stats::{Hot, HotName, HotTable, Label, Sample};
use crate::time::Now;
use alloc::vec::Vec;
use core::net::IpAddr;
use weir_proto::addr::IpKey;
use weir_proto::answer::Reason;
use weir_proto::ids::UserId;
use weir_proto::ticket::Claims;

/// Upper half of a packed IPv4 address: as an IPv6 prefix it is multicast, which is nobody's source.
const PACKED_V4: u64 = 0xFFFF_FFFF << 32;

/// Parts the seed of hot keys from that of other tables.
const HOT_KEYS_SALT: u64 = 0x686f_745f_6b65_7973;

/// What the gates remember.
#[derive(Debug)]
pub struct Gates {
    users: Bans,
    addresses: Bans,
    hot_users: HotKeys,
    hot_addresses: HotKeys,
    hot_skus: HotKeys,
    /// The request in hand began a ban: its line goes to the log whatever is sampled.
    pub ban_began: bool,
}

impl Gates {
    /// Tables as `config` says; `secret` draws the keys of hashes.
    pub fn new(config: &ShardConfig, mut secret: impl FnMut() -> [u8; 16]) -> Self {
        let mut rng = Rng::new(config.seed ^ HOT_KEYS_SALT);
        let mut hot = || HotKeys::new(rng.next_u64());
        Self {
            users: Bans::new(config.bans.user, config.bans.slots, secret()),
            addresses: Bans::new(config.bans.ip, config.bans.slots, secret()),
            hot_users: hot(),
            hot_addresses: hot(),
            hot_skus: hot(),
            ban_began: false,
        }
    }

    /// The address was told to wait; what it is told instead when this was one time too many.
    pub fn address_told(&mut self, now: Now, client: IpAddr, refusal: Refusal) -> Refusal {
        let key = BanKey::Ip(IpKey::new(client));
        let ban_ms = self.addresses.told(now.mono, key, refusal.wait_ms());
        self.judged(ban_ms, Reason::BannedAddress, refusal)
    }

    /// The user was refused; the same for a refusal that tells the user to wait.
    pub fn user_told(&mut self, now: Now, user: UserId, refusal: Refusal) -> Refusal {
        let by_user = matches!(
            refusal.reason(),
            Reason::LimitedUser | Reason::LimitedDevice | Reason::InflightUser
        );
        if !by_user {
            return refusal;
        }
        let key = BanKey::User(user);
        let ban_ms = self.users.told(now.mono, key, refusal.wait_ms());
        self.judged(ban_ms, Reason::BannedUser, refusal)
    }

    fn judged(&mut self, ban_ms: Option<u64>, reason: Reason, refusal: Refusal) -> Refusal {
        let Some(ban_ms) = ban_ms else {
            return refusal;
        };
        self.ban_began = true;
        Refusal::after(reason, ban_ms)
    }

    /// An operator lifts bans.
    pub fn lift(&mut self, now: Now, lift: BanLift, hash_key: &[u8; 32]) {
        self.users.lift(now.mono, |key| match (lift, key) {
            (BanLift::All, _) => true,
            (BanLift::User(wanted), BanKey::User(user)) => wanted == user,
            (BanLift::UserHash(wanted), BanKey::User(user)) => wanted == user_hash(hash_key, user),
            _ => false,
        });
        self.addresses.lift(now.mono, |key| match (lift, key) {
            (BanLift::All, _) => true,
            (BanLift::Network(network), BanKey::Ip(ip)) => network.contains(ip.first_address()),
            _ => false,
        });
    }

    fn samples(&self, now: Now, samples: &mut Vec<Sample>) {
        for (dimension, bans) in [("user", &self.users), ("ip", &self.addresses)] {
            let label = Label::Dimension(dimension);
            let values = [
                ("weir_bans_active", bans.banned_count(now.mono)),
                ("weir_bans_total", bans.begun),
                ("weir_bans_unwatched_total", bans.unwatched),
                ("weir_bans_lifted_total", bans.lifted),
            ];
            samples.extend(values.map(|(name, value)| Sample { name, label, value }));
        }
    }
}

impl Shard {
    /// Refuses an address that is denied or banned.
    pub(super) fn gate_address(&mut self, now: Now, client: IpAddr) -> Result<(), Refusal> {
        let key = IpKey::new(client);
        self.gates.hot_addresses.hit(now.mono, packed(key));
        if self.door.denies(client) {
            return Err(Reason::DeniedAddress.into());
        }
        match self.gates.addresses.wait_ms(now.mono, BanKey::Ip(key)) {
            Some(ms) => Err(Refusal::after(Reason::BannedAddress, ms)),
            None => Ok(()),
        }
    }

    /// Refuses a submit whose user or device is denied, or whose user is banned.
    pub(super) fn gate_buyer(&mut self, now: Now, claims: &Claims) -> Result<(), Refusal> {
        let deny = self.door.deny();
        if deny.denies_user(claims.user, &self.config.user_hash_key) {
            return Err(Reason::DeniedUser.into());
        }
        if let Some(device) = claims.device.hash()
            && deny.denies_device(&device)
        {
            return Err(Reason::DeniedDevice.into());
        }
        match self
            .gates
            .users
            .wait_ms(now.mono, BanKey::User(claims.user))
        {
            Some(ms) => Err(Refusal::after(Reason::BannedUser, ms)),
            None => Ok(()),
        }
    }

    /// Counts a submit to a SKU that exists.
    pub(super) fn note_sku(&mut self, now: Now, index: SkuIndex) {
        self.gates.hot_skus.hit(now.mono, u64::from(index.0));
    }

    /// Counts a request of a user whom a ticket proved.
    pub(super) fn note_user(&mut self, now: Now, user: UserId) {
        self.gates.hot_users.hit(now.mono, user.0);
    }

    /// What the gates show.
    pub(super) fn gate_samples(&self, now: Now, samples: &mut Vec<Sample>) {
        self.gates.samples(now, samples);
        samples.push(Sample {
            name: "weir_deny_entries",
            label: Label::None,
            value: self.door.deny().len() as u64,
        });
    }

    /// The hot keys of the last whole window; users by their hash.
    pub(super) fn hot_tables(&self, now: Now) -> Vec<HotTable> {
        let gates = &self.gates;
        let name_of_user =
            |user| HotName::User(user_hash(&self.config.user_hash_key, UserId(user)));
        let name_of_sku = |index| HotName::Sku(self.skus.state(SkuIndex(index as u16)).key);
        [
            table("ip", gates.hot_addresses.last_window(now.mono), |bits| {
                HotName::Ip(unpacked(bits))
            }),
            table("user", gates.hot_users.last_window(now.mono), name_of_user),
            table("sku", gates.hot_skus.last_window(now.mono), name_of_sku),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

fn table(
    dimension: &'static str,
    top: Option<&TopK>,
    name: impl Fn(u64) -> HotName,
) -> Option<HotTable> {
    let top = top?;
    let hot = |hot: crate::limit::topk::HotKey| Hot {
        name: name(hot.key),
        count: hot.count,
        error: hot.error,
    };
    Some(HotTable {
        dimension,
        seen: top.seen(),
        absent_max: top.absent_max(),
        keys: top.iter().map(hot).collect(),
    })
}

fn packed(key: IpKey) -> u64 {
    match key {
        IpKey::V4(bits) => PACKED_V4 | u64::from(bits),
        IpKey::V6(bits) => bits,
    }
}

fn unpacked(bits: u64) -> IpKey {
    if bits & PACKED_V4 == PACKED_V4 {
        IpKey::V4(bits as u32) // the lower half
    } else {
        IpKey::V6(bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_out_as_they_went_in() {
        for text in [
            "0.0.0.0",
            "198.51.100.7",
            "255.255.255.255",
            "::1",
            "2001:db8:1:2::9",
        ] {
            let key = IpKey::new(text.parse().unwrap());
            assert_eq!(unpacked(packed(key)), key, "{text}");
        }
    }
}
