//! What is due when: a bounded queue of (instant, value), the earliest first, equal instants in the order of pushing.
//!
//! For workloads: retries, polls, payments. A binary heap whose memory is taken at the start.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use weir_core::time::Mono;

/// The queue is full: the caller says what becomes of the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DueFull;

/// A bounded queue of values by instant.
#[derive(Debug)]
pub struct DueQueue {
    heap: BinaryHeap<Reverse<(Mono, u64, u64)>>,
    capacity: usize,
    pushed: u64,
}

impl DueQueue {
    /// Room for `capacity` values, 24 bytes each.
    pub fn new(capacity: usize) -> Self {
        Self {
            heap: BinaryHeap::with_capacity(capacity),
            capacity,
            pushed: 0,
        }
    }

    /// Puts `value` at `due`.
    ///
    /// # Errors
    /// [`DueFull`]; nothing was put.
    pub fn push(&mut self, due: Mono, value: u64) -> Result<(), DueFull> {
        if self.heap.len() >= self.capacity {
            return Err(DueFull);
        }
        self.heap.push(Reverse((due, self.pushed, value)));
        self.pushed += 1;
        Ok(())
    }

    /// Takes the earliest value when it is due at `now`.
    pub fn pop_due(&mut self, now: Mono) -> Option<(Mono, u64)> {
        if self.next_due()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse((due, _, value))| (due, value))
    }

    /// The earliest instant; `None` when empty.
    pub fn next_due(&self) -> Option<Mono> {
        self.heap.peek().map(|Reverse((due, _, _))| *due)
    }

    /// Values in the queue.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// True without values.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_first_equal_instants_in_order_and_full_is_an_answer() {
        let mut queue = DueQueue::new(4);
        for (due, value) in [(5, 1), (3, 2), (5, 3), (4, 4)] {
            assert_eq!(queue.push(Mono(due), value), Ok(()));
        }
        assert_eq!(queue.push(Mono(1), 5), Err(DueFull));
        assert_eq!(
            (queue.next_due(), queue.pop_due(Mono(2))),
            (Some(Mono(3)), None)
        );
        let order: Vec<_> = std::iter::from_fn(|| queue.pop_due(Mono(5))).collect();
        let wanted = [(3, 2), (4, 4), (5, 1), (5, 3)];
        assert_eq!(order, wanted.map(|(due, value)| (Mono(due), value)));
        assert!(queue.is_empty() && queue.next_due().is_none());
    }
}
