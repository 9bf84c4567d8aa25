//! Recovery: a stored image becomes the ledger that wrote it. Used by the owner at start and by `weir reconcile`.

use super::{JournalError, Ledger, LedgerConfig};
use crate::journal::Image;
use crate::planted::{self, Planted};
use core::fmt;

/// The ledger of an image, and where it stands.
#[derive(Debug)]
pub struct Recovered {
    /// Audited, with room for every grant that may still come.
    pub ledger: Ledger,
    /// Seq of the last batch it holds; 0 for a fresh store.
    pub last_seq: u64,
}

/// Why an image is not the image of a ledger. Nothing may be sold on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoverError {
    /// A batch is missing, or there twice (field bugs R58, R59).
    Gap {
        /// The seq that must follow.
        expected: u64,
        /// The seq that is there.
        found: u64,
    },
    /// The snapshot cannot be read.
    Snapshot {
        /// The seq it stands after.
        seq: u64,
        /// Offset and cause.
        error: JournalError,
    },
    /// A batch cannot be read or does not fit.
    Batch {
        /// Its seq.
        seq: u64,
        /// Offset and cause.
        error: JournalError,
    },
    /// The books contradict the reservations.
    Books(super::BooksFault),
}

impl fmt::Display for RecoverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gap { expected, found } => write!(
                f,
                "ledger journal: batch {expected} must follow, but batch {found} is there; restore the file from a backup or salvage it"
            ),
            Self::Snapshot { seq, error } => {
                write!(f, "ledger snapshot after batch {seq}: {error}")
            }
            Self::Batch { seq, error } => write!(f, "ledger journal, batch {seq}: {error}"),
            Self::Books(fault) => write!(f, "ledger books do not balance: {fault}"),
        }
    }
}

/// Restores the snapshot and replays every batch after it.
/// # Errors
/// The first batch or snapshot that cannot be, and why.
pub fn recover(config: LedgerConfig, image: &Image) -> Result<Recovered, RecoverError> {
    let (mut ledger, mut last_seq) = match &image.snapshot {
        None => (Ledger::new(config), 0),
        Some((seq, bytes)) => {
            let seq = *seq;
            let restored = Ledger::restore(config, bytes);
            let ledger = restored.map_err(|error| RecoverError::Snapshot { seq, error })?;
            (ledger, seq)
        }
    };
    let lost = usize::from(planted::is(Planted::RecoveryDropsLast) && !image.batches.is_empty());
    for batch in &image.batches[..image.batches.len() - lost] {
        let (expected, seq) = (last_seq + 1, batch.seq);
        if seq != expected {
            return Err(RecoverError::Gap {
                expected,
                found: seq,
            });
        }
        let replayed = ledger.replay(&batch.bytes);
        replayed.map_err(|error| RecoverError::Batch { seq, error })?;
        last_seq = seq;
    }
    ledger.check().map_err(RecoverError::Books)?;
    ledger.reserve_tables();
    Ok(Recovered { ledger, last_seq })
}
