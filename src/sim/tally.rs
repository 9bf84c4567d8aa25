//! What a world counts: faults by kind, and sins with words for a person.

/// A kind of fault that the simulator causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(usize)]
pub enum Fault {
    /// Every part of the process at once.
    CrashProcess,
    /// One shard.
    CrashShard,
    /// The ledger's owner and its store.
    CrashLedger,
    /// The orders' worker.
    CrashWorker,
    /// The order store.
    CrashOrders,
    /// A crash took batches that were not synced.
    LostSuffix,
    /// A crash kept batches whose sync was not acknowledged.
    KeptSuffix,
    /// A commit that took long.
    StoreSlow,
    /// A disk without space under the journal.
    StoreFull,
    /// A failed write or sync of the journal.
    StoreIo,
    /// Transactions of orders that took long.
    OrdersSlow,
    /// Transactions of orders that found the database busy.
    OrdersBusy,
    /// A disk under the orders that failed or was full.
    OrdersFailed,
    /// An order that the store cannot carry out.
    OrderPoisoned,
    /// A message between parts that never came.
    MailLost,
    /// A message that came twice.
    MailDoubled,
    /// A message that came late.
    MailDelayed,
    /// Bytes on a connection that came late.
    SegmentDelayed,
    /// A connection that was reset.
    ConnReset,
    /// A connect that was refused.
    DialRefused,
    /// A connect that nobody answered.
    DialDropped,
    /// A buyer who left in the middle.
    ClientGone,
    /// The wall clock stepped forward.
    WallForward,
    /// The wall clock stepped back.
    WallBack,
    /// A part that stood still for a while.
    Pause,
    /// A shard that was told to end, and started again.
    DrainShard,
    /// A release that no order asked for: a repair by mistake.
    StrayRelease,
}

/// The names in reports, by `Fault as usize`.
const NAMES: [&str; 27] = [
    "crash_process",
    "crash_shard",
    "crash_ledger",
    "crash_worker",
    "crash_orders",
    "lost_suffix",
    "kept_suffix",
    "store_slow",
    "store_full",
    "store_io",
    "orders_slow",
    "orders_busy",
    "orders_failed",
    "order_poisoned",
    "mail_lost",
    "mail_doubled",
    "mail_delayed",
    "segment_delayed",
    "conn_reset",
    "dial_refused",
    "dial_dropped",
    "client_gone",
    "wall_forward",
    "wall_back",
    "pause",
    "drain_shard",
    "stray_release",
];

/// Counts by kind of fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults([u64; NAMES.len()]);

impl Faults {
    /// One more of this kind.
    pub fn count(&mut self, fault: Fault) {
        self.0[fault as usize] += 1;
    }

    /// Adds another world's counts.
    pub fn add(&mut self, other: &Self) {
        for (sum, count) in self.0.iter_mut().zip(other.0) {
            *sum += count;
        }
    }

    /// Every kind with its count, those never seen included.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        NAMES.into_iter().zip(self.0)
    }

    /// Crashes of all kinds.
    pub fn crashes(&self) -> u64 {
        self.0[Fault::CrashProcess as usize..=Fault::CrashOrders as usize]
            .iter()
            .sum()
    }
}

/// Which promise was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SinKind {
    /// More units live than there are.
    Oversold,
    /// A user with two live reservations or orders.
    DoubleGrant,
    /// Acknowledged QUEUED, but not durable, or without an order.
    Lost,
    /// A request without a terminal answer (design §12.7).
    Limbo,
    /// Any other promise: books, limits, one reply each, no grant after a "no".
    Broken,
}

/// One broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sin {
    /// Which.
    pub kind: SinKind,
    /// What was seen.
    pub what: String,
}

impl Sin {
    /// A sin and its words.
    pub fn new(kind: SinKind, what: impl Into<String>) -> Self {
        Self {
            kind,
            what: what.into(),
        }
    }
}
