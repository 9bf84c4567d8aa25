//! Fixed window and sliding-window counter: the arithmetic of one key.
//!
//! Called by [`super::rule`]. Windows have the policy's length W in units and start with a key's first charge, so that
//! the windows of a million keys do not end together. A fixed window's debt is what is left of it and its word is the
//! tokens used. A counter's debt is what is left until two windows have passed since its present one began, and its
//! word holds the counts of the last window (upper half) and the present one (lower half).

use super::gcra::{Policy, Verdict};

fn wait(policy: &Policy, units: u64) -> Verdict {
    match policy.repay_ns(units) {
        Some(retry_after_ns) => Verdict::Wait { retry_after_ns },
        None => Verdict::Never,
    }
}

/// Tokens used in the window that has `debt` left.
fn used(debt: u64, words: &[u64]) -> u64 {
    if debt == 0 { 0 } else { words[0] }
}

/// A fixed window's answer.
pub(super) fn fixed(policy: &Policy, debt: u64, words: &[u64], cost: u32) -> Verdict {
    if cost > policy.capacity() {
        return Verdict::Never;
    }
    let after = used(debt, words) + u64::from(cost);
    match u64::from(policy.capacity()).checked_sub(after) {
        Some(left) => Verdict::Allow {
            remaining: left as u32, // at most the capacity
        },
        None => wait(policy, debt),
    }
}

/// Charges a fixed window; the first charge starts it.
pub(super) fn charge_fixed(policy: &Policy, debt: u64, words: &mut [u64], cost: u32) -> u64 {
    words[0] = used(debt, words) + u64::from(cost);
    if debt == 0 { policy.full_units() } else { debt }
}

/// A counter's state, brought to the present.
struct Counts {
    last: u64,
    present: u64,
    /// Units left of the present window, 1..=W (0 only when W is).
    left: u64,
}

fn counts(policy: &Policy, debt: u64, words: &[u64]) -> Counts {
    let window = policy.full_units();
    let (last, present) = (words[0] >> 32, words[0] & u64::from(u32::MAX));
    if debt > window {
        Counts {
            last,
            present,
            left: debt - window,
        }
    } else if debt > 0 {
        Counts {
            last: present,
            present: 0,
            left: debt,
        }
    } else {
        Counts {
            last: 0,
            present: 0,
            left: window,
        }
    }
}

/// A sliding counter's answer: it admits while last × (left / W) + present + cost is at most the burst.
pub(super) fn counter(policy: &Policy, debt: u64, words: &[u64], cost: u32) -> Verdict {
    if cost > policy.capacity() {
        return Verdict::Never;
    }
    let Counts {
        last,
        present,
        left,
    } = counts(policy, debt, words);
    let window = u128::from(policy.full_units());
    let (capacity, cost) = (u64::from(policy.capacity()), u64::from(cost));
    let overlap = u128::from(last) * u128::from(left);
    if let Some(room) = capacity.checked_sub(present + cost) {
        let room_units = u128::from(room) * window;
        if overlap <= room_units {
            let gone = overlap.div_ceil(window.max(1)); // an empty window has no overlap
            return Verdict::Allow {
                remaining: room as u32 - gone as u32, // both at most the capacity
            };
        }
        // In this window, once so little of it is left that the last one weighs no more than the room.
        let left_then = room_units / u128::from(last); // below `left`, so it fits
        return wait(policy, left - left_then as u64);
    }
    // In the next window, where the present one is the last.
    let left_then = u128::from(capacity - cost) * window / u128::from(present); // below W: present > capacity - cost
    wait(policy, left + policy.full_units() - left_then as u64)
}

/// Charges a counter; a window that has passed becomes the last one.
pub(super) fn charge_counter(policy: &Policy, debt: u64, words: &mut [u64], cost: u32) -> u64 {
    let Counts {
        last,
        present,
        left,
    } = counts(policy, debt, words);
    words[0] = (last << 32) | (present + u64::from(cost)); // the sum is at most the burst, a u32
    policy.full_units() + left
}

/// Takes `tokens` off a fixed window's count.
pub(super) fn refund_fixed(words: &mut [u64], tokens: u32) {
    words[0] = words[0].saturating_sub(u64::from(tokens));
}

/// Takes `tokens` off the present window's count; earlier windows are history.
pub(super) fn refund_counter(policy: &Policy, debt: u64, words: &mut [u64], tokens: u32) {
    if debt > policy.full_units() {
        let present = words[0] & u64::from(u32::MAX);
        words[0] -= present.min(u64::from(tokens));
    }
}

/// The same part of a window under another policy, rounded against the caller by less than one unit.
pub(super) fn carry(from: &Policy, to: &Policy, debt: u64) -> u64 {
    let scaled = u128::from(debt) * u128::from(to.full_units());
    u64::try_from(scaled.div_ceil(u128::from(from.full_units()).max(1))).unwrap_or(u64::MAX)
}
