//! The stores of a server, opened and held against each other before anything runs.

use super::{ServeError, files, planted, redis};
use crate::config::Plan;
use crate::orders::store::OrderStore;
use crate::store::{DirLock, LedgerStore, take_directory};
use weir_core::redis::endpoint::Endpoint;
use weir_core::redis::step::Maker;
use weir_proto::ids::SkuKey;

/// See the module.
pub(super) struct Stores {
    /// The embedded ledger's; `None`: Redis holds the ledger.
    pub ledger: Option<LedgerStore>,
    /// The orders; `None`: another process makes them.
    pub orders: Option<OrderStore>,
    /// Of the data directory, where no ledger's store holds it.
    pub lock: Option<DirLock>,
    /// What they know of a ledger in Redis.
    pub here: ForClerk,
    /// What an operator should know.
    pub notes: Vec<String>,
}

/// What was found at the start and the clerk is told: by the order store of this process, and by Redis.
#[derive(Default)]
pub(super) struct ForClerk {
    /// SKUs that have orders: if Redis does not have them, it has lost them, and they are mended, not opened.
    pub never_open: Vec<SkuKey>,
    /// Who makes the orders; `None`: another process does.
    pub maker: Option<Maker>,
    /// Masters of a cluster.
    pub masters: Vec<Endpoint>,
}

impl Stores {
    /// Opens what `plan` names.
    ///
    /// # Errors
    /// What cannot be opened, or does not belong together.
    pub fn open(plan: &Plan) -> Result<Self, ServeError> {
        let dir = &plan.store.dir;
        let Some(plan_redis) = &plan.redis else {
            let ledger = LedgerStore::open(&planted::ledger_config(dir))?;
            let orders = planted::open_orders(&plan.store.orders())?;
            files::pair(plan, &ledger, &orders)?;
            let notes = files::rehearse(plan, &ledger)?;
            return Ok(Self {
                ledger: Some(ledger), // it holds the lock itself
                orders: Some(orders),
                lock: None,
                here: ForClerk::default(),
                notes,
            });
        };
        let mut seen = redis::examine(plan_redis)?;
        if !plan.shard.role.makes_orders() {
            return Ok(Self {
                ledger: None,
                orders: None,
                lock: None, // nothing is kept in the directory
                here: ForClerk {
                    masters: seen.masters,
                    ..ForClerk::default()
                },
                notes: seen.notes,
            });
        }
        let lock = take_directory(dir)?;
        let orders = planted::open_orders(&plan.store.orders())?;
        redis::pair(plan_redis, &orders)?;
        let mut notes = std::mem::take(&mut seen.notes);
        let here = ForClerk {
            never_open: redis::compare(plan_redis, &seen, &orders, &mut notes)?,
            maker: Some(orders.begin_run()?),
            masters: seen.masters,
        };
        Ok(Self {
            ledger: None,
            orders: Some(orders),
            lock: Some(lock),
            here,
            notes,
        })
    }
}
