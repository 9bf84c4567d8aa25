//! What the model stores: strings, hashes, sorted sets and streams, each with its time to live.
//!
//! Ordered throughout, so that a world is the same on every machine. Scores are whole numbers: weir's scripts use no
//! others, and one that is none is refused aloud.

use super::reply::Reply;
use std::collections::{BTreeMap, BTreeSet};

/// A stream entry's id: milliseconds and a number.
pub type EntryId = (u64, u64);

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// A string.
    Text(Vec<u8>),
    /// A hash.
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
    /// A sorted set: scores by member, and members by score.
    Sorted(BTreeMap<Vec<u8>, i64>, BTreeSet<(i64, Vec<u8>)>),
    /// A stream: entries, the last id given, and its consumer groups.
    Stream(
        BTreeMap<EntryId, Vec<Vec<u8>>>,
        EntryId,
        BTreeMap<Vec<u8>, Group>,
    ),
}

/// A consumer group of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// The last entry that was handed out.
    pub last: EntryId,
    /// Handed out and not acknowledged: to whom, and when.
    pub pending: BTreeMap<EntryId, (Vec<u8>, u64)>,
}

/// A key's data and when it ends, in wall milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kept {
    data: Data,
    ends_at_ms: Option<u64>,
}

/// All keys of a server. A copy of it is what a replica has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keys {
    kept: BTreeMap<Vec<u8>, Kept>,
}

macro_rules! typed {
    ($read:ident, $write:ident, $variant:pat => $inner:expr, $new:expr, $type:ty) => {
        /// The key's value of this type; `None`: no such key.
        ///
        /// # Errors
        /// The key holds another type.
        pub fn $read(&mut self, now_ms: u64, key: &[u8]) -> Result<Option<&mut $type>, Reply> {
            self.forget_ended(now_ms, key);
            match self.kept.get_mut(key).map(|kept| &mut kept.data) {
                None => Ok(None),
                Some($variant) => Ok(Some($inner)),
                Some(_) => Err(Reply::wrong_type()),
            }
        }

        /// The same; an absent key is made.
        ///
        /// # Errors
        /// The key holds another type.
        pub fn $write(&mut self, now_ms: u64, key: &[u8]) -> Result<&mut $type, Reply> {
            self.forget_ended(now_ms, key);
            let kept = self.kept.entry(key.to_vec()).or_insert_with(|| Kept {
                data: $new,
                ends_at_ms: None,
            });
            match &mut kept.data {
                $variant => Ok($inner),
                _ => Err(Reply::wrong_type()),
            }
        }
    };
}

/// A sorted set.
pub struct SortedMut<'a> {
    scores: &'a mut BTreeMap<Vec<u8>, i64>,
    order: &'a mut BTreeSet<(i64, Vec<u8>)>,
}

impl SortedMut<'_> {
    /// Sets a score; true for a new member.
    pub fn put(&mut self, member: &[u8], score: i64) -> bool {
        let before = self.scores.insert(member.to_vec(), score);
        if let Some(before) = before {
            self.order.remove(&(before, member.to_vec()));
        }
        self.order.insert((score, member.to_vec()));
        before.is_none()
    }

    /// Takes a member out; true if it was there.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        let Some(score) = self.scores.remove(member) else {
            return false;
        };
        self.order.remove(&(score, member.to_vec()))
    }

    /// The member's score.
    pub fn score(&self, member: &[u8]) -> Option<i64> {
        self.scores.get(member).copied()
    }

    /// Members and scores by score, then by name.
    pub fn in_order(&self) -> impl DoubleEndedIterator<Item = &(i64, Vec<u8>)> + ExactSizeIterator {
        self.order.iter()
    }
}

impl Keys {
    typed!(hash, hash_or_new, Data::Hash(inner) => inner, Data::Hash(BTreeMap::new()), BTreeMap<Vec<u8>, Vec<u8>>);
    typed!(text, text_or_new, Data::Text(inner) => inner, Data::Text(Vec::new()), Vec<u8>);

