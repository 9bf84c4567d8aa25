//! The report of `weir reconcile`: for programs by serde, for people by `Display`. Names no user.

use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use weir_proto::ids::{ReservationId, SkuKey};

/// What reconcile found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// True without any difference.
    pub balanced: bool,
    /// One row per SKU, sorted.
    pub skus: Vec<SkuReport>,
    /// Reservations whose order message is still in the ledger's outbox; the worker makes their orders.
    pub in_outbox: u64,
    /// Orders whose last step the ledger has not acknowledged; the worker repeats it at the next start.
    pub steps_open: u64,
    /// Refunds that are due.
    pub refunds_due: u64,
    /// Dead letters.
    pub dead_letters: u64,
    /// How many differences there are, by kind.
    pub counts: BTreeMap<&'static str, u64>,
    /// The first 1,000 differences.
    pub differences: Vec<Difference>,
}

/// The books of one SKU on both sides, in units.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SkuReport {
    /// Activity.
    pub activity_id: u64,
    /// SKU.
    pub sku_id: u64,
    /// Ledger: all units ever put on sale.
    pub total: u64,
    /// Ledger: held by nobody.
    pub free: u64,
    /// Ledger: held unpaid.
    pub held: u64,
    /// Ledger: paid.
    pub sold: u64,
    /// Ledger: owner disputed.
    pub quarantined: u64,
    /// Orders: units of CREATED ones.
    pub orders_created: u64,
    /// Orders: units of PAID ones.
    pub orders_paid: u64,
    /// Order store's stock row: total.
    pub stock_total: u64,
    /// Order store's stock row: units of live orders.
    pub stock_taken: u64,
}

/// One thing that disagrees.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    /// What kind; see [`Kind`].
    pub kind: &'static str,
    /// Activity.
    pub activity_id: u64,
    /// SKU.
    pub sku_id: u64,
    /// The reservation, when it is about one.
    pub reservation_id: Option<String>,
    /// Both sides in words.
    pub what: String,
    /// What `--repair` does, or what a person must do.
    pub remedy: &'static str,
    /// What `--repair` does.
    #[serde(skip)]
    pub repair: Repair,
}

/// A repair that is safe while the server is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Repair {
    /// The stock row's total is raised to the ledger's.
    RaiseTotal(SkuKey),
    /// The stock row's count is corrected by its delta to the live orders.
    Recount(SkuKey),
    /// The worker asks the ledger for the order's step again, and follows the answer.
    AskAgain(ReservationId),
    /// The order is inserted from the ledger's message.
    InsertOrder(ReservationId),
    /// Nothing: a person decides.
    Person,
}

/// The kinds of differences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// total ≠ free + held + sold + quarantined.
    BooksUnbalanced,
    /// The ledger's books and its own reservations disagree.
    BooksNotReservations,
    /// More units in live orders than were ever put on sale.
    Oversold,
    /// A reservation past RESERVED has no order row.
    OrderMissing,
    /// A live order has no reservation.
    ReservationMissing,
    /// Order and reservation name another user, SKU or quantity.
    IdentityDiffers,
    /// Order and reservation stand at states that do not belong together.
    StatesDiffer,
    /// A user has two live orders of one SKU.
    TwoLiveOrders,
    /// The stock row's taken units are not those of the live orders.
    TakenDiffers,
    /// The stock row's total is not the ledger's.
    TotalDiffers,
}

impl Kind {
    /// The word in reports.
    pub const fn text(self) -> &'static str {
        match self {
            Self::BooksUnbalanced => "books_unbalanced",
            Self::BooksNotReservations => "books_not_reservations",
            Self::Oversold => "oversold",
            Self::OrderMissing => "order_missing",
            Self::ReservationMissing => "reservation_missing",
            Self::IdentityDiffers => "identity_differs",
            Self::StatesDiffer => "states_differ",
            Self::TwoLiveOrders => "two_live_orders",
            Self::TakenDiffers => "taken_differs",
            Self::TotalDiffers => "total_differs",
        }
    }
}

impl Repair {
    pub(super) const fn remedy(self) -> &'static str {
        match self {
            Self::AskAgain(_) => {
                "--repair marks the order; at the next start the worker asks the ledger again"
            }
            Self::InsertOrder(_) => "--repair inserts the order from the ledger's message",
            Self::Recount(_) => "--repair corrects the stock row's count by the delta",
            Self::RaiseTotal(_) => "--repair raises the stock row's total to the ledger's",
            Self::Person => "a person decides: compare with the payment provider and the logs",
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:>12} {:>8} {:>10} {:>10} {:>8} {:>10} {:>11} {:>14} {:>11}",
            "activity",
            "sku",
            "total",
            "free",
            "held",
            "sold",
            "quarantined",
            "orders created",
            "orders paid"
        )?;
        for sku in &self.skus {
            writeln!(
                f,
                "{:>12} {:>8} {:>10} {:>10} {:>8} {:>10} {:>11} {:>14} {:>11}",
                sku.activity_id,
                sku.sku_id,
                sku.total,
                sku.free,
                sku.held,
                sku.sold,
                sku.quarantined,
                sku.orders_created,
                sku.orders_paid
            )?;
        }
        writeln!(
            f,
            "under way: {} in the outbox, {} steps open; to be refunded: {}; dead letters: {}",
            self.in_outbox, self.steps_open, self.refunds_due, self.dead_letters
        )?;
        for difference in &self.differences {
            let whose = difference.reservation_id.as_deref().unwrap_or("the SKU");
            writeln!(
                f,
                "{}: activity {} SKU {}, {whose}: {}. Remedy: {}.",
                difference.kind,
                difference.activity_id,
                difference.sku_id,
                difference.what,
                difference.remedy
            )?;
        }
        let total: u64 = self.counts.values().sum();
        if self.balanced {
            write!(f, "The books balance.")
        } else if total > self.differences.len() as u64 {
            write!(
                f,
                "{total} differences; the first {} are listed.",
                self.differences.len()
            )
        } else {
            write!(f, "{total} differences.")
        }
    }
}
