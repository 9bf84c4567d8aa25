//! Answers already known for request ids: a cache of fixed size (design §4 stage 5, §12.2). The ledger decides; this only
//! answers faster.
//!
//! Sets of [`WAYS`] entries; entries that are in flight are pinned, others go round robin. When a set is full of pinned
//! entries a request is simply not remembered: the ledger recognises it.

use super::asks::RequestName;
use crate::rng::SPREAD;
use alloc::vec::Vec;
use weir_proto::ids::ReservationId;

/// Entries of one set.
const WAYS: usize = 4;

/// What is known of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Asked, not answered yet.
    InFlight {
        /// Units asked for.
        quantity: u32,
    },
    /// Granted.
    Granted {
        /// Units.
        quantity: u32,
        /// The reservation.
        reservation: ReservationId,
    },
}

/// The cache.
#[derive(Debug)]
pub struct KnownCache {
    /// Sixteen bits of each entry's hash, 0 for none: a request that is not here, which is nearly every one, touches one
    /// cache line of tags and no entry.
    tags: Vec<[u16; WAYS]>,
    entries: Vec<[Option<(RequestName, Known)>; WAYS]>,
    turn: usize,
    secret: [u64; 2],
}

/// Where a request's entry is, if anywhere.
#[derive(Clone, Copy)]
struct Place {
    set: usize,
    tag: u16,
}

impl KnownCache {
    /// `entries_max` is rounded up to whole sets; `secret` keys the hash.
    pub fn new(entries_max: usize, secret: [u8; 16]) -> Self {
        let sets = entries_max.div_ceil(WAYS).max(1);
        let half = |at: usize| {
            let bytes = secret[at..at + 8].try_into();
            u64::from_le_bytes(bytes.expect("eight of sixteen bytes"))
        };
        Self {
            tags: alloc::vec![[0; WAYS]; sets],
            entries: alloc::vec![[None; WAYS]; sets],
            turn: 0,
            secret: [half(0), half(8)],
        }
    }

    /// What is known of `name`.
    pub fn get(&self, name: &RequestName) -> Option<Known> {
        let place = self.place(name);
        let way = self.way_of(place, name)?;
        self.entries[place.set][way].map(|(_, known)| known)
    }

    /// Remembers `known` of `name`, if its set has room.
    pub fn put(&mut self, name: &RequestName, known: Known) {
        let place = self.place(name);
        self.turn = (self.turn + 1) % WAYS;
        let set = &self.entries[place.set];
        let is_free = |way: &usize| {
            set[*way].is_none_or(|(_, known)| !matches!(known, Known::InFlight { .. }))
        };
        let way = self
            .way_of(place, name)
            .or_else(|| set.iter().position(Option::is_none))
            .or_else(|| {
                (0..WAYS)
                    .map(|offset| (self.turn + offset) % WAYS)
                    .find(is_free)
            });
        if let Some(way) = way {
            self.tags[place.set][way] = place.tag;
            self.entries[place.set][way] = Some((*name, known));
        }
    }

    /// Forgets `name`: a refusal is decided afresh next time (design §12.1).
    pub fn forget(&mut self, name: &RequestName) {
        let place = self.place(name);
        if let Some(way) = self.way_of(place, name) {
            self.tags[place.set][way] = 0;
            self.entries[place.set][way] = None;
        }
    }

    fn way_of(&self, place: Place, name: &RequestName) -> Option<usize> {
        let tags = &self.tags[place.set];
        (0..WAYS).find(|&way| {
            tags[way] == place.tag
                && self.entries[place.set][way].is_some_and(|(known_name, _)| known_name == *name)
        })
    }

    /// Keyed, but no more than mixed: who finds requests that meet in one set only has his own forgotten here, and the
    /// ledger recognises them. The user and the end of the request id say enough; entries are compared whole.
    fn place(&self, name: &RequestName) -> Place {
        let id = name.request_id.as_bytes();
        let end = id.last_chunk().map_or(0, |end| u64::from_le_bytes(*end));
        let product = u128::from(name.user.0 ^ self.secret[0]) * u128::from(end ^ self.secret[1]);
        let hash = (product >> 64) as u64 ^ product as u64;
        let mixed = (hash ^ hash >> 32).wrapping_mul(SPREAD);
        Place {
            set: ((u128::from(mixed) * self.tags.len() as u128) >> 64) as usize, // below the number of sets
            tag: hash as u16 | 1, // never the 0 that stands for none
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_proto::ids::{ActivityId, RequestId, SkuId, SkuKey, UserId};

    fn name(user: u64) -> RequestName {
        RequestName {
            sku: SkuKey {
                activity: ActivityId(1),
                sku: SkuId(2),
            },
            user: UserId(user),
            request_id: RequestId::new(b"request-1").unwrap(),
        }
    }

    #[test]
    fn what_is_in_flight_stays_and_the_rest_goes() {
        let mut cache = KnownCache::new(4, [7; 16]); // one set
        for user in 0..3 {
            cache.put(&name(user), Known::InFlight { quantity: 1 });
        }
        for user in 10..20 {
            cache.put(
                &name(user),
                Known::Granted {
                    quantity: 1,
                    reservation: ReservationId(user),
                },
            );
        }
        assert!((0..3).all(|user| cache.get(&name(user)) == Some(Known::InFlight { quantity: 1 })));
        assert_eq!(
            cache.get(&name(19)),
            Some(Known::Granted {
                quantity: 1,
                reservation: ReservationId(19)
            })
        );
        assert_eq!(cache.get(&name(18)), None);
        cache.put(&name(40), Known::InFlight { quantity: 1 });
        cache.put(&name(41), Known::InFlight { quantity: 1 }); // full of pinned entries: not remembered
        assert_eq!(cache.get(&name(41)), None);
        cache.forget(&name(0));
        assert_eq!(cache.get(&name(0)), None);
    }
}
