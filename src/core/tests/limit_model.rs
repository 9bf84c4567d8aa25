//! Every kind of rule against a brute-force model in exact fractions (C1): random calls with clock steps back, pauses
//! and overflow values; ten million per kind.

use std::collections::VecDeque;
use weir_core::limit::gcra::{Policy, Rate, Verdict};
use weir_core::limit::rule::{Kind, Rule};
use weir_core::limit::table::{KeyedLimiter, TableSpec};
use weir_core::time::{Mono, NS_PER_S};

/// Random calls per kind: each is a decision compared, each refusal two looks more.
const STEPS: u64 = 10_000_000;

/// The textbook, without any of the table's tricks: all times are nanoseconds, all amounts fractions over `tokens`.
#[derive(Clone)]
enum Model {
    /// Tokens held, over `per_ns`; refilled at every look.
    Bucket { held: i128, last: i128 },
    /// Start of the window, tokens used.
    Fixed { window: Option<(i128, i128)> },
    /// Every charge ever that may still count: instant, tokens.
    Log { charges: VecDeque<(i128, i128)> },
    /// Start of the present window as a fraction over `tokens`; counts of the last and the present one.
    Counter {
        start: i128,
        last: i128,
        present: i128,
    },
}

#[derive(Clone, Copy)]
struct Shape {
    kind: Kind,
    tokens: i128,
    per_ns: i128,
    capacity: i128,
}

impl Shape {
    /// The window, as a fraction of nanoseconds over `tokens`.
    fn window(&self) -> i128 {
        self.capacity * self.per_ns
    }

    fn fresh(&self, now: i128) -> Model {
        match self.kind {
            Kind::Gcra | Kind::LeakyBucket => Model::Bucket {
                held: self.capacity * self.per_ns,
                last: now,
            },
            Kind::FixedWindow => Model::Fixed { window: None },
            Kind::SlidingLog => Model::Log {
                charges: VecDeque::new(),
            },
            Kind::SlidingCounter => Model::Counter {
                start: i128::MIN / 4,
                last: 0,
                present: 0,
            },
        }
    }

    /// Tokens left after `cost` at `now`, or none when it does not pass; writes only when it passes.
    fn take(&self, model: &mut Model, now: i128, cost: i128) -> Option<i128> {
        let after = self.look(model, now);
        let left = match &after {
            Model::Bucket { held, .. } => (held - cost * self.per_ns).div_euclid(self.per_ns),
            Model::Fixed { window } => self.capacity - window.map_or(0, |(_, used)| used) - cost,
            Model::Log { charges } => {
                self.capacity - charges.iter().map(|(_, cost)| cost).sum::<i128>() - cost
            }
            Model::Counter {
                start,
                last,
                present,
            } => {
                let left_of_window = self.window() - (now * self.tokens - start);
                let overlap = if *last == 0 { 0 } else { last * left_of_window };
                (self.capacity - present - cost)
                    - overlap.div_euclid(self.window())
                    - i128::from(overlap.rem_euclid(self.window()) > 0)
            }
        };
        if left < 0 || cost > self.capacity {
            return None;
        }
        if cost > 0 {
            *model = after;
            match model {
                Model::Bucket { held, .. } => *held -= cost * self.per_ns,
                Model::Fixed { window } => window.get_or_insert((now, 0)).1 += cost,
                Model::Log { charges } => charges.push_back((now, cost)),
                Model::Counter { present, .. } => *present += cost,
            }
        }
        Some(left)
    }

    /// The model brought to `now`.
    fn look(&self, model: &Model, now: i128) -> Model {
        let mut at = model.clone();
        match &mut at {
            Model::Bucket { held, last } => {
                *held = (*held + (now - *last) * self.tokens).min(self.capacity * self.per_ns);
                *last = now;
            }
            Model::Fixed { window } => {
                if window.is_some_and(|(start, _)| (now - start) * self.tokens >= self.window()) {
                    *window = None;
                }
            }
            Model::Log { charges } => {
                while charges
                    .front()
                    .is_some_and(|(at, _)| (now - at) * self.tokens >= self.window())
                {
                    charges.pop_front();
                }
            }
            Model::Counter {
                start,
                last,
                present,
            } => {
                let passed = now * self.tokens - *start;
                if passed >= 2 * self.window() {
                    (*start, *last, *present) = (now * self.tokens, 0, 0);
                } else if passed >= self.window() {
                    (*start, *last, *present) = (*start + self.window(), *present, 0);
                }
            }
        }
        at
    }
}

struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Time that limps: mostly forward by parts of the window, sometimes back, sometimes far ahead, up to the end of a table's clock (2^62 ns, 146 years).
fn next_time(chance: &mut Chance, shape: Shape, now: u64) -> u64 {
    let window_ns =
        u64::try_from((shape.window() / shape.tokens.max(1)).clamp(1, 1 << 40)).unwrap_or(1);
    let part = |chance: &mut Chance, of: u64| {
        let of = of.max(1);
        let span = of.min(1 << 31);
        chance.below(span).saturating_mul(of / span)
    };
    match chance.below(64) {
        0 => now.saturating_sub(part(chance, window_ns)),
        1 => now.saturating_sub(part(chance, window_ns * 8)),
        2 => now.saturating_add(part(chance, window_ns * 3)),
        3 if chance.below(200) == 0 => now.saturating_add(window_ns.saturating_mul(1 << 12)),
        4..=8 => now,
        _ => now.saturating_add(part(
            chance,
            window_ns / u64::try_from(shape.capacity.clamp(1, 64)).unwrap_or(1) * 2,
        )),
    }
}

