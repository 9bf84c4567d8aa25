//! Which part each winner plays: what it proves and how it pays, so that every kind comes up in every sale.
//!
//! Used by the story at each grant. Decided at the grant, never by answers: a whole sale may be granted in one batch,
//! before anybody's next answer is there.

use super::kinds::Kind;

/// The kinds that prove their point only with a unit in hand.
const TO_PROVE: [Kind; 5] = [
    Kind::OtherConnection,
    Kind::OtherBody,
    Kind::SecondRequest,
    Kind::Replaying,
    Kind::OverLimit,
];

/// The parts given out so far.
#[derive(Clone, Debug)]
pub struct Parts {
    stock: u64,
    winners: u64,
    payers: u64,
    won: [u64; Kind::ALL.len()],
}

/// A winner's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// What it proves.
    pub kind: Kind,
    /// How it pays.
    pub payer: Kind,
}

impl Parts {
    /// None given out; `stock` units at the opening.
    pub const fn new(stock: u64) -> Self {
        Self {
            stock,
            winners: 0,
            payers: 0,
            won: [0; Kind::ALL.len()],
        }
    }

    /// The part of the next winner, who came as `kind`. `early`: its order can be closed while the demo still waits.
    ///
    /// A kind that nobody won with so far, because those who came for it met the server's cold start, is played by an
    /// honest winner of the later half.
    pub fn next(&mut self, kind: Kind, early: bool) -> Part {
        let is_later_half = self.winners >= self.stock / 2;
        self.winners += 1;
        let missing = TO_PROVE
            .into_iter()
            .find(|&kind| self.won[kind as usize] == 0);
        let kind = match missing {
            Some(missing) if kind == Kind::Honest && is_later_half => missing,
            _ => kind,
        };
        self.won[kind as usize] += 1;
        let payer = match kind {
            // Its burst comes when the order is paid; its first answer is asked for again then.
            Kind::OverLimit | Kind::OtherConnection => Kind::Pays,
            _ => {
                let turn = self.payers;
                self.payers += 1;
                Kind::payer(turn, early)
            }
        };
        Part { kind, payer }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::rng::Rng;

    /// Who came for a kind may have lost; whatever mix wins, everything is proved, and every way to pay comes up.
    #[test]
    fn every_part_is_played_whoever_wins() {
        for seed in 0..2_000 {
            let mut rng = Rng::new(seed);
            let honest_percent = rng.below(101);
            let mut parts = Parts::new(100);
            let mut played = Vec::new();
            for _ in 0..100 {
                let came = if rng.below(100) < honest_percent {
                    Kind::Honest
                } else {
                    // Kinds of the crowd only: the first fifth of the winners may be of any.
                    Kind::of(rng.below(100), 100, seed)
                };
                let came = if came.is_refused() {
                    Kind::Honest
                } else {
                    came
                };
                let part = parts.next(came, true);
                played.extend([part.kind, part.payer]);
            }
            for kind in TO_PROVE.into_iter().chain([
                Kind::Pays,
                Kind::PaysTwice,
                Kind::PaysWrong,
                Kind::PaysLate,
                Kind::PaysNever,
            ]) {
                assert!(played.contains(&kind), "seed {seed}: nobody is {kind:?}");
            }
        }
    }

    #[test]
    fn who_came_for_a_part_plays_it_and_orders_are_not_left_open_late() {
        let mut parts = Parts::new(100);
        assert_eq!(parts.next(Kind::Replaying, true).kind, Kind::Replaying);
        assert_eq!(parts.next(Kind::Honest, true).kind, Kind::Honest);
        for _ in 0..200 {
            let part = parts.next(Kind::Honest, false);
            assert!(!matches!(part.payer, Kind::PaysNever | Kind::PaysLate));
        }
    }
}
