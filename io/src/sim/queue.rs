//! The world's agenda: what happens when, in one total order (virtual time, then order of scheduling).
//!
//! Called by the world's turns and network. Entries name parts and links by index and generation, so one whose object
//! is gone is recognised when it is taken up and passed over; nothing is ever searched for or removed.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// One end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EndRef {
    pub link: u32,
    pub generation: u32,
    /// 0: the end that connected; 1: the end that listened.
    pub side: u8,
}

impl EndRef {
    pub fn peer(self) -> Self {
        Self {
            side: 1 - self.side,
            ..self
        }
    }
}

/// What happens at an instant.
#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    /// A part runs, unless it was rescheduled since.
    Turn { part: u32, stamp: u32 },
    /// A mail reaches its box.
    Mail { slot: u32 },
    /// A connect reaches the listener's host.
    Syn(EndRef),
    /// The connecting end learns that it is connected.
    SynAck(EndRef),
    /// The connecting end learns that nobody listens.
    Refused(EndRef),
    /// The connecting end gives up.
    ConnectDeadline(EndRef),
    /// Bytes reach an end.
    Arrive { to: EndRef, bytes: u32 },
    /// The end of the stream reaches an end.
    Fin(EndRef),
    /// A reset reaches an end.
    Reset(EndRef),
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    at_ns: u64,
    order: u64,
    what: What,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    /// The earliest is the greatest: `BinaryHeap` gives the greatest first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at_ns, other.order).cmp(&(self.at_ns, self.order))
    }
}

/// The agenda.
#[derive(Debug, Default)]
pub(super) struct Queue {
    heap: BinaryHeap<Entry>,
    scheduled: u64,
}

impl Queue {
    pub fn push(&mut self, at_ns: u64, what: What) {
        self.scheduled += 1;
        self.heap.push(Entry {
            at_ns,
            order: self.scheduled,
            what,
        });
    }

    pub fn pop(&mut self) -> Option<(u64, What)> {
        self.heap.pop().map(|entry| (entry.at_ns, entry.what))
    }

    /// The next thing.
    pub fn peek(&self) -> Option<What> {
        self.heap.peek().map(|entry| entry.what)
    }

    /// When the next thing happens.
    pub fn next_ns(&self) -> Option<u64> {
        self.heap.peek().map(|entry| entry.at_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_by_time_and_equal_times_in_order_of_scheduling() {
        let mut queue = Queue::default();
        for (at_ns, slot) in [(5, 0), (3, 1), (5, 2), (3, 3), (0, 4)] {
            queue.push(at_ns, What::Mail { slot });
        }
        let mut slots = Vec::new();
        while let Some((_, What::Mail { slot })) = queue.pop() {
            slots.push(slot);
        }
        assert_eq!(slots, [4, 1, 3, 0, 2]);
    }
}
