//! What a world counts: faults by kind, and sins with words for a person.

/// A kind of fault that the simulator causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(usize)]
#[allow(missing_docs)] // the names say it; the texts are in `NAMES`
pub enum Fault {
    CrashProcess,
    CrashShard,
    CrashLedger,
    CrashWorker,
    CrashOrders,
    LostSuffix,
    KeptSuffix,
    StoreSlow,
    StoreFull,
    StoreIo,
    OrdersSlow,
    OrdersBusy,
    OrdersFailed,
    OrderPoisoned,
    MailLost,
    MailDoubled,
    MailDelayed,
    SegmentDelayed,
    ConnReset,
    DialRefused,
    DialDropped,
    ClientGone,
    WallForward,
    WallBack,
    Pause,
}

/// The names in reports, by `Fault as usize`.
const NAMES: [&str; 25] = [
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
