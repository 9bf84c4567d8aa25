//! What is known of keys that found no slot: a count-min sketch of debts, and one bucket that they all share (B18, B19).
//!
//! Called by the keyed table alone. Each key has one cell in each of four rows; a cell holds until when its keys are in
//! debt, and a key's debt is the least of its four. Other keys can only make it larger: a heavy key is held to its own
//! rate for sure, and a quiet newcomer is mistaken for a heavy one only when all four of its cells are shared with heavy
//! ones. Only what the shared bucket admitted is written here, so a flood fills a bounded part of the cells. The second
//! half of the shared bucket is for keys that owe at most half their burst: many heavy keys cannot take the quiet ones' share.
//! The sketch meters a key as GCRA whatever the table's kind, with its period rounded up to whole nanoseconds: strict
//! by less than one nanosecond per token. Cells are instants, so they expire without a sweep.

use super::gcra::{Bucket, Policy, Verdict};
use crate::rng::SPREAD;
use crate::time::Mono;
use alloc::boxed::Box;

/// Rows. With four, one of 10,000 newcomers is mistaken while a tenth of the cells belong to heavy keys.
const ROWS: usize = 4;
/// Slots of the table per cell of a row: the sketch takes an eighth of the table's memory.
const SLOTS_PER_CELL: usize = 16;
/// Fewest cells of a row.
const CELLS_MIN: usize = 64;

/// The sketch and its bucket.
pub(super) struct Sketch {
    shared: Bucket,
    cells: Box<[u64]>,
    token_ns: u64,
    burst: u32,
}

/// Where a key's cells are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cells([u32; ROWS]);

impl Sketch {
    /// For a table of `slots` with `policy` per key; `shared`: rate and burst of all keys in here together.
    pub(super) fn new(now: Mono, slots: usize, policy: &Policy, shared: Policy) -> Self {
        Self {
            shared: Bucket::full(shared, now),
            cells: alloc::vec![0; cells_for(slots)].into_boxed_slice(),
            token_ns: token_ns(policy),
            burst: policy.capacity(),
        }
    }

    /// The cells of a key, by its hash and its tag, each row by another multiple of the tag (Kirsch and Mitzenmacher).
    pub(super) fn cells(&self, place: u64, tag: u64) -> Cells {
        let row = self.cells.len() / ROWS;
        let step = tag | 1;
        let at = |n: usize| {
            let hash = place
                .wrapping_add(step.wrapping_mul(n as u64 + 1))
                .wrapping_mul(SPREAD);
            let cell = (u128::from(hash) * row as u128) >> 64; // below `row`
            (n * row) as u32 + cell as u32
        };
        Cells([at(0), at(1), at(2), at(3)])
    }

    /// Decides `cost` tokens of one key: by its own debt, then by the shared bucket. Writes nothing.
    pub(super) fn check(&self, now: Mono, cells: Cells, cost: u32) -> Verdict {
        if cost > self.burst {
            return Verdict::Never;
        }
        let debt = self.debt_ns(now, cells);
        let own = match self.over_ns(debt, cost) {
            _ if debt > 0 && self.token_ns == u64::MAX => Verdict::Never,
            0 => Verdict::Allow {
                remaining: self.left(debt, cost),
            },
            retry_after_ns => Verdict::Wait { retry_after_ns },
        };
        own.and(self.check_shared(now, debt, cost))
    }

    /// The shared bucket's word: a key that owes more than half its burst must leave half of it, or wait until it owes less.
    fn check_shared(&self, now: Mono, debt: u64, cost: u32) -> Verdict {
        let capacity = self.shared.policy().capacity();
        let whole = self.shared.check(now, cost);
        let loud_ns = debt.saturating_sub(self.cost_ns(self.burst / 2));
        if loud_ns == 0 || cost > capacity {
            return whole;
        }
        let reserve = (capacity / 2).min(capacity - cost);
        if self.shared.check(now, cost + reserve).is_allow() {
            return whole;
        }
        let when_quiet = match whole {
            Verdict::Allow { .. } => loud_ns,
            Verdict::Wait { retry_after_ns } => retry_after_ns.max(loud_ns),
            Verdict::Never => return whole,
        };
        let retry_after_ns = match self.shared.check(now, cost + reserve) {
            Verdict::Wait { retry_after_ns } => retry_after_ns.min(when_quiet),
            _ => when_quiet,
        };
        Verdict::Wait { retry_after_ns }
    }

    /// Charges what [`Self::check`] allowed: the shared bucket, and each cell that says less than the key's new debt.
    pub(super) fn charge(&mut self, now: Mono, cells: Cells, cost: u32) {
        let until = now
            .plus_ns(self.debt_ns(now, cells))
            .plus_ns(self.cost_ns(cost))
            .0;
        for cell in cells.0 {
            let cell = &mut self.cells[cell as usize];
            *cell = (*cell).max(until);
        }
        self.shared.take(now, cost);
    }

    /// Switches both policies; what keys owe stays as long as it was, but no longer than the new policy's longest debt.
    pub(super) fn set_policy(&mut self, now: Mono, policy: &Policy, shared: Policy) {
        self.token_ns = token_ns(policy);
        self.burst = policy.capacity();
        let longest = now.plus_ns(self.cost_ns(self.burst)).0;
        for cell in &mut self.cells {
            *cell = (*cell).min(longest);
        }
        self.shared.set_policy(now, shared);
    }

    /// Bytes of a sketch for a table of `slots`.
    pub(super) const fn bytes_for(slots: usize) -> usize {
        cells_for(slots) * size_of::<u64>()
    }

    /// Bytes; constant.
    pub(super) const fn bytes(&self) -> usize {
        self.cells.len() * size_of::<u64>()
    }

    fn debt_ns(&self, now: Mono, cells: Cells) -> u64 {
        let debts = cells
            .0
            .map(|cell| self.cells[cell as usize].saturating_sub(now.0));
        debts.into_iter().min().unwrap_or(0)
    }

    const fn cost_ns(&self, tokens: u32) -> u64 {
        self.token_ns.saturating_mul(tokens as u64)
    }

    /// Nanoseconds by which `cost` exceeds what the burst allows; 0: it fits.
    fn over_ns(&self, debt: u64, cost: u32) -> u64 {
        debt.saturating_sub(self.cost_ns(self.burst - cost))
    }

    fn left(&self, debt: u64, cost: u32) -> u32 {
        let free = self.cost_ns(self.burst - cost) - debt;
        u32::try_from(free / self.token_ns).unwrap_or(u32::MAX)
    }
}

const fn cells_for(slots: usize) -> usize {
    let row = slots / SLOTS_PER_CELL;
    ROWS * if row < CELLS_MIN { CELLS_MIN } else { row }
}

/// Nanoseconds in which one token comes back, rounded up; a rate of 0 never gives one back.
fn token_ns(policy: &Policy) -> u64 {
    policy
        .repay_ns(policy.cost_units(1))
        .unwrap_or(u64::MAX)
        .max(1)
}
