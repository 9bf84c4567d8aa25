//! The contract of the order store: the same data drives SQLite now and PostgreSQL or MySQL later (design §12.4).
//!
//! The worker sends one [`OrderBatch`] at a time; the store runs it as one transaction and answers each command.
//! Every row carries two numbers: `version`, which grows with each transition and fences it, and `acked`, the version
//! whose step the ledger acknowledged. `acked < version` is all that a restart needs to know to go on.

use crate::ask::AskId;
use crate::mail::Addr;
use crate::order::state::OrderState;
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
    /// The same payment was recorded as Paid before; nothing changed. Other first results are repeated as they were.
    Repeated,
    /// The order was closed already: recorded as PAID_LATE (re-reserved or listed for refund).
    Late,
    /// Amount or currency differ from the order's; recorded for refund, the order is unchanged.
    AmountDiffers,
    /// The order was paid by another payment: recorded for refund.
    PaidBefore,
    /// No such reservation has an order (yet): the provider retries.
    NoOrder,
    /// The payment id was used for another reservation or another amount.
    PaymentIdReused,
    /// The order store failed; nothing is known to be recorded: the provider retries.
    StoreFailed,
}

/// One transaction for the order store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderBatch {
    /// Grows by one per batch; comes back in [`OrderDone`]. A batch that is sent again keeps its number, and a store
    /// that has just committed it gives the same results again.
    pub seq: u64,
    /// Wall time of the batch, never earlier than that of a batch before (design §12.14).
    pub at: WallMs,
    /// Commands, in order; 1..=`limits::ORDER_BATCH_MAX`.
    pub commands: Vec<OrderCommand>,
}

/// The results of an [`OrderBatch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderDone {
    /// Which batch.
    pub seq: u64,
    /// One result per command, in order; `Err` when the transaction is not known to have committed.
    pub results: Result<Vec<OrderResult>, OrderFault>,
}

/// Why a transaction did not commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OrderFault {
    /// Rolled back for a passing reason (a lock was held): nothing was written, send it again after a pause.
    Busy,
    /// No space left. The store refuses every batch until it is restarted.
    DiskFull,
    /// A write, a sync or the commit failed, with an unknown result. The store refuses every batch until it is
    /// restarted; the restart reads what is there (field bugs R43, R55).
    Io,
}

/// One step on orders. All are idempotent or fenced: sent again they change nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderCommand {
    /// Make the order of a reservation: CREATED, or FAILED when the user has another live order of this SKU.
    Insert(NewOrder),
    /// Record a payment, and what it does to the order.
    Pay(PaymentAsk),
    /// CREATED → CLOSED, if the order still stands at that version.
    Close(Fenced),
    /// CREATED → CLOSED for at most `limit` orders whose due time is the batch's `at` or earlier, oldest first.
    CloseDue {
        /// 1..=`limits::ORDER_PAGE_MAX`.
        limit: u32,
    },
    /// PAID_LATE → PAID, if the order still stands at that version: the ledger sold it a unit again.
    Resell(Fenced),
    /// PAID → PAID_LATE, if the order still stands at that version: the ledger holds no unit for it.
    LoseUnit(Fenced),
    /// The ledger acknowledged the step of that version.
    Ack(Fenced),
    /// Make a FAILED order of a message that cannot be carried out, and keep it as a dead letter.
    Bury(DeadLetter),
    /// All units ever put on sale, as the ledger says; only grows.
    StockTotal(StockTotal),
    /// A restock that the ledger carried out, by its name: known once, however often it is told.
    Restocked {
        /// Which.
        restock: Restocked,
        /// Its units are not in any total that was told: they are added to the SKU's when it is new here.
        adds: bool,
    },
    /// Page through the orders whose step the ledger has not acknowledged, by reservation.
    Unacked {
        /// Only larger reservations.
        after: ReservationId,
        /// 1..=`limits::ORDER_PAGE_MAX`.
        limit: u32,
    },
    /// Page through the orders of a SKU, by reservation.
    Rows {
        /// Which SKU.
        sku: SkuKey,
        /// Only larger reservations.
        after: ReservationId,
        /// 1..=`limits::ORDER_PAGE_MAX`.
        limit: u32,
    },
}

