//! What a world counts: faults by kind, and sins with words for a person.

use super::LedgerKind;

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
    /// The scripts that Redis had loaded were gone.
    RedisFlushed,
    /// Every connection to Redis was reset.
    RedisCut,
    /// A machine and Redis did not reach each other for a while.
    RedisApart,
    /// Redis stopped and came again with all that it had.
    RedisRestarted,
    /// A command that Redis refused while it read its data.
    RedisLoading,
    /// A command that Redis refused while somebody's script ran.
    RedisBusy,
    /// Redis had no memory for writes for a while.
    RedisFull,
    /// Redis had no replica, and took no writes, for a while.
    RedisAlone,
    /// The clock of Redis stepped.
    RedisClock,
    /// An answer of Redis that came late.
    RedisLate,
    /// A command that was carried out, and its connection closed without the answer.
    RedisUnanswered,
    /// A connection that closed with a command unread.
    RedisUnread,
    /// Another Redis took the place of the one before, without its last writes.
    RedisReplaced,
}

/// The names in reports, by `Fault as usize`.
const NAMES: [&str; 40] = [
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
    "redis_flushed",
    "redis_cut",
    "redis_apart",
    "redis_restarted",
    "redis_loading",
    "redis_busy",
    "redis_full",
    "redis_alone",
    "redis_clock",
    "redis_late",
    "redis_unanswered",
    "redis_unread",
    "redis_replaced",
];

/// True when a world with that ledger can have this kind of fault.
fn belongs(kind: usize, ledger: LedgerKind) -> bool {
    const JOURNAL: std::ops::RangeInclusive<usize> =
        Fault::LostSuffix as usize..=Fault::StoreIo as usize;
    match ledger {
        LedgerKind::Embedded => kind < Fault::RedisFlushed as usize,
        LedgerKind::Redis => !JOURNAL.contains(&kind),
    }
}

/// Counts by kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults([u64; NAMES.len()]);

impl Default for Faults {
    fn default() -> Self {
        Self([0; NAMES.len()])
    }
}

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

    /// Every kind that worlds with that ledger can have, with its count, those never seen included.
    pub fn iter(&self, ledger: LedgerKind) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let all = NAMES.into_iter().zip(self.0).enumerate();
        all.filter(move |(kind, _)| belongs(*kind, ledger))
            .map(|(_, row)| row)
    }

    /// True when one of these kinds was counted.
    pub fn has_any(&self, faults: &[Fault]) -> bool {
        faults.iter().any(|fault| self.0[*fault as usize] > 0)
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
