//! The report of `weir reconcile`: for programs by serde, for people by `Display`. Names no user.

use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
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
    /// Messages in the outbox streams of a ledger in Redis.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_stream: Option<u64>,
    /// What an operator should know beside differences.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
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
    /// Both sides were seen at one moment: no second look can make it vanish.
    #[serde(skip)]
    pub(super) is_of_one_moment: bool,
}

/// Which difference it is, in every look: of a SKU by its kind, since its numbers go on while it sells.
type Trace<'a> = (&'static str, u64, u64, Option<(&'a str, &'a str)>);

impl Difference {
    fn trace(&self) -> Trace<'_> {
        let row = self.reservation_id.as_deref();
        let row = row.map(|id| (id, self.what.as_str()));
        (self.kind, self.activity_id, self.sku_id, row)
    }
}

impl Report {
    /// Leaves out what an earlier look at the same books did not see, or saw otherwise: it was under way. Reservations and
    /// orders only go forward, and each look reads the ledger first: what one side shows in both looks although the other
    /// had gone past it in the first is no matter of when they were read.
    ///
    /// Where there are more differences than are remembered it leaves out nothing.
    pub fn keep_lasting(&mut self, earlier: &Self) {
        let is_whole =
            |report: &Self| report.counts.values().sum::<u64>() == report.differences.len() as u64;
        if !is_whole(self) || !is_whole(earlier) {
            return;
        }
        let before: BTreeSet<Trace<'_>> =
            earlier.differences.iter().map(Difference::trace).collect();
        let lasts = |found: &Difference| found.is_of_one_moment || before.contains(&found.trace());
        self.differences.retain(lasts);
        self.counts.clear();
        for found in &self.differences {
            *self.counts.entry(found.kind).or_default() += 1;
        }
        self.balanced = self.counts.is_empty();
    }

    /// Leaves the first 1,000 differences.
    pub fn shorten(&mut self) {
        self.differences.truncate(LISTED_MAX);
    }
}

/// Differences that a report lists; all are counted.
const LISTED_MAX: usize = 1_000;

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
    /// Nothing: `weir ctl rebuild` does it, on the running process that makes the orders.
    Rebuild,
    /// Nothing: the process that makes the orders mends the books in Redis by itself.
    Running,
    /// Nothing: no step of weir can have done this in Redis.
    Freeze,
    /// Nothing: this is the wrong order store.
    OtherStore,
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
    /// Redis: there are orders or a stock row of a SKU that it does not have.
    SkuMissing,
    /// Redis: the books were not mended after a failover.
    SkuFenced,
    /// Redis: another order store makes the orders of this stock.
    OtherStore,
    /// Redis: the list of reservations without an order is not that of the records.
    PendingDiffers,
    /// Redis: an index (of requests, nonces, users) names another reservation than the record says, or one that is not
    /// there.
    IndexDiffers,
    /// Redis: a message in the outbox is of no reservation, or of another one.
    MessageDiffers,
    /// Redis: the counters of reservations are not those of the records.
    NumberingDiffers,
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
            Self::SkuMissing => "sku_missing",
            Self::SkuFenced => "sku_fenced",
            Self::OtherStore => "other_store",
            Self::PendingDiffers => "pending_differs",
            Self::IndexDiffers => "index_differs",
            Self::MessageDiffers => "message_differs",
            Self::NumberingDiffers => "numbering_differs",
        }
    }

    /// True where both sides are read at one moment, also while a sale runs.
    pub(super) const fn is_of_one_moment(self) -> bool {
        matches!(
            self,
            Self::BooksUnbalanced
                | Self::BooksNotReservations
                | Self::TwoLiveOrders
                | Self::TakenDiffers
                | Self::NumberingDiffers
        )
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
            Self::Rebuild => {
                "`weir ctl rebuild` at the process that makes the orders offers every order to Redis once more"
            }
            Self::Running => {
                "the process that makes the orders mends it while it runs; where that does not end, `weir ctl rebuild` there"
            }
            Self::Freeze => {
                "no step of weir does this: `weir ctl freeze` lets no new reservation in while a person finds out who wrote there, `weir ctl thaw` ends that"
            }
            Self::OtherStore => {
                "run it with the configuration whose data_dir makes the orders of this stock"
            }
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
        if let Some(messages) = self.in_stream {
            writeln!(f, "messages in the outbox streams of Redis: {messages}")?;
        }
        for note in &self.notes {
            writeln!(f, "note: {note}")?;
        }
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
