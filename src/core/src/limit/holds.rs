//! How many things each key holds now, exactly, in a table of fixed size: connections of a source (A2), slots of a user (C4).
//!
//! Called by the shard's door and by the in-flight slots. There are as many places as things, so the table is never
//! full. Invariants: a hold is given back exactly once, by value; holds out = things counted. **Split over N shards**: a
//! key holds at most N × `per_key_max` in all, and may be refused from `per_key_max` on when chance sends it to one shard
//! (the kernel spreads connections by their ports).

use alloc::boxed::Box;
use core::hash::Hasher;
use siphasher::sip::SipHasher13;
use weir_proto::addr::IpKey;
use weir_proto::ids::UserId;

/// End of a list of places.
const NONE: u32 = u32::MAX;

/// Who holds: any name of at most 16 bytes. Names of one table are of one kind.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Holder(u128);

impl core::fmt::Debug for Holder {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Holder(hidden)")
    }
}

impl From<IpKey> for Holder {
    fn from(key: IpKey) -> Self {
        let mut bytes = [0; 16];
        bytes[..9].copy_from_slice(&key.to_bytes());
        Self(u128::from_be_bytes(bytes))
    }
}

impl From<UserId> for Holder {
    fn from(user: UserId) -> Self {
        Self(u128::from(user.0))
    }
}

/// The key holds as many as one may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyFull;

/// One counted thing. Neither `Copy` nor `Clone`: it is given back once, on every path out (B24).
#[derive(Debug)]
#[must_use = "a hold that is not released counts for ever"]
pub struct Hold {
    place: u32,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    key: Holder,
    /// Holds; 0: a free place.
    count: u32,
    /// The next place of the same bucket, or of the free list.
    next: u32,
}

/// The table.
pub struct Holds {
    buckets: Box<[u32]>,
    places: Box<[Place]>,
    free: u32,
    per_key_max: u32,
    keys_count: u32,
    holds_count: u32,
    hasher: SipHasher13,
}

impl core::fmt::Debug for Holds {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Holds")
            .field("keys", &self.keys_count)
            .field("holds", &self.holds_count)
            .finish_non_exhaustive()
    }
}

impl Holds {
    /// A table for `holds_max` holds (1..=2^31), `per_key_max` (1 or more) of one key; `secret` keys the
    /// hash. Allocates [`Self::bytes_of`] once.
    pub fn new(holds_max: usize, per_key_max: u32, secret: [u8; 16]) -> Self {
        assert!(
            (1..=1 << 31).contains(&holds_max),
            "holds of a table are 1..=2^31"
        );
        assert!(per_key_max > 0, "a key may hold one at least");
        let last = holds_max as u32 - 1;
        let places = (0..=last).map(|place| Place {
            key: Holder(0),
            count: 0,
            next: if place == last { NONE } else { place + 1 },
        });
        Self {
            buckets: alloc::vec![NONE; holds_max.next_power_of_two()].into_boxed_slice(),
            places: places.collect(),
            free: 0,
            per_key_max,
            keys_count: 0,
            holds_count: 0,
            hasher: SipHasher13::new_with_key(&secret),
        }
    }

    /// Counts one more for `key`.
    /// # Errors
    /// `KeyFull` when it has `per_key_max`; nothing is counted then.
    pub fn hold(&mut self, key: Holder) -> Result<Hold, KeyFull> {
        let bucket = self.bucket_of(key);
        let mut at = self.buckets[bucket];
        while at != NONE && self.places[at as usize].key != key {
            at = self.places[at as usize].next;
        }
        if at == NONE {
            at = self.free;
            assert!(
                at != NONE,
                "there are as many places as things that can be held"
            );
            let place = &mut self.places[at as usize];
            self.free = place.next;
            *place = Place {
                key,
                count: 0,
                next: self.buckets[bucket],
            };
            self.buckets[bucket] = at;
            self.keys_count += 1;
        }
        let place = &mut self.places[at as usize];
        if place.count >= self.per_key_max {
            return Err(KeyFull);
        }
        place.count += 1;
        self.holds_count += 1;
        Ok(Hold { place: at })
    }

