//! One cache line of a keyed table: four keys' tags and debts, and what is common to them.
//!
//! Used by [`super::table`] alone. A tag is in a line once at most: whoever is not found is written over a slot without
//! debt, and whoever is found there keeps its slot, in debt or not. So looking a key up compares tags alone, all four at
//! once and without a branch on which it is; only a newcomer asks which slots are free.

use super::gcra::Policy;
use crate::time::Mono;

/// Slots of one line: four buckets of 16 bytes fill the 64 bytes that a CPU fetches at once.
pub const SLOTS_PER_LINE: usize = 4;
/// A line's base and spill mark count in 2^30 ns: 32 bits last 146 years.
const TICK_BITS: u32 = 30;
/// Units since a line's base after which the next write moves the base; leaves room for a whole debt below 2^63.
const REBASE_UNITS: u64 = 1 << 62;
/// Bits of a tag.
const TAG_MASK: u64 = (1 << 48) - 1;
/// One in each of four lanes of sixteen bits.
const LANES: u64 = 0x0001_0001_0001_0001;
/// All but the highest bit of each lane.
const LANES_LOW: u64 = 0x7FFF * LANES;

/// Tells keys of one line apart.
#[derive(Clone, Copy)]
pub(super) struct Tag(u64);

impl Tag {
    /// The lower bits of a hash; the upper ones choose the line.
    pub(super) const fn of(hash: u64) -> Self {
        Self(hash & TAG_MASK)
    }

    /// Its bits.
    pub(super) const fn bits(self) -> u64 {
        self.0
    }

    const fn high(self) -> u32 {
        (self.0 >> 16) as u32
    }

    const fn low(self) -> u16 {
        self.0 as u16
    }
}

/// Four slots. `due[i]` is when key i is out of debt, in units since `base`; at or before the present = free.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
pub(super) struct Line {
    due: [u64; SLOTS_PER_LINE],
    base_tick: u32,
    spilled_until_tick: u32,
    tag_high: [u32; SLOTS_PER_LINE],
    tag_low: [u16; SLOTS_PER_LINE],
}

const _: () = assert!(size_of::<Line>() == 64, "a line is one cache line");

/// What a newcomer finds.
pub(super) struct Room {
    /// Slots in debt.
    pub live_count: u32,
    /// One that is not.
    pub free: Option<usize>,
}

fn tick_of(now: Mono) -> u32 {
    u32::try_from(now.0 >> TICK_BITS).unwrap_or(u32::MAX)
}

impl Line {
    /// The present in units since the line's base.
    #[inline]
    pub(super) fn present(&self, now: Mono, policy: &Policy) -> u64 {
        policy.repaid(now.0.saturating_sub(u64::from(self.base_tick) << TICK_BITS))
    }

    /// What a slot owes.
    #[inline]
    pub(super) fn debt(&self, slot: usize, present: u64) -> u64 {
        self.due[slot].saturating_sub(present)
    }

    /// The slot that a key has or had last.
    #[inline]
    pub(super) fn find(&self, tag: Tag) -> Option<usize> {
        let [a, b, c, d] = self.tag_low.map(u64::from);
        let apart = (a | b << 16 | c << 32 | d << 48) ^ (u64::from(tag.low()) * LANES);
        // The highest bit of each lane that is 0: adding fills it from any lower bit, and nothing is carried on.
        let mut same = !(((apart & LANES_LOW) + LANES_LOW) | apart | LANES_LOW);
        while same != 0 {
            let slot = (same.trailing_zeros() / 16) as usize;
            if self.tag_high[slot] == tag.high() {
                return Some(slot);
            }
            same &= same - 1; // only sixteen bits were the same
        }
        None
    }

    /// How crowded the line is.
    #[inline]
    pub(super) fn room(&self, present: u64) -> Room {
        let mut room = Room {
            live_count: 0,
            free: None,
        };
        for slot in 0..SLOTS_PER_LINE {
            if self.due[slot] > present {
                room.live_count += 1;
            } else {
                room.free = Some(slot);
            }
        }
        room
    }

    /// Writes what the key in a slot owes from `now` on, which is `present` on this line.
    #[inline]
    pub(super) fn owe(&mut self, now: Mono, present: u64, policy: &Policy, slot: usize, debt: u64) {
        let mut present = present;
        if present > REBASE_UNITS {
            self.move_base(now, policy, policy, |_, debt| debt);
            present = self.present(now, policy);
        }
        self.due[slot] = present + debt; // at most 2^62 and 2^62, or 2^63 for a counter's two windows
    }

    /// Gives a slot to the key of `tag`, or leaves it to it.
    #[inline]
    pub(super) fn name(&mut self, slot: usize, tag: Tag) {
        self.tag_high[slot] = tag.high();
        self.tag_low[slot] = tag.low();
    }

    /// Counts the line from `now`'s tick on, in the units of `to`; `carry` turns a slot's debt into one of `to`.
    #[cold]
    pub(super) fn move_base(
        &mut self,
        now: Mono,
        from: &Policy,
        to: &Policy,
        mut carry: impl FnMut(usize, u64) -> u64,
    ) {
        let old_present = self.present(now, from);
        self.base_tick = tick_of(now);
        let new_present = self.present(now, to);
        for (slot, due) in self.due.iter_mut().enumerate() {
            let debt = match due.saturating_sub(old_present) {
                0 => 0,
                debt => carry(slot, debt),
            };
            *due = if debt == 0 { 0 } else { new_present + debt };
        }
    }

    /// True while keys whose home this is may live elsewhere.
    #[inline]
    pub(super) fn has_spilled(&self, now: Mono) -> bool {
        self.spilled_until_tick > tick_of(now)
    }

    /// Remembers that a key of this home lives elsewhere for `full_in_ns`.
    pub(super) fn mark_spilled(&mut self, now: Mono, full_in_ns: Option<u64>) {
        let until = full_in_ns.map_or(u32::MAX, |ns| tick_of(now.plus_ns(ns)).saturating_add(1));
        self.spilled_until_tick = self.spilled_until_tick.max(until);
    }

    /// Some of its bytes, for whoever only wants the line in the cache.
    #[inline]
    pub(super) const fn word(&self) -> u32 {
        self.base_tick
    }
}
