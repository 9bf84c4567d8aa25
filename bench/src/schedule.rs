//! When requests are due: instants fixed before the start, whatever the server does.
//!
//! A schedule is a function of rate, total and seed; it is computed as it is taken, in integers only, so that it is the
//! same on every machine. Instants are nanoseconds after the start; nothing is ever skipped.

use weir_core::rng::Rng;
use weir_core::time::NS_PER_S;

/// Where in its period a constant schedule begins, so that several schedules do not beat in step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase {
    /// Which of them this is, 0..`of`.
    pub index: u32,
    /// How many there are, 1 or more.
    pub of: u32,
}

impl Phase {
    /// A schedule that is alone.
    pub const ALONE: Self = Self { index: 0, of: 1 };
}

/// The distances between requests.
#[derive(Clone, Debug)]
enum Gaps {
    /// All alike.
    Constant(Phase),
    /// Exponential: arrivals that know nothing of each other. The sum so far, in mean gaps, with 32 binary places.
    Poisson { rng: Rng, sum_q32: u128, log2: Log2 },
}

/// A finite sequence of instants that never decreases.
#[derive(Clone, Debug)]
pub struct Schedule {
    gaps: Gaps,
    rate_per_s: u64,
    total: u64,
    taken: u64,
    next_ns: u64,
}

impl Schedule {
    /// `total` requests at exactly `rate_per_s` (1 or more): each second has that many.
    pub fn constant(rate_per_s: u64, total: u64, phase: Phase) -> Self {
        Self::new(Gaps::Constant(phase), rate_per_s, total)
    }

    /// `total` requests at `rate_per_s` (1 or more) on average, with exponential distances drawn from `seed`.
    pub fn poisson(rate_per_s: u64, total: u64, seed: u64) -> Self {
        let gaps = Gaps::Poisson {
            rng: Rng::new(seed),
            sum_q32: 0,
            log2: Log2::new(),
        };
        Self::new(gaps, rate_per_s, total)
    }

    fn new(gaps: Gaps, rate_per_s: u64, total: u64) -> Self {
        let mut schedule = Self {
            gaps,
            rate_per_s: rate_per_s.max(1),
            total,
            taken: 0,
            next_ns: 0,
        };
        schedule.advance();
        schedule
    }

    /// The next instant; `None` at the end.
    pub fn peek_ns(&self) -> Option<u64> {
        (self.taken < self.total).then_some(self.next_ns)
    }

    /// Takes the next instant.
    pub fn take_ns(&mut self) -> Option<u64> {
        let instant = self.peek_ns()?;
        self.taken += 1;
        self.advance();
        Some(instant)
    }

    /// Requests not taken yet.
    pub fn left(&self) -> u64 {
        self.total - self.taken
    }

    /// Takes all that is due before `end_ns` without giving it; how many there were.
    pub fn drop_before_ns(&mut self, end_ns: u64) -> u64 {
        let mut dropped = 0;
        while self.peek_ns().is_some_and(|at| at < end_ns) {
            self.take_ns();
            dropped += 1;
        }
        dropped
    }

    fn advance(&mut self) {
        let rate = u128::from(self.rate_per_s);
        let ns = u128::from(NS_PER_S);
        let at = match &mut self.gaps {
            // floor((n + index / of) / rate): computed from n, so that no error adds up.
            Gaps::Constant(phase) => {
                let of = u128::from(phase.of.max(1));
                (u128::from(self.taken) * of + u128::from(phase.index)) * ns / (rate * of)
            }
            Gaps::Poisson { rng, sum_q32, log2 } => {
                *sum_q32 += u128::from(exponential_q32(rng.next_u64(), log2));
                (*sum_q32 * ns / rate) >> 32
            }
        };
        self.next_ns = u64::try_from(at).unwrap_or(u64::MAX);
    }
}

/// ln 2 with 32 binary places.
const LN2_Q32: u128 = 2_977_044_472;

/// -ln(u) with 32 binary places, u = (`random` + 1) / 2^64 in (0, 1].
fn exponential_q32(random: u64, log2: &Log2) -> u64 {
    let Some(number) = random.checked_add(1) else {
        return 0; // u = 1
    };
    let minus_log2_q32 = (64 << 32) - log2.of_q32(number);
    ((u128::from(minus_log2_q32) * LN2_Q32) >> 32) as u64
}

/// Logarithms to base 2 of integers: a table of the mantissa's, straight lines between its points. Off by less than
/// 2^-26: far below what a second's worth of nanoseconds can show of a gap.
#[derive(Clone, Debug)]
struct Log2 {
    points_q32: Vec<u64>,
}

/// Table steps per octave, as a power of two.
const STEP_BITS: u32 = 12;

impl Log2 {
    fn new() -> Self {
        let steps = 1_u64 << STEP_BITS;
        let mut points_q32: Vec<u64> = (0..steps)
            .map(|step| mantissa_log2_q32((steps + step) << (63 - STEP_BITS)))
            .collect();
        points_q32.push(1 << 32);
        Self { points_q32 }
    }

