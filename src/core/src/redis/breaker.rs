//! A circuit breaker: a dependency that mostly fails is left alone for a while, then tried by one ask at a time (J4).
//!
//! Used by the desk, one per node. Closed: everything passes, results are counted in a sliding window. Open: nothing
//! passes for [`Policy::open_ms`]. Half open: one probe at a time; several successes in a row close it, one failure
//! opens it again. A probe without a result within its deadline is a failure, so a breaker cannot wait for ever.

use crate::time::{Mono, NS_PER_MS};

/// Parts of the window: results age by a tenth of it at a time.
const PARTS: usize = 10;

/// When a breaker opens and closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Results count for so long; 10..=600,000 ms.
    pub window_ms: u64,
    /// Fewer results than this in the window decide nothing; at least 1.
    pub samples_min: u32,
    /// It opens when so many of a hundred results, or more, are failures; 1..=100.
    pub failures_percent: u32,
    /// It stays open for so long; 1..=600,000 ms.
    pub open_ms: u64,
    /// A probe has failed after so long; 1..=60,000 ms.
    pub probe_ms: u64,
    /// It closes after so many successful probes in a row; at least 1.
    pub successes_to_close: u32,
}

impl Default for Policy {
    /// Half of at least 20 results within a second fail: open for half a second, then three probes of 250 ms.
    fn default() -> Self {
        Self {
            window_ms: 1_000,
            samples_min: 20,
            failures_percent: 50,
            open_ms: 500,
            probe_ms: 250,
            successes_to_close: 3,
        }
    }
}

/// What a breaker lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// It passes, and its result counts.
    Pass,
    /// It passes as the probe.
    Probe,
    /// It does not pass.
    Refuse,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    Open {
        until: Mono,
    },
    HalfOpen {
        probe_due: Option<Mono>,
        successes: u32,
    },
}

