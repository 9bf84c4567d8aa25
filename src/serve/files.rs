//! What both files must agree on before anything runs on them: they belong together, and the ledger can be replayed.
//!
//! Called by [`super::start`]. Every ledger has a number of its own, and the order store that is first used with it takes
//! it over; so files of two directories, or a file that was lost, are noticed before an order is made twice or never.

use super::ServeError;
use crate::config::Plan;
use crate::orders::store::OrderStore;
use crate::store::LedgerStore;
use weir_core::ledger::{LedgerConfig, recover};

/// Refuses an order store that is not this ledger's.
///
/// # Errors
/// `Mixed`, `OrdersGone`, or that a file cannot be read or written.
pub fn pair(plan: &Plan, ledger: &LedgerStore, orders: &OrderStore) -> Result<(), ServeError> {
    let dir = || plan.store.dir.clone();
    let identity = ledger.identity()?;
    match orders.ledger_id()? {
        Some(id) if id == identity.id => {}
        Some(_) => return Err(ServeError::Mixed(dir())),
        None if identity.has_orders => return Err(ServeError::OrdersGone(plan.store.orders())),
        None if orders.has_rows()? => return Err(ServeError::Mixed(dir())),
        None => orders.belong_to(identity.id)?,
    }
    // After the orders' commit: a crash in between leaves a ledger that accepts this order store.
    if !identity.has_orders {
        ledger.note_orders()?;
    }
    Ok(())
}

/// Replays the ledger once, so that what cannot be replayed is said now and not by a server that never gets ready.
/// The result names what the operator should know: SKUs that the ledger holds and the configuration does not.
///
/// # Errors
/// `Replay`: the journal is whole, but it is not the journal of this ledger.
pub fn rehearse(plan: &Plan, ledger: &LedgerStore) -> Result<Vec<String>, ServeError> {
    let Some(image) = ledger.image() else {
        return Ok(Vec::new());
    };
    let recovered = recover(LedgerConfig::of_sale(&plan.sale, 0), image)
        .map_err(|error| ServeError::Replay(plan.store.ledger(), error))?;
    let gone = recovered.ledger.skus().map(|state| state.sku);
    Ok(gone
        .filter(|key| plan.sale.sku(*key).is_none())
        .map(|key| {
            format!(
                "warning: the ledger holds activity {}, SKU {}, which {} no longer names: its orders go on, but its buyers are answered 404; add it again (close it through the operator's listener if it must not sell)",
                key.activity,
                key.sku,
                plan.file.display()
            )
        })
        .collect())
}
