//! The hottest keys of one shard, by the space-saving algorithm: fixed size, exact guarantees (C4).
//!
//! Metwally, Agrawal, El Abbadi: Efficient computation of frequent and top-k elements in data streams (2005). Called by
//! the pipeline once per request and dimension. Over a stream of N keys with K places: every key that came more than
//! N / K times is in the table; a shown count is never below the true one and exceeds it by `error` at most; every
//! `error` is at most N / K. A lookup of a new key walks K words of 2 bytes, that of a known one some of 8, too. Counts only
//! grow, so the smallest is found by a cursor that goes round and stops at the first place whose count is still the
//! smallest: one step per new key as a rule.
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

/// One stream's table. Keys are words that the caller packs.
#[derive(Clone, Debug)]
pub struct TopK {
    places_max: usize,
    keys: Vec<u64>,
    /// Sixteen bits of each key: most keys of a crowd are not here, and these say so eight at a time.
    marks: Vec<u16>,
    counts: Vec<u64>,
    errors: Vec<u64>,
    seen: u64,
    /// No count of a full table is below this.
    least: u64,
    /// Where a place with that count is looked for first.
    cursor: usize,
}

impl TopK {
    /// A table of `places_max` places, 1 or more; allocates once.
    pub fn new(places_max: usize) -> Self {
        assert!(places_max > 0, "a table holds one key at least");
        Self {
            places_max,
            keys: Vec::with_capacity(places_max),
            marks: Vec::with_capacity(places_max),
            counts: Vec::with_capacity(places_max),
            errors: Vec::with_capacity(places_max),
            seen: 0,
            least: 0,
            cursor: 0,
        }
    }

    /// Counts `key` once.
    pub fn hit(&mut self, key: u64) {
        self.seen += 1;
        let mark = mark_of(key);
        if let Some(at) = self.place_of(key, mark) {
            self.counts[at] += 1;
        } else if self.keys.len() < self.places_max {
            self.keys.push(key);
            self.marks.push(mark);
            self.counts.push(1);
            self.errors.push(0);
        } else {
            let at = self.find_least();
            self.keys[at] = key;
            self.marks[at] = mark;
            self.errors[at] = self.least;
            self.counts[at] = self.least + 1;
        }
    }

    fn place_of(&self, key: u64, mark: u16) -> Option<usize> {
        // No early end: that is vector code.
        let may_be_here = |found, &known: &u16| found | (known == mark);
        if !self.marks.iter().fold(false, may_be_here) {
            return None;
        }
        self.keys.iter().position(|&known| known == key)
    }

    /// A place of a full table with the smallest count, which becomes `least`.
    fn find_least(&mut self) -> usize {
        loop {
            for _ in 0..self.places_max {
                let at = self.cursor;
                self.cursor = (at + 1) % self.places_max;
                if self.counts[at] == self.least {
                    return at;
                }
            }
            self.least = self.smallest();
        }
    }

    fn smallest(&self) -> u64 {
        self.counts.iter().copied().min().unwrap_or(0)
    }

    /// Keys counted.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// A key that is not in the table came at most so often.
    pub fn absent_max(&self) -> u64 {
        if self.keys.len() < self.places_max {
            0
        } else {
            self.smallest()
        }
    }

    /// Every key of the table, in no order.
    pub fn iter(&self) -> impl Iterator<Item = HotKey> + '_ {
        let counted = self.counts.iter().zip(&self.errors);
        self.keys
            .iter()
            .zip(counted)
            .map(|(&key, (&count, &error))| HotKey { key, count, error })
    }

    /// Forgets everything; keeps the room.
    pub fn clear(&mut self) {
        self.keys.clear();
        self.marks.clear();
        self.counts.clear();
        self.errors.clear();
        (self.seen, self.least, self.cursor) = (0, 0, 0);
    }
}

fn mark_of(key: u64) -> u16 {
    (key.wrapping_mul(SPREAD) >> 48) as u16
}

/// The hot keys of one dimension, window by window.
#[derive(Debug)]
pub struct HotKeys {
    /// The window that fills, and the whole one before it.
    tables: Box<[TopK; 2]>,
    window: u64,
}

impl HotKeys {
    /// Empty tables; allocates once.
    pub fn new() -> Self {
        Self {
            tables: Box::new([TopK::new(HOT_KEYS_MAX), TopK::new(HOT_KEYS_MAX)]),
            window: 0,
        }
    }

    /// Counts `key` once.
    pub fn hit(&mut self, now: Mono, key: u64) {
        let window = window_of(now);
        if window > self.window {
            let [current, last] = &mut *self.tables;
            core::mem::swap(current, last);
            current.clear();
            if window > self.window + 1 {
                last.clear(); // nothing came in the window before this one
            }
            self.window = window;
        }
        self.tables[0].hit(key);
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

impl Default for HotKeys {
    fn default() -> Self {
        Self::new()
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
        let mut hot = HotKeys::new();
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
            let mut table = TopK::new(places_max);
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
