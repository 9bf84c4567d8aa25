//! The embedded ledger's store: `ledger.sqlite`, a journal of checksummed batches and snapshots (design §5, §12.2-4).
//!
//! Boot opens it ([`LedgerStore::open`]: every refusal of an operator's mistake happens there), then runs it as the
//! part [`weir_core::mail::Addr::Store`] on a thread that only has mail; `weir reconcile` reads it with [`read_image`].
//! Invariants: one writer per directory (lock file and SQLite's own exclusive lock); `Appended(Ok)` is posted after
//! the fsync that covers the batch; after any failed write or sync nothing more is accepted (field bug R55); a hole
//! or damage is refused by name, never skipped (R58). Deliberately not here: what the bytes mean (`core::ledger`).

mod error;
pub mod limits;
mod lock;
mod rows;
mod schema;
mod sqlite;
mod wal;

pub use error::{Damage, StoreError};
pub use lock::DirLock;
pub use sqlite::{LedgerStore, read_image, take_directory};

use std::path::PathBuf;

/// Name of the journal in its directory; SQLite keeps `-wal` beside it.
pub const LEDGER_FILE: &str = "ledger.sqlite";
/// Name of the lock file in the same directory; holds the pid of the program that has it.
pub const LOCK_FILE: &str = "ledger.lock";

/// Where the ledger lies and how it is synced.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// The directory; its last component is made when missing.
    pub dir: PathBuf,
    /// `Full` in every real run.
    pub synchronous: Synchronous,
}

impl StoreConfig {
    /// `dir` with full syncs.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            synchronous: Synchronous::Full,
        }
    }
}

/// When SQLite syncs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Synchronous {
    /// At every commit.
    #[default]
    Full,
    /// Never: a planted fault (design §12.16), so that crash tests can show that they fail. Not in optimised builds.
    #[cfg(any(debug_assertions, weir_planted))]
    Off,
}

/// Which ledger a file is: order stores are held against it, so that files of two sales are never mixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Random, made with the file.
    pub id: i64,
    /// An order store has been used with it.
    pub has_orders: bool,
}
