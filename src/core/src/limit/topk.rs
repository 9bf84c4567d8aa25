//! The hottest keys of one shard, by the space-saving algorithm: fixed size, exact guarantees (C4).
//!
//! Metwally, Agrawal, El Abbadi: Efficient computation of frequent and top-k elements in data streams (2005). Called by
//! the pipeline once per request and dimension. Over a stream of N keys with K places: every key that came more than
//! N / K times is in the table; a shown count is never below the true one and exceeds it by `error` at most; every
//! `error` is at most N / K. Keys are found by chains of a hash; it is not keyed, since whoever makes all keys collide
//! makes a lookup K steps long and no longer. Counts only grow, so the smallest is found by a cursor that goes round and
//! stops at the first place whose count is still the smallest: one step per new key as a rule.
//! [`HotKeys`] counts in windows, so that what is shown is hot now: the last whole window stays while the next one fills.

use crate::limits::{HOT_KEYS_MAX, HOT_WINDOW_MS};
use crate::rng::SPREAD;
use crate::time::{Mono, NS_PER_MS};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// One key of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HotKey {
    /// The key, as the caller packs it.
    pub key: u64,
    /// Not below how often it came.
    pub count: u64,
    /// The count exceeds the truth by this at most.
    pub error: u64,
}

/// No place: the end of a chain.
const NONE: u16 = u16::MAX;
/// Chains per place, so that most chains are of one place at most.
const CHAINS_PER_PLACE: usize = 4;

#[derive(Clone, Copy, Debug)]
struct Place {
    hot: HotKey,
    /// The next place of the same chain.
    next: u16,
}

/// One stream's table. Keys are words that the caller packs.
#[derive(Clone, Debug)]
pub struct TopK {
    places_max: usize,
    /// An odd number that spreads keys over chains.
    spread: u64,
    places: Vec<Place>,
    /// The first place of each chain.
    heads: Box<[u16]>,
    seen: u64,
    /// No count of a full table is below this.
    least: u64,
    /// Where a place with that count is looked for first.
    cursor: usize,
}

impl TopK {
    /// A table of `places_max` places, 1..=2^15; allocates once.
    ///
    /// `seed`: drawn, so that nobody can choose keys that share a chain, whose walk is as long as the table then.
    pub fn new(places_max: usize, seed: u64) -> Self {
        assert!(
            (1..=1 << 15).contains(&places_max),
            "a table holds 1 to 2^15 keys"
        );
        let chains = (CHAINS_PER_PLACE * places_max).next_power_of_two();
        Self {
            places_max,
            spread: (seed ^ SPREAD) | 1,
            places: Vec::with_capacity(places_max),
            heads: alloc::vec![NONE; chains].into_boxed_slice(),
            seen: 0,
            least: 0,
            cursor: 0,
        }
    }

    /// Counts `key` once.
    #[inline]
    pub fn hit(&mut self, key: u64) {
        self.seen += 1;
        let mut at = self.heads[self.chain_of(key)];
        while let Some(place) = self.places.get_mut(usize::from(at)) {
            if place.hot.key == key {
                place.hot.count += 1;
                return;
            }
            at = place.next;
        }
        self.enter(key);
    }

    /// A key that has no place takes a free one or that of a key with the smallest count.
    fn enter(&mut self, key: u64) {
        let mut hot = HotKey {
            key,
            count: 1,
            error: 0,
        };
        let at = if self.places.len() < self.places_max {
            self.places.push(Place { hot, next: NONE });
            self.places.len() - 1
        } else {
            let at = self.find_least();
            self.unlink(at);
            (hot.count, hot.error) = (self.least + 1, self.least);
            at
        };
        let chain = self.chain_of(key);
        self.places[at] = Place {
            hot,
            next: self.heads[chain],
        };
        self.heads[chain] = at as u16; // below 2^15
    }

    /// Takes a place out of its chain.
    fn unlink(&mut self, at: usize) {
        let Place { hot, next } = self.places[at];
        let chain = self.chain_of(hot.key);
        let mut before = self.heads[chain];
        if usize::from(before) == at {
            self.heads[chain] = next;
            return;
        }
        loop {
            let place = &mut self.places[usize::from(before)];
            if usize::from(place.next) == at {
                place.next = next;
                return;
            }
            before = place.next;
        }
    }

    #[inline]
    fn chain_of(&self, key: u64) -> usize {
        let bits = self.heads.len().trailing_zeros(); // 1 or more: there are two chains per place or more
        (key.wrapping_mul(self.spread) >> (u64::BITS - bits)) as usize
    }

    /// A place of a full table with the smallest count, which becomes `least`.
    fn find_least(&mut self) -> usize {
        loop {
            for _ in 0..self.places_max {
                let at = self.cursor;
                self.cursor = if at + 1 == self.places_max { 0 } else { at + 1 };
                if self.places[at].hot.count == self.least {
                    return at;
                }
            }
            self.least = self.smallest();
        }
    }

