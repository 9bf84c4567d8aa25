//! A latency histogram: 3 digits, 1 µs to 60 s, and its summary.
//!
//! Used by the bench's report and by the demo's. Percentiles are read, never averaged.

use hdrhistogram::Histogram;
use serde::Serialize;

/// Latency, recorded in microseconds.
#[derive(Clone, Debug)]
pub struct Latency {
    histogram: Histogram<u64>,
}

/// Longest latency that is told apart, microseconds; longer ones count as this.
pub const LATENCY_US_MAX: u64 = 60_000_000;
/// Significant digits: one part in a thousand is finer than any two runs agree.
const DIGITS: u8 = 3;

/// What a histogram says, microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LatencySummary {
    /// Values recorded.
    pub count: u64,
    /// Smallest.
    pub min: u64,
    /// Half are at or below.
    pub p50: u64,
    /// 90 %.
    pub p90: u64,
    /// 99 %.
    pub p99: u64,
    /// 99.9 %.
    pub p999: u64,
    /// 99.99 %.
    pub p9999: u64,
    /// Largest.
    pub max: u64,
}

impl Latency {
    /// Empty; all memory (about 200 KiB) is taken now.
    pub fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, LATENCY_US_MAX, DIGITS)
            .expect("the bounds are constants that fit");
        Self { histogram }
    }

    /// Counts one latency; under 1 µs counts as 1 µs, over 60 s as 60 s.
    pub fn record_ns(&mut self, ns: u64) {
        self.histogram
            .saturating_record((ns / 1_000).clamp(1, LATENCY_US_MAX));
    }

    /// Adds all that `other` counted.
    pub fn add(&mut self, other: &Self) {
        self.histogram
            .add(&other.histogram)
            .expect("both have the same bounds");
    }

    /// Values recorded.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The latency, in microseconds, that `ppm` of a million values do not exceed; 0 when empty.
    pub fn at_ppm_us(&self, ppm: u32) -> u64 {
        if self.histogram.is_empty() {
            return 0;
        }
        self.histogram
            .value_at_quantile(f64::from(ppm) / 1_000_000.0)
            .min(self.histogram.max())
    }

    /// The usual percentiles.
    pub fn summary(&self) -> LatencySummary {
        if self.histogram.is_empty() {
            return LatencySummary::default();
        }
        LatencySummary {
            count: self.histogram.len(),
            min: self.histogram.min(),
            p50: self.at_ppm_us(500_000),
            p90: self.at_ppm_us(900_000),
            p99: self.at_ppm_us(990_000),
            p999: self.at_ppm_us(999_000),
            p9999: self.at_ppm_us(999_900),
            max: self.histogram.max(),
        }
    }

    /// Rows of (upper edge in microseconds, values up to it and above the row before), edges doubling from 1 µs; from
    /// the first to the last row with a value.
    pub fn doublings(&self) -> Vec<(u64, u64)> {
        let mut rows: Vec<(u64, u64)> = Vec::new();
        let mut low = 0;
        for bits in 0..=26 {
            let high = (1 << bits).min(LATENCY_US_MAX);
            let count: u64 = self
                .histogram
                .iter_recorded()
                .filter(|value| {
                    // The middle of a bucket decides where it belongs.
                    let middle = self.histogram.lowest_equivalent(value.value_iterated_to());
                    middle > low && middle <= high
                })
                .map(|value| value.count_at_value())
                .sum();
            if count > 0 || !rows.is_empty() {
                rows.push((high, count));
            }
            low = high;
        }
        while rows.last().is_some_and(|&(_, count)| count == 0) {
            rows.pop();
        }
        rows
    }

    /// [`Self::doublings`] as lines of text with bars of at most `bar_chars` characters; empty when nothing was recorded.
    pub fn picture(&self, bar_chars: usize) -> String {
        let rows = self.doublings();
        let most = rows.iter().map(|&(_, count)| count).max().unwrap_or(1);
        let mut text = String::new();
        for (high_us, count) in rows {
            let filled = (u128::from(count) * bar_chars as u128).div_ceil(u128::from(most));
            let bar = "█".repeat(filled as usize);
            let line = format!("  ≤ {:>9}  {count:>10}  {bar}", show_us(high_us));
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

impl Default for Latency {
    fn default() -> Self {
        Self::new()
    }
}

/// Microseconds for people: `850 µs`, `12.3 ms`, `4.10 s`.
pub fn show_us(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} µs"),
        1_000..1_000_000 => format!("{}.{} ms", us / 1_000, us % 1_000 / 100),
        _ => format!("{}.{:02} s", us / 1_000_000, us % 1_000_000 / 10_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_values_within_a_part_in_a_thousand() {
        let mut latency = Latency::new();
        for us in 1..=10_000_u64 {
            latency.record_ns(us * 1_000 + 999);
        }
        let summary = latency.summary();
        assert_eq!((summary.count, summary.min), (10_000, 1));
        for (found, wanted) in [
            (summary.p50, 5_000),
            (summary.p90, 9_000),
            (summary.p99, 9_900),
            (summary.p999, 9_990),
            (summary.max, 10_000),
        ] {
            assert!(
                found.abs_diff(wanted) * 1_000 <= wanted,
                "{found} for {wanted}"
            );
        }
        let rows = latency.doublings();
        assert_eq!(rows.iter().map(|row| row.1).sum::<u64>(), 10_000);
        assert_eq!(rows[..3], [(1, 1), (2, 1), (4, 2)]);
        assert_eq!(latency.picture(10).lines().count(), rows.len());
    }

    #[test]
    fn what_is_outside_the_range_counts_at_its_edge() {
        let mut latency = Latency::new();
        assert_eq!((latency.summary(), latency.picture(5)), Default::default());
        latency.record_ns(0);
        latency.record_ns(u64::MAX);
        let mut both = Latency::new();
        both.add(&latency);
        let summary = both.summary();
        assert_eq!((summary.count, summary.min), (2, 1));
        assert!(summary.max.abs_diff(LATENCY_US_MAX) * 1_000 <= LATENCY_US_MAX);
        assert_eq!(both.doublings().iter().map(|row| row.1).sum::<u64>(), 2);
    }

    #[test]
    fn times_read_well() {
        for (us, text) in [
            (999, "999 µs"),
            (1_000, "1.0 ms"),
            (12_345, "12.3 ms"),
            (4_100_000, "4.10 s"),
        ] {
            assert_eq!(show_us(us), text);
        }
    }
}
