//! A keyed limit in a table of fixed size: 16 bytes per key and the words of its [`Kind`], no sweep, no growth.
//!
//! Called by the admission pipeline of one shard for users, devices, IP prefixes and status queries. A key lives in its
//! home line (one cache line), or, when that was crowded at its arrival, in one other line; a line knows until when
//! keys of its own live elsewhere, so only then are two lines read. A key without debt is a free slot.
//! Measured (tests): at 50 % load under 0.1 % of the keys find no slot, at 70 % under 1 %; with home lines only
//! it would be 4 % and 9 %. Keys without a slot are metered by [`super::sketch`]: each held to its own rate, all together
//! to the overflow policy; never unlimited, never all refused (B19).
//! **Split over N shards**, each with [`Policy::split`]: a key gets at most N times its kind's bursts and rate × time in
//! all. The line says so many bits of the 64 of the hash, the slot 48: in a table of 2^24 slots two keys share one with
//! probability 2^-39 per lookup; the hash is keyed, so nobody can aim at a line or a key.

use super::gcra::{Level, Policy, PolicyError, Verdict};
use super::rule::{Decision, Kind, Rule};
use super::sketch::Sketch;
use crate::rng::SPREAD;
use crate::time::Mono;
use alloc::boxed::Box;
use core::hash::Hasher;
use siphasher::sip::SipHasher13;

/// Slots of one line: four buckets of 16 bytes fill the 64 bytes that a CPU fetches at once.
pub const SLOTS_PER_LINE: usize = 4;
/// Live slots from which a newcomer also looks at its other line and takes the emptier one.
const CROWDED: u32 = 3;
/// A line's base and spill mark count in 2^30 ns: 32 bits last 146 years.
const TICK_BITS: u32 = 30;
/// Units since a line's base after which the next write moves the base; leaves room for a whole debt below 2^63.
const REBASE_UNITS: u64 = 1 << 62;
const TAG_MASK: u64 = (1 << 48) - 1;

/// A key's keyed hash; made once per request by [`KeyedLimiter::key`], valid only for that table.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key {
    hash: u64,
}

impl Key {
    /// Chooses the home line by its upper bits.
    const fn place(self) -> u64 {
        self.hash
    }

    /// Tells keys of one line apart.
    const fn tag(self) -> u64 {
        self.hash & TAG_MASK
    }
}

impl core::fmt::Debug for Key {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Key(hidden)")
    }
}

/// What a table is made of.
#[derive(Clone, Copy)]
pub struct TableSpec {
    /// Slots, rounded up to whole lines; 1..=2^34. Twice the keys expected to be short of full at one time is a good size.
    pub slots: usize,
    /// How each key is limited.
    pub rule: Rule,
    /// Rate and burst of all keys together that found no slot.
    pub overflow: Policy,
    /// Secret of the hash; drawn at start, different for each table.
    pub secret: [u8; 16],
}

/// Four slots. `due[i]` is when key i is out of debt, in units since `base`; at or before the present = free.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Line {
    due: [u64; SLOTS_PER_LINE],
    base_tick: u32,
    spilled_until_tick: u32,
    tag_high: [u32; SLOTS_PER_LINE],
    tag_low: [u16; SLOTS_PER_LINE],
}

const _: () = assert!(size_of::<Line>() == 64, "a line is one cache line");

struct Scan {
    hit: Option<(usize, u64)>,
    free: Option<usize>,
    live_count: u32,
}

fn tick_of(now: Mono) -> u32 {
    u32::try_from(now.0 >> TICK_BITS).unwrap_or(u32::MAX)
}

impl Line {
    fn present(&self, now: Mono, policy: &Policy) -> u64 {
        policy.repaid(now.0.saturating_sub(u64::from(self.base_tick) << TICK_BITS))
    }

    fn scan(&self, now: Mono, policy: &Policy, tag: u64) -> Scan {
        let present = self.present(now, policy);
        let mut scan = Scan {
            hit: None,
            free: None,
            live_count: 0,
        };
        for slot in 0..SLOTS_PER_LINE {
            let debt = self.due[slot].saturating_sub(present);
            if debt == 0 {
                scan.free = Some(slot);
                continue;
            }
            scan.live_count += 1;
            if self.tag_high[slot] == (tag >> 16) as u32 && self.tag_low[slot] == tag as u16 {
                scan.hit = Some((slot, debt));
            }
        }
        scan
    }

