//! weir's pieces one by one, each beside what others wrote for the same work.
//!
//! A [`Scenario`] is set up once and then does the same piece of work again and again. `bin/count.rs` runs one under
//! callgrind, `benches/micro.rs` times them with criterion; `perf/instructions.sh` holds the counts to those written down.
//! Every turn of the work gives a witness (a status, a number of bytes), and whoever runs a scenario checks it: a figure
//! of the wrong path is worth nothing. Peers (httparse, jsonwebtoken, governor) are behind the feature `peers`.

mod command;
mod decisions;
mod ledger;
mod limiter;
#[cfg(feature = "peers")]
mod peers;
mod pieces;
mod requests;
#[path = "../../../src/core/tests/shard_kit/mod.rs"]
mod shard_kit;

pub use command::command_line;
pub use limiter::bytes_per_key;

use std::hint::black_box;

/// A piece of work, set up and warm.
pub trait Work {
    /// Does it once. The witness: what came out, the same each time.
    fn once(&mut self) -> u64;
    /// Makes room for [`Scenario::chunk`] more turns; is not measured.
    fn refill(&mut self) {}
}

/// One row of the tables.
pub struct Scenario {
    /// Its name on the command line and in `perf/instructions.txt`.
    pub name: &'static str,
    /// What one turn gives.
    pub witness: u64,
    /// Requests, keys or tickets in one turn.
    pub per_turn: u64,
    /// Most turns between two [`Work::refill`].
    pub chunk: u64,
    /// The scenario that is the bare MAC on the same bytes, as often as it is in one turn.
    pub mac: Option<&'static str>,
    /// Sets it up.
    pub make: fn() -> Box<dyn Work>,
}

impl Scenario {
    /// One request per turn, no MAC, for ever.
    const fn new(name: &'static str, witness: u64, make: fn() -> Box<dyn Work>) -> Self {
        Self {
            name,
            witness,
            per_turn: 1,
            chunk: u64::MAX,
            mac: None,
            make,
        }
    }

    const fn with_mac(self, mac: &'static str) -> Self {
        Self {
            mac: Some(mac),
            ..self
        }
    }

    const fn of_many(self, per_turn: u64) -> Self {
        Self { per_turn, ..self }
    }

    const fn in_chunks_of(self, chunk: u64) -> Self {
        Self { chunk, ..self }
    }

    /// True for a peer's scenario when `ours` is the name of the one of ours that it is compared with.
    pub fn stands_beside(&self, ours: &str) -> bool {
        self.name
            .split_once('/')
            .is_some_and(|(_, name)| name == ours)
    }

    /// Does the work `turns` times, at most [`Self::chunk`], with what is measured in one function of that name.
    ///
    /// # Panics
    /// When a turn did not give what it should: then the figure would be one of another path.
    pub fn run(&self, work: &mut dyn Work, turns: u64) {
        let witnesses = count_these_turns(work, turns);
        assert_eq!(
            witnesses,
            self.witness * turns,
            "{} did not do its work: {turns} turns of {} were expected",
            self.name,
            self.witness
        );
    }

    /// Does the work a few times, so that buffers have their size and tables their entries; is not counted.
    ///
    /// # Panics
    /// As [`Self::run`].
    pub fn warm(&self, work: &mut dyn Work) {
        for _ in 0..self.chunk.min(200) {
            let witness = work.once();
            assert_eq!(witness, self.witness, "{} does something else", self.name);
        }
        work.refill();
    }

    /// As [`Self::run`], and every twentieth turn does its work twice: 5 % more, for a check of whoever compares counts.
    ///
    /// # Panics
    /// As [`Self::run`].
    pub fn run_slower(&self, work: &mut dyn Work, turns: u64) {
        let witnesses = count_these_turns_slower(work, turns);
        assert_eq!(witnesses, self.witness * (turns + turns.div_ceil(20)));
    }
}

/// What callgrind counts: it starts at the entry and stops at the return (`--toggle-collect`).
#[inline(never)]
fn count_these_turns(work: &mut dyn Work, turns: u64) -> u64 {
    let mut witnesses = 0;
    for _ in 0..turns {
        witnesses += black_box(&mut *work).once();
    }
    witnesses
}

#[inline(never)]
fn count_these_turns_slower(work: &mut dyn Work, turns: u64) -> u64 {
    let mut witnesses = 0;
    for turn in 0..turns {
        witnesses += black_box(&mut *work).once();
        if turn % 20 == 0 {
            witnesses += black_box(&mut *work).once();
        }
    }
    witnesses
}

/// The loop itself; what it costs is taken off every other count.
struct Nothing;

impl Work for Nothing {
    fn once(&mut self) -> u64 {
        1
    }
}

/// Every scenario of ours, in the order of the table.
pub fn ours() -> Vec<Scenario> {
    let mut all = vec![Scenario::new("nothing", 1, || Box::new(Nothing))];
    all.extend(pieces::scenarios());
    all.extend(limiter::scenarios());
    all.extend(decisions::scenarios());
    all.extend(ledger::scenarios());
    all
}

/// Every scenario of the peers: each has the name of ours and a prefix, such as `httparse/parse-jws`.
#[cfg(feature = "peers")]
pub fn peers() -> Vec<Scenario> {
    peers::scenarios()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_does_its_work() {
        let mut names = std::collections::BTreeSet::new();
        #[cfg(feature = "peers")]
        let all = ours().into_iter().chain(peers());
        #[cfg(not(feature = "peers"))]
        let all = ours().into_iter();
        for scenario in all.filter(|scenario| !scenario.name.contains("10M")) {
            let mut work = (scenario.make)();
            for turns in [1, 40] {
                work.refill();
                scenario.run(work.as_mut(), turns);
            }
            work.refill();
            scenario.run_slower(work.as_mut(), 40);
            assert!(names.insert(scenario.name), "{} twice", scenario.name);
        }
        assert!(names.len() > 20);
        let macs = ours().into_iter().filter_map(|scenario| scenario.mac);
        assert!(macs.into_iter().all(|mac| names.contains(mac)));
    }

    #[test]
    #[should_panic(expected = "did not do its work")]
    fn a_scenario_of_another_outcome_is_found() {
        let scenario = Scenario::new("nothing", 2, || Box::new(Nothing));
        scenario.run((scenario.make)().as_mut(), 3);
    }

    #[test]
    fn a_key_costs_at_most_sixteen_bytes() {
        let (slot, sketch) = bytes_per_key();
        println!("{slot:.2} bytes a key, {sketch:.2} per slot for the sketch");
        assert!(slot <= 16.0, "{slot} bytes a key");
        assert!(sketch <= 2.01, "{sketch} bytes of the sketch per slot");
    }
}
