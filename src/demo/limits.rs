//! Capacities and sizes of the demo, each with the reason for its number (style §3).

/// Fewest units: below it some kinds of buyers would never win.
pub const STOCK_MIN: u64 = 100;
/// Most units: what the ledger takes comfortably within a minute on two cores.
pub const STOCK_MAX: u64 = 100_000;
/// Fewest buyers for each unit, so that the sale sells out and most of them lose.
pub const BUYERS_PER_UNIT_MIN: u64 = 5;
/// Most buyers: request ids hold nine digits of them.
pub const BUYERS_MAX: u64 = 100_000_000;
/// Connections that all buyers share, each from an address of its own: few enough for a small `ulimit -n`.
pub const CONNECTIONS: u32 = 256;
/// Buyers whose requests are under way on one connection at one time, as behind a shop's proxy. With it a million
/// requests cost half the system calls, and the demo ends in its minute on a busy machine, too.
pub const PIPELINE: u32 = 4;
/// What one server's ledger can take in any case: nobody is held back by it.
pub const BUDGET_PER_S: u64 = 1_000_000;
/// Buyers who wait (for an answer, for a told pause) at one time beside the winners; when full nobody new comes.
pub const ACTS_MAX: usize = 32 * 1024;
/// Buyers who lost and may come back, for each unit restocked or reopened.
pub const RETURNING_PER_UNIT_PERCENT: u64 = 150;
/// Returning buyers beyond that, so that the last of them find it sold out again.
pub const RETURNING_EXTRA: u64 = 20;
/// One of so many units is put on sale again: 5 %.
pub const RESTOCK_DIVISOR: u64 = 20;
/// An unpaid order of the demo's sale is closed after this.
pub const UNPAID_TIMEOUT_MS: u64 = 5_000;
/// Clocks differ by the rounding of milliseconds and by slewing; nothing happens earlier than this before its time.
pub const CLOCK_SLACK_MS: u64 = 100;
/// Connections of the crowd to `weir worker`, which takes the payments.
pub const PAYMENT_LANES: u32 = 8;
/// Most instances on one stock: each is a process with its threads on this one machine.
pub const INSTANCES_MAX: i64 = 8;
/// Where instances share a stock the budget lets it out in so many seconds, so that it is what holds buyers back.
pub const SHARED_RUSH_S: u64 = 4;
/// As `REOPENING_MS` where the stock is in Redis: a reopening is seen within a second when every push is lost, and a
/// machine that runs all of it is slow.
pub const SHARED_REOPENING_MS: u64 = 2_000;
/// From a release or restock to the reopening seen by every shard (weir-core `limits::REOPEN_TICK_MS`), with room.
pub const REOPENING_MS: u64 = 600;
/// A request that is not terminal so long after the last buyer came is in limbo (design §12.7).
pub const LIMBO_MS: u64 = 30_000;
/// Tries of one request that is told to come again; more is a server that never lets it in.
pub const TRIES_MAX: u8 = 200;
/// Requests by which a buyer above the limit must have met it: the burst is 3.
pub const BURST_TRIES_MAX: u8 = 12;
/// Pause when an answer says "again" without a time.
pub const PAUSE_MS: u64 = 300;
/// What the server is given from its start to its first word.
pub const SERVER_START_MS: u64 = 60_000;
/// What the server is given from SIGTERM to its end: its own drain deadline (10 s) and the last commits.
pub const SERVER_STOP_MS: u64 = 20_000;
/// Without any answer for so long the load is ended: something hangs.
pub const STALL_MS: u64 = 45_000;
/// Wrong answers that are told in words.
pub const COMPLAINTS_MAX: usize = 8;
/// Last lines of the server's standard error that are kept.
pub const SERVER_LINES_MAX: usize = 20;
