//! Behaviour bans: who keeps ignoring "wait" is refused for a while, each time for longer (A6).
//!
//! Called by the pipeline of one shard at each 429 ([`Bans::told`]) and before each submit ([`Bans::wait_ms`]). A strike
//! is a request that met its limit again before the wait of an earlier 429 was over, when its sender has had
//! [`BAN_GRACE_MS`] to read it: what was on its way already is no offence, and one grace gives one strike at most.
//! `strikes` of them within `window_ms` are a ban of `first_ms`, doubled with each further one up to `max_ms`; a level is
//! forgotten for each `forget_ms` without a ban. What is sent during a ban does not prolong it, so its Retry-After is exact.
//!
//! The table has a fixed size: sets of four places. A newcomer takes the place of who has the least against him; when all
//! four are banned it is not watched, and counted. **Split over N shards**: each shard counts for itself; a client that
//! spreads its requests over N shards may ignore N times as many answers.

use crate::limits::BAN_GRACE_MS;
use crate::time::{Mono, NS_PER_MS};
use alloc::boxed::Box;
use core::hash::Hasher;
use siphasher::sip::SipHasher13;
use weir_proto::addr::IpKey;
use weir_proto::ids::UserId;

/// Places of one set.
const WAYS: usize = 4;

/// When a client is banned, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BanPolicy {
    /// Strikes that make a ban; 0: nobody is banned.
    pub strikes: u16,
    /// Within so long.
    pub window_ms: u64,
    /// The first ban; 1 or more.
    pub first_ms: u64,
    /// The longest ban; at least `first_ms`.
    pub max_ms: u64,
    /// A level of doubling is forgotten for each such time without a ban.
    pub forget_ms: u64,
}

/// Who is watched. `Debug` hides a user.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum BanKey {
    /// A user whom a ticket proved.
    User(UserId),
    /// An address.
    Ip(IpKey),
}

impl core::fmt::Debug for BanKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::User(_) => f.write_str("User(hidden)"),
            Self::Ip(key) => write!(f, "Ip({key})"),
        }
    }
}

#[derive(Clone, Copy)]
struct Place {
    key: Option<BanKey>,
    /// When the 429 was given that a strike counts from.
    told_at: Mono,
    /// Until when the sender was told to wait.
    wait_until: Mono,
    window_began: Mono,
    strikes: u16,
    /// Bans not yet forgotten.
    level: u8,
    banned_until: Mono,
}

const FREE: Place = Place {
    key: None,
    told_at: Mono(0),
    wait_until: Mono(0),
    window_began: Mono(0),
    strikes: 0,
    level: 0,
    banned_until: Mono(0),
};

impl Place {
    /// Levels left at `now`.
    fn level_at(&self, now: Mono, policy: &BanPolicy) -> u8 {
        let quiet_ms = now.since(self.banned_until) / NS_PER_MS;
        let forgotten = quiet_ms / policy.forget_ms.max(1);
        self.level
            .saturating_sub(u8::try_from(forgotten).unwrap_or(u8::MAX))
    }

    fn strikes_at(&self, now: Mono, policy: &BanPolicy) -> u16 {
        if now < self.window_began.plus_ms(policy.window_ms) {
            self.strikes
        } else {
            0
        }
    }

    /// What speaks against giving the place to another: more is worse.
    fn weight(&self, now: Mono, policy: &BanPolicy) -> (bool, bool, u8, u16) {
        (
            self.banned_until > now,
            self.key.is_some(),
            self.level_at(now, policy),
            self.strikes_at(now, policy),
        )
    }
}

/// The table.
pub struct Bans {
    policy: BanPolicy,
    sets: Box<[[Place; WAYS]]>,
    hasher: SipHasher13,
    /// No ban lasts longer than this: nearly always in the past, and then nothing is looked up.
    last_until: Mono,
    last: Mono,
    /// Bans begun.
    pub begun: u64,
    /// Clients that were not watched because all places of their set were banned.
    pub unwatched: u64,
    /// Bans lifted by an operator.
    pub lifted: u64,
}

impl core::fmt::Debug for Bans {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Bans")
            .field("policy", &self.policy)
            .field("begun", &self.begun)
            .finish_non_exhaustive()
    }
}

impl Bans {
    /// A table of `slots` places (rounded up to whole sets; none when the policy bans nobody); `secret` keys the hash.
    pub fn new(policy: BanPolicy, slots: usize, secret: [u8; 16]) -> Self {
        let sets = if policy.strikes == 0 {
            0
        } else {
            slots.div_ceil(WAYS).max(1)
        };
        Self {
            policy,
            sets: alloc::vec![[FREE; WAYS]; sets].into_boxed_slice(),
            hasher: SipHasher13::new_with_key(&secret),
            last_until: Mono(0),
            last: Mono(0),
            begun: 0,
            unwatched: 0,
            lifted: 0,
        }
    }

