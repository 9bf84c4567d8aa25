//! What waits for the next transaction: bounded queues, and the order in which a batch takes from them.
//!
//! Called by the worker only. Restocks go first (no total is written before every restock in it is), then stock totals
//! (the orders behind them need them), then the ledger's
//! acknowledgements, payments (somebody waits for them), and orders with what room is left.

use super::contract::{
    NewOrder, OrderCommand, OrderMessage, PaymentAsk, Restocked, RestocksTold, StockTotal,
};
use crate::limits::{
    ACTIVITIES_MAX, INNER_PER_BATCH_MAX, LEDGER_STEPS_MAX, ORDER_BATCH_MAX, ORDER_QUEUE_MAX,
    PAYMENT_QUEUE_MAX, PAYMENTS_PER_BATCH_MAX, SKUS_PER_ACTIVITY_MAX,
};
use crate::time::{Mono, WallMs};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use weir_proto::ids::SkuKey;

/// How long a message that could not be carried out waits before it is tried again: several asks for the outbox, which
/// brings the total of a restock, fit in between.
const RETRY_PAUSE_MS: u64 = 1_000;
/// SKUs whose total waits at once; further ones come again with the next outbox.
const TOTALS_MAX: usize = ACTIVITIES_MAX * SKUS_PER_ACTIVITY_MAX;
/// Totals of one batch: with the other shares it stays below `ORDER_BATCH_MAX`. Orders wait until all are written.
const TOTALS_PER_BATCH_MAX: usize = 128;
/// Restocks that wait at once; further ones come again with the next outbox.
const RESTOCKS_MAX: usize = 1024;
/// Restocks of one batch.
const RESTOCKS_PER_BATCH_MAX: usize = 64;

/// An order message and how often it was tried.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) message: OrderMessage,
    pub(super) attempts: u32,
}

/// The queues.
#[derive(Debug, Default)]
pub(super) struct Intake {
    restocks: VecDeque<(Restocked, bool)>,
    totals: BTreeMap<SkuKey, u64>,
    inner: VecDeque<OrderCommand>,
    payments: VecDeque<PaymentAsk>,
    fresh: VecDeque<Waiting>,
    /// In order of time: the pause is the same for all.
    delayed: VecDeque<(Mono, Waiting)>,
}

/// A batch's commands, and for each how often its message was tried before (0 for all that are no message).
#[derive(Debug, Default)]
pub(super) struct Taken {
    pub(super) commands: Vec<OrderCommand>,
    pub(super) attempts: Vec<u32>,
}

impl Taken {
    pub(super) fn push(&mut self, command: OrderCommand, attempts: u32) {
        self.commands.push(command);
        self.attempts.push(attempts);
    }
}

impl Intake {
    /// Keeps a new total; false when there is no room for a further SKU.
    pub(super) fn total(&mut self, total: StockTotal) -> bool {
        if self.totals.len() >= TOTALS_MAX && !self.totals.contains_key(&total.sku) {
            return false;
        }
        let kept = self.totals.entry(total.sku).or_default();
        *kept = total.total.max(*kept);
        true
    }

    /// Keeps restocks, and the total behind them; false when there is no room: then neither is.
    pub(super) fn restocks(&mut self, told: RestocksTold) -> bool {
        if self.restocks.len() + told.restocks.len() > RESTOCKS_MAX {
            return false;
        }
        let restocks = told.restocks.into_iter();
        self.restocks
            .extend(restocks.map(|restock| (restock, told.adds)));
        let sku = told.sku;
        let total = told.total.map(|total| StockTotal { sku, total });
        total.is_none_or(|total| self.total(total))
    }

    /// Keeps a command of the worker's own; false when full (the row remembers, a sweep finds it).
    pub(super) fn inner(&mut self, command: OrderCommand) -> bool {
        let room = self.inner.len() < LEDGER_STEPS_MAX;
        if room {
            self.inner.push_back(command);
        }
        room
    }

    /// Keeps a payment; false when full.
    pub(super) fn payment(&mut self, ask: PaymentAsk) -> bool {
        let room = self.payments.len() < PAYMENT_QUEUE_MAX;
        if room {
            self.payments.push_back(ask);
        }
        room
    }

    /// Keeps a message; false when full (the ledger's outbox has it).
    pub(super) fn message(&mut self, message: OrderMessage) -> bool {
        let room = self.messages() < ORDER_QUEUE_MAX;
        if room {
            self.fresh.push_back(Waiting {
                message,
                attempts: 0,
            });
        }
        room
    }

    /// Puts a message that was tried aside for a while, so that it blocks nobody.
    pub(super) fn try_later(&mut self, now: Mono, waiting: Waiting) {
        self.delayed
            .push_back((now.plus_ms(RETRY_PAUSE_MS), waiting));
    }

    /// Messages that wait.
    pub(super) fn messages(&self) -> usize {
        self.fresh.len() + self.delayed.len()
    }

    /// Payments that wait.
    pub(super) fn payments(&self) -> usize {
        self.payments.len()
    }

    /// True when nothing waits at all.
    pub(super) fn is_empty(&self) -> bool {
        self.restocks.is_empty()
            && self.totals.is_empty()
            && self.inner.is_empty()
            && self.payments.is_empty()
            && self.messages() == 0
    }

    /// When a message put aside is tried again.
    pub(super) fn next_deadline(&self) -> Option<Mono> {
        self.delayed.front().map(|(at, _)| *at)
    }

    /// Gives up everything but payments, which are handed out to be answered. The rest is elsewhere, too.
    pub(super) fn abandon(&mut self) -> VecDeque<PaymentAsk> {
        self.restocks.clear();
        self.totals.clear();
        self.inner.clear();
        self.fresh.clear();
        self.delayed.clear();
        core::mem::take(&mut self.payments)
    }

    /// Takes the commands of one batch, leaving room for two of the worker's own. `due`: when an order made now must
    /// be paid.
    pub(super) fn take(&mut self, now: Mono, due: impl Fn(SkuKey) -> WallMs) -> Taken {
        let mut taken = Taken::default();
        let restocks = self.restocks.len().min(RESTOCKS_PER_BATCH_MAX);
        for (restock, adds) in self.restocks.drain(..restocks) {
            taken.push(OrderCommand::Restocked { restock, adds }, 0);
        }
        while self.restocks.is_empty()
            && taken.commands.len() < TOTALS_PER_BATCH_MAX
            && let Some((sku, total)) = self.totals.pop_first()
        {
            taken.push(OrderCommand::StockTotal(StockTotal { sku, total }), 0);
        }
        for command in self
            .inner
            .drain(..self.inner.len().min(INNER_PER_BATCH_MAX))
        {
            taken.push(command, 0);
        }
        let payments = self.payments.len().min(PAYMENTS_PER_BATCH_MAX);
        for ask in self.payments.drain(..payments) {
            taken.push(OrderCommand::Pay(ask), 0);
        }
        let is_told = self.restocks.is_empty() && self.totals.is_empty();
        while is_told && taken.commands.len() + 2 < ORDER_BATCH_MAX {
            let Some(waiting) = self.next_message(now) else {
                break;
            };
            let order = NewOrder {
                message: waiting.message,
                due: due(waiting.message.sku),
            };
            taken.push(OrderCommand::Insert(order), waiting.attempts);
        }
        taken
    }

    fn next_message(&mut self, now: Mono) -> Option<Waiting> {
        match self.delayed.front() {
            Some((at, waiting)) if *at <= now => {
                let waiting = *waiting;
                self.delayed.pop_front();
                Some(waiting)
            }
            _ => self.fresh.pop_front(),
        }
    }
}
