//! The outbox: committed reservations without an order. Sent at their commit, and again while they stay unconfirmed
//! (field bug R40: a scanner of its own, not an accident of other traffic). At least once; the worker dedupes.
//! Before the orders of restocked units go their SKU's totals, so that SQL's conditional stock update lets them in.

use crate::ask::ReservationState;
use crate::ledger::Ledger;
use crate::limits::{ORDER_BATCH_MAX, OUTBOX_CHUNKS_PER_TICK, OUTBOX_WALK_MAX};
use crate::mail::{Addr, Mail};
use crate::order::contract::StockTotal;
use crate::planted::{self, Planted};
use crate::port::Effects;
use alloc::vec::Vec;
use weir_proto::ids::ReservationId;

/// Cursors over reservation numbers, which are dense.
#[derive(Debug)]
pub(super) struct Outbox {
    /// Every number below left RESERVED for good.
    from: u64,
    /// Numbers below are committed.
    committed: u64,
    /// Numbers below were committed at the last rescan.
    seen: u64,
    /// A walk under way: next number, and the one to stop before.
    walk: Option<(u64, u64)>,
    /// Every SKU's total as of the batch that commits next.
    sealed_totals: Vec<StockTotal>,
    /// Every SKU's total as committed; the worker was told these.
    totals: Vec<StockTotal>,
    pub resent: u64,
}

impl Outbox {
    /// `ledger`: as committed.
    pub fn new(ledger: &Ledger) -> Self {
        let next = ledger.next_reservation();
        Self {
            sealed_totals: Vec::new(),
            totals: totals_of(ledger).collect(),
            from: 1,
            committed: next.0,
            seen: next.0,
            walk: None,
            resent: 0,
        }
    }

    /// A batch is sealed: its totals are told once it has committed.
    pub fn seal(&mut self, ledger: &Ledger) {
        self.sealed_totals.clear();
        self.sealed_totals.extend(totals_of(ledger));
    }

    /// Sends the grants of a committed batch: the numbers below `next` that were not committed before.
    pub fn commit(&mut self, ledger: &Ledger, next: ReservationId, fx: &mut Effects) {
        if self.sealed_totals != self.totals {
            core::mem::swap(&mut self.sealed_totals, &mut self.totals);
            self.tell_totals(fx);
        }
        while self.committed < next.0 {
            let end = next.0.min(self.committed + ORDER_BATCH_MAX as u64);
            send(ledger, self.committed..end, fx);
            self.committed = end;
        }
    }

    /// Starts a walk over everything unconfirmed that is older than the last rescan.
    pub fn rescan(&mut self) {
        if self.walk.is_none() {
            self.walk = Some((self.from, self.seen));
        }
        self.seen = self.committed;
    }

    /// Starts a walk over everything unconfirmed: the worker is new.
    pub fn resend_all(&mut self) {
        self.walk = Some((self.from, self.committed));
        self.seen = self.committed;
    }

    /// True while a walk is under way.
    pub fn is_walking(&self) -> bool {
        self.walk.is_some()
    }

    /// Tells the worker how many units SQL may let in.
    pub fn tell_totals(&self, fx: &mut Effects) {
        for total in &self.totals {
            fx.post(Addr::Worker, Mail::StockTotal(*total));
        }
    }

    /// Goes on with the walk, a bounded way.
    pub fn step(&mut self, ledger: &Ledger, fx: &mut Effects) {
        let is_reserved = |id| {
            ledger
                .reservation(ReservationId(id))
                .is_some_and(|found| found.state == ReservationState::Reserved)
        };
        while self.from < self.committed && !is_reserved(self.from) {
            self.from += 1;
        }
        let Some((next, end)) = self.walk.filter(|_| !planted::is(Planted::OutboxForgets)) else {
            return;
        };
        let stop = end.min(next.saturating_add(OUTBOX_WALK_MAX));
        let mut at = next.max(self.from);
        for _ in 0..OUTBOX_CHUNKS_PER_TICK {
            let mut chunk_end = at;
            let mut found = 0;
            while chunk_end < stop && found < ORDER_BATCH_MAX {
                found += usize::from(is_reserved(chunk_end));
                chunk_end += 1;
            }
            self.resent += send(ledger, at..chunk_end, fx);
            at = chunk_end;
        }
        self.walk = (at < end).then_some((at, end));
    }
}

fn totals_of(ledger: &Ledger) -> impl Iterator<Item = StockTotal> + '_ {
    ledger.skus().map(|state| StockTotal {
        sku: state.sku,
        total: state.books.total,
    })
}

/// Posts what of `ids` is RESERVED; returns how many.
fn send(ledger: &Ledger, ids: core::ops::Range<u64>, fx: &mut Effects) -> u64 {
    let found = ids.filter_map(|id| ledger.reservation(ReservationId(id)));
    let messages: Vec<_> = found
        .filter(|found| found.state == ReservationState::Reserved)
        .map(|found| found.message)
        .collect();
    let count = messages.len() as u64;
    if count > 0 {
        fx.post(Addr::Worker, Mail::Reserved(messages));
    }
    count
}