    /// How long `key` is still refused, in whole milliseconds rounded up; `None`: it is not.
    pub fn wait_ms(&self, now: Mono, key: BanKey) -> Option<u64> {
        let now = now.max(self.last);
        if now >= self.last_until || self.sets.is_empty() {
            return None;
        }
        let set = &self.sets[self.set_of(key)];
        let place = set.iter().find(|place| place.key == Some(key))?;
        left_ms(now, place.banned_until)
    }

    /// `key` was just told to wait `retry_after_ms`. Gives the length of the ban that this was one strike too many for.
    pub fn told(&mut self, now: Mono, key: BanKey, retry_after_ms: u64) -> Option<u64> {
        if self.sets.is_empty() {
            return None;
        }
        let now = now.max(self.last);
        self.last = now;
        let policy = self.policy;
        let set = self.set_of(key);
        let Some(place) = self.place(now, set, key) else {
            self.unwatched += 1;
            return None;
        };
        let early = now < place.wait_until;
        let until = now.plus_ms(retry_after_ms);
        place.wait_until = place.wait_until.max(until);
        if !early {
            place.told_at = now;
            return None;
        }
        if now < place.told_at.plus_ms(BAN_GRACE_MS) {
            return None;
        }
        place.told_at = now;
        place.strikes = place.strikes_at(now, &policy);
        if place.strikes == 0 {
            place.window_began = now;
        }
        place.strikes += 1;
        if place.strikes < policy.strikes {
            return None;
        }
        let level = place.level_at(now, &policy);
        let doubled = policy
            .first_ms
            .checked_shl(u32::from(level))
            .filter(|ms| ms >> level == policy.first_ms);
        let ban_ms = doubled.map_or(policy.max_ms, |ms| ms.min(policy.max_ms));
        place.level = level.saturating_add(1);
        place.strikes = 0;
        let banned_until = now.plus_ms(ban_ms);
        place.banned_until = banned_until;
        place.wait_until = banned_until;
        place.told_at = banned_until;
        self.last_until = self.last_until.max(banned_until);
        self.begun += 1;
        Some(ban_ms)
    }

    /// Lifts the bans of all keys that `chosen` names, and forgets their levels. Walks the table: an operator's act.
    pub fn lift(&mut self, now: Mono, mut chosen: impl FnMut(BanKey) -> bool) {
        for place in self.sets.iter_mut().flatten() {
            if let Some(key) = place.key
                && chosen(key)
            {
                self.lifted += u64::from(place.banned_until > now);
                *place = FREE;
            }
        }
    }

    /// Clients banned at `now`. Walks the table.
    pub fn banned_count(&self, now: Mono) -> u64 {
        if now >= self.last_until {
            return 0;
        }
        let banned = |place: &&Place| place.banned_until > now;
        self.sets.iter().flatten().filter(banned).count() as u64
    }

    /// Bytes of a table of `slots` places.
    pub const fn bytes_of(slots: usize) -> usize {
        slots.div_ceil(WAYS) * WAYS * size_of::<Place>()
    }

    /// The place of `key`, an old one or a new one.
    fn place(&mut self, now: Mono, set: usize, key: BanKey) -> Option<&mut Place> {
        let policy = self.policy;
        let places = &mut self.sets[set];
        let way = match places.iter().position(|place| place.key == Some(key)) {
            Some(way) => way,
            None => {
                let way = (0..WAYS).min_by_key(|&way| places[way].weight(now, &policy))?;
                if places[way].banned_until > now {
                    return None;
                }
                places[way] = Place {
                    key: Some(key),
                    ..FREE
                };
                way
            }
        };
        Some(&mut places[way])
    }

    fn set_of(&self, key: BanKey) -> usize {
        let mut hasher = self.hasher;
        match key {
            BanKey::User(user) => hasher.write(&user.0.to_be_bytes()),
            BanKey::Ip(ip) => hasher.write(&ip.to_bytes()),
        }
        let scaled = (u128::from(hasher.finish()) * self.sets.len() as u128) >> 64; // below the number of sets
        scaled as usize
    }
}

