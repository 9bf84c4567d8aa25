//! The keyed hash of the limit tables: a vector multiply-shift, for names of at most [`NAME_BYTES_MAX`] bytes.
//!
//! h(x) = upper half of (b + n a₀ + x₁ a₁ + … + x₄ a₄ mod 2^128) for n bytes in the 64-bit words x, with b and all a drawn
//! from the table's secret by BLAKE3. Dietzfelbinger (STACS 1996), Thorup (arXiv:1504.06804): strongly universal, so
//! the hashes of two names are uniform and independent. A mix that can be undone comes after it: it keeps that, and
//! without it names in arithmetic progression would have hashes in one, and one crowded line would tell of others.
//! **Proven**: whoever chooses names without seeing what the hash does gets two into one line, or under one tag, no more
//! often than chance. **Not proven**: this is no pseudorandom function such as SipHash, at a third of its price. Whoever saw
//! hashes, or which names share a line, could work towards the secret; an answer shows neither, only that a name found
//! no slot (a refusal, a quota header that is missing). What that could win is bounded: a crowded line sends
//! newcomers to their other line and then to the sketch, each held to its own rate; a key that has a slot keeps it.

/// Longest name: activity, SKU and sixteen bytes of a device's hash.
pub const NAME_BYTES_MAX: usize = 32;
const WORD_BYTES: usize = size_of::<u64>();
const WORDS: usize = NAME_BYTES_MAX / WORD_BYTES;
/// Separates these drawings from every other use of a secret.
const DRAW_CONTEXT: &str = "weir 2026-11 keyed hash of a limit table";

/// The drawn numbers.
pub(super) struct NameHash {
    offset: u128,
    length_factor: u128,
    factors: [u128; WORDS],
    mix: u64,
}

impl NameHash {
    /// Draws the numbers of `secret`.
    pub(super) fn new(secret: &[u8; 16]) -> Self {
        let mut drawn = blake3::Hasher::new_derive_key(DRAW_CONTEXT)
            .update(secret)
            .finalize_xof();
        let mut draw = || {
            let mut bytes = [0; 16];
            drawn.fill(&mut bytes);
            u128::from_le_bytes(bytes)
        };
        Self {
            offset: draw(),
            length_factor: draw(),
            factors: core::array::from_fn(|_| draw()),
            mix: draw() as u64 | 1, // odd, so that the product can be undone
        }
    }

    /// The hash of a name.
    #[inline]
    pub(super) fn of(&self, name: &[u8]) -> u64 {
        let (words, rest) = name.as_chunks::<WORD_BYTES>();
        let words = words.iter().map(|word| u64::from_le_bytes(*word));
        let mut last = [0; WORD_BYTES];
        last[..rest.len()].copy_from_slice(rest);
        let last = (!rest.is_empty()).then_some(u64::from_le_bytes(last));
        self.of_parts(name.len(), words.chain(last))
    }

    /// The same of a name that is made of words, least byte first: bytes that were just written are not read back, and
    /// no later one waits for that.
    #[inline]
    pub(super) fn of_words(&self, name: &[u64]) -> u64 {
        self.of_parts(size_of_val(name), name.iter().copied())
    }

    #[inline(always)] // unrolled for the number of words that the caller has
    fn of_parts(&self, bytes: usize, words: impl Iterator<Item = u64>) -> u64 {
        assert!(bytes <= NAME_BYTES_MAX, "names of limits are short");
        let length = self.length_factor.wrapping_mul(bytes as u128);
        let mut sum = self.offset.wrapping_add(length);
        for (word, factor) in words.zip(&self.factors) {
            sum = sum.wrapping_add(factor.wrapping_mul(u128::from(word)));
        }
        let hash = (sum >> 64) as u64;
        let hash = (hash ^ (hash >> 32)).wrapping_mul(self.mix);
        hash ^ (hash >> 29)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SPREAD;
    use alloc::collections::BTreeSet;

    fn chi_square(names: impl Iterator<Item = u64>, bin_of: impl Fn(u64) -> usize) -> f64 {
        let (mut bins, mut count) = ([0u32; 1024], 0u32);
        for hash in names {
            bins[bin_of(hash)] += 1;
            count += 1;
        }
        let mean = f64::from(count) / 1024.0;
        let part = |&bin: &u32| (f64::from(bin) - mean) * (f64::from(bin) - mean) / mean;
        bins.iter().map(part).sum()
    }

    #[test]
    fn names_in_progression_fill_lines_and_tags_as_chance_would() {
        for secret in 0..8u8 {
            let hash = NameHash::new(&[secret; 16]);
            for step in [1, 2, 256, 1 << 20, 1 << 32, 1 << 47, SPREAD, u64::MAX] {
                let names = || (0..1u64 << 16).map(|n| n.wrapping_mul(step).to_be_bytes());
                let by_line =
                    chi_square(names().map(|name| hash.of(&name)), |h| (h >> 54) as usize);
                let by_tag =
                    chi_square(names().map(|name| hash.of(&name)), |h| (h & 1023) as usize);
                for chi in [by_line, by_tag] {
                    // 1023 degrees of freedom: the standard deviation is 45.
                    assert!((750.0..1350.0).contains(&chi), "{secret} {step}: {chi}");
                }
            }
        }
    }

    #[test]
    fn every_byte_and_the_length_of_a_name_count() {
        let hash = NameHash::new(b"a secret of test");
        let mut seen = BTreeSet::new();
        for length in 0..=NAME_BYTES_MAX {
            let name = [0u8; NAME_BYTES_MAX];
            assert!(seen.insert(hash.of(&name[..length])));
            for at in 0..length {
                for bit in 0..8 {
                    let mut other = name;
                    other[at] = 1 << bit;
                    assert!(
                        seen.insert(hash.of(&other[..length])),
                        "{length} {at} {bit}"
                    );
                }
            }
        }
        assert!(seen.insert(NameHash::new(b"another of tests").of(&[])));
        assert_eq!(
            hash.of_words(&[0x0807_0605_0403_0201, 9]),
            hash.of(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0, 0, 0, 0, 0, 0])
        );
    }
}
