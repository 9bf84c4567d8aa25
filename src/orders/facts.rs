//! What reconcile needs to know of the ledger: books and reservations, read from its journal.

use crate::store::{StoreError, read_image};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use weir_core::ask::{Books, ReservationState};
use weir_core::ledger::{Ledger, LedgerConfig, RecoverError, recover};
use weir_core::order::contract::OrderMessage;
use weir_core::sale::Sale;
use weir_proto::ids::{ReservationId, SkuKey};

/// The ledger's side of the comparison.
#[derive(Clone, Debug, Default)]
pub struct LedgerFacts {
    /// The books of each SKU ever put on sale.
    pub books: BTreeMap<SkuKey, Books>,
    /// Every reservation that is remembered: its order message and where it stands.
    pub reservations: BTreeMap<ReservationId, (OrderMessage, ReservationState)>,
}

/// Why the ledger cannot be read.
#[derive(Debug)]
pub enum FactsError {
    /// Its file.
    Store(StoreError),
    /// What is in it.
    Recover(RecoverError),
}

impl fmt::Display for FactsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Recover(error) => write!(f, "the ledger's journal cannot be replayed: {error}"),
        }
    }
}

impl std::error::Error for FactsError {}

impl LedgerFacts {
    /// Reads the journal in `dir` without changing it; no server may run on it.
    ///
    /// # Errors
    /// See [`FactsError`].
    pub fn read(dir: &Path, sale: &Sale) -> Result<Self, FactsError> {
        let image = read_image(dir).map_err(FactsError::Store)?;
        // The seed keys the index tables in memory only; any number reads the same facts.
        let recovered =
            recover(LedgerConfig::of_sale(sale, 0), &image).map_err(FactsError::Recover)?;
        Ok(Self::of(&recovered.ledger))
    }

    /// Of a ledger as `weir_core::ledger::recover` gives it back from the journal.
    pub fn of(ledger: &Ledger) -> Self {
        Self {
            books: ledger
                .skus()
                .map(|state| (state.sku, state.books))
                .collect(),
            reservations: ledger
                .reservations()
                .map(|found| (found.message.reservation, (found.message, found.state)))
                .collect(),
        }
    }
}
