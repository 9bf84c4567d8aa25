//! Asks that are out: to the ledger (submits, status) and to the worker (payments). A fixed slab with FIFO deadlines.
//!
//! Used by the shard. An ask whose deadline passes is answered "unknown" to the client and stays here with its in-flight
//! slot until its result is known (design §12.5); it is asked about by lookup, never sent again. Invariant: an id is
//! never used twice in a run, so a late or doubled answer finds nothing.

use super::limits::Told;
use super::reply::Manner;
use crate::ask::AskId;
use crate::limit::inflight::Slot;
use crate::port::ConnId;
use crate::time::Mono;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use weir_proto::ids::{KeyId, RequestId, SkuKey, UserId};

/// Where the reply of an ask goes.
#[derive(Clone, Copy, Debug)]
pub struct ReplyTo {
    /// The connection; it may be gone by then.
    pub conn: ConnId,
    /// The request's number on it.
    pub seq: u32,
    /// How to answer.
    pub manner: Manner,
    /// When its bytes arrived.
    pub arrived: Mono,
    /// What the limits that admitted it say to its caller.
    pub told: Told,
}

/// What was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reserve.
    Submit,
    /// Lookup for a status query.
    Status,
    /// A payment, to the worker.
    Payment,
}

/// One ask that is out.
#[derive(Debug)]
pub struct Pending {
    /// Where its reply goes; `None` once the client was told "unknown".
    pub reply_to: Option<ReplyTo>,
    /// What it is.
    pub kind: Kind,
    /// The request that it is about.
    pub request: RequestName,
    /// Units asked for.
    pub quantity: u32,
    /// The ledger's run it was sent to.
    pub owner_boot: u64,
    /// The client is told "unknown" then; afterwards: the next lookup.
    pub due: Mono,
    /// Its in-flight slot; payments have none.
    pub slot: Option<Slot>,
    /// The key that its ticket verified under, for the admission log; empty for a payment.
    pub kid: KeyId,
}

/// A request's full name (design §12.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestName {
    /// The SKU.
    pub sku: SkuKey,
    /// The user.
    pub user: UserId,
    /// The client's key.
    pub request_id: RequestId,
}

#[derive(Debug)]
struct Entry {
    generation: u32,
    pending: Option<Pending>,
}

/// Room of a due queue for each ask: answered asks leave their ids in it until it is full.
const DUE_PER_ASK: usize = 4;

fn alive(entries: &[Entry], id: AskId) -> Option<&Pending> {
    let entry = entries.get((id.0 & 0xFFFF_FFFF) as usize)?;
    if u64::from(entry.generation) != id.0 >> 32 {
        return None;
    }
    entry.pending.as_ref()
}

/// See the module.
#[derive(Debug)]
pub struct Asks {
    entries: Vec<Entry>,
    free: Vec<u32>,
    /// Ids by `due`; one queue per waiting time, so that each is in order. Stale ids are skipped.
    due: [VecDeque<(Mono, AskId)>; 3],
}

/// Which waiting time an ask has: an index into the due queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// A submit's or status query's budget.
    Request = 0,
    /// A payment's.
    Payment = 1,
    /// The pause between lookups of an ask that was called unknown.
    Resolve = 2,
}

impl Asks {
    /// `asks_max`: most asks out; `boot`: makes ids of this run differ from those of earlier runs.
    pub fn new(asks_max: usize, boot: u64) -> Self {
        let generation = boot as u32;
        Self {
            entries: (0..asks_max)
                .map(|_| Entry {
                    generation,
                    pending: None,
                })
                .collect(),
            free: (0..asks_max as u32).rev().collect(),
            due: core::array::from_fn(|_| VecDeque::with_capacity(asks_max * DUE_PER_ASK)),
        }
    }

    /// Remembers an ask; `None` when the slab is full.
    pub fn insert(&mut self, pending: Pending, wait: Wait) -> Option<AskId> {
        let index = self.free.pop()?;
        let entry = &mut self.entries[index as usize];
        let id = AskId(u64::from(entry.generation) << 32 | u64::from(index));
        let due = pending.due;
        entry.pending = Some(pending);
        self.queue(wait, due, id);
        Some(id)
    }

    fn queue(&mut self, wait: Wait, due: Mono, id: AskId) {
        let entries = &self.entries;
        let queue = &mut self.due[wait as usize];
        if queue.len() == queue.capacity() {
            // Answered asks leave their ids behind; what is alive fits DUE_PER_ASK times, so this frees most of it.
            queue.retain(|&(due, id)| alive(entries, id).is_some_and(|pending| pending.due == due));
        }
        queue.push_back((due, id));
    }

    /// The ask of that id, if it is still out.
    pub fn get_mut(&mut self, id: AskId) -> Option<&mut Pending> {
        let entry = self.entries.get_mut((id.0 & 0xFFFF_FFFF) as usize)?;
        if u64::from(entry.generation) != id.0 >> 32 {
            return None;
        }
        entry.pending.as_mut()
    }

    /// Forgets the ask of that id and returns it.
    pub fn remove(&mut self, id: AskId) -> Option<Pending> {
        self.get_mut(id)?;
        let index = (id.0 & 0xFFFF_FFFF) as u32;
        let entry = &mut self.entries[index as usize];
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(index);
        entry.pending.take()
    }

    /// Puts an ask that was called unknown up for another look at `due`.
    pub fn look_again(&mut self, id: AskId, due: Mono) {
        if let Some(pending) = self.get_mut(id) {
            pending.due = due;
            self.queue(Wait::Resolve, due, id);
        }
    }

    /// The next ask that is due at `now`. The caller removes it or calls [`Self::look_again`].
    pub fn next_due(&mut self, now: Mono) -> Option<AskId> {
        for wait in 0..self.due.len() {
            while let Some(&(due, id)) = self.due[wait].front() {
                if due > now {
                    break;
                }
                self.due[wait].pop_front();
                if alive(&self.entries, id).is_some_and(|pending| pending.due == due) {
                    return Some(id);
                }
            }
        }
        None
    }

    /// When [`Self::next_due`] may have something. May be early: stale ids count.
    pub fn next_deadline(&self) -> Option<Mono> {
        self.due
            .iter()
            .filter_map(|queue| queue.front().map(|&(due, _)| due))
            .min()
    }

    /// Every ask that is out.
    pub fn iter(&self) -> impl Iterator<Item = &Pending> {
        self.entries
            .iter()
            .filter_map(|entry| entry.pending.as_ref())
    }

    /// Ids of all asks that were sent to an earlier run of the ledger than `boot`.
    pub fn of_earlier_boot(&self, boot: u64) -> Vec<AskId> {
        (0_u32..)
            .zip(&self.entries)
            .filter(|(_, entry)| {
                entry.pending.as_ref().is_some_and(|pending| {
                    pending.kind != Kind::Payment && pending.owner_boot < boot
                })
            })
            .map(|(index, entry)| AskId(u64::from(entry.generation) << 32 | u64::from(index)))
            .collect()
    }
}
