//! Answers already known for request ids: a cache of fixed size (design §4 stage 5, §12.2). The ledger decides; this only
//! answers faster.
//!
//! Sets of [`WAYS`] entries; entries that are in flight are pinned, others go round robin. When a set is full of pinned
//! entries a request is simply not remembered: the ledger recognises it.

use super::asks::RequestName;
use alloc::vec::Vec;
use core::hash::Hasher;
use siphasher::sip::SipHasher13;
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
    entries: Vec<Option<(RequestName, Known)>>,
    sets: usize,
    turn: usize,
    hasher: SipHasher13,
}

impl KnownCache {
    /// `entries_max` is rounded up to whole sets; `secret` keys the hash.
    pub fn new(entries_max: usize, secret: [u8; 16]) -> Self {
        let sets = entries_max.div_ceil(WAYS).max(1);
        Self {
            entries: alloc::vec![None; sets * WAYS],
            sets,
            turn: 0,
            hasher: SipHasher13::new_with_key(&secret),
        }
    }

    /// What is known of `name`.
    pub fn get(&self, name: &RequestName) -> Option<Known> {
        self.set(name)
            .iter()
            .flatten()
            .find(|(known_name, _)| known_name == name)
            .map(|&(_, known)| known)
    }

    /// Remembers `known` of `name`, if its set has room.
    pub fn put(&mut self, name: &RequestName, known: Known) {
        let start = self.start(name);
        self.turn = (self.turn + 1) % WAYS;
        let turn = self.turn;
        let set = &mut self.entries[start..start + WAYS];
        let is_pinned = |entry: &Option<(RequestName, Known)>| {
            matches!(entry, Some((_, Known::InFlight { .. })))
        };
        let way = set
            .iter()
            .position(|entry| {
                entry
                    .as_ref()
                    .is_some_and(|(known_name, _)| known_name == name)
            })
            .or_else(|| set.iter().position(Option::is_none))
            .or_else(|| {
                (0..WAYS)
                    .map(|offset| (turn + offset) % WAYS)
                    .find(|&way| !is_pinned(&set[way]))
            });
        if let Some(way) = way {
            set[way] = Some((*name, known));
        }
    }

    /// Forgets `name`: a refusal is decided afresh next time (design §12.1).
    pub fn forget(&mut self, name: &RequestName) {
        let start = self.start(name);
        for entry in &mut self.entries[start..start + WAYS] {
            if entry
                .as_ref()
                .is_some_and(|(known_name, _)| known_name == name)
            {
                *entry = None;
            }
        }
    }

    fn set(&self, name: &RequestName) -> &[Option<(RequestName, Known)>] {
        let start = self.start(name);
        &self.entries[start..start + WAYS]
    }

    fn start(&self, name: &RequestName) -> usize {
        let mut hasher = self.hasher;
        hasher.write_u64(name.sku.activity.0);
        hasher.write_u64(name.sku.sku.0);
        hasher.write_u64(name.user.0);
        hasher.write(name.request_id.as_bytes());
        (hasher.finish() % self.sets as u64) as usize * WAYS
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