    /// `number`: 1 or more.
    fn of_q32(&self, number: u64) -> u64 {
        let zeros = number.leading_zeros();
        let mantissa = number << zeros; // its highest bit is set: 1.xxx with 63 places
        let step = (mantissa << 1) >> (64 - STEP_BITS);
        let rest = (mantissa << (1 + STEP_BITS)) >> 32; // position between two points, 32 places
        let low = self.points_q32[step as usize];
        let high = self.points_q32[step as usize + 1];
        (u64::from(63 - zeros) << 32) + low + (((high - low) * rest) >> 32)
    }
}

/// log2(m / 2^63) for m in 2^63..2^64, by squaring: each doubling of the logarithm shows one more of its bits.
fn mantissa_log2_q32(mantissa: u64) -> u64 {
    let mut m = mantissa;
    (0..32).fold(0, |bits, _| {
        let square = u128::from(m) * u128::from(m);
        let over = square >> 127; // 1 when the square is 2 or more
        m = (square >> (63 + over)) as u64;
        bits << 1 | over as u64
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(schedule: &mut Schedule) -> Vec<u64> {
        let mut counts = Vec::new();
        while let Some(at) = schedule.take_ns() {
            let second = (at / NS_PER_S) as usize;
            counts.resize(counts.len().max(second + 1), 0);
            counts[second] += 1;
        }
        counts
    }

    #[test]
    fn a_constant_schedule_has_its_rate_in_every_second_whatever_the_rate() {
        for rate in [1, 3, 7, 997, 30_011, 1_000_000] {
            let mut schedule = Schedule::constant(rate, rate * 3, Phase::ALONE);
            assert_eq!(seconds(&mut schedule), [rate; 3]);
        }
        // No error adds up: the last of an hour at 27,777/s is where it belongs.
        let total = 27_777 * 3_600;
        let mut schedule = Schedule::constant(27_777, total, Phase::ALONE);
        schedule.taken = total - 1;
        schedule.advance();
        assert_eq!(
            schedule.take_ns(),
            Some((u128::from(total - 1) * 1_000_000_000 / 27_777) as u64)
        );
        assert_eq!((schedule.take_ns(), schedule.left()), (None, 0));
    }

    #[test]
    fn phases_share_a_period_evenly() {
        let firsts =
            [0, 1, 2, 3].map(|index| Schedule::constant(10, 2, Phase { index, of: 4 }).peek_ns());
        assert_eq!(firsts, [0, 25_000_000, 50_000_000, 75_000_000].map(Some));
    }

    #[test]
    fn what_is_dropped_is_counted() {
        let mut schedule = Schedule::constant(1_000, 5_000, Phase::ALONE);
        assert_eq!(schedule.drop_before_ns(NS_PER_S), 1_000);
        assert_eq!(
            (schedule.peek_ns(), schedule.left()),
            (Some(NS_PER_S), 4_000)
        );
    }

    #[test]
    fn logarithms_are_exact_at_powers_and_close_between() {
        let log2 = Log2::new();
        for power in 0..64_u64 {
            assert_eq!(log2.of_q32(1 << power), power << 32);
        }
        for number in [3_u64, 10, 12_345, 999_999_999, u64::MAX, u64::MAX / 3] {
            let wanted = (number as f64).log2() * 4_294_967_296.0;
            assert!(
                (log2.of_q32(number) as f64 - wanted).abs() < 64.0,
                "{number}"
            );
        }
        assert_eq!(exponential_q32(u64::MAX, &log2), 0);
    }

    #[test]
    fn poisson_arrivals_are_exponential_and_the_same_for_the_same_seed() {
        let (rate, total) = (1_000, 200_000);
        let mut schedule = Schedule::poisson(rate, total, 7);
        let instants: Vec<u64> = std::iter::from_fn(|| schedule.take_ns()).collect();
        assert_eq!(instants.len() as u64, total);
        let mean_ns = instants[instants.len() - 1] as f64 / total as f64;
        assert!((mean_ns / 1e6 - 1.0).abs() < 0.01, "{mean_ns}");
        let gaps = instants.windows(2).map(|pair| (pair[1] - pair[0]) as f64);
        // An exponential is above its mean e^-1 of the time, above three means e^-3.
        for (means, share) in [(1.0, 0.367_879), (3.0, 0.049_787)] {
            let above = gaps.clone().filter(|gap| *gap > means * 1e6).count() as f64;
            assert!((above / total as f64 - share).abs() < 0.005, "{above}");
        }
        let again: Vec<u64> = {
            let mut schedule = Schedule::poisson(rate, 100, 7);
            std::iter::from_fn(|| schedule.take_ns()).collect()
        };
        assert_eq!(again, instants[..100]);
        assert_ne!(Schedule::poisson(rate, 1, 8).peek_ns(), Some(instants[0]));
    }
}
