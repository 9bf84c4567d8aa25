//! Orders in SQL: the embedded store, its schema, reconciliation with the ledger, export.
//!
//! The decisions are weir-core's (`order::worker`, `order::state`); here is what carries them out in `orders.sqlite`.

pub mod export;
pub mod facts;
pub mod reconcile;
pub mod report;
pub mod schema;
mod step;
pub mod store;
