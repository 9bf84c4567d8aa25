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