    fn write(&mut self, now: Mono, policy: &Policy, slot: usize, tag: u64, debt: u64) {
        if self.present(now, policy) > REBASE_UNITS {
            self.move_base(now, policy, policy, |_, debt| debt);
        }
        self.due[slot] = self.present(now, policy) + debt; // at most 2^62 and 2^62, or 2^63 for a counter's two windows
        self.tag_high[slot] = (tag >> 16) as u32;
        self.tag_low[slot] = tag as u16;
    }

    /// Counts the line from `now`'s tick on, in the units of `to`; `carry` turns a slot's debt into one of `to`.
    fn move_base(
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

    fn has_spilled(&self, now: Mono) -> bool {
        self.spilled_until_tick > tick_of(now)
    }

    /// Remembers that a key of this home lives elsewhere for `full_in_ns`.
    fn mark_spilled(&mut self, now: Mono, full_in_ns: Option<u64>) {
        let until = full_in_ns.map_or(u32::MAX, |ns| tick_of(now.plus_ns(ns)).saturating_add(1));
        self.spilled_until_tick = self.spilled_until_tick.max(until);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Slot { line: u32, slot: u8 },
    Overflow,
}

/// A decision that has charged nothing yet; plain data. Charge it with [`KeyedLimiter::charge`] before the table is written again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// What the limit says.
    pub verdict: Verdict,
    /// For an admitted caller of a leaky bucket: nanoseconds until its turn ([`Decision::pace_ns`]).
    pub pace_ns: u64,
    key: Key,
    now: Mono,
    cost: u32,
    place: Place,
    debt: u64,
    writes_count: u64,
}

impl Probe {
    /// True when the key found no slot and the sketch and the shared bucket decided.
    pub fn is_overflow(&self) -> bool {
        self.place == Place::Overflow
    }
}

/// The table.
pub struct KeyedLimiter {
    rule: Rule,
    sketch: Sketch,
    hasher: SipHasher13,
    lines: Box<[Line]>,
    /// Words of each slot beside its debt, `words_each` per slot.
    words: Box<[u64]>,
    words_each: usize,
    last: Mono,
    writes_count: u64,
    overflow_total: u64,
}

impl core::fmt::Debug for KeyedLimiter {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("KeyedLimiter")
            .field("lines", &self.lines.len())
            .field("rule", &self.rule)
            .finish_non_exhaustive()
    }
}

impl KeyedLimiter {
    /// A table without keys; allocates [`Self::bytes`] once, and never again.
    pub fn new(now: Mono, spec: &TableSpec) -> Self {
        assert!(
            (1..=1 << 34).contains(&spec.slots),
            "slots of a keyed limit must be 1..=2^34"
        );
        let lines = spec.slots.div_ceil(SLOTS_PER_LINE);
        let policy = spec.rule.policy();
        let words_each = spec.rule.kind().words(policy.capacity());
        Self {
            rule: spec.rule,
            sketch: Sketch::new(now, lines * SLOTS_PER_LINE, policy, spec.overflow),
            hasher: SipHasher13::new_with_key(&spec.secret),
            lines: alloc::vec![Line::default(); lines].into_boxed_slice(),
            words: alloc::vec![0; lines * SLOTS_PER_LINE * words_each].into_boxed_slice(),
            words_each,
            last: now,
            writes_count: 0,
            overflow_total: 0,
        }
    }

    /// The key of some bytes (a user id, a device hash, an address prefix).
    pub fn key(&self, bytes: &[u8]) -> Key {
        let mut hasher = self.hasher;
        hasher.write(bytes);
        Key {
            hash: hasher.finish(),
        }
    }

    /// Decides `cost` tokens for `key`, charges nothing, and says where the charge would go.
    ///
    /// A `now` before the last charge counts as that charge's instant (B02).
    pub fn probe(&mut self, now: Mono, key: Key, cost: u32) -> Probe {
        let now = now.max(self.last);
        let (place, debt) = self.locate(now, key);
        let Decision { verdict, pace_ns } = match place {
            Place::Slot { line, slot } => {
                let words = &self.words[self.words_of(line, slot)];
                self.rule.decide(now, debt, words, cost)
            }
            Place::Overflow => {
                self.overflow_total += 1;
                let cells = self.sketch.cells(key.place(), key.tag());
                Decision {
                    verdict: self.sketch.check(now, cells, cost),
                    pace_ns: 0,
                }
            }
        };
        Probe {
            verdict,
            pace_ns,
            key,
            now,
            cost,
            place,
            debt,
            writes_count: self.writes_count,
        }
    }

