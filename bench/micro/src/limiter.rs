//! The keyed limiter: a key that is there and one that is not, admitted and denied, at several sizes.
//!
//! Time is an argument, so the number of live keys is held exactly where the scenario wants it: where keys come, each
//! pays its debt off while as many newcomers arrive as the table should hold.

use crate::{Scenario, Work};
use std::hint::black_box;
use weir_core::limit::gcra::{Policy, Rate};
use weir_core::limit::rule::Rule;
use weir_core::limit::table::{KeyedLimiter, SLOTS_PER_LINE, TableSpec};
use weir_core::time::Mono;

/// Nanoseconds between two newcomers.
const STEP_NS: u64 = 100;
/// Far longer than any run.
const YEAR_NS: u64 = 365 * 24 * 3_600_000_000_000;
/// Multiplies a counter into keys that look drawn; odd, so no two are equal.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

macro_rules! rows {
    ($($keys:literal $text:literal),* $(,)?) => {
        [$(
            Scenario::new(concat!("limiter-hit-admit-", $text), 1, || Box::new(Hit::new($keys, true))),
            Scenario::new(concat!("limiter-hit-deny-", $text), 0, || Box::new(Hit::new($keys, false))),
            Scenario::new(concat!("limiter-miss-admit-", $text), 1, || Box::new(Miss::new($keys))),
            Scenario::new(concat!("limiter-miss-deny-", $text), 0, || Full::boxed($keys)),
            Scenario::new(concat!("limiter-batch-16-hit-admit-", $text), 16, || Batch::<16, Hit>::boxed(Hit::new($keys, true)))
                .of_many(16),
            Scenario::new(concat!("limiter-batch-64-hit-admit-", $text), 64, || Batch::<64, Hit>::boxed(Hit::new($keys, true)))
                .of_many(64),
            Scenario::new(concat!("limiter-batch-16-miss-admit-", $text), 16, || Batch::<16, Miss>::boxed(Miss::new($keys)))
                .of_many(16),
        )*]
    };
}

pub fn scenarios() -> impl Iterator<Item = Scenario> {
    rows! { 1_000 "1K", 100_000 "100K", 1_000_000 "1M", 10_000_000 "10M" }.into_iter()
}

/// Bytes of a key's slot, and bytes per slot of the sketch that meters keys without one, in a table for ten million keys.
pub fn bytes_per_key() -> (f64, f64) {
    let limiter = table(10_000_000, one_in(YEAR_NS), one_in(YEAR_NS));
    let slots = limiter.slots() as f64;
    let line_bytes = 64.0; // one cache line: `table` does not compile with another size
    let slot = line_bytes / SLOTS_PER_LINE as f64;
    (slot, limiter.bytes() as f64 / slots - slot)
}

fn one_in(per_ns: u64) -> Policy {
    let rate = Rate { tokens: 1, per_ns };
    Policy::new(rate, 1).expect("enforceable")
}

/// For the one key in a thousand that finds no slot in a table that is half full: it is to be admitted like the others.
fn ample() -> Policy {
    Policy::new(Rate::per_second(1_000_000_000), 1 << 30).expect("enforceable")
}

fn table(slots: usize, policy: Policy, overflow: Policy) -> KeyedLimiter {
    let spec = TableSpec {
        slots,
        rule: Rule::gcra(policy),
        overflow,
        secret: [7; 16],
    };
    KeyedLimiter::new(Mono(1), &spec)
}

/// Key `n` of a run, as the pipeline would see a user's id.
fn key_bytes(n: u64) -> [u8; 8] {
    key_number(n).to_be_bytes()
}

/// The same as a number.
pub fn key_number(n: u64) -> u64 {
    n.wrapping_mul(SPREAD)
}

/// Calls of one limiter.
trait Stream {
    fn limiter(&mut self) -> &mut KeyedLimiter;
    /// The next call's key.
    fn next(&mut self) -> [u8; 8];
    /// The next call's instant.
    fn tick(&mut self) -> Mono;
}

fn decide(stream: &mut impl Stream) -> u64 {
    let (now, name) = (stream.tick(), stream.next());
    let limiter = stream.limiter();
    let key = limiter.key(&name);
    u64::from(limiter.take(now, key, 1).is_allow())
}

