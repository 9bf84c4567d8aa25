//! Deadlines of connections: one hashed wheel, re-armed lazily.
//!
//! Used by [`super::conns`]. A conn's true deadline lives in the conn; the wheel only says "look at this slot now".
//! Invariant: exactly one entry per slot of the driver at most, so moving a deadline costs nothing: every deadline lies
//! at least [`ARM_AHEAD_MS`] ahead when it is set, and no slot is armed further ahead than that.

use crate::time::{Mono, NS_PER_MS};
use alloc::vec;
use alloc::vec::Vec;

/// Deadlines are met with this precision: late by up to one step, never early.
const STEP_NS: u64 = 8 * NS_PER_MS;
/// Steps of one round, 2 s: above [`ARM_AHEAD_MS`].
const STEPS: u64 = 256;
/// Every armed slot is looked at after this time at the latest; also the shortest time that a deadline may have.
pub const ARM_AHEAD_MS: u64 = 1_000;
const END: u32 = u32::MAX;
const NOT_ARMED: u32 = u32::MAX - 1;

/// See the module.
#[derive(Debug)]
pub struct Wheel {
    /// First slot of each step's list.
    heads: Vec<u32>,
    /// Per slot: the next one in its list, [`END`] or [`NOT_ARMED`].
    next: Vec<u32>,
    /// The step that is looked at next, counted from time 0.
    cursor: u64,
    /// The first step that has a slot; `u64::MAX` when nothing is armed.
    earliest: u64,
    armed_count: usize,
}

impl Wheel {
    /// `slots_max`: the driver's slots.
    pub fn new(now: Mono, slots_max: usize) -> Self {
        Self {
            heads: vec![END; STEPS as usize],
            next: vec![NOT_ARMED; slots_max],
            cursor: now.0 / STEP_NS,
            earliest: u64::MAX,
            armed_count: 0,
        }
    }

    /// Looks at `slot` at `due`, or after [`ARM_AHEAD_MS`] when that is sooner. An armed slot stays as it is.
    pub fn arm(&mut self, now: Mono, slot: u32, due: Mono) {
        if self.next[slot as usize] != NOT_ARMED {
            return;
        }
        let at = due.min(now.plus_ms(ARM_AHEAD_MS));
        // Rounded up: not before its time. Not before the cursor: earlier steps have been emptied.
        let step = at.0.div_ceil(STEP_NS).max(self.cursor);
        let head = &mut self.heads[(step % STEPS) as usize];
        self.next[slot as usize] = *head;
        *head = slot;
        self.earliest = self.earliest.min(step);
        self.armed_count += 1;
    }

    /// Takes every slot that is due at `now` into `due`; they are no longer armed.
    pub fn expire(&mut self, now: Mono, due: &mut Vec<u32>) {
        let last = now.0 / STEP_NS;
        if self.earliest <= last {
            // After a long pause one round is enough: each list is emptied once.
            for step in self.cursor.max(last.saturating_sub(STEPS - 1))..=last {
                let mut slot = core::mem::replace(&mut self.heads[(step % STEPS) as usize], END);
                while slot != END {
                    due.push(slot);
                    self.armed_count -= 1;
                    slot = core::mem::replace(&mut self.next[slot as usize], NOT_ARMED);
                }
            }
        }
        self.cursor = self.cursor.max(last + 1);
        self.earliest = match self.armed_count {
            0 => u64::MAX,
            _ => (self.cursor..self.cursor + STEPS)
                .find(|step| self.heads[(step % STEPS) as usize] != END)
                .expect("an armed slot lies in one of the steps ahead"),
        };
    }

    /// When [`Self::expire`] should be called next; `None` while nothing is armed.
    pub fn next_look(&self) -> Option<Mono> {
        (self.armed_count > 0).then(|| Mono(self.earliest * STEP_NS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn every_slot_comes_once_not_early_and_within_a_step() {
        let mut rng = Rng::new(3);
        let start = Mono(5_000_000_003);
        let mut wheel = Wheel::new(start, 1000);
        let mut at: Vec<Mono> = (0..1000)
            .map(|_| start.plus_ms(rng.below(ARM_AHEAD_MS)))
            .collect();
        for (slot, &instant) in (0..).zip(&at) {
            wheel.arm(start, slot, instant);
            wheel.arm(start, slot, start.plus_ms(ARM_AHEAD_MS)); // armed already: no second entry
        }
        let (mut now, mut seen, mut due) = (start, 0, Vec::new());
        while let Some(next) = wheel.next_look() {
            assert!(next >= now);
            now = next;
            due.clear();
            wheel.expire(now, &mut due);
            for &slot in &due {
                let instant = core::mem::replace(&mut at[slot as usize], Mono(u64::MAX));
                assert!(
                    instant <= now && now.since(instant) <= STEP_NS,
                    "{instant:?} at {now:?}"
                );
                seen += 1;
            }
        }
        assert_eq!(seen, 1000);
    }

    #[test]
    fn a_long_pause_loses_nothing() {
        let mut wheel = Wheel::new(Mono(0), 4);
        wheel.arm(Mono(0), 1, Mono(0).plus_ms(100));
        wheel.arm(Mono(0), 2, Mono(0).plus_ms(999));
        let mut due = Vec::new();
        wheel.expire(Mono(0).plus_ms(3_600_000), &mut due);
        assert_eq!(due.len(), 2);
        assert_eq!(wheel.next_look(), None);
    }
}
