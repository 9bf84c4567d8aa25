//! The model's tables and every command on them, in the plainest code.

use crate::limits::RESTOCKS_MENDED_MAX;
use crate::order::contract::{
    DeadLetter, Fenced, Money, NewOrder, OrderBatch, OrderCommand, OrderMessage, OrderResult,
    PaymentAsk, PaymentId, PaymentResult, Restocked, Standing,
};
use crate::order::state::{OrderEvent, OrderState};
use crate::time::WallMs;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use weir_proto::ids::{ReservationId, SkuKey, UserId};

/// One order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderRow {
    /// The message that it was made of.
    pub message: OrderMessage,
    /// Where it stands.
    pub state: OrderState,
    /// Grows by one per transition, from 1.
    pub version: u32,
    /// The last version that the ledger acknowledged.
    pub acked: u32,
    /// Closed when unpaid then.
    pub due: WallMs,
}

/// Why a payment is to be refunded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RefundWhy {
    /// It came after the order's end.
    Late,
    /// Its amount or currency differs from the order's.
    AmountDiffers,
    /// The order was paid by another payment.
    PaidBefore,
    /// The ledger holds no unit for the paid order.
    UnitLost,
}

impl RefundWhy {
    /// The word in the refund's row.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Late => "late",
            Self::AmountDiffers => "amount_differs",
            Self::PaidBefore => "paid_before",
            Self::UnitLost => "unit_lost",
        }
    }
}

/// Money to give back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refund {
    /// For which order.
    pub reservation: ReservationId,
    /// How much.
    pub amount: Money,
    /// Why.
    pub why: RefundWhy,
    /// False once a unit was sold for it after all.
    pub due: bool,
}

/// A payment as recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payment {
    /// For which order.
    pub reservation: ReservationId,
    /// How much.
    pub amount: Money,
    /// What came of it the first time.
    pub result: PaymentResult,
}

/// The units of one SKU in the order store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StockRow {
    /// All units ever put on sale.
    pub total: u64,
    /// Units of live orders.
    pub taken: u64,
}

/// What is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    /// Orders by reservation.
    pub orders: BTreeMap<ReservationId, OrderRow>,
    /// The live order of a user: at most one per SKU.
    pub live: BTreeMap<(SkuKey, UserId), ReservationId>,
    /// Stock by SKU.
    pub stock: BTreeMap<SkuKey, StockRow>,
    /// Restocks, in the order in which they were told; each once.
    pub restocks: Vec<Restocked>,
    /// Payments by id.
    pub payments: BTreeMap<PaymentId, Payment>,
    /// Refunds by payment.
    pub refunds: BTreeMap<PaymentId, Refund>,
    /// Dead letters by reservation.
    pub dead: BTreeMap<ReservationId, DeadLetter>,
    /// Transitions made: reservation, version, new state.
    pub history: Vec<(ReservationId, u32, OrderState)>,
    /// `at` of the newest committed batch.
    pub last_at: WallMs,
    due: BTreeSet<(WallMs, ReservationId)>,
}

impl Tables {
    pub(super) fn run(
        &mut self,
        batch: &OrderBatch,
        poison: &BTreeSet<ReservationId>,
    ) -> Vec<OrderResult> {
        let results = batch
            .commands
            .iter()
            .map(|command| match command {
                OrderCommand::Insert(order) if poison.contains(&order.message.reservation) => {
                    OrderResult::Broken
                }
                command => self.step(batch.at, command),
            })
            .collect();
        self.last_at = self.last_at.max(batch.at);
        results
    }

    fn step(&mut self, at: WallMs, command: &OrderCommand) -> OrderResult {
        match command {
            OrderCommand::Insert(order) => self.insert(order),
            OrderCommand::Pay(ask) => self.pay(ask),
            OrderCommand::Close(fenced) => self.fenced(*fenced, OrderEvent::Close),
            OrderCommand::CloseDue { limit } => self.close_due(at, *limit as usize),
            OrderCommand::Resell(fenced) => self.resell(*fenced),
            OrderCommand::LoseUnit(fenced) => self.lose_unit(*fenced),
            OrderCommand::Ack(fenced) => {
                if let Some(row) = self.orders.get_mut(&fenced.reservation)
                    && fenced.version <= row.version
                {
                    row.acked = row.acked.max(fenced.version);
                }
                OrderResult::Done
            }
            OrderCommand::Bury(letter) => self.bury(letter),
            OrderCommand::StockTotal(told) => {
                let stock = self.stock.entry(told.sku).or_default();
                stock.total = stock.total.max(told.total);
                OrderResult::Done
            }
            OrderCommand::Restocked { restock, adds } => self.restocked(restock, *adds),
            OrderCommand::Unacked { after, limit } => self.unacked(*after, *limit as usize),
            OrderCommand::Rows { sku, after, limit } => self.rows(*sku, *after, *limit as usize),
        }
    }

