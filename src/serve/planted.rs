//! What tests plant in the whole server: stores that never sync (design §12.16), shards that answer with what they read.
//!
//! Read from the environment, because no operator may find it among the options. In an optimised build only the
//! honest half of this file is compiled.

use crate::orders::schema::OpenError;
use crate::orders::store::OrderStore;
use crate::store::StoreConfig;
use std::path::Path;
use weir_core::shard::Shard;
use weir_core::shard::config::ShardConfig;
use weir_core::time::Now;

/// Set to `1`: both stores say that they committed, and sync nothing.
#[cfg(any(debug_assertions, weir_planted))]
const SYNCHRONOUS_OFF: &str = "WEIR_PLANT_SYNCHRONOUS_OFF";

#[cfg(any(debug_assertions, weir_planted))]
fn synchronous_off() -> bool {
    std::env::var_os(SYNCHRONOUS_OFF).is_some_and(|value| value == "1")
}

/// How the ledger's store is opened in `dir`: with full syncs, the planted fault apart.
pub(super) fn ledger_config(dir: &Path) -> StoreConfig {
    let config = StoreConfig::new(dir);
    #[cfg(any(debug_assertions, weir_planted))]
    if synchronous_off() {
        return StoreConfig {
            synchronous: crate::store::Synchronous::Off,
            ..config
        };
    }
    config
}

/// Opens the order store at `path`: with full syncs, the planted fault apart.
///
/// # Errors
/// See [`OpenError`].
pub(super) fn open_orders(path: &Path) -> Result<OrderStore, OpenError> {
    let store = OrderStore::open(path)?;
    #[cfg(any(debug_assertions, weir_planted))]
    if synchronous_off() {
        store
            .plant_synchronous_off()
            .map_err(|error| OpenError::Sqlite(path.to_owned(), error))?;
    }
    Ok(store)
}

/// Set to `1`: shards answer every request with what they read of it (`Shard::plant_echo`).
#[cfg(debug_assertions)]
const ECHO: &str = "WEIR_PLANT_ECHO";

/// A shard that decides; with echo planted it says what it read.
pub(super) fn shard(now: Now, config: ShardConfig) -> Shard {
    #[cfg(debug_assertions)]
    if std::env::var_os(ECHO).is_some_and(|value| value == "1") {
        let mut shard = Shard::new(now, config);
        shard.plant_echo();
        return shard;
    }
    Shard::new(now, config)
}
