//! Counts of one run while it goes on: fixed arrays, nothing allocated per request.
//!
//! Filled by the load, turned into a report at the end.

use crate::client::{Answer, BadAnswer, Failure};
use crate::latency::Latency;
use std::collections::BTreeMap;
use weir_proto::answer::Code;

/// Statuses run from 200 to 599.
const STATUSES: usize = 600;
/// Every failure, so that each has a counter.
const FAILURES: [Failure; 12] = [
    Failure::Reset,
    Failure::Closed,
    Failure::TimedOut,
    Failure::Bad(BadAnswer::StatusLine),
    Failure::Bad(BadAnswer::HeaderLine),
    Failure::Bad(BadAnswer::Length),
    Failure::Bad(BadAnswer::TransferEncoding),
    Failure::Bad(BadAnswer::TooLong),
    Failure::Bad(BadAnswer::Unasked),
    Failure::Unread,
    Failure::LostWithLane,
    Failure::NotSent,
];

/// Counts of the requests of one kind.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Requests given to the engine.
    pub given: u64,
    /// Requests answered.
    pub answered: u64,
    /// Requests that ended without an answer.
    pub failed: u64,
    /// From the scheduled instant to the answer.
    pub latency: Latency,
    statuses: Vec<u64>,
    codes: Vec<u64>,
    failures: [u64; FAILURES.len()],
}

impl Tally {
    /// All zero.
    pub fn new() -> Self {
        Self {
            given: 0,
            answered: 0,
            failed: 0,
            latency: Latency::new(),
            statuses: vec![0; STATUSES],
            codes: vec![0; Code::ALL.len()],
            failures: [0; FAILURES.len()],
        }
    }

    /// Counts an answer; its latency only when `measured`.
    pub fn answer(&mut self, answer: &Answer<'_>, latency_ns: u64, measured: bool) {
        self.answered += 1;
        if let Some(count) = self.statuses.get_mut(usize::from(answer.status)) {
            *count += 1;
        }
        if let Some(code) = answer.code() {
            self.codes[code as usize] += 1;
        }
        if measured {
            self.latency.record_ns(latency_ns);
        }
    }

    /// Counts a request without an answer.
    pub fn failure(&mut self, failure: Failure) {
        self.failed += 1;
        let index = FAILURES.iter().position(|known| *known == failure);
        self.failures[index.expect("FAILURES names every failure")] += 1;
    }

    /// Adds what `other` counted.
    pub fn add(&mut self, other: &Self) {
        self.given += other.given;
        self.answered += other.answered;
        self.failed += other.failed;
        self.latency.add(&other.latency);
        for (mine, theirs) in [
            (&mut self.statuses[..], &other.statuses[..]),
            (&mut self.codes, &other.codes),
            (&mut self.failures, &other.failures),
        ] {
            for (mine, theirs) in mine.iter_mut().zip(theirs) {
                *mine += theirs;
            }
        }
    }

    /// Answers by status, those that came.
    pub fn by_status(&self) -> BTreeMap<String, u64> {
        named(
            self.statuses
                .iter()
                .enumerate()
                .map(|(status, count)| (status.to_string(), *count)),
        )
    }

    /// Answers by code, those that came.
    pub fn by_code(&self) -> BTreeMap<String, u64> {
        named(
            Code::ALL
                .iter()
                .map(|code| code.as_str().into())
                .zip(self.codes.iter().copied()),
        )
    }

    /// Requests without an answer, by cause.
    pub fn by_failure(&self) -> BTreeMap<String, u64> {
        named(
            FAILURES
                .iter()
                .map(|failure| failure.as_str().into())
                .zip(self.failures),
        )
    }
}

impl Default for Tally {
    fn default() -> Self {
        Self::new()
    }
}

fn named(counts: impl Iterator<Item = (String, u64)>) -> BTreeMap<String, u64> {
    counts.filter(|(_, count)| *count > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_and_failures_are_counted_by_name_and_sums_add_up() {
        let mut tally = Tally::new();
        let body = b"{\"code\":\"RATE_LIMITED\"}";
        for (status, body) in [(429, body.as_slice()), (200, b"plain")] {
            let answer = Answer {
                status,
                retry_after_s: None,
                body,
            };
            tally.answer(&answer, 5_000_000, status == 200);
        }
        for failure in FAILURES {
            tally.failure(failure);
        }
        let mut both = Tally::new();
        both.add(&tally);
        both.add(&tally);
        assert_eq!(
            (both.answered, both.failed, both.latency.count()),
            (4, 24, 2)
        );
        assert_eq!(
            both.by_status(),
            [("200".into(), 2), ("429".into(), 2)].into()
        );
        assert_eq!(both.by_code(), [("RATE_LIMITED".into(), 2)].into());
        assert_eq!(
            both.by_failure().len(),
            FAILURES.len(),
            "every name is its own"
        );
    }
}
