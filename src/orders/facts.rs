//! What reconcile needs to know of the ledger: books and reservations, read from its journal.

use std::collections::BTreeMap;
use weir_core::ask::{Books, ReservationState};
use weir_core::ledger::Ledger;
use weir_core::order::contract::OrderMessage;
use weir_proto::ids::{ReservationId, SkuKey};

/// The ledger's side of the comparison.
#[derive(Clone, Debug, Default)]
pub struct LedgerFacts {
    /// The books of each SKU ever put on sale.
    pub books: BTreeMap<SkuKey, Books>,
    /// Every reservation that is remembered: its order message and where it stands.
    pub reservations: BTreeMap<ReservationId, (OrderMessage, ReservationState)>,
}

impl LedgerFacts {
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
