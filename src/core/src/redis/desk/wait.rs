//! What is told rests on replicas, where that is wanted: each batch of asks is followed by a write and WAIT.
//!
//! WAIT counts the replicas that have everything that its own connection wrote before it (Redis, `WAIT`). What another
//! connection wrote, and a repeat or a lookup only reads, has no place in that: so a write that says nothing new goes
//! before it, behind which everything that was read lies. Answers that promise something are kept until then; a short
//! count, or none, makes them unknown. A lost link does so, too.

use super::{Desk, Flight, Sent};
use crate::ask::{LedgerAnswer, LedgerOp, Outcome, ReservationState};
use crate::port::Effects;
use crate::redis::offer::Offer;
use crate::redis::reply::{self, Decided};
use crate::redis::script::Script;
use crate::time::Now;
use alloc::collections::VecDeque;
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
    /// Place of a SKU that was asked something since the last WAIT.
    asked: Option<u16>,
    /// The write before the WAIT that is answered next was refused.
    is_unmarked: bool,
    /// Answers that came since the last WAIT was answered: replies come in order, so the next one is behind them all.
    held: VecDeque<(Flight, Outcome, Option<Offer>)>,
}

impl Batch {
    pub fn asked(&mut self, place: usize) {
        self.asked = Some(place as u16);
    }
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
        if self.config.wait.is_some() && promises(&decided.answer) {
            let held = &mut self.nodes[index].batch.held;
            return held.push_back((flight, outcome, grant));
        }
        self.grants.extend(grant);
        self.end(&flight, outcome);
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

    /// Follows what was asked in this turn with a write and WAIT.
    pub(super) fn follow(&mut self, now: Now, index: usize, fx: &mut Effects) {
        let (Some(wait), node) = (self.config.wait, &mut self.nodes[index]) else {
            return;
        };
        let Some(place) = node.batch.asked else {
            return;
        };
        if !node.link.is_ready() || node.link.room() < 2 {
            return; // when some replies have come
        }
        let steps = &self.skus[usize::from(place)].steps;
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
        node.batch.asked = None;
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

    /// WAIT was answered: everything that was kept was asked before it.
    pub(super) fn waited(&mut self, index: usize, value: &Value<'_>) {
        let wanted = self.config.wait.map_or(0, |wait| i64::from(wait.replicas));
        let batch = &mut self.nodes[index].batch;
        let is_marked = !core::mem::take(&mut batch.is_unmarked);
        let is_safe = is_marked && matches!(value, Value::Integer(count) if *count >= wanted);
        let held = core::mem::take(&mut batch.held);
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
