//! The order store as plain maps: the simulator's store, and what SQLite is held against (design §12.15).
//!
//! Answers every [`OrderBatch`] as `src/orders/store.rs` does, by its own code; only the state table is shared. The
//! simulator owns it, switches its faults, and reads it to check promises.

mod tables;

pub use tables::{OrderRow, Payment, Refund, RefundWhy, StockRow, Tables};

use super::contract::{OrderBatch, OrderDone, OrderFault};
use crate::mail::{Addr, Mail};
use crate::port::{Effects, Event, Handler};
use crate::time::{Mono, Now};
use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use weir_proto::ids::ReservationId;

/// Faults that the simulator switches; all off at first.
#[derive(Clone, Debug, Default)]
pub struct ModelFaults {
    /// The next batches, each answered with a fault. `Io` commits every second time: its outcome is unknown.
    pub next: VecDeque<OrderFault>,
    /// Each answer takes so long, in nanoseconds.
    pub delay_ns: u64,
    /// Inserts of these reservations are `Broken`.
    pub poison: BTreeSet<ReservationId>,
}

/// The order store of the simulator.
#[derive(Debug, Default)]
pub struct OrderModel {
    /// What is committed; survives a crash.
    pub tables: Tables,
    /// Switches.
    pub faults: ModelFaults,
    faulty: Option<OrderFault>,
    io_faults: u64,
    last: Option<OrderDone>,
    answers: VecDeque<(Mono, OrderDone)>,
}

impl OrderModel {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// The process died and was started again: what is committed stays, answers on their way are lost.
    pub fn restart(&mut self) {
        self.faulty = None;
        self.last = None;
        self.answers.clear();
        self.faults.next.clear();
    }

    /// Why every batch is refused until [`Self::restart`]; `None` while the store works.
    pub fn fault(&self) -> Option<OrderFault> {
        self.faulty
    }

    /// Runs one batch as one transaction.
    pub fn execute(&mut self, batch: &OrderBatch) -> OrderDone {
        let seq = batch.seq;
        if let Some(last) = self.last.as_ref().filter(|last| last.seq == seq) {
            return last.clone();
        }
        let fault = self.faulty.or_else(|| self.faults.next.pop_front());
        let Some(fault) = fault else {
            let results = Ok(self.tables.run(batch, &self.faults.poison));
            let done = OrderDone { seq, results };
            self.last = Some(done.clone());
            return done;
        };
        if fault == OrderFault::Io && self.faulty.is_none() {
            self.io_faults += 1;
            if self.io_faults.is_multiple_of(2) {
                self.tables.run(batch, &self.faults.poison);
            }
        }
        if fault != OrderFault::Busy {
            self.faulty = Some(fault);
        }
        OrderDone {
            seq,
            results: Err(fault),
        }
    }
}

impl Handler for OrderModel {
    fn on_start(&mut self, _now: Now, _fx: &mut Effects) {}

    fn on_event(&mut self, now: Now, event: Event<'_>, fx: &mut Effects) {
        match event {
            Event::Mail(Mail::Orders(batch)) => {
                let done = self.execute(&batch);
                self.answers
                    .push_back((now.mono.plus_ns(self.faults.delay_ns), done));
            }
            Event::Drain => fx.stop(),
            _ => {}
        }
    }

    fn on_flush(&mut self, now: Now, fx: &mut Effects) {
        while let Some((at, _)) = self.answers.front()
            && *at <= now.mono
            && let Some((_, done)) = self.answers.pop_front()
        {
            fx.post(Addr::Worker, Mail::OrdersDone(Box::new(done)));
        }
    }

    fn next_deadline(&self) -> Option<Mono> {
        self.answers.front().map(|(at, _)| *at)
    }
}
