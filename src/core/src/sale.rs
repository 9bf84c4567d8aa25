//! What is sold, to whom, when and how fast: the operator's configuration as the core sees it.
//!
//! Built once at start by `src/config`, checked there, shared read-only by shards, owner and worker.

use crate::limit::gcra::Rate;
use crate::order::contract::Money;
use crate::time::WallMs;
use alloc::vec::Vec;
use core::fmt;
use weir_proto::ids::{ActivityId, PathId, SkuId, SkuKey};

/// Everything on sale in this process.
#[derive(Clone, Debug, Default)]
pub struct Sale {
    /// 1..=`limits::ACTIVITIES_MAX`, ids and path ids unique.
    pub activities: Vec<Activity>,
}

/// One sale: what its SKUs share. `Debug` shows neither the salt nor the path that nobody may guess.
#[derive(Clone)]
pub struct Activity {
    /// Its id.
    pub id: ActivityId,
    /// Tickets of another version are refused (B5).
    pub version: u64,
    /// The dynamic path of this version (B1).
    pub path_id: PathId,
    /// Submits before are NOT_OPEN.
    pub opens_at: WallMs,
    /// Submits from here on are NOT_OPEN.
    pub closes_at: WallMs,
    /// For status, tickets stay credentials until `closes_at` + this (design §12.12).
    pub retention_ms: u64,
    /// Mixed into device hashes.
    pub device_salt: [u8; 32],
    /// 1..=`limits::SKUS_PER_ACTIVITY_MAX`, ids unique.
    pub skus: Vec<Sku>,
}

impl fmt::Debug for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Activity")
            .field("id", &self.id)
            .field("version", &self.version)
            .field("opens_at", &self.opens_at)
            .field("closes_at", &self.closes_at)
            .field("skus", &self.skus)
            .finish_non_exhaustive()
    }
}

/// One SKU of a sale.
#[derive(Clone, Debug)]
pub struct Sku {
    /// Its id.
    pub id: SkuId,
    /// Units put on sale when the ledger is fresh.
    pub first_stock: u64,
    /// Most units of one user's request.
    pub quantity_max: u32,
    /// A closed order does not free the user when set.
    pub once_per_activity: bool,
    /// Price of one unit.
    pub unit_price: Money,
    /// An order unpaid for so long is closed and its units released.
    pub unpaid_timeout_ms: u64,
    /// R_admit: how many submits per time may ask the ledger, over all shards.
    pub budget: Rate,
    /// How long a sold-out mark lives without being repeated (E1).
    pub sold_out_ttl_ms: u64,
}

impl Sale {
    /// The activity of that id.
    pub fn activity(&self, id: ActivityId) -> Option<&Activity> {
        self.activities.iter().find(|activity| activity.id == id)
    }

    /// The SKU of that name, with its activity.
    pub fn sku(&self, key: SkuKey) -> Option<(&Activity, &Sku)> {
        let activity = self.activity(key.activity)?;
        activity
            .skus
            .iter()
            .find(|sku| sku.id == key.sku)
            .map(|sku| (activity, sku))
    }
}
