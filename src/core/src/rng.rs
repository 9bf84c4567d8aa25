//! Chance as an argument: a small seeded generator for jitter, sampling and the simulator.
//!
//! SplitMix64 (Steele, Lea, Flood 2014): one u64 of state, equal sequences on every machine. Not for secrets.

/// 2^64 divided by the golden ratio, made odd: a product with it carries every bit of a number into its upper bits. The
/// step of SplitMix64; also mixes what is hashed already, or what nobody gains by guessing.
pub const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// A seeded sequence of numbers; the same seed gives the same sequence everywhere.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Starts the sequence of `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number, uniform over all of u64.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(SPREAD);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number in 0..`bound`; 0 when `bound` is 0. The bias is below 2^-32 for bounds under 2^32.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// True `numerator` times in `denominator`.
    pub fn chance(&mut self, numerator: u64, denominator: u64) -> bool {
        self.below(denominator) < numerator
    }

    /// A generator for a part of its own, so that parts do not disturb each other's sequences.
    pub fn fork(&mut self) -> Self {
        Self::new(self.next_u64())
    }
}