/// An order to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewOrder {
    /// What the ledger says.
    pub message: OrderMessage,
    /// Closed when it is unpaid then.
    pub due: WallMs,
}

/// An order at a version; a command on it does nothing when the order has moved on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fenced {
    /// Which order.
    pub reservation: ReservationId,
    /// The version that the sender saw.
    pub version: u32,
}

/// The units of a SKU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StockTotal {
    /// Which SKU.
    pub sku: SkuKey,
    /// All units ever put on sale (`ask::Books::total`), at most 2^63-1.
    pub total: u64,
}

/// A restock as it was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restocked {
    /// Of which SKU.
    pub sku: SkuKey,
    /// The operator's name for it.
    pub request_id: RequestId,
    /// How many were added, 1..=`limits::UNITS_MAX`.
    pub units: u64,
    /// When.
    pub at: WallMs,
}

/// What the ledger's clerk tells of a SKU's restocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestocksTold {
    /// Which SKU.
    pub sku: SkuKey,
    /// At most `limits::RESTOCKS_PAGE`, in the order in which they were carried out.
    pub restocks: Vec<Restocked>,
    /// All units ever put on sale; `None` while not every restock in it was told.
    pub total: Option<u64>,
    /// Their units are in no total that was told.
    pub adds: bool,
}

/// A message that could not be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// The message.
    pub message: OrderMessage,
    /// Why.
    pub why: DeadWhy,
    /// How often it was tried.
    pub attempts: u32,
}

/// Why a message is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DeadWhy {
    /// Its format version is not known here.
    Version,
    /// A number is out of range (quantity 0, price × quantity above 2^63-1).
    Range,
    /// The SQL stock is used up: the last line of defence.
    StockShort,
    /// The store refused its statement again and again.
    Statement,
}

impl DeadWhy {
    /// The word in the dead letter's row.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Version => "version",
            Self::Range => "range",
            Self::StockShort => "stock_short",
            Self::Statement => "statement",
        }
    }
}

/// Where an order stands: what the worker must know to do the next step with the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Which order.
    pub reservation: ReservationId,
    /// Of which SKU.
    pub sku: SkuKey,
    /// Its state.
    pub state: OrderState,
    /// Grows by one per transition, from 1.
    pub version: u32,
    /// The last version whose step the ledger acknowledged; 0: none.
    pub acked: u32,
}

/// The result of an [`OrderCommand`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrderResult {
    /// `Insert`, `Close`, `Resell`, `LoseUnit`, `Bury`: this command made or moved the order; it stands so now.
    Moved(Standing),
    /// The same commands: the order stood so before; nothing changed.
    Stands(Standing),
    /// `Insert`: SQL's stock has too few units; nothing was written.
    StockShort,
    /// `Pay`: what came of it, and where the order stands when it was moved.
    Payment(PaymentResult, Option<Standing>),
    /// `CloseDue`: the orders that were closed, and when the next one is due.
    Closed {
        /// Closed now.
        orders: Vec<Standing>,
        /// The earliest due time of the orders that are left.
        next_due: Option<WallMs>,
    },
    /// `Unacked`: a page.
    Unacked {
        /// In order of reservation.
        orders: Vec<Standing>,
        /// A further page may exist.
        more: bool,
        /// The `at` of the newest batch committed before this one.
        last_at: WallMs,
    },
    /// `Rows`: a page.
    Rows {
        /// All units ever put on sale of the SKU; 0: none are known.
        total: u64,
        /// With the first page: its newest restocks, at most `limits::RESTOCKS_MENDED_MAX`, oldest first.
        restocks: Vec<Restocked>,
        /// In order of reservation: what the order was made of, and its state.
        orders: Vec<(OrderMessage, OrderState)>,
        /// A further page may exist.
        more: bool,
    },
    /// `Ack`, `StockTotal`, `Restocked`: done.
    Done,
    /// `Close`, `Resell`, `LoseUnit`: no such order.
    Missing,
    /// This command's statement failed and left nothing; the rest of the batch committed.
    Broken,
}