#[derive(Clone, Copy, Debug, Default)]
struct Part {
    /// Which part of time it counts.
    number: u64,
    good: u32,
    bad: u32,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Breaker {
    policy: Policy,
    state: State,
    parts: [Part; PARTS],
    opened_count: u64,
}

impl Breaker {
    /// A closed breaker.
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            state: State::Closed,
            parts: [Part::default(); PARTS],
            opened_count: 0,
        }
    }

    /// True while nothing but probes passes.
    pub fn is_open(&self) -> bool {
        self.state != State::Closed
    }

    /// How often it has opened.
    pub fn opened_count(&self) -> u64 {
        self.opened_count
    }

    /// True when [`Self::gate`] would let something pass.
    pub fn would_pass(&self, now: Mono) -> bool {
        match self.state {
            State::Closed => true,
            State::Open { until } => until <= now,
            State::HalfOpen { probe_due, .. } => probe_due.is_none(),
        }
    }

    /// Whether one more ask passes. A [`Gate::Probe`] is taken: its result must be told.
    pub fn gate(&mut self, now: Mono) -> Gate {
        match self.state {
            State::Closed => return Gate::Pass,
            State::Open { until } if now < until => return Gate::Refuse,
            State::HalfOpen {
                probe_due: Some(due),
                ..
            } if now < due => return Gate::Refuse,
            State::HalfOpen {
                probe_due: Some(_), ..
            } => {
                self.open(now); // no answer is a failure
                return Gate::Refuse;
            }
            State::Open { .. }
            | State::HalfOpen {
                probe_due: None, ..
            } => {}
        }
        let successes = match self.state {
            State::HalfOpen { successes, .. } => successes,
            _ => 0,
        };
        self.state = State::HalfOpen {
            probe_due: Some(now.plus_ms(self.policy.probe_ms)),
            successes,
        };
        Gate::Probe
    }

    /// A result came, or was waited for in vain (`is_good` false).
    pub fn heard(&mut self, now: Mono, is_good: bool) {
        match self.state {
            State::Closed => self.count(now, is_good),
            // Results of what passed before it opened; the probes decide now.
            State::Open { .. }
            | State::HalfOpen {
                probe_due: None, ..
            } => {}
            State::HalfOpen { .. } if !is_good => self.open(now),
            State::HalfOpen { successes, .. }
                if successes + 1 >= self.policy.successes_to_close =>
            {
                self.state = State::Closed;
                self.parts = [Part::default(); PARTS];
            }
            State::HalfOpen { successes, .. } => {
                self.state = State::HalfOpen {
                    probe_due: None,
                    successes: successes + 1,
                };
            }
        }
    }

    fn open(&mut self, now: Mono) {
        self.opened_count += 1;
        self.state = State::Open {
            until: now.plus_ms(self.policy.open_ms),
        };
    }

    fn count(&mut self, now: Mono, is_good: bool) {
        let part_ns = (self.policy.window_ms * NS_PER_MS / PARTS as u64).max(1);
        let number = now.0 / part_ns;
        let part = &mut self.parts[(number % PARTS as u64) as usize];
        if part.number != number {
            *part = Part {
                number,
                ..Part::default()
            };
        }
        part.good = part.good.saturating_add(u32::from(is_good));
        part.bad = part.bad.saturating_add(u32::from(!is_good));
        let oldest = (number + 1).saturating_sub(PARTS as u64);
        let recent = self.parts.iter().filter(|part| part.number >= oldest);
        let (good, bad) = recent.fold((0_u64, 0_u64), |(good, bad), part| {
            (good + u64::from(part.good), bad + u64::from(part.bad))
        });
        let is_enough = good + bad >= u64::from(self.policy.samples_min);
        if is_enough && bad * 100 >= (good + bad) * u64::from(self.policy.failures_percent) {
            self.open(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: Policy = Policy {
        window_ms: 1_000,
        samples_min: 4,
        failures_percent: 50,
        open_ms: 500,
        probe_ms: 100,
        successes_to_close: 2,
    };

    fn at(ms: u64) -> Mono {
        Mono(0).plus_ms(ms)
    }

    fn opened() -> Breaker {
        let mut breaker = Breaker::new(POLICY);
        (0..4).for_each(|ms| breaker.heard(at(ms), false));
        assert!(breaker.is_open());
        breaker
    }

    #[test]
    fn few_results_and_a_minority_of_failures_open_nothing() {
        let mut breaker = Breaker::new(POLICY);
        (0..3).for_each(|ms| breaker.heard(at(ms), false));
        assert_eq!(breaker.gate(at(3)), Gate::Pass);
        let mut breaker = Breaker::new(POLICY);
        (0..100).for_each(|ms| breaker.heard(at(ms), ms % 5 != 0));
        assert_eq!(breaker.gate(at(100)), Gate::Pass);
    }

    #[test]
    fn old_failures_do_not_count() {
        let mut breaker = Breaker::new(POLICY);
        (0..3).for_each(|ms| breaker.heard(at(ms), false));
        breaker.heard(at(1_100), false);
        assert_eq!(breaker.gate(at(1_101)), Gate::Pass);
        breaker.heard(at(1_102), true);
        breaker.heard(at(1_103), false);
        breaker.heard(at(1_104), false);
        assert_eq!(breaker.gate(at(1_105)), Gate::Refuse);
    }

    #[test]
    fn an_open_breaker_is_probed_by_one_ask_at_a_time_and_closes_after_several_successes() {
        let mut breaker = opened();
        assert_eq!(breaker.gate(at(500)), Gate::Refuse);
        assert!(!breaker.would_pass(at(500)) && breaker.would_pass(at(504)));
        assert_eq!(breaker.gate(at(504)), Gate::Probe);
        assert!(!breaker.would_pass(at(505)));
        assert_eq!(breaker.gate(at(505)), Gate::Refuse);
        breaker.heard(at(510), true);
        assert_eq!(breaker.gate(at(511)), Gate::Probe);
        breaker.heard(at(512), true);
        assert_eq!(breaker.gate(at(513)), Gate::Pass);
        assert_eq!(breaker.opened_count(), 1);
    }

    #[test]
    fn a_failed_probe_and_one_without_an_answer_open_it_again() {
        let mut breaker = opened();
        assert_eq!(breaker.gate(at(504)), Gate::Probe);
        breaker.heard(at(510), false);
        assert_eq!(breaker.gate(at(1_009)), Gate::Refuse);
        assert_eq!(breaker.gate(at(1_010)), Gate::Probe);
        assert_eq!(breaker.gate(at(1_110)), Gate::Refuse); // it opens: the probe was not answered in 100 ms
        assert_eq!(breaker.gate(at(1_609)), Gate::Refuse);
        assert_eq!(breaker.gate(at(1_610)), Gate::Probe);
        assert_eq!(breaker.opened_count(), 3);
    }
}
