//! Two batches: one fills, one is with the store. Answers wait for the commit that covers what they rest on (§12.3).

use crate::ask::{Answer, Outcome};
use crate::journal::Batch;
use crate::ledger::codec::Journal;
use crate::limits::{ENTRY_BYTES_MAX, HELD_ANSWERS_MAX};
use crate::mail::{Addr, Mail};
use crate::port::Effects;
use crate::view::SkuView;
use alloc::vec::Vec;
use weir_proto::ids::ReservationId;

/// What one commit lets go.
#[derive(Debug, Default)]
pub(super) struct Held {
    pub answers: Vec<(Addr, Answer)>,
    pub views: Vec<SkuView>,
}

impl Held {
    fn new() -> Self {
        Self {
            answers: Vec::with_capacity(HELD_ANSWERS_MAX),
            views: Vec::new(),
        }
    }

    /// Posts the answers as they were decided.
    pub fn release(&mut self, fx: &mut Effects) {
        for (to, answer) in self.answers.drain(..) {
            fx.post(to, Mail::Answer(answer));
        }
    }

    /// Posts every answer as unknown: nobody can tell what the disk has.
    pub fn release_unknown(&mut self, fx: &mut Effects) {
        for (to, answer) in self.answers.drain(..) {
            let outcome = Outcome::Unknown;
            let id = answer.id;
            fx.post(to, Mail::Answer(Answer { id, outcome }));
        }
    }
}

/// A batch that the store has.
#[derive(Clone, Copy, Debug)]
pub(super) struct InFlight {
    pub seq: u64,
    /// The number after its last grant.
    pub next_reservation: ReservationId,
}

/// Both batches and their buffers, which are used again for ever.
#[derive(Debug)]
pub(super) struct Batches {
    pub journal: Journal,
    pub filling: Held,
    pub in_flight: Option<InFlight>,
    pub committing: Held,
    spare: Vec<u8>,
    pub last_seq: u64,
    bytes_max: usize,
}

impl Batches {
    /// `bytes_max`: of one batch.
    pub fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            journal: Journal::new(Vec::with_capacity(bytes_max)),
            filling: Held::new(),
            in_flight: None,
            committing: Held::new(),
            spare: Vec::with_capacity(bytes_max),
            last_seq: 0,
        }
    }

    /// Room for `entries` more entries and one more answer.
    pub fn has_room(&self, entries: usize) -> bool {
        self.journal.bytes().len() + entries * ENTRY_BYTES_MAX <= self.bytes_max
            && self.filling.answers.len() < HELD_ANSWERS_MAX
    }

    /// Takes the filling batch as the one in flight. The caller posts it.
    pub fn seal(&mut self, next_reservation: ReservationId, snapshot: Option<Vec<u8>>) -> Batch {
        debug_assert!(self.in_flight.is_none(), "one batch in flight at a time");
        let next = Journal::new(core::mem::take(&mut self.spare));
        let bytes = core::mem::replace(&mut self.journal, next).into_bytes();
        core::mem::swap(&mut self.filling, &mut self.committing);
        self.last_seq += 1;
        let seq = self.last_seq;
        self.in_flight = Some(InFlight {
            seq,
            next_reservation,
        });
        Batch {
            seq,
            bytes,
            snapshot,
        }
    }

    /// Takes a buffer back for the next batch.
    pub fn recycle(&mut self, buffer: Vec<u8>) {
        self.spare = buffer;
    }

    /// Nothing waits, nothing is in flight.
    pub fn is_idle(&self) -> bool {
        self.in_flight.is_none() && self.journal.entries() == 0 && self.filling.answers.is_empty()
    }
}
