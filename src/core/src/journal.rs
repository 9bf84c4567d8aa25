//! The store port: what the ledger's owner hands to a store, and what it gets back (design §12.3, §12.15).
//!
//! A store appends batches in order of `seq`, answers after the sync that covers them, and after one failure answers
//! every later batch with a failure until it is restarted. Implemented by SQLite in `src/store` and by a model in the
//! simulator. The bytes are the ledger's own (see `ledger::codec`); a store does not read them.

use alloc::vec::Vec;

/// One append: everything the ledger wrote since the batch before. `seq` grows by exactly one per batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Dense sequence number, from 1.
    pub seq: u64,
    /// Journal entries, encoded; 1..=`limits::BATCH_BYTES_MAX` bytes.
    pub bytes: Vec<u8>,
    /// The whole ledger as it stands after this batch, when a snapshot is due: the store may then drop older batches.
    pub snapshot: Option<Vec<u8>>,
}

/// The fate of a [`Batch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchResult {
    /// Which batch.
    pub seq: u64,
    /// Synced, or not.
    pub result: Result<(), StoreFault>,
    /// The batch's buffer, to be filled again.
    pub buffer: Vec<u8>,
}

/// Why a batch is not durable. After any of these nothing more is accepted until a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreFault {
    /// No space left.
    DiskFull,
    /// The sync or the write failed; never retried (field bug R55).
    Io,
    /// A batch came out of order: only our bug can do that.
    OutOfOrder,
}

/// What a store has: the newest snapshot and every batch after it, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// The snapshot and the seq it stands after; `None` for a fresh store.
    pub snapshot: Option<(u64, Vec<u8>)>,
    /// Batches with seq = snapshot's + 1, + 2, …
    pub batches: Vec<Batch>,
    /// Grows at each opening of the store, itself durable: names this run (leases, asks).
    pub boot_epoch: u64,
}
