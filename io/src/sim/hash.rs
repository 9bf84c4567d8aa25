//! The running hash of a run: equal seeds must give equal hashes on every machine, else a run cannot be repeated.
//!
//! Takes whole words, each step invertible, so no event can hide another. No defence against an attacker is needed.

use std::hash::Hasher;

/// FNV's prime (64 bits); one multiplication per word instead of per byte, with the high half folded back.
const PRIME: u64 = 0x0000_0100_0000_01b3;
const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;

/// The hash of all that happened so far.
#[derive(Clone, Debug)]
pub(super) struct EventHash(u64);

impl EventHash {
    pub fn new() -> Self {
        Self(OFFSET)
    }

    pub fn word(&mut self, word: u64) {
        let mixed = (self.0 ^ word).wrapping_mul(PRIME | 1 << 47);
        self.0 = mixed ^ (mixed >> 29);
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.word(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.word(u64::from_le_bytes(last));
    }

    pub fn value(&self) -> u64 {
        self.0
    }
}

/// For `mem::discriminant`, which shows its number only to a `Hasher`.
impl Hasher for EventHash {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        self.bytes(bytes);
    }
    fn write_u64(&mut self, word: u64) {
        self.word(word);
    }
    fn write_isize(&mut self, number: isize) {
        self.word(number as i64 as u64);
    }
    fn write_usize(&mut self, number: usize) {
        self.word(number as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_length_and_content_all_count() {
        let of = |parts: &[&[u8]]| {
            let mut hash = EventHash::new();
            for part in parts {
                hash.bytes(part);
            }
            hash.value()
        };
        assert_eq!(of(&[b"abc", b"d"]), of(&[b"abc", b"d"]));
        assert_ne!(of(&[b"abc", b"d"]), of(&[b"d", b"abc"]));
        assert_ne!(of(&[b"abc"]), of(&[b"abc\0"]));
        assert_ne!(of(&[b"abc"]), of(&[b"ab", b"c"]));
    }
}