/// What came in one turn of the loop: all keys' lines are asked for, then each call is decided.
struct Batch<const COUNT: usize, S>(S);

impl<const COUNT: usize, S: Stream + 'static> Batch<COUNT, S> {
    fn boxed(stream: S) -> Box<dyn Work> {
        Box::new(Self(stream))
    }
}

impl<const COUNT: usize, S: Stream> Work for Batch<COUNT, S> {
    fn once(&mut self) -> u64 {
        let keys = [(); COUNT].map(|()| {
            let name = self.0.next();
            self.0.limiter().key(&name)
        });
        for key in keys {
            self.0.limiter().touch(key);
        }
        let mut passed = 0;
        for key in keys {
            let now = self.0.tick();
            passed += u64::from(self.0.limiter().take(now, key, 1).is_allow());
        }
        passed
    }
}

struct Hit {
    limiter: KeyedLimiter,
    now: Mono,
    number: u64,
    keys: u64,
}

impl Hit {
    fn new(keys: u64, admit: bool) -> Self {
        let (policy, overflow) = if admit {
            // A token a second and 2^30 of them: every key stays in debt for the run and is never refused.
            let rate = Rate {
                tokens: 1,
                per_ns: 1_000_000_000,
            };
            let policy = Policy::new(rate, 1 << 30).expect("enforceable");
            (policy, ample())
        } else {
            (one_in(YEAR_NS), one_in(YEAR_NS))
        };
        let mut hit = Self {
            limiter: table(2 * keys as usize, policy, overflow),
            now: Mono(1),
            number: 0,
            keys,
        };
        for number in 0..keys {
            let key = hit.limiter.key(&key_bytes(number));
            hit.limiter.take(hit.now, key, 1);
        }
        hit
    }
}

impl Stream for Hit {
    fn limiter(&mut self) -> &mut KeyedLimiter {
        &mut self.limiter
    }

    fn next(&mut self) -> [u8; 8] {
        self.number = (self.number + 1) % self.keys; // the keyed hash spreads them over the table
        black_box(key_bytes(self.number))
    }

    fn tick(&mut self) -> Mono {
        self.now = self.now.plus_ns(1);
        self.now
    }
}

impl Work for Hit {
    fn once(&mut self) -> u64 {
        decide(self)
    }
}

struct Miss {
    limiter: KeyedLimiter,
    now: Mono,
    number: u64,
}

impl Miss {
    fn new(keys: u64) -> Self {
        // Of two tokens, so that a newcomer without a slot is not taken for the one whose cells it shares.
        let rate = Rate {
            tokens: 1,
            per_ns: keys * STEP_NS,
        };
        let policy = Policy::new(rate, 2).expect("enforceable");
        let mut miss = Self {
            limiter: table(2 * keys as usize, policy, ample()),
            now: Mono(1),
            number: 0,
        };
        for _ in 0..keys {
            miss.once();
        }
        miss
    }
}

impl Stream for Miss {
    fn limiter(&mut self) -> &mut KeyedLimiter {
        &mut self.limiter
    }

    fn next(&mut self) -> [u8; 8] {
        self.number += 1;
        black_box(key_bytes(self.number))
    }

    fn tick(&mut self) -> Mono {
        self.now = self.now.plus_ns(STEP_NS);
        self.now
    }
}

impl Work for Miss {
    fn once(&mut self) -> u64 {
        decide(self)
    }
}

/// No slot is free and the bucket of those without one is empty: what a flood of strangers meets.
struct Full {
    limiter: KeyedLimiter,
    number: u64,
}

impl Full {
    fn boxed(keys: u64) -> Box<dyn Work> {
        let mut full = Self {
            limiter: table(keys as usize, one_in(YEAR_NS), one_in(YEAR_NS)),
            number: 0,
        };
        while full.limiter.overflow_total() < 8 * keys {
            full.once();
        }
        Box::new(full)
    }
}

impl Work for Full {
    fn once(&mut self) -> u64 {
        self.number += 1;
        let key = self.limiter.key(&black_box(key_bytes(self.number)));
        u64::from(self.limiter.take(Mono(1), key, 1).is_allow())
    }
}