    /// Where an order stands; `None` for no such order.
    pub fn standing(&self, reservation: ReservationId) -> Option<Standing> {
        self.orders.get(&reservation).map(|row| Standing {
            reservation,
            sku: row.message.sku,
            state: row.state,
            version: row.version,
            acked: row.acked,
        })
    }

    fn stands(&self, reservation: ReservationId) -> OrderResult {
        self.standing(reservation)
            .map_or(OrderResult::Missing, OrderResult::Stands)
    }

    fn room(&self, message: &OrderMessage) -> bool {
        self.stock.get(&message.sku).is_some_and(|stock| {
            stock.total.saturating_sub(stock.taken) >= u64::from(message.quantity)
        })
    }

    fn insert(&mut self, order: &NewOrder) -> OrderResult {
        let message = order.message;
        if self.orders.contains_key(&message.reservation) {
            return self.stands(message.reservation);
        }
        let event = if self.live.contains_key(&(message.sku, message.user)) {
            OrderEvent::Refuse
        } else if self.room(&message) {
            OrderEvent::Insert
        } else {
            return OrderResult::StockShort;
        };
        self.add(message, order.due, event)
    }

    fn bury(&mut self, letter: &DeadLetter) -> OrderResult {
        let reservation = letter.message.reservation;
        if self.orders.contains_key(&reservation) {
            return self.stands(reservation);
        }
        self.dead.insert(reservation, *letter);
        self.add(letter.message, WallMs(0), OrderEvent::Refuse)
    }

    fn add(&mut self, message: OrderMessage, due: WallMs, event: OrderEvent) -> OrderResult {
        let row = OrderRow {
            message,
            state: OrderState::Queued,
            version: 0,
            acked: 0,
            due,
        };
        self.orders.insert(message.reservation, row);
        self.shift(message.reservation, event)
            .expect("QUEUED takes Insert and Refuse, and room was seen");
        OrderResult::Moved(
            self.standing(message.reservation)
                .expect("the row was just written"),
        )
    }

    /// Moves an order by the table, with everything that hangs on it; `None` when table, user or stock forbid it.
    fn shift(&mut self, reservation: ReservationId, event: OrderEvent) -> Option<Standing> {
        let row = *self.orders.get(&reservation)?;
        let next = row.state.after(event).ok()?;
        let key = (row.message.sku, row.message.user);
        let quantity = u64::from(row.message.quantity);
        if next.is_live() && !row.state.is_live() {
            if self.live.contains_key(&key) || !self.room(&row.message) {
                return None;
            }
            self.live.insert(key, reservation);
            self.stock.entry(row.message.sku).or_default().taken += quantity;
        }
        if !next.is_live() && row.state.is_live() {
            self.live.remove(&key);
            self.stock.entry(row.message.sku).or_default().taken -= quantity;
        }
        if next == OrderState::Created {
            self.due.insert((row.due, reservation));
        } else {
            self.due.remove(&(row.due, reservation));
        }
        let row = self.orders.get_mut(&reservation)?;
        row.state = next;
        row.version += 1;
        self.history.push((reservation, row.version, next));
        self.standing(reservation)
    }

    fn fenced(&mut self, fenced: Fenced, event: OrderEvent) -> OrderResult {
        match self.orders.get(&fenced.reservation) {
            Some(row) if row.version == fenced.version => self
                .shift(fenced.reservation, event)
                .map_or_else(|| self.stands(fenced.reservation), OrderResult::Moved),
            _ => self.stands(fenced.reservation),
        }
    }

    fn resell(&mut self, fenced: Fenced) -> OrderResult {
        let result = self.fenced(fenced, OrderEvent::Resell);
        let OrderResult::Moved(mut standing) = result else {
            return result;
        };
        // The ledger settled it before this command was sent.
        standing.acked = standing.version;
        if let Some(row) = self.orders.get_mut(&fenced.reservation) {
            row.acked = row.version;
        }
        for refund in self.refunds.values_mut() {
            if refund.reservation == fenced.reservation
                && matches!(refund.why, RefundWhy::Late | RefundWhy::UnitLost)
            {
                refund.due = false;
            }
        }
        OrderResult::Moved(standing)
    }

