//! The contract of the order store: the same data drives SQLite now and PostgreSQL or MySQL later (design §12.4).
//!
//! The worker sends one [`OrderBatch`] at a time; the store runs it as one transaction and answers each command.

use crate::ask::AskId;
use crate::mail::Addr;
use crate::time::WallMs;
use alloc::vec::Vec;
use weir_proto::ids::{RequestId, ReservationId, SkuKey, UserId};

/// An amount: minor units (fen, cents) and the ISO 4217 code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Money {
    /// Minor units.
    pub minor: u64,
    /// ISO 4217, three capital letters.
    pub currency: [u8; 3],
}

/// The order message: what a reservation says to the order store. Versioned from the first row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderMessage {
    /// Format version, [`ORDER_MESSAGE_VERSION`].
    pub version: u16,
    /// The business key; the only dedupe key (field bug R50).
    pub reservation: ReservationId,
    /// What.
    pub sku: SkuKey,
    /// Whose.
    pub user: UserId,
    /// Units.
    pub quantity: u32,
    /// The client's key, for support and audits.
    pub request_id: RequestId,
    /// Price of one unit when it was reserved.
    pub unit_price: Money,
    /// When the ledger held it.
    pub reserved_at: WallMs,
}

/// The order message's format version.
pub const ORDER_MESSAGE_VERSION: u16 = 1;

/// A payment identifier of the shop's payment provider, 1..=64 visible ASCII bytes.
pub type PaymentId = weir_proto::text::Text<64>;

/// A payment whose signature the shard has verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaymentAsk {
    /// Who wants the answer.
    pub from: Addr,
    /// The asker's name for it.
    pub id: AskId,
    /// Idempotency key.
    pub payment: PaymentId,
    /// What is paid.
    pub reservation: ReservationId,
    /// The SKU it belongs to.
    pub sku: SkuKey,
    /// How much; must equal price × quantity.
    pub amount: Money,
    /// When, by the provider.
    pub paid_at: WallMs,
}

/// The answer to a [`PaymentAsk`]; leaves after its transaction committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaymentAnswer {
    /// The asker's name for the ask.
    pub id: AskId,
    /// What came of it.
    pub result: PaymentResult,
}

/// What came of a payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PaymentResult {
    /// The order is PAID now.
    Paid,
    /// The same payment was recorded before; nothing changed.
    Repeated,
    /// The order was closed already: recorded as PAID_LATE (re-reserved or listed for refund).
    Late,
    /// Amount or currency differ from the order's; recorded, nothing changed.
    AmountDiffers,
    /// The order was paid by another payment: recorded for refund.
    PaidBefore,
    /// No such reservation has an order (yet): the provider retries.
    NoOrder,
    /// The payment id was used for another reservation.
    PaymentIdReused,
    /// The order store failed; nothing is known to be recorded: the provider retries.
    StoreFailed,
}

/// One transaction for the order store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderBatch {
    /// Grows by one per batch; comes back in [`OrderDone`].
    pub seq: u64,
    /// Wall time of the batch.
    pub at: WallMs,
    /// Commands, in order; 1..=`limits::ORDER_BATCH_MAX`.
    pub commands: Vec<OrderCommand>,
}

/// The results of an [`OrderBatch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderDone {
    /// Which batch.
    pub seq: u64,
    /// One result per command, in order; `Err` when the transaction did not commit.
    pub results: Result<Vec<OrderResult>, crate::journal::StoreFault>,
}

/// One step on orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderCommand {
    /// Make the order of a reservation; idempotent.
    Insert(OrderMessage),
}

/// The result of an [`OrderCommand`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderResult {
    /// The order exists (now or before).
    Inserted(ReservationId),
}
