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
//! probability 2^-39 per lookup. The hash is keyed, so nobody can aim at a line or a key ([`super::hash`] says how far).

use super::gcra::{Level, Policy, PolicyError, Verdict};
use super::hash::NameHash;
use super::line::{Line, Room, Tag};
use super::rule::{Kind, Rule};
use super::sketch::Sketch;
use crate::rng::SPREAD;
use crate::time::Mono;
use alloc::boxed::Box;

pub use super::hash::NAME_BYTES_MAX;
pub use super::line::SLOTS_PER_LINE;

/// Live slots from which a newcomer also looks at its other line and takes the emptier one.
const CROWDED: u32 = 3;

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

    const fn tag(self) -> Tag {
        Tag::of(self.hash)
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Slot { line: u32, slot: u8 },
    Overflow,
}

impl Place {
    #[inline]
    const fn at(line: usize, slot: usize) -> Self {
        Self::Slot {
            line: line as u32, // bounded by `new`
            slot: slot as u8,
        }
    }
}

/// A decision that has charged nothing yet; plain data. Charge it with [`KeyedLimiter::charge`] before the table is written again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// What the limit says.
    pub verdict: Verdict,
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
    names: NameHash,
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
            names: NameHash::new(&spec.secret),
            lines: alloc::vec![Line::default(); lines].into_boxed_slice(),
            words: alloc::vec![0; lines * SLOTS_PER_LINE * words_each].into_boxed_slice(),
            words_each,
            last: now,
            writes_count: 0,
            overflow_total: 0,
        }
    }

    /// The key of a name (a user id, a device hash, an address prefix), of at most [`NAME_BYTES_MAX`] bytes.
    #[inline]
    pub fn key(&self, name: &[u8]) -> Key {
        Key {
            hash: self.names.of(name),
        }
    }

    /// The same for a name of at most four words; equal to that of their bytes, least byte first.
    #[inline]
    pub fn key_of(&self, name: &[u64]) -> Key {
        Key {
            hash: self.names.of_words(name),
        }
    }

    /// Has the key's home line brought into the cache. For a batch: all keys first, then the decisions, so that the
    /// lines come at one time and not one after the other. Changes nothing.
    #[inline]
    pub fn touch(&self, key: Key) {
        core::hint::black_box(self.lines[self.home_of(key)].word());
    }

    /// Decides `cost` tokens for `key`, charges nothing, and says where the charge would go.
    ///
    /// A `now` before the last charge counts as that charge's instant (B02).
    pub fn probe(&mut self, now: Mono, key: Key, cost: u32) -> Probe {
        self.judge(now, key, cost)
    }

    #[inline(always)] // once for probes and once for what is settled at once, without a probe in memory
    fn judge(&mut self, now: Mono, key: Key, cost: u32) -> Probe {
        let now = now.max(self.last);
        let (place, debt) = self.locate(now, key);
        let verdict = match place {
            Place::Slot { line, slot } => {
                let words = self.words_of(line, slot);
                self.rule.decide(now, debt, words, cost)
            }
            Place::Overflow => self.decide_overflow(now, key, cost),
        };
        Probe {
            verdict,
            key,
            now,
            cost,
            place,
            debt,
            writes_count: self.writes_count,
        }
    }

    #[cold]
    fn decide_overflow(&mut self, now: Mono, key: Key, cost: u32) -> Verdict {
        self.overflow_total += 1;
        let cells = self.sketch.cells(key.place(), key.tag().bits());
        self.sketch.check(now, cells, cost)
    }

    /// Charges an allowed probe. Nothing may have been charged to this table since the probe was made.
    pub fn charge(&mut self, probe: &Probe) {
        assert!(probe.verdict.is_allow(), "only what passes is charged");
        assert!(
            probe.writes_count == self.writes_count,
            "a probe is charged before the table is written again"
        );
        self.settle(probe);
    }

    #[inline(always)]
    fn settle(&mut self, probe: &Probe) {
        self.writes_count += 1;
        if probe.cost == 0 {
            return;
        }
        self.last = probe.now;
        let Place::Slot { line, slot } = probe.place else {
            return self.charge_overflow(probe);
        };
        let debt = if self.words_each == 0 {
            self.rule.policy().charged(probe.debt, probe.cost)
        } else {
            let words = self.words_range(line, slot);
            self.rule
                .charge(probe.now, probe.debt, &mut self.words[words], probe.cost)
        };
        let policy = self.rule.policy();
        let home = self.home_of(probe.key);
        if line as usize != home {
            self.lines[home].mark_spilled(probe.now, policy.repay_ns(debt));
        }
        let line = &mut self.lines[line as usize];
        line.name(usize::from(slot), probe.key.tag());
        let present = line.present(probe.now, policy);
        line.owe(probe.now, present, policy, usize::from(slot), debt);
    }

    #[cold]
    fn charge_overflow(&mut self, probe: &Probe) {
        let cells = self.sketch.cells(probe.key.place(), probe.key.tag().bits());
        self.sketch.charge(probe.now, cells, probe.cost);
    }

    /// Probes and, when allowed, charges: for a limit that stands alone.
    #[inline(always)] // the answer stays in registers, and what nobody asks of it is not worked out
    pub fn take(&mut self, now: Mono, key: Key, cost: u32) -> Verdict {
        if let Some(verdict) = self.take_at_home(now, key, cost) {
            return verdict;
        }
        self.take_anywhere(now, key, cost)
    }

    #[inline(never)]
    fn take_anywhere(&mut self, now: Mono, key: Key, cost: u32) -> Verdict {
        let probe = self.judge(now, key, cost);
        if probe.verdict.is_allow() {
            self.settle(&probe);
        }
        probe.verdict
    }

    /// The same where nobody asks what is left.
    /// # Errors
    /// The refusal.
    #[inline]
    pub fn pass(&mut self, now: Mono, key: Key, cost: u32) -> Result<(), Probe> {
        match self.take_at_home(now, key, cost) {
            Some(Verdict::Allow { .. }) => Ok(()),
            Some(_) => Err(self.probe(now, key, cost)), // a refusal has changed nothing
            None => self.pass_anywhere(now, key, cost),
        }
    }

    #[inline(never)]
    fn pass_anywhere(&mut self, now: Mono, key: Key, cost: u32) -> Result<(), Probe> {
        let probe = self.judge(now, key, cost);
        if !probe.verdict.is_allow() {
            return Err(probe);
        }
        self.settle(&probe);
        Ok(())
    }

    /// The same in one go for what is common: a bucket whose key is in its home line. `None`: it is not so.
    #[inline(always)] // as `take`
    fn take_at_home(&mut self, now: Mono, key: Key, cost: u32) -> Option<Verdict> {
        if self.words_each != 0 {
            return None;
        }
        let home = self.home_of(key);
        let (line, policy) = (&mut self.lines[home], self.rule.policy());
        let slot = line.find(key.tag())?;
        let now = now.max(self.last);
        let present = line.present(now, policy);
        let debt = line.debt(slot, present);
        let verdict = policy.decide(debt, cost);
        if verdict.is_allow() && cost > 0 {
            line.owe(now, present, policy, slot, policy.charged(debt, cost));
            self.last = now;
            self.writes_count += 1;
        }
        Some(verdict)
    }

    /// For an admitted caller of a leaky bucket: nanoseconds until its turn, rounded up. 0 for every other kind, and for
    /// a key without a slot.
    pub fn pace_ns(&self, probe: &Probe) -> u64 {
        match self.rule.kind() {
            Kind::LeakyBucket if probe.verdict.is_allow() && !probe.is_overflow() => {
                self.rule.policy().repay_ns(probe.debt).unwrap_or(0)
            }
            _ => 0,
        }
    }

    /// Gives `tokens` of an earlier charge back, never above the burst (B11). The caller refunds each charge at most
    /// once; a key without a slot gets nothing back, for nobody knows which of its cells' keys was charged.
    pub fn refund(&mut self, now: Mono, key: Key, tokens: u32) {
        let now = now.max(self.last);
        let (Place::Slot { line, slot }, debt @ 1..) = self.locate(now, key) else {
            return;
        };
        let words = self.words_range(line, slot);
        let debt = self.rule.refund(debt, &mut self.words[words], tokens);
        let line = &mut self.lines[line as usize];
        let present = line.present(now, self.rule.policy());
        line.owe(now, present, self.rule.policy(), usize::from(slot), debt);
        self.last = now;
        self.writes_count += 1;
    }

    /// What a key has left at `now`; `None` when it has no slot and none is free.
    pub fn level(&self, now: Mono, key: Key) -> Option<Level> {
        let now = now.max(self.last);
        let (place, debt) = self.locate(now, key);
        Some(Level {
            remaining: self.remaining(now, place, debt)?,
            full_in_ns: self.rule.policy().repay_ns(debt),
        })
    }

    fn remaining(&self, now: Mono, place: Place, debt: u64) -> Option<u32> {
        match (place, debt) {
            (Place::Overflow, _) => None,
            (Place::Slot { .. }, 0) => Some(self.rule.policy().capacity()),
            (Place::Slot { line, slot }, _) => {
                let words = self.words_of(line, slot);
                Some(self.rule.remaining(now, debt, words))
            }
        }
    }

    /// What the key of a probe has left after it (charged or refused), and nanoseconds until that grows, rounded up.
    /// `None` for a key without a slot, or when what is left never grows.
    pub fn outlook(&self, probe: &Probe) -> Option<(u32, u64)> {
        let now = probe.now.max(self.last);
        let (place, debt) = self.locate(now, probe.key);
        let remaining = self.remaining(now, place, debt)?;
        if remaining >= self.rule.policy().capacity() {
            return Some((remaining, 0));
        }
        let Place::Slot { line, slot } = place else {
            return None;
        };
        let words = self.words_of(line, slot);
        match self.rule.decide(now, debt, words, remaining + 1) {
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
            let present = line.present(now, self.rule.policy());
            live += u64::from(line.room(present).live_count);
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

    /// The words of a slot.
    #[inline]
    fn words_of(&self, line: u32, slot: u8) -> &[u64] {
        if self.words_each == 0 {
            return &[];
        }
        &self.words[self.words_range(line, slot)]
    }

    fn words_range(&self, line: u32, slot: u8) -> core::ops::Range<usize> {
        let start = (line as usize * SLOTS_PER_LINE + usize::from(slot)) * self.words_each;
        start..start + self.words_each
    }

    #[inline]
    fn line_at(&self, hash: u64) -> usize {
        let scaled = (u128::from(hash) * self.lines.len() as u128) >> 64; // below the number of lines
        scaled as usize
    }

    /// Where a key may live when its home is crowded. By all bits of its hash: keys with one tag have other lines where
    /// their homes differ.
    fn other_of(&self, key: Key) -> usize {
        self.line_at(key.place().wrapping_mul(SPREAD))
    }

    #[inline]
    fn home_of(&self, key: Key) -> usize {
        self.line_at(key.place())
    }

    /// Where the key lives and what it owes, or where it would go.
    #[inline]
    fn locate(&self, now: Mono, key: Key) -> (Place, u64) {
        let home = self.home_of(key);
        let line = &self.lines[home];
        let present = line.present(now, self.rule.policy());
        match line.find(key.tag()) {
            Some(slot) => (Place::at(home, slot), line.debt(slot, present)),
            None => {
                let here = line.room(present);
                match here.free {
                    Some(slot) if here.live_count < CROWDED && !line.has_spilled(now) => {
                        (Place::at(home, slot), 0)
                    }
                    _ => self.locate_elsewhere(now, key, home, here),
                }
            }
        }
    }

    /// The same for a key that its home does not know, when that is crowded or has keys that live elsewhere.
    #[inline(never)]
    fn locate_elsewhere(&self, now: Mono, key: Key, home: usize, here: Room) -> (Place, u64) {
        let crowded = here.live_count >= CROWDED;
        let at = self.other_of(key);
        let other = &self.lines[at];
        let present = other.present(now, self.rule.policy());
        let known = other.find(key.tag());
        if let Some(slot) = known
            && let debt @ 1.. = other.debt(slot, present)
        {
            return (Place::at(at, slot), debt);
        }
        let there = other.room(present);
        let slot = known.or(there.free); // a tag is in a line once at most
        if let (true, Some(slot)) = (crowded && there.live_count < here.live_count, slot) {
            return (Place::at(at, slot), 0);
        }
        here.free
            .map_or((Place::Overflow, 0), |slot| (Place::at(home, slot), 0))
    }
}
