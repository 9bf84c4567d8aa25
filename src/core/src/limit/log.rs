//! Sliding-window log: the arithmetic of one key, exact at the price of one word per token.
//!
//! Called by [`super::rule`]. `words[0]` is the place that is written next, the others are a ring of instants (plus one,
//! so that 0 is "never"), oldest at that place. Instants only grow, because the table's clock does. An entry leaves the
//! window when its age repays the whole window W.

use super::gcra::{Policy, Verdict};
use crate::time::Mono;

/// Entries in the order they leave, the newest last; those that never were are skipped.
fn entries(words: &[u64]) -> impl Iterator<Item = u64> + '_ {
    let ring = &words[1..];
    let (newer, older) = ring.split_at((words[0] as usize).min(ring.len()));
    let in_order = older.iter().chain(newer);
    in_order.copied().filter_map(|word| word.checked_sub(1))
}

/// Units of the window that an entry still blocks; 0 when it has left.
fn left(policy: &Policy, now: Mono, at: u64) -> u64 {
    policy
        .full_units()
        .saturating_sub(policy.repaid(now.0.saturating_sub(at)))
}

/// A log's answer. Without debt the slot is free, and the words of whoever had it mean nothing, also where a longer
/// window would make them live again.
pub(super) fn decide(
    policy: &Policy,
    now: Mono,
    (debt, words): (u64, &[u64]),
    cost: u32,
) -> Verdict {
    if cost > policy.capacity() {
        return Verdict::Never;
    }
    let words = if debt == 0 { &words[..1] } else { words };
    let live = entries(words).map(|at| left(policy, now, at));
    let live_count = live.filter(|&left| left > 0).count();
    let after = live_count + cost as usize;
    if let Some(remaining) = (policy.capacity() as usize).checked_sub(after) {
        return Verdict::Allow {
            remaining: remaining as u32, // at most the capacity
        };
    }
    let must_leave = after - policy.capacity() as usize; // 1..=live_count, because cost is at most the capacity
    let leaves = entries(words).map(|at| left(policy, now, at));
    let last_of_them = leaves.filter(|&left| left > 0).nth(must_leave - 1);
    match policy.repay_ns(last_of_them.unwrap_or(0)) {
        Some(retry_after_ns) => Verdict::Wait { retry_after_ns },
        None => Verdict::Never,
    }
}

/// Writes `cost` entries at `now`; a key without debt starts an empty log.
pub(super) fn charge(policy: &Policy, now: Mono, debt: u64, words: &mut [u64], cost: u32) -> u64 {
    if debt == 0 {
        words.fill(0);
    }
    for _ in 0..cost {
        let at = words[0] as usize;
        words[1 + at] = now.0.saturating_add(1);
        words[0] = (at as u64 + 1) % (words.len() as u64 - 1);
    }
    policy.full_units()
}

/// Takes the newest `tokens` entries out.
pub(super) fn refund(words: &mut [u64], tokens: u32) {
    let places = words.len() - 1;
    for _ in 0..(tokens as usize).min(places) {
        let newest = (words[0] as usize + places - 1) % places;
        if words[1 + newest] == 0 {
            break;
        }
        words[1 + newest] = 0;
        words[0] = newest as u64;
    }
}

/// Forgets what has left the old window, so that a longer one does not bring it back; returns the debt in the new one.
pub(super) fn carry(from: &Policy, to: &Policy, now: Mono, words: &mut [u64]) -> u64 {
    for word in &mut words[1..] {
        if *word != 0 && left(from, now, *word - 1) == 0 {
            *word = 0;
        }
    }
    entries(words).last().map_or(0, |at| left(to, now, at))
}

#[cfg(test)]
mod tests {
    use super::super::gcra::Rate;
    use super::*;
    use crate::time::NS_PER_S;

    #[test]
    fn in_a_free_slot_old_entries_block_nobody_although_the_window_grows() {
        let of = |seconds| {
            let rate = Rate {
                tokens: 2,
                per_ns: seconds * NS_PER_S,
            };
            Policy::new(rate, 2).expect("two tokens in some seconds are a policy")
        };
        let mut words = [0; 3];
        charge(&of(1), Mono(NS_PER_S), 0, &mut words, 2);
        let later = Mono(NS_PER_S * 5 / 2);
        let newcomer = decide(&of(60), later, (0, &words), 1);
        assert_eq!(newcomer, Verdict::Allow { remaining: 1 });
    }
}