    /// Gives one back.
    pub fn release(&mut self, hold: Hold) {
        let place = &mut self.places[hold.place as usize];
        place.count = place
            .count
            .checked_sub(1)
            .expect("each hold is released once, to the table that made it");
        self.holds_count -= 1;
        if place.count > 0 {
            return;
        }
        let (key, next) = (place.key, place.next);
        let bucket = self.bucket_of(key);
        if self.buckets[bucket] == hold.place {
            self.buckets[bucket] = next;
        } else {
            let mut at = self.buckets[bucket];
            while self.places[at as usize].next != hold.place {
                at = self.places[at as usize].next;
            }
            self.places[at as usize].next = next;
        }
        self.places[hold.place as usize].next = self.free;
        self.free = hold.place;
        self.keys_count -= 1;
    }

    /// Keys that hold something.
    pub const fn keys_count(&self) -> u32 {
        self.keys_count
    }

    /// Holds that are out.
    pub const fn holds_count(&self) -> u32 {
        self.holds_count
    }

    /// Bytes of a table for `holds_max` holds.
    pub const fn bytes_of(holds_max: usize) -> usize {
        holds_max * size_of::<Place>() + holds_max.next_power_of_two() * size_of::<u32>()
    }

    /// Panics unless exactly `holds_count` are out and every place is free or on one list.
    pub fn audit(&self, holds_count: u32) {
        assert_eq!(
            self.holds_count, holds_count,
            "holds equal the things that are held"
        );
        let used = self.places.iter().filter(|place| place.count > 0).count();
        assert_eq!(used as u32, self.keys_count);
        let mut free = 0;
        let mut at = self.free;
        while at != NONE {
            free += 1;
            at = self.places[at as usize].next;
        }
        assert_eq!(free + used, self.places.len(), "no place is lost");
    }

    fn bucket_of(&self, key: Holder) -> usize {
        let mut hasher = self.hasher;
        hasher.write(&key.0.to_ne_bytes());
        hasher.finish() as usize & (self.buckets.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    #[test]
    fn a_key_at_its_limit_leaves_others_alone_and_gets_its_places_back() {
        let mut holds = Holds::new(8, 2, [1; 16]);
        let (noisy, quiet) = (Holder::from(IpKey::V4(7)), Holder::from(IpKey::V6(7)));
        let first = holds.hold(noisy).unwrap();
        let second = holds.hold(noisy).unwrap();
        assert_eq!(holds.hold(noisy).unwrap_err(), KeyFull);
        let other = holds.hold(quiet).unwrap();
        assert_eq!((holds.keys_count(), holds.holds_count()), (2, 3));
        holds.release(first);
        let again = holds.hold(noisy).unwrap();
        for hold in [second, other, again] {
            holds.release(hold);
        }
        assert_eq!((holds.keys_count(), holds.holds_count()), (0, 0));
        holds.audit(0);
    }

    #[test]
    #[should_panic(expected = "released once")]
    fn a_hold_of_another_table_is_noticed() {
        let hold = Holds::new(1, 1, [0; 16]).hold(UserId(1).into()).unwrap();
        Holds::new(1, 1, [0; 16]).release(hold);
    }

    proptest! {
        /// Against a plain map: the same verdicts, and nothing left when everybody has gone.
        #[test]
        fn counts_are_those_of_a_plain_map(steps in proptest::collection::vec((0_u32..12, any::<bool>()), 1..400)) {
            let (holds_max, per_key_max) = (16, 5);
            let mut holds = Holds::new(holds_max, per_key_max, [3; 16]);
            let mut model: BTreeMap<u32, Vec<Hold>> = BTreeMap::new();
            for (source, comes) in steps {
                let open: usize = model.values().map(Vec::len).sum();
                let of_key = model.entry(source).or_default();
                if !comes {
                    if let Some(hold) = of_key.pop() {
                        holds.release(hold);
                    }
                } else if open < holds_max {
                    let allowed = of_key.len() < per_key_max as usize;
                    let hold = holds.hold(UserId(u64::from(source)).into());
                    prop_assert_eq!(hold.is_ok(), allowed);
                    of_key.extend(hold);
                }
                holds.audit(model.values().map(Vec::len).sum::<usize>() as u32);
            }
            model.into_values().flatten().for_each(|hold| holds.release(hold));
            holds.audit(0);
        }
    }
}
