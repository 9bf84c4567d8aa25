//! One SKU of the ledger: its books, epoch, mode and the operators' requests it remembers.
//!
//! Called by the ledger only. Invariants: books balance; free = 0 implies `sold_out`; while `sold_out`, free units wait
//! for the reopening step, so that one epoch covers all that gathered (design §12.9).

use crate::ask::{Books, Mode};
use crate::limits::{
    OPS_REMEMBERED_MAX, OPS_REMEMBERED_MS, RESERVATIONS_MAX, RESERVATIONS_PER_UNIT,
};
use crate::order::contract::Money;
use crate::time::WallMs;
use alloc::collections::VecDeque;
use weir_proto::ids::{RequestId, SkuKey};

/// What an operator asked for; the content that goes with a request id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpsStep {
    /// Put on sale, or on sale again.
    Open {
        /// First stock.
        stock: u64,
        /// Most units of one request.
        quantity_max: u32,
        /// A closed order does not free its user.
        once_per_activity: bool,
    },
    /// End the sale.
    Close,
    /// Set the mode.
    SetMode(Mode),
    /// Add units.
    Restock(u64),
}

/// An operator's request that was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OpsDone {
    pub request_id: RequestId,
    pub step: OpsStep,
    pub at: WallMs,
}

/// One SKU.
#[derive(Clone, Debug)]
pub(super) struct Sku {
    pub key: SkuKey,
    pub open: bool,
    pub mode: Mode,
    pub quantity_max: u32,
    pub once_per_activity: bool,
    pub books: Books,
    /// Grows at each sold-out and each reopening.
    pub epoch: u64,
    pub sold_out: bool,
    /// Reservations made so far.
    pub reservations: u32,
    /// Units added after the first stock; they raise the most reservations.
    pub restocked: u64,
    /// Oldest first; at most `OPS_REMEMBERED_MAX`.
    pub ops: VecDeque<OpsDone>,
    /// From the configuration, not stored: the most reservations and the price. `None`: not in the configuration.
    pub plan: Option<Plan>,
}

/// What the configuration says of a SKU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub reservations_max: u32,
    pub unit_price: Money,
}

impl Sku {
    pub fn new(key: SkuKey, plan: Option<Plan>) -> Self {
        Self {
            key,
            open: false,
            mode: Mode::Normal,
            quantity_max: 0,
            once_per_activity: false,
            books: Books::default(),
            epoch: 1,
            sold_out: true, // no unit yet; the first stock of `Open` clears it without an epoch step
            reservations: 0,
            restocked: 0,
            ops: VecDeque::with_capacity(16),
            plan,
        }
    }

    /// Reservations that may still be made before the table is full.
    pub fn room(&self) -> u32 {
        let Some(plan) = self.plan else {
            return 0;
        };
        let raised = self.restocked.saturating_mul(RESERVATIONS_PER_UNIT);
        let reservations_max = raised
            .saturating_add(u64::from(plan.reservations_max))
            .min(RESERVATIONS_MAX) as u32;
        reservations_max.saturating_sub(self.reservations)
    }

    /// True when units wait for the reopening step.
    pub fn reopens(&self) -> bool {
        self.sold_out && self.books.free > 0
    }

    pub fn reopen(&mut self) {
        self.sold_out = false;
        self.epoch += 1;
    }

    /// free → held.
    pub fn hold(&mut self, units: u64) {
        self.books.free -= units;
        self.books.held += units;
        self.mark();
    }

    /// held → sold.
    pub fn settle(&mut self, units: u64) {
        self.books.held -= units;
        self.books.sold += units;
        self.mark();
    }

    /// held → free; sellable at once unless sold out.
    pub fn give_back(&mut self, units: u64) {
        self.books.held -= units;
        self.books.free += units;
        self.mark();
    }

    /// free → sold: a late payment finds a free unit.
    pub fn sell_again(&mut self, units: u64) {
        self.books.free -= units;
        self.books.sold += units;
        self.mark();
    }

    /// Units that were never on sale before.
    pub fn add(&mut self, units: u64) {
        self.books.total += units;
        self.books.free += units;
        self.mark();
    }

    fn mark(&mut self) {
        if self.books.free == 0 && !self.sold_out {
            self.sold_out = true;
            self.epoch += 1;
        }
        debug_assert!(self.books.balance(), "books of a SKU do not balance");
    }

    /// The step that this operator's request id was used for.
    pub fn ops_done(&self, request_id: RequestId) -> Option<OpsStep> {
        self.ops
            .iter()
            .find(|done| done.request_id == request_id)
            .map(|done| done.step)
    }

    /// True when one more operator's request can be remembered without forgetting a young one.
    pub fn ops_room(&self, at: WallMs) -> bool {
        self.ops.len() < OPS_REMEMBERED_MAX
            || self
                .ops
                .front()
                .is_some_and(|oldest| at.since(oldest.at) >= OPS_REMEMBERED_MS)
    }

    pub fn remember_ops(&mut self, done: OpsDone) {
        if self.ops.len() >= OPS_REMEMBERED_MAX {
            self.ops.pop_front();
        }
        self.ops.push_back(done);
    }
}