    /// The sorted set at a key; an absent one is made, and goes again if it stays empty.
    ///
    /// # Errors
    /// The key holds another type.
    pub fn sorted<R>(
        &mut self,
        now_ms: u64,
        key: &[u8],
        with: impl FnOnce(SortedMut<'_>) -> R,
    ) -> Result<R, Reply> {
        self.forget_ended(now_ms, key);
        let kept = self.kept.entry(key.to_vec()).or_insert_with(|| Kept {
            data: Data::Sorted(BTreeMap::new(), BTreeSet::new()),
            ends_at_ms: None,
        });
        let Data::Sorted(scores, order) = &mut kept.data else {
            return Err(Reply::wrong_type());
        };
        let done = with(SortedMut { scores, order });
        self.drop_empty(key);
        Ok(done)
    }

    /// The stream at a key: entries and last id; an absent one is made.
    ///
    /// # Errors
    /// The key holds another type.
    #[allow(clippy::type_complexity)] // the two parts of one variant
    pub fn stream(
        &mut self,
        now_ms: u64,
        key: &[u8],
    ) -> Result<(&mut BTreeMap<EntryId, Vec<Vec<u8>>>, &mut EntryId), Reply> {
        match self.stream_data(now_ms, key) {
            Data::Stream(entries, last, _) => Ok((entries, last)),
            _ => Err(Reply::wrong_type()),
        }
    }

    /// Entries and consumer groups of the stream at a key; an absent one is made.
    ///
    /// # Errors
    /// The key holds another type.
    #[allow(clippy::type_complexity)] // two parts of one variant
    pub fn groups(
        &mut self,
        now_ms: u64,
        key: &[u8],
    ) -> Result<
        (
            &BTreeMap<EntryId, Vec<Vec<u8>>>,
            &mut BTreeMap<Vec<u8>, Group>,
        ),
        Reply,
    > {
        match self.stream_data(now_ms, key) {
            Data::Stream(entries, _, groups) => Ok((entries, groups)),
            _ => Err(Reply::wrong_type()),
        }
    }

    fn stream_data(&mut self, now_ms: u64, key: &[u8]) -> &mut Data {
        self.forget_ended(now_ms, key);
        let kept = self.kept.entry(key.to_vec()).or_insert_with(|| Kept {
            data: Data::Stream(BTreeMap::new(), (0, 0), BTreeMap::new()),
            ends_at_ms: None,
        });
        &mut kept.data
    }

    /// Sets a string, whatever the key held, without a time to live.
    pub fn put_text(&mut self, key: &[u8], text: &[u8]) {
        let kept = Kept {
            data: Data::Text(text.to_vec()),
            ends_at_ms: None,
        };
        self.kept.insert(key.to_vec(), kept);
    }

    /// True when the key is there.
    pub fn has(&mut self, now_ms: u64, key: &[u8]) -> bool {
        self.forget_ended(now_ms, key);
        self.kept.contains_key(key)
    }

    /// Takes a key out; true if it was there.
    pub fn remove(&mut self, now_ms: u64, key: &[u8]) -> bool {
        self.forget_ended(now_ms, key);
        self.kept.remove(key).is_some()
    }

    /// The word of TYPE.
    pub fn type_word(&mut self, now_ms: u64, key: &[u8]) -> &'static str {
        self.forget_ended(now_ms, key);
        match self.kept.get(key).map(|kept| &kept.data) {
            None => "none",
            Some(Data::Text(_)) => "string",
            Some(Data::Hash(_)) => "hash",
            Some(Data::Sorted(..)) => "zset",
            Some(Data::Stream(..)) => "stream",
        }
    }

    /// Sets when a key ends; false for no such key. A time that has passed takes the key out.
    pub fn end_at(&mut self, now_ms: u64, key: &[u8], at_ms: u64) -> bool {
        self.forget_ended(now_ms, key);
        let Some(kept) = self.kept.get_mut(key) else {
            return false;
        };
        kept.ends_at_ms = Some(at_ms);
        self.forget_ended(now_ms, key);
        true
    }

    /// Milliseconds left: `None` for no such key, `Some(None)` for no end.
    pub fn left_ms(&mut self, now_ms: u64, key: &[u8]) -> Option<Option<u64>> {
        self.forget_ended(now_ms, key);
        let kept = self.kept.get(key)?;
        Some(kept.ends_at_ms.map(|at| at.saturating_sub(now_ms)))
    }

    /// A hash or sorted set without members is no key (Redis, `src/t_hash.c`, `src/t_zset.c`).
    pub fn drop_empty(&mut self, key: &[u8]) {
        let is_empty = match self.kept.get(key).map(|kept| &kept.data) {
            Some(Data::Hash(hash)) => hash.is_empty(),
            Some(Data::Sorted(scores, _)) => scores.is_empty(),
            _ => false,
        };
        if is_empty {
            self.kept.remove(key);
        }
    }

    /// Every key's name, in order.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.kept.keys().map(Vec::as_slice)
    }

    fn forget_ended(&mut self, now_ms: u64, key: &[u8]) {
        let has_ended = |kept: &Kept| kept.ends_at_ms.is_some_and(|at| at <= now_ms);
        if self.kept.get(key).is_some_and(has_ended) {
            self.kept.remove(key);
        }
    }
}
