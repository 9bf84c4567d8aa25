//! Every capacity of the core, in one place (style §3): at each there is a Reason, a status and a counter.

/// Most bytes of one journal batch: 1,024 entries of at most 256 bytes. One blob row of this size syncs in about the
/// time of a small one.
pub const BATCH_BYTES_MAX: usize = 256 * 1024;
/// Most commands of one order transaction: 14 ms of indexed rows were measured for 1,024 (issue 3 §5).
pub const ORDER_BATCH_MAX: usize = 1024;
/// Mail that fits in one part's box. A power of two above everything that askers may have outstanding together.
pub const MAILBOX_MAX: usize = 16 * 1024;
/// Most activities of one process: found by a linear walk per request.
pub const ACTIVITIES_MAX: usize = 16;
/// Most SKUs of one activity: found by a linear walk per request.
pub const SKUS_PER_ACTIVITY_MAX: usize = 64;

// Limits and leases (`limit`).

/// How much of the admission rate the owner's bucket may save up: more would be a burst that the ledger did not plan for.
pub const BUDGET_BURST_MS: u64 = 200;
/// A lease unspent for so long is void: a shard that sleeps or is cut off cannot hoard tokens for a later burst.
pub const LEASE_TTL_MS: u64 = 2_000;
/// Fewest tokens that a draw asks for, so that a quiet shard can answer its first buyers without a round trip.
pub const LEASE_TOKENS_MIN: u32 = 8;
/// Most tokens of one draw: bounds what a crash can waste.
pub const LEASE_TOKENS_MAX: u32 = 65_536;
/// A draw without an answer is sent again after this, with the same number.
pub const LEASE_RESEND_MS: u64 = 100;
/// After less than was wanted, the owner asks for this pause: the time in which a bucket of `BUDGET_BURST_MS` refills by a twentieth.
pub const LEASE_RETRY_MS: u64 = 10;
/// A new or restarted budget climbs to its full rate in this time, in `BUDGET_RAMP_STEPS` equal steps (J6).
pub const BUDGET_RAMP_MS: u64 = 1_000;
/// Steps of the climb.
pub const BUDGET_RAMP_STEPS: u64 = 8;