fn cost_of(chance: &mut Chance, capacity: u32) -> u32 {
    match chance.below(40) {
        0 => u32::MAX,
        1 => capacity,
        2 => capacity.saturating_add(1),
        3 => 0,
        4..=7 => u32::try_from(chance.below(u64::from(capacity) + 1)).unwrap_or(1),
        _ => 1,
    }
}

/// What the table says must be what the model says, and the wait must be exact: it passes then, and 1 ns before it does not.
fn judge(
    shape: Shape,
    model: &mut Model,
    now: u64,
    cost: u32,
    verdict: Verdict,
) -> Result<(), String> {
    let (at, cost) = (i128::from(now), i128::from(cost));
    let expected = shape.take(model, at, cost);
    let fits = match (verdict, expected) {
        (Verdict::Allow { remaining }, Some(left)) => i128::from(remaining) == left,
        (Verdict::Never, None) => cost > shape.capacity || shape.tokens == 0,
        (Verdict::Wait { retry_after_ns }, None) => {
            let due = at + i128::from(retry_after_ns);
            retry_after_ns > 0
                && shape.take(&mut model.clone(), due, cost).is_some()
                && shape.take(&mut model.clone(), due - 1, cost).is_none()
        }
        _ => false,
    };
    fits.then_some(()).ok_or_else(|| {
        format!(
            "{:?} at {now} cost {cost}: {verdict:?}, model {expected:?}",
            shape.kind
        )
    })
}

/// How many calls passed, were told a wait, were told never.
#[derive(Default)]
struct Tally {
    passed: u64,
    waits: u64,
    nevers: u64,
}

fn run(kind: Kind, rate: Rate, capacity: u32, start: u64, tally: &mut Tally) {
    let policy = Policy::new(rate, capacity).expect("within the bounds");
    let shape = Shape {
        kind,
        tokens: i128::from(policy.rate().tokens),
        per_ns: i128::from(policy.rate().per_ns),
        capacity: i128::from(capacity),
    };
    let mut chance = Chance(start ^ u64::from(capacity));
    let spec = TableSpec {
        slots: 64,
        rule: Rule::new(kind, policy).expect("within the bounds"),
        overflow: Policy::CLOSED,
        secret: [5; 16],
    };
    let mut table = KeyedLimiter::new(Mono(start), &spec);
    let keys: Vec<_> = (0..6u8).map(|n| table.key(&[n])).collect();
    let mut models: Vec<_> = keys
        .iter()
        .map(|_| shape.fresh(i128::from(start)))
        .collect();
    let (mut now, mut clock) = (start, start);
    for _ in 0..STEPS / SHAPES.len() as u64 + 1 {
        now = next_time(&mut chance, shape, now);
        if now > (1 << 62) - (1 << 50) {
            now = clock; // stays there: every later step is a step back or a stop
        }
        let (index, cost) = (chance.below(6) as usize, cost_of(&mut chance, capacity));
        let effective = now.max(clock); // B02: a table has one clock, moved by its charges
        let probe = table.probe(Mono(now), keys[index], cost);
        assert!(!probe.is_overflow(), "6 keys fit 64 slots");
        let judged = judge(shape, &mut models[index], effective, cost, probe.verdict);
        assert_eq!(judged, Ok(()));
        match probe.verdict {
            Verdict::Allow { .. } => tally.passed += 1,
            Verdict::Wait { .. } => tally.waits += 1,
            Verdict::Never => tally.nevers += 1,
        }
        if probe.verdict.is_allow() {
            table.charge(&probe);
            clock = if cost > 0 { effective } else { clock };
        }
    }
}

/// Rate, burst, start of the clock.
const SHAPES: [(Rate, u32, u64); 7] = [
    (Rate::per_second(5), 10, 0),
    (per(7, 60 * NS_PER_S), 3, 1 << 40),
    (Rate::per_second(300_007), 64, (1 << 62) - (1 << 57)),
    (Rate::per_second(999_999_937), 40, 77), // fine units: the base of a line moves
    (per(1, 3_600 * NS_PER_S), 1, 1 << 61),
    (per(3, 10), 7, 0),
    (Rate::ZERO, 5, 9),
];

const fn per(tokens: u64, per_ns: u64) -> Rate {
    Rate { tokens, per_ns }
}

fn equals_its_model(kind: Kind) {
    let mut tally = Tally::default();
    for (rate, capacity, start) in SHAPES {
        run(kind, rate, capacity, start, &mut tally);
    }
    let Tally {
        passed,
        waits,
        nevers,
    } = tally;
    let steps = passed + waits + nevers;
    println!(
        "limit model: {}: {steps} steps ({passed} passed, {waits} told a wait, {nevers} told never), 0 differences",
        kind.word()
    );
    assert!(steps >= STEPS && passed > steps / 5 && waits > steps / 5 && nevers > steps / 100);
}

#[test]
fn gcra_equals_its_exact_model() {
    equals_its_model(Kind::Gcra);
}

#[test]
fn the_leaky_bucket_equals_its_exact_model() {
    equals_its_model(Kind::LeakyBucket);
}

#[test]
fn the_fixed_window_equals_its_exact_model() {
    equals_its_model(Kind::FixedWindow);
}

#[test]
fn the_sliding_log_equals_its_exact_model() {
    equals_its_model(Kind::SlidingLog);
}

#[test]
fn the_sliding_counter_equals_its_exact_model() {
    equals_its_model(Kind::SlidingCounter);
}
