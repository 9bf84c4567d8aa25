//! Capacities of the ledger's store, each with the reason for its number.

/// Bytes of one row of a snapshot: large enough that rows cost nothing, small enough to be dropped one by one, and
/// far below SQLite's 1 GB for one value.
pub const SNAPSHOT_PART_BYTES: usize = 1024 * 1024;
/// Old batches dropped with one append: twice as many as come in would do; eight clear 4,096 within 512 appends.
pub const DROPPED_BATCHES_PER_APPEND: i64 = 8;
/// Parts of old snapshots dropped with one append: at most 1 MiB of pages is freed.
pub const DROPPED_PARTS_PER_APPEND: i64 = 1;
/// Journal bytes between two checkpoints: 16 full batches. A checkpoint of so many took 8 ms here, 20 ms while others
/// used both cores; commits took 0.6-1.6 ms and 4-6 ms.
pub const CHECKPOINT_AFTER_BYTES: usize = 4 * 1024 * 1024;
/// What a commit adds to the WAL beyond the batch: the leaf, its parent, a freelist page and frame headers.
pub const COMMIT_OVERHEAD_BYTES: usize = 16 * 1024;
/// The WAL file is cut to this after a larger one (a snapshot) was checkpointed.
pub const WAL_BYTES_KEPT: usize = 2 * CHECKPOINT_AFTER_BYTES;
/// SQLite's page cache in KiB: the pages of one checkpoint interval and the upper tree.
pub const CACHE_KIB: usize = 16 * 1024;
/// SQLite's page: small batches write few bytes, large ones go to overflow pages of any size.
pub const PAGE_BYTES: usize = 4096;
/// After the order to finish, so long without mail means that the owner is done: requests live 100 ms, the owner's
/// longest own pause is the reopen tick of 200 ms.
pub const DRAIN_QUIET_MS: u64 = 1_000;
/// Bytes of a checksum: 16 bytes of BLAKE3 find every accident; nobody who can write the file is kept out by more.
pub const SUM_BYTES: usize = 16;
