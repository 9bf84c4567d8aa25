//! In which pieces each row is sent: the same on real sockets and on simulated ones.

use super::http_rows::Row;
use weir_core::rng::Rng;

/// Rows up to here are cut in two at every place.
const CUT_EVERYWHERE_BYTES: usize = 256;
/// Longer ones are cut in so many ways.
const SEEDED_CUTS: u64 = 32;

/// One row cut at these places; the last is its end.
pub struct Job<'a> {
    pub row: &'a Row,
    pub cuts: Vec<usize>,
}

impl Job<'_> {
    /// Piece `index`.
    pub fn piece(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).map_or(0, |before| self.cuts[before]);
        &self.row.raw[start..self.cuts[index]]
    }
}

pub fn whole(rows: &[Row]) -> Vec<Job<'_>> {
    let in_one = |row| Job {
        row,
        cuts: vec![row.raw.len()],
    };
    rows.iter().map(in_one).collect()
}

pub fn bytewise(rows: &[Row]) -> Vec<Job<'_>> {
    let each_byte = |row| Job {
        row,
        cuts: (1..row.raw.len()).chain([row.raw.len()]).collect(),
    };
    rows.iter().map(each_byte).collect()
}

pub fn splits(rows: &[Row]) -> Vec<Job<'_>> {
    let mut jobs = Vec::new();
    for row in rows {
        let length = row.raw.len();
        if length <= CUT_EVERYWHERE_BYTES {
            jobs.extend((1..length).map(|cut| Job {
                row,
                cuts: vec![cut, length],
            }));
            continue;
        }
        for seed in 0..SEEDED_CUTS {
            let mut rng = Rng::new(seed << 32 | length as u64);
            let pieces = 1 + rng.below(7);
            let mut cuts: Vec<usize> = (0..pieces)
                .map(|_| 1 + rng.below(length as u64 - 1) as usize)
                .collect();
            cuts.push(length);
            cuts.sort_unstable();
            cuts.dedup();
            jobs.push(Job { row, cuts });
        }
    }
    jobs
}