    /// Charges an allowed probe. Nothing may have been charged to this table since the probe was made.
    pub fn charge(&mut self, probe: Probe) {
        assert!(probe.verdict.is_allow(), "only what passes is charged");
        assert_eq!(
            probe.writes_count, self.writes_count,
            "a probe is charged before the table is written again"
        );
        self.writes_count += 1;
        if probe.cost == 0 {
            return;
        }
        self.last = probe.now;
        let Place::Slot { line, slot } = probe.place else {
            let cells = self.sketch.cells(probe.key.place(), probe.key.tag());
            self.sketch.charge(probe.now, cells, probe.cost);
            return;
        };
        let words = self.words_of(line, slot);
        let debt = self
            .rule
            .charge(probe.now, probe.debt, &mut self.words[words], probe.cost);
        let policy = self.rule.policy();
        let home = self.home_of(probe.key);
        if line as usize != home {
            self.lines[home].mark_spilled(probe.now, policy.repay_ns(debt));
        }
        self.lines[line as usize].write(
            probe.now,
            policy,
            usize::from(slot),
            probe.key.tag(),
            debt,
        );
    }

    /// Probes and, when allowed, charges: for a limit that stands alone.
    pub fn take(&mut self, now: Mono, key: Key, cost: u32) -> Verdict {
        let probe = self.probe(now, key, cost);
        if probe.verdict.is_allow() {
            self.charge(probe);
        }
        probe.verdict
    }

    /// Gives `tokens` of an earlier charge back, never above the burst (B11). The caller refunds each charge at most
    /// once; a key without a slot gets nothing back, for nobody knows which of its cells' keys was charged.
    pub fn refund(&mut self, now: Mono, key: Key, tokens: u32) {
        let now = now.max(self.last);
        let (Place::Slot { line, slot }, debt @ 1..) = self.locate(now, key) else {
            return;
        };
        let words = self.words_of(line, slot);
        let debt = self.rule.refund(debt, &mut self.words[words], tokens);
        let line = &mut self.lines[line as usize];
        line.write(now, self.rule.policy(), usize::from(slot), key.tag(), debt);
        self.last = now;
        self.writes_count += 1;
    }

    /// What a key has left at `now`; `None` when it has no slot and none is free.
    pub fn level(&self, now: Mono, key: Key) -> Option<Level> {
        let now = now.max(self.last);
        let (Place::Slot { line, slot }, debt) = self.locate(now, key) else {
            return None;
        };
        let words = &self.words[self.words_of(line, slot)];
        let remaining = match debt {
            0 => self.rule.policy().capacity(),
            _ => self.rule.remaining(now, debt, words),
        };
        Some(Level {
            remaining,
            full_in_ns: self.rule.policy().repay_ns(debt),
        })
    }

    /// What the key of a probe has left after it (charged or refused), and nanoseconds until that grows, rounded up.
    /// `None` for a key without a slot, or when what is left never grows.
    pub fn outlook(&self, probe: &Probe) -> Option<(u32, u64)> {
        let Level { remaining, .. } = self.level(probe.now, probe.key)?;
        if remaining >= self.rule.policy().capacity() {
            return Some((remaining, 0));
        }
        let now = probe.now.max(self.last);
        let (Place::Slot { line, slot }, debt) = self.locate(now, probe.key) else {
            return None;
        };
        let words = &self.words[self.words_of(line, slot)];
        match self.rule.decide(now, debt, words, remaining + 1).verdict {
            Verdict::Wait { retry_after_ns } => Some((remaining, retry_after_ns)),
            Verdict::Allow { .. } | Verdict::Never => None,
        }
    }

    /// The rule in force.
    pub const fn rule(&self) -> &Rule {
        &self.rule
    }

