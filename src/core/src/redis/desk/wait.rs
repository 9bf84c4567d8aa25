//! What is told rests on replicas, where that is wanted: answers that promise something are followed by a write and WAIT.
//!
//! WAIT counts the replicas that have everything that its own connection wrote before it (Redis, `WAIT`). What another
//! connection wrote, and a repeat or a lookup only reads, has no place in that: so a write that says nothing new goes
//! before it, behind which everything that was read lies. The answers are kept until then; a short count, or none, makes
//! them unknown, a lost link does so, too, and so does a server that this SKU is not at home at: one more look tells.

use super::{Desk, Flight, Sent};
use crate::ask::{LedgerAnswer, LedgerOp, Outcome, ReservationState};
use crate::port::Effects;
use crate::redis::offer::Offer;
use crate::redis::reply::{self, Decided};
use crate::redis::script::Script;
use crate::time::Now;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use weir_proto::resp::{CommandWriter, Value};

/// How many replicas, and how long the master waits for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// At least 1.
    pub replicas: u32,
    /// At least 1; shorter than a link waits for a reply.
    pub timeout_ms: u64,
}

/// What of a node waits for its replicas.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// So many of `held` are behind the WAIT that is out; `None`: none is. It blocks its connection, so that two would
    /// take twice as long.
    covered: Option<usize>,
    /// The write before the WAIT that is answered next was refused.
    is_unmarked: bool,
    /// Answers that wait: those of before the WAIT that is out first.
    held: VecDeque<(Flight, Outcome, Option<Offer>)>,
}

/// True for answers by which a client, or an operator, is promised something.
const fn promises(answer: &LedgerAnswer) -> bool {
    matches!(
        answer,
        LedgerAnswer::Granted(_)
            | LedgerAnswer::Repeated(_)
            | LedgerAnswer::Found(_)
            | LedgerAnswer::NotFound // its tombstone bars a late reserve
            | LedgerAnswer::OpsDone(_)
    )
}

impl Desk {
    /// An ask was decided: its answer goes out, or waits for the replicas.
    pub(super) fn decided(&mut self, index: usize, flight: Flight, decided: &Decided<'_>) {
        let outcome = Outcome::Done(decided.answer);
        let grant = self.grant_of(&flight, decided);
        let place = self.sku_of(flight.ask.op.sku());
        let is_home = place.is_some_and(|place| self.is_fine(place, index));
        let waits = self.config.wait.is_some() && promises(&decided.answer);
        match (waits, is_home, decided.answer) {
            (true, true, _) => {
                let held = &mut self.nodes[index].batch.held;
                held.push_back((flight, outcome, grant));
            }
            // Behind ASKING: no write of ours can follow it there.
            (true, false, LedgerAnswer::Granted(_) | LedgerAnswer::Repeated(_)) => {
                self.counts.unreplicated += 1;
                self.end(&flight, Outcome::Unknown);
            }
            _ => {
                self.grants.extend(grant);
                self.end(&flight, outcome);
            }
        }
    }

    /// What of an answer is remembered until its order exists.
    fn grant_of(&self, flight: &Flight, decided: &Decided<'_>) -> Option<Offer> {
        if !self.config.remembers {
            return None;
        }
        let plan = *self.skus[self.sku_of(flight.ask.op.sku())?].steps.plan();
        match (decided.answer, &flight.ask.op) {
            (LedgerAnswer::Granted(held), LedgerOp::Reserve(reserve)) => {
                let at = decided.granted_at?;
                Some(Offer::granted(&plan, reserve, held.reservation, at))
            }
            (LedgerAnswer::Repeated(held) | LedgerAnswer::Found(held), _)
                if held.state == ReservationState::Reserved =>
            {
                let record = decided.record?;
                reply::offer(plan.sku, held.reservation, plan.ids_above, record).ok()
            }
            _ => None,
        }
    }

    /// Follows answers that promise something with a write and WAIT, one at a time.
    pub(super) fn follow(&mut self, now: Now, index: usize, fx: &mut Effects) {
        let (Some(wait), node) = (self.config.wait, &self.nodes[index]) else {
            return;
        };
        let first = node.batch.held.front();
        let place = first.and_then(|(flight, ..)| self.sku_of(flight.ask.op.sku()));
        let Some(place) = place.filter(|_| node.batch.covered.is_none()) else {
            return;
        };
        let (steps, node) = (&self.skus[place].steps, &mut self.nodes[index]);
        if !node.link.is_ready() || node.link.room() < 2 {
            return; // when some replies have come
        }
        let marked = node
            .link
            .send(now, Sent::Mark, fx, |out| steps.push_mark(out));
        let waits = node.link.send(now, Sent::Wait, fx, |out| {
            let mut writer = CommandWriter::begin(out, 3);
            writer.part(b"WAIT");
            writer.part_u64(u64::from(wait.replicas));
            writer.part_u64(wait.timeout_ms);
            writer.finish();
        });
        debug_assert!(marked.is_ok() && waits.is_ok(), "there was room");
        node.batch.covered = Some(node.batch.held.len());
    }

    /// The write before WAIT was answered.
    pub(super) fn marked(&mut self, now: Now, index: usize, value: &Value<'_>, fx: &mut Effects) {
        let is_done = matches!(reply::stepped(value), Ok(Some(_)));
        self.nodes[index].batch.is_unmarked = !is_done;
        match value {
            Value::Error(error) if error.code == b"NOSCRIPT" => {
                self.load(now, index, Script::Mark, fx);
            }
            Value::Error(_) => self.want_refresh(now),
            _ => {}
        }
    }

    /// WAIT was answered: what was kept when it was sent was asked before it.
    pub(super) fn waited(&mut self, index: usize, value: &Value<'_>) {
        let wanted = self.config.wait.map_or(0, |wait| i64::from(wait.replicas));
        let batch = &mut self.nodes[index].batch;
        let is_marked = !core::mem::take(&mut batch.is_unmarked);
        let is_safe = is_marked && matches!(value, Value::Integer(count) if *count >= wanted);
        let covered = batch.covered.take().unwrap_or(0);
        let held: Vec<_> = batch.held.drain(..covered).collect();
        for (flight, outcome, grant) in held {
            if is_safe {
                self.grants.extend(grant);
                self.end(&flight, outcome);
            } else {
                self.counts.unreplicated += 1;
                self.end(&flight, Outcome::Unknown);
            }
        }
        if matches!(value, Value::Error(_)) {
            self.counts.faults += 1;
        }
    }

    /// The link is gone: nobody knows what the replicas have.
    pub(super) fn forget_batch(&mut self, index: usize) {
        let batch = core::mem::take(&mut self.nodes[index].batch);
        for (flight, _, _) in batch.held {
            self.end(&flight, Outcome::Unknown);
        }
    }
}
