//! `weir sim`: its arguments. Many sales on one virtual clock, with faults drawn from a seed.

use std::ops::Range;

/// Run sales on a virtual clock with crashes, losses and delays drawn from a seed, and check every promise after every turn.
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  weir sim --seeds 0..5000 --json\n  weir sim --seed 1234 --trace\n\nThe same seed gives the same events on any machine. Exit code 1: a promise broke; the message has the line that replays it."
)]
pub struct SimArgs {
    /// All seeds from A up to, not including, B.
    #[arg(long, value_name = "A..B", value_parser = seeds, required_unless_present = "seed")]
    pub seeds: Option<Range<u64>>,
    /// One seed.
    #[arg(long, value_name = "N", conflicts_with = "seeds")]
    pub seed: Option<u64>,
    /// Print every event of the one seed.
    #[arg(long, requires = "seed", conflicts_with_all = ["json", "seeds"])]
    pub trace: bool,
    /// End with one JSON object on the last line.
    #[arg(long)]
    pub json: bool,
}

/// Reads `A..B` with A < B.
fn seeds(text: &str) -> Result<Range<u64>, String> {
    let wrong = || format!("{text:?} is not A..B with A below B, such as 0..5000");
    let (from, to) = text.split_once("..").ok_or_else(wrong)?;
    let (from, to) = (
        from.parse().map_err(|_| wrong())?,
        to.parse().map_err(|_| wrong())?,
    );
    if from < to {
        Ok(from..to)
    } else {
        Err(wrong())
    }
}

impl SimArgs {
    /// The seeds to run.
    pub fn range(&self) -> Range<u64> {
        let one = self.seed.map(|seed| seed..seed.saturating_add(1));
        one.or_else(|| self.seeds.clone()).unwrap_or(0..0) // clap wants one of them
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct One {
        #[command(flatten)]
        args: SimArgs,
    }

    fn read(line: &str) -> Result<Range<u64>, clap::Error> {
        One::try_parse_from(line.split(' ')).map(|one| one.args.range())
    }

    #[test]
    fn seeds_are_a_range_or_one() {
        assert_eq!(read("sim --seeds 0..5000 --json").unwrap(), 0..5000);
        assert_eq!(read("sim --seed 7 --trace").unwrap(), 7..8);
        for bad in [
            "sim",
            "sim --seeds 5..5",
            "sim --seeds 5",
            "sim --seeds a..b",
            "sim --seed 1 --seeds 0..2",
            "sim --seeds 0..2 --trace",
            "sim --trace",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