    fn lose_unit(&mut self, fenced: Fenced) -> OrderResult {
        let result = self.fenced(fenced, OrderEvent::LoseUnit);
        if matches!(result, OrderResult::Moved(_)) {
            for (id, payment) in &self.payments {
                if payment.reservation == fenced.reservation
                    && matches!(payment.result, PaymentResult::Paid | PaymentResult::Late)
                {
                    let refund = Refund {
                        reservation: payment.reservation,
                        amount: payment.amount,
                        why: RefundWhy::UnitLost,
                        due: true,
                    };
                    self.refunds.insert(*id, refund);
                }
            }
        }
        result
    }

    fn close_due(&mut self, at: WallMs, limit: usize) -> OrderResult {
        let due: Vec<ReservationId> = self
            .due
            .iter()
            .take_while(|(due, _)| *due <= at)
            .take(limit)
            .map(|(_, reservation)| *reservation)
            .collect();
        let orders = due
            .into_iter()
            .filter_map(|reservation| self.shift(reservation, OrderEvent::Close))
            .collect();
        let next_due = self.due.first().map(|(due, _)| *due);
        OrderResult::Closed { orders, next_due }
    }

    fn restocked(&mut self, told: &Restocked, adds: bool) -> OrderResult {
        let is_it =
            |known: &Restocked| (known.sku, known.request_id) == (told.sku, told.request_id);
        if !self.restocks.iter().any(is_it) {
            self.restocks.push(*told);
            if adds {
                self.stock.entry(told.sku).or_default().total += told.units;
            }
        }
        OrderResult::Done
    }

    fn rows(&self, sku: SkuKey, after: ReservationId, limit: usize) -> OrderResult {
        let orders: Vec<(OrderMessage, OrderState)> = self
            .orders
            .iter()
            .filter(|(reservation, row)| **reservation > after && row.message.sku == sku)
            .take(limit)
            .map(|(_, row)| (row.message, row.state))
            .collect();
        let mut restocks: Vec<Restocked> = self.restocks.clone();
        restocks.retain(|restock| restock.sku == sku && after.0 == 0);
        restocks.drain(..restocks.len().saturating_sub(RESTOCKS_MENDED_MAX));
        OrderResult::Rows {
            restocks,
            total: self.stock.get(&sku).map_or(0, |stock| stock.total),
            more: orders.len() == limit,
            orders,
        }
    }

    fn unacked(&self, after: ReservationId, limit: usize) -> OrderResult {
        let orders: Vec<Standing> = self
            .orders
            .iter()
            .filter(|(reservation, row)| **reservation > after && row.acked < row.version)
            .take(limit)
            .filter_map(|(reservation, _)| self.standing(*reservation))
            .collect();
        OrderResult::Unacked {
            more: orders.len() == limit,
            orders,
            last_at: self.last_at,
        }
    }

    fn pay(&mut self, ask: &PaymentAsk) -> OrderResult {
        if let Some(known) = self.payments.get(&ask.payment) {
            let result = if (known.reservation, known.amount) != (ask.reservation, ask.amount) {
                PaymentResult::PaymentIdReused
            } else if known.result == PaymentResult::Paid {
                PaymentResult::Repeated
            } else {
                known.result
            };
            return OrderResult::Payment(result, None);
        }
        let Some(row) = self.orders.get(&ask.reservation).copied() else {
            return OrderResult::Payment(PaymentResult::NoOrder, None);
        };
        if row.message.sku != ask.sku {
            return OrderResult::Payment(PaymentResult::NoOrder, None);
        }
        let price = u128::from(row.message.unit_price.minor) * u128::from(row.message.quantity);
        let fits = u128::from(ask.amount.minor) == price
            && ask.amount.currency == row.message.unit_price.currency;
        let (result, why) = match row.state {
            OrderState::Paid | OrderState::PaidLate => {
                (PaymentResult::PaidBefore, Some(RefundWhy::PaidBefore))
            }
            _ if !fits => (PaymentResult::AmountDiffers, Some(RefundWhy::AmountDiffers)),
            OrderState::Created => (PaymentResult::Paid, None),
            _ => (PaymentResult::Late, Some(RefundWhy::Late)),
        };
        let payment = Payment {
            reservation: ask.reservation,
            amount: ask.amount,
            result,
        };
        self.payments.insert(ask.payment, payment);
        if let Some(why) = why {
            let refund = Refund {
                reservation: ask.reservation,
                amount: ask.amount,
                why,
                due: true,
            };
            self.refunds.insert(ask.payment, refund);
        }
        let standing = matches!(result, PaymentResult::Paid | PaymentResult::Late)
            .then(|| self.shift(ask.reservation, OrderEvent::Pay))
            .flatten();
        OrderResult::Payment(result, standing)
    }
}