    fn smallest(&self) -> u64 {
        let counts = self.places.iter().map(|place| place.hot.count);
        counts.min().unwrap_or(0)
    }

    /// Keys counted.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// A key that is not in the table came at most so often.
    pub fn absent_max(&self) -> u64 {
        if self.places.len() < self.places_max {
            0
        } else {
            self.smallest()
        }
    }

    /// Every key of the table, in no order.
    pub fn iter(&self) -> impl Iterator<Item = HotKey> + '_ {
        self.places.iter().map(|place| place.hot)
    }

    /// Forgets everything; keeps the room.
    pub fn clear(&mut self) {
        self.places.clear();
        self.heads.fill(NONE);
        (self.seen, self.least, self.cursor) = (0, 0, 0);
    }
}

/// The hot keys of one dimension, window by window.
#[derive(Debug)]
pub struct HotKeys {
    /// The window that fills, and the whole one before it.
    tables: Box<[TopK; 2]>,
    window: u64,
    /// Where the present window is over.
    ends: Mono,
}

impl HotKeys {
    /// Empty tables; allocates once.
    pub fn new(seed: u64) -> Self {
        Self {
            tables: Box::new([0, 1].map(|_| TopK::new(HOT_KEYS_MAX, seed))),
            window: 0,
            ends: Mono(0),
        }
    }

    /// Counts `key` once.
    #[inline]
    pub fn hit(&mut self, now: Mono, key: u64) {
        if now >= self.ends {
            self.turn(window_of(now));
        }
        self.tables[0].hit(key);
    }

    #[cold]
    fn turn(&mut self, window: u64) {
        let [current, last] = &mut *self.tables;
        if window > self.window {
            core::mem::swap(current, last);
            current.clear();
            if window > self.window + 1 {
                last.clear(); // nothing came in the window before this one
            }
        }
        self.window = window;
        self.ends = Mono(0).plus_ms((window + 1).saturating_mul(HOT_WINDOW_MS));
    }

    /// The last whole window at `now`; `None` when nothing came in it.
    pub fn last_window(&self, now: Mono) -> Option<&TopK> {
        let table = match window_of(now).checked_sub(self.window) {
            None | Some(0) => &self.tables[1],
            Some(1) => &self.tables[0],
            Some(_) => return None,
        };
        (table.seen() > 0).then_some(table)
    }
}

fn window_of(now: Mono) -> u64 {
    now.0 / (HOT_WINDOW_MS * NS_PER_MS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    fn window(number: u64) -> Mono {
        Mono(number * HOT_WINDOW_MS * NS_PER_MS)
    }

    #[test]
    fn what_is_shown_is_the_last_whole_window() {
        let mut hot = HotKeys::new(7);
        hot.hit(window(5), 1);
        assert!(hot.last_window(window(5)).is_none(), "it is not over");
        let keys = |hot: &HotKeys, now| -> Vec<u64> {
            hot.last_window(now)
                .into_iter()
                .flat_map(TopK::iter)
                .map(|hot| hot.key)
                .collect()
        };
        assert_eq!(keys(&hot, window(6)), [1]);
        hot.hit(window(6), 2);
        assert_eq!(keys(&hot, window(6)), [1]);
        assert_eq!(keys(&hot, window(7)), [2]);
        assert!(
            hot.last_window(window(8)).is_none(),
            "a quiet window shows nothing"
        );
        hot.hit(window(9), 3);
        assert!(hot.last_window(window(9)).is_none());
        assert_eq!(keys(&hot, window(10)), [3]);
    }

    proptest! {
        /// The three guarantees, against plain counting; streams with few hot and many cold keys, in any order.
        #[test]
        fn frequent_keys_are_present_and_errors_are_bounded(
            places_max in 1_usize..20,
            stream in proptest::collection::vec(prop_oneof![0_u64..4, 0_u64..1_000], 0..600),
        ) {
            let mut table = TopK::new(places_max, 7);
            let mut truth: BTreeMap<u64, u64> = BTreeMap::new();
            for &key in &stream {
                table.hit(key);
                *truth.entry(key).or_default() += 1;
            }
            let (seen, places) = (stream.len() as u64, places_max as u64);
            prop_assert_eq!(table.seen(), seen);
            let shown: BTreeMap<u64, HotKey> = table.iter().map(|hot| (hot.key, hot)).collect();
            prop_assert_eq!(shown.len(), table.iter().count(), "each key once");
            prop_assert_eq!(table.iter().map(|hot| hot.count).sum::<u64>(), seen);
            for (&key, &count) in &truth {
                // count > seen / places, without rounding
                prop_assert!(count * places <= seen || shown.contains_key(&key), "{key} came {count} of {seen} times");
                if !shown.contains_key(&key) {
                    prop_assert!(count <= table.absent_max());
                }
            }
            for hot in shown.values() {
                let count = truth[&hot.key];
                prop_assert!(hot.count >= count && hot.count - hot.error <= count, "{hot:?}, truly {count}");
                prop_assert!(hot.error * places <= seen);
            }
        }
    }
}
