//! Hard ceilings (requirement J7): no configuration exceeds them, whatever the operator writes.
//!
//! Used by the table of keys and by the checks of the plan. Each says why this number.

use weir_core::limits::{MAILBOX_MAX, RESERVATIONS_MAX, RESERVATIONS_PER_UNIT, VIEW_REFRESH_MS};
use weir_proto::limits::{ID_MAX, QUANTITY_MAX, TICKET_LEEWAY_MS_MAX};

/// Longest configuration file; ours with every key and 16 activities is under 100 KiB.
pub const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// Longest key or token file: 64 bytes of secret in hexadecimal are 128 characters.
pub const KEY_FILE_BYTES_MAX: u64 = 4096;
/// Shards: more cores than this share one memory bus badly, and a limit split over shards loosens with each.
pub const SHARDS_MAX: u64 = 64;
/// Connections of one shard: what one core can still look at within a second of a burst.
pub const CONNS_MAX: u64 = 65_536;
/// Fewest connections of one shard: below it the pool of held replies and tests of slow clients mean nothing.
pub const CONNS_MIN: u64 = 16;
/// Shortest deadline of a connection: the wheel's look-ahead (weir-core `shard::wheel`).
pub const CONN_TIMEOUT_MS_MIN: u64 = 1_000;
/// Longest deadline of a head, and of a body: both together stay below the 20 s that a tombstone's life counts on
/// (weir-core `limits::TOMBSTONE_TTL_MS`).
pub const READ_TIMEOUT_MS_MAX: u64 = 9_000;
/// Longest other deadline of a connection: a slow client may not hold a slot longer than an hour.
pub const CONN_TIMEOUT_MS_MAX: u64 = 60 * 60 * 1000;
/// Longest drain: a supervisor kills what does not stop.
pub const DRAIN_MS_MAX: u64 = 10 * 60 * 1000;
/// Fastest rate of any limit and budget: ten times the scenario's peak of 300,000 requests/s.
pub const RATE_PER_SECOND_MAX: u64 = 3_000_000;
/// Largest burst: ten seconds of the scenario's peak.
pub const BURST_MAX: u64 = 3_000_000;
/// Slots of one limiter table: 2^26 of 16 bytes are 1 GiB.
pub const SLOTS_MAX: u64 = 1 << 26;
/// Fewest slots: under a cache line nothing is keyed any more.
pub const SLOTS_MIN: u64 = 64;
/// Strikes until a ban: one every quarter of a second for twenty minutes.
pub const STRIKES_MAX: u64 = 5_000;
/// Shortest ban and window: below a second nobody notices.
pub const BAN_MS_MIN: u64 = 1_000;
/// Longest ban by behaviour: a day; who is to stay out longer is denied by name.
pub const BAN_MS_MAX: u64 = 24 * 60 * 60 * 1000;
/// Waiting asks of one shard, of each kind; those of all shards together must fit [`ASKS_MAX`].
pub const INFLIGHT_MAX: u64 = 8_192;
/// Waiting asks of all shards: seven eighths of the ledger's mailbox, the rest is for leases, views and the operator.
pub const ASKS_MAX: u64 = MAILBOX_MAX as u64 / 8 * 7;
/// Longest budget of one submit: below the 2 s that a tombstone's life counts on (weir-core `limits::TOMBSTONE_TTL_MS`).
pub const REQUEST_BUDGET_MS_MAX: u64 = 1_900;
/// Longest budget of a payment callback: providers wait so long before they retry.
pub const PAYMENT_BUDGET_MS_MAX: u64 = 10_000;
/// Shortest budget of one request: one commit to disk and two turns.
pub const REQUEST_BUDGET_MS_MIN: u64 = 10;
/// Remembered request ids of one shard: 2^22 entries are about 1 GiB.
pub const KNOWN_MAX: u64 = 1 << 22;
/// Sampling: one of a billion is none.
pub const SAMPLE_EVERY_MAX: u64 = 1_000_000_000;
/// Units of one SKU: each may be reserved four times within the ledger's memory (weir-core `limits::RESERVATIONS_MAX`).
pub const STOCK_MAX: u64 = RESERVATIONS_MAX / RESERVATIONS_PER_UNIT;
/// Longest time to pay.
pub const UNPAID_TIMEOUT_MS_MAX: u64 = 30 * 24 * 60 * 60 * 1000;
/// Shortest time to pay: a payment page must load; tests and demos use it.
pub const UNPAID_TIMEOUT_MS_MIN: u64 = 1_000;
/// Longest life of a sold-out mark: it is only a cache (E1).
pub const SOLD_OUT_TTL_MS_MAX: u64 = 60_000;
/// Shortest life of a sold-out mark: two of the ledger's refreshes (weir-core `limits::VIEW_REFRESH_MS`).
pub const SOLD_OUT_TTL_MS_MIN: u64 = 2 * VIEW_REFRESH_MS;
/// Longest time for which old tickets answer status queries.
pub const RETENTION_MS_MAX: u64 = 400 * 24 * 60 * 60 * 1000;
/// Largest id: JSON and SQL hold it as a signed 64-bit integer.
pub const IDS_MAX: u64 = ID_MAX;
/// Units of one request.
pub const UNITS_PER_REQUEST_MAX: u64 = QUANTITY_MAX as u64;
/// Longest clock leeway.
pub const LEEWAY_MS_MAX: u64 = TICKET_LEEWAY_MS_MAX;
/// Longest window of a signed request, either way: what is caught on the wire must soon be worthless.
pub const SIGNATURE_SKEW_MS_MAX: u64 = 5 * 60 * 1000;
/// Shop origins (weir-core `limits::ORIGINS_MAX`).
pub const ORIGINS_MAX: usize = weir_core::limits::ORIGINS_MAX;
/// Longest origin: a host name of 253 bytes, scheme and port.
pub const ORIGIN_BYTES_MAX: usize = 270;
/// Descriptors of one shard beside its connections: listener, ring and doorbell; on epoll the first and the last twice, and
/// one that wakes it.
pub const SHARD_DESCRIPTORS: u64 = 6;
/// Descriptors beside the shards': files, the other threads' doorbells, the operator's connections.
pub const SPARE_DESCRIPTORS: u64 = 128;
/// A wall clock before this (2025-01-01T00:00:00Z) is not set: weir is younger.
pub const WALL_MS_MIN: u64 = 1_735_689_600_000;

/// Servers of Redis that the configuration names; a cluster tells the others itself.
pub const REDIS_SERVERS_MAX: usize = 16;
/// Bytes of a user's name at another program.
pub const NAME_BYTES_MAX: usize = 64;
/// Ids of activities and SKUs whose reservations lie in Redis: a reservation's number has room for 20 bits of each.
pub const REDIS_IDS_MAX: u64 = (1 << 20) - 1;
/// Largest version of the budgets: whole in every program that may read it.
pub const BUDGET_VERSION_MAX: u64 = (1 << 53) - 1;