    /// Switches rate and burst, of each key and of those without a slot: every key is credited under the old policy up
    /// to `now`, then carried over: what it consumed stays consumed ([`Rule::carry`]). The kind stays. Walks the whole
    /// table (an operator's act, milliseconds per 100,000 lines), allocates nothing.
    /// # Errors
    /// As [`Rule::new`], and `LogTooLong` when a log's new burst is above the one it was made with; nothing changes then.
    pub fn set_policy(
        &mut self,
        now: Mono,
        policy: Policy,
        overflow: Policy,
    ) -> Result<(), PolicyError> {
        let (from, to) = (self.rule, Rule::new(self.rule.kind(), policy)?);
        if to.kind().words(policy.capacity()) > self.words_each {
            return Err(PolicyError::LogTooLong);
        }
        let now = now.max(self.last);
        for (index, line) in self.lines.iter_mut().enumerate() {
            let words = &mut self.words;
            let each = self.words_each;
            line.move_base(now, from.policy(), to.policy(), |slot, debt| {
                let start = (index * SLOTS_PER_LINE + slot) * each;
                from.carry(&to, now, debt, &mut words[start..start + each])
            });
            if line.has_spilled(now) {
                let longest = to.policy().repay_ns(to.debt_max());
                line.mark_spilled(now, longest); // debts may now last longer, and their home is not known from their slot
            }
        }
        self.rule = to;
        self.sketch.set_policy(now, &policy, overflow);
        self.last = now;
        self.writes_count += 1;
        Ok(())
    }

    /// Keys in debt at `now`, estimated from at most `lines_max` lines spread over the table; exact when that covers it.
    pub fn entries_estimate(&self, now: Mono, lines_max: usize) -> u64 {
        let now = now.max(self.last);
        let step = self.lines.len().div_ceil(lines_max.max(1));
        let (mut seen, mut live) = (0u64, 0u64);
        for line in self.lines.iter().step_by(step) {
            seen += 1;
            live += u64::from(line.scan(now, self.rule.policy(), 0).live_count);
        }
        live * self.lines.len() as u64 / seen
    }

    /// Lookups that found no slot since start.
    pub const fn overflow_total(&self) -> u64 {
        self.overflow_total
    }

    /// Slots; constant.
    pub const fn slots(&self) -> usize {
        self.lines.len() * SLOTS_PER_LINE
    }

    /// Bytes of lines, words and sketch; constant.
    pub const fn bytes(&self) -> usize {
        self.lines.len() * size_of::<Line>()
            + self.words.len() * size_of::<u64>()
            + self.sketch.bytes()
    }

    /// The same, before there is a table: at most so many bytes for `slots` of a rule with that kind and burst.
    pub const fn bytes_for(slots: usize, kind: Kind, burst: u32) -> usize {
        let slots = slots.next_multiple_of(SLOTS_PER_LINE);
        slots * (size_of::<Line>() / SLOTS_PER_LINE + kind.words(burst) * size_of::<u64>())
            + Sketch::bytes_for(slots)
    }

    /// Where the words of a slot are.
    fn words_of(&self, line: u32, slot: u8) -> core::ops::Range<usize> {
        let start = (line as usize * SLOTS_PER_LINE + usize::from(slot)) * self.words_each;
        start..start + self.words_each
    }

    fn line_at(&self, hash: u64) -> usize {
        let scaled = (u128::from(hash) * self.lines.len() as u128) >> 64; // below the number of lines
        scaled as usize
    }

    /// Where a key may live when its home is crowded. By all bits of its hash: keys with one tag have other lines where
    /// their homes differ.
    fn other_of(&self, key: Key) -> usize {
        self.line_at(key.place().wrapping_mul(SPREAD))
    }

    fn home_of(&self, key: Key) -> usize {
        self.line_at(key.place())
    }

    /// Where the key lives and what it owes, or where it would go.
    fn locate(&self, now: Mono, key: Key) -> (Place, u64) {
        let at = |line: usize, slot: usize| Place::Slot {
            line: line as u32,
            slot: slot as u8,
        }; // bounded by `new`
        let home = self.home_of(key);
        let policy = self.rule.policy();
        let here = self.lines[home].scan(now, policy, key.tag());
        if let Some((slot, debt)) = here.hit {
            return (at(home, slot), debt);
        }
        let crowded = here.live_count >= CROWDED;
        if crowded || self.lines[home].has_spilled(now) {
            let other = self.other_of(key);
            let there = self.lines[other].scan(now, policy, key.tag());
            if let Some((slot, debt)) = there.hit {
                return (at(other, slot), debt);
            }
            if let (true, Some(slot)) = (crowded && there.live_count < here.live_count, there.free)
            {
                return (at(other, slot), 0);
            }
        }
        here.free
            .map_or((Place::Overflow, 0), |slot| (at(home, slot), 0))
    }
}
