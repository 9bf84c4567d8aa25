//! Nanoseconds per decision of ours and of the peer that stands beside it, round by round in turn, so that what else the
//! machine does meets both. Medians of the rounds are printed, and that of the rounds' ratios.
//!
//! `times FILTER [ROUNDS [ROUND_MS]]`: every scenario of ours whose name holds the filter (`limiter-hit-admit-1M`).

use std::process::ExitCode;
use std::time::{Duration, Instant};
use weir_micro::{Scenario, Work, ours, peers};

/// Rounds unless told otherwise; odd, so that there is a median.
const ROUNDS: usize = 31;
/// A round's length unless told otherwise.
const ROUND_MS: u64 = 20;

/// One side of a comparison.
struct Side {
    scenario: Scenario,
    work: Box<dyn Work>,
    turns: u64,
    ns: Vec<f64>,
}

impl Side {
    fn new(scenario: Scenario, round: Duration) -> Self {
        let mut work = (scenario.make)();
        scenario.warm(work.as_mut());
        let most = scenario.chunk.min(1 << 24);
        let mut turns = 64.min(most);
        while turns < most && time(&scenario, work.as_mut(), turns) < round {
            turns = (2 * turns).min(most);
        }
        Self {
            scenario,
            work,
            turns,
            ns: Vec::new(),
        }
    }

    fn round(&mut self) {
        let took = time(&self.scenario, self.work.as_mut(), self.turns);
        let per = self.turns * self.scenario.per_turn;
        self.ns.push(took.as_nanos() as f64 / per as f64);
    }

    /// What was measured in each round, divided by what `other` took in the same one.
    fn ratios(&self, other: &Self) -> Vec<f64> {
        let pairs = self.ns.iter().zip(&other.ns);
        pairs.map(|(ours, theirs)| ours / theirs).collect()
    }
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

fn time(scenario: &Scenario, work: &mut dyn Work, turns: u64) -> Duration {
    work.refill();
    let start = Instant::now();
    scenario.run(work, turns);
    start.elapsed()
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u64| match words.get(at) {
        None => Some(default),
        Some(word) => word.parse::<u64>().ok().filter(|&number| number > 0),
    };
    let (Some(filter), Some(rounds), Some(round_ms)) =
        (words.first(), number(1, ROUNDS as u64), number(2, ROUND_MS))
    else {
        eprintln!("usage: times FILTER [ROUNDS [ROUND_MS]]");
        return ExitCode::from(2);
    };
    println!("scenario ours-ns peer peer-ns ours/peer");
    for scenario in ours()
        .into_iter()
        .filter(|one| one.name.contains(filter.as_str()))
    {
        let name = scenario.name;
        let beside = peers().into_iter().find(|peer| peer.stands_beside(name));
        let round = Duration::from_millis(round_ms);
        let mut weir = Side::new(scenario, round);
        let mut peer = beside.map(|peer| Side::new(peer, round));
        for _ in 0..rounds {
            weir.round();
            if let Some(peer) = &mut peer {
                peer.round();
            }
        }
        match peer {
            None => println!("{name} {:.1} - - -", median(weir.ns)),
            Some(peer) => {
                let ratio = median(weir.ratios(&peer));
                let who = peer.scenario.name;
                let (our_ns, peer_ns) = (median(weir.ns), median(peer.ns));
                println!("{name} {our_ns:.1} {who} {peer_ns:.1} {ratio:.3}");
            }
        }
    }
    ExitCode::SUCCESS
}
