//! Random bytes for nonces: keyed BLAKE3 over a counter, keyed once per start from the system's entropy.
//!
//! An argument of the listener (style §2), so that tests repeat. Two starts never share a key, two draws never a counter.

use std::fmt;

/// A stream of bytes that nobody without the key can tell from chance.
pub struct Entropy {
    key: [u8; 32],
    drawn: u64,
}

impl Entropy {
    /// `key`: 32 bytes of the system's entropy, never used before.
    pub fn new(key: [u8; 32]) -> Self {
        Self { key, drawn: 0 }
    }

    /// The next 16 bytes.
    pub fn draw(&mut self) -> [u8; 16] {
        let block = blake3::keyed_hash(&self.key, &self.drawn.to_be_bytes());
        self.drawn += 1;
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&block.as_bytes()[..16]);
        bytes
    }
}

impl fmt::Debug for Entropy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Entropy(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn draws_differ_and_depend_on_the_key_alone() {
        let (mut one, mut same, mut other) = (
            Entropy::new([1; 32]),
            Entropy::new([1; 32]),
            Entropy::new([2; 32]),
        );
        let mut seen = HashSet::new();
        for _ in 0..1000 {
            let bytes = one.draw();
            assert_eq!(bytes, same.draw());
            assert!(seen.insert(bytes) && seen.insert(other.draw()));
        }
        assert!(!format!("{one:?}").contains('1'));
    }
}