fn left_ms(now: Mono, until: Mono) -> Option<u64> {
    (until > now).then(|| until.since(now).div_ceil(NS_PER_MS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const POLICY: BanPolicy = BanPolicy {
        strikes: 3,
        window_ms: 10_000,
        first_ms: 1_000,
        max_ms: 5_000,
        forget_ms: 60_000,
    };
    const USER: BanKey = BanKey::User(UserId(7));

    fn at(ms: u64) -> Mono {
        Mono(1_000 * NS_PER_MS).plus_ms(ms)
    }

    fn bans() -> Bans {
        Bans::new(POLICY, 64, [1; 16])
    }

    /// Hammers every 100 ms from `from_ms` on, always told to wait a second, until a ban begins: when, and how long.
    fn hammer(bans: &mut Bans, from_ms: u64) -> (u64, u64) {
        (0..1_000)
            .map(|step| from_ms + step * 100)
            .find_map(|ms| bans.told(at(ms), USER, 1_000).map(|ban_ms| (ms, ban_ms)))
            .expect("who ignores every answer is banned")
    }

    #[test]
    fn who_keeps_ignoring_the_wait_is_banned_ever_longer_and_never_beyond_the_maximum() {
        let mut bans = bans();
        let (mut ms, mut lengths) = (0, alloc::vec::Vec::new());
        for _ in 0..5 {
            let (begun, ban_ms) = hammer(&mut bans, ms);
            assert_eq!(bans.wait_ms(at(begun), USER), Some(ban_ms));
            assert_eq!(bans.wait_ms(at(begun + ban_ms - 1), USER), Some(1));
            assert_eq!(bans.wait_ms(at(begun + ban_ms), USER), None, "a way back");
            lengths.push(ban_ms);
            ms = begun + ban_ms;
        }
        assert_eq!(lengths, [1_000, 2_000, 4_000, 5_000, 5_000]);
        assert_eq!((bans.begun, bans.banned_count(at(ms))), (5, 0));
    }

    #[test]
    fn good_behaviour_is_remembered() {
        let mut bans = bans();
        let (begun, _) = hammer(&mut bans, 0);
        let (begun, second_ms) = hammer(&mut bans, begun + 1_000);
        assert_eq!(second_ms, 2_000);
        let (begun, again_ms) = hammer(&mut bans, begun + second_ms + 60_000);
        assert_eq!(again_ms, 2_000, "one level was forgotten, one is left");
        let (_, fresh_ms) = hammer(&mut bans, begun + again_ms + 2 * 60_000);
        assert_eq!(fresh_ms, 1_000, "all is forgotten");
    }

    #[test]
    fn who_waits_as_told_is_never_banned_nor_who_had_no_time_to_read() {
        let mut bans = bans();
        for step in 0..10_000 {
            assert_eq!(bans.told(at(step * 1_000), USER, 1_000), None);
        }
        // A burst that was on its way when the first answer left.
        for request in 0..10_000 {
            let ms = 20_000_000 + request % BAN_GRACE_MS;
            assert_eq!(bans.told(at(ms), USER, 60_000), None);
        }
        assert_eq!(bans.begun, 0);
    }

    #[test]
    fn strikes_outside_of_the_window_do_not_add_up() {
        let mut bans = bans();
        for round in 0..100 {
            let ms = round * 20_000;
            // Two strikes, then silence for longer than the window.
            for step in 0..3 {
                assert_eq!(bans.told(at(ms + step * BAN_GRACE_MS), USER, 1_000), None);
            }
        }
    }

    #[test]
    fn an_operator_lifts_a_ban_and_its_level() {
        let mut bans = bans();
        let (begun, _) = hammer(&mut bans, 0);
        bans.lift(at(begun), |key| key == BanKey::User(UserId(8)));
        assert!(bans.wait_ms(at(begun), USER).is_some());
        bans.lift(at(begun), |key| key == USER);
        assert_eq!(bans.wait_ms(at(begun), USER), None);
        assert_eq!(bans.lifted, 1);
        assert_eq!(hammer(&mut bans, begun + 1).1, 1_000);
    }

    #[test]
    fn a_full_table_keeps_its_bans_and_counts_whom_it_cannot_watch() {
        let policy = BanPolicy {
            first_ms: 1_000_000,
            max_ms: 1_000_000,
            ..POLICY
        };
        let mut bans = Bans::new(policy, WAYS, [1; 16]);
        let mut banned = 0;
        for user in 0..5 {
            let key = BanKey::User(UserId(user));
            let begins = (0..20).any(|step| bans.told(at(step * 300), key, 10_000).is_some());
            banned += u64::from(begins);
        }
        assert_eq!((banned, bans.begun), (4, 4));
        assert!(bans.unwatched > 0);
        assert_eq!(
            Bans::new(
                BanPolicy {
                    strikes: 0,
                    ..POLICY
                },
                64,
                [0; 16]
            )
            .told(at(0), USER, 1),
            None
        );
    }

    proptest! {
        /// Whatever comes, in whatever order of clocks: no ban is longer than the maximum, and none begins with less than
        /// `strikes` graces since the one before.
        #[test]
        fn bans_are_bounded_and_earned(steps in proptest::collection::vec((0_u64..2_000, 0_u64..3, 1_u64..5_000), 1..300)) {
            let mut bans = Bans::new(POLICY, 8, [2; 16]);
            let mut ms = 0;
            let mut begun: [Option<u64>; 3] = [None; 3];
            for (later_ms, user, wait_ms) in steps {
                ms += later_ms;
                let key = BanKey::User(UserId(user));
                if let Some(ban_ms) = bans.told(at(ms), key, wait_ms) {
                    prop_assert!((POLICY.first_ms..=POLICY.max_ms).contains(&ban_ms));
                    let earliest = begun[user as usize].unwrap_or(0) + u64::from(POLICY.strikes) * BAN_GRACE_MS;
                    prop_assert!(ms >= earliest, "{ms} is before {earliest}");
                    begun[user as usize] = Some(ms);
                }
                prop_assert!(bans.wait_ms(at(ms), key).is_none_or(|left| left <= POLICY.max_ms));
            }
        }
    }
}
