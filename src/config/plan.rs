//! The checked configuration in the core's words: what `serve`, `ticket`, `reconcile` and the others build upon.
//!
//! Made by [`super::load`]. Invariants: every range of the table of keys holds, every policy is exact, ids are unique,
//! key files were read. `Debug` shows no secret.

use super::ceilings::{CONNS_MIN, SHARD_DESCRIPTORS, SPARE_DESCRIPTORS};
use crate::keys::OpsToken;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use weir_core::limit::deny::DenySubject;
use weir_core::limit::lease::ShardId;
use weir_core::redis::desk::DeskConfig;
use weir_core::redis::step::StepPlan;
use weir_core::sale::Sale;
use weir_core::shard::config::ShardConfig;
use weir_core::tls::TlsId;
use weir_io::choice::Wanted;
use weir_io::limits::{ACCEPTS_MAX, PARKED_MAX};
use weir_io::tls::TlsClient;
use weir_proto::ticket::KeyRing;

/// Everything that the program is told. `Debug` shows no key, salt or price list.
#[derive(Clone)]
pub struct Plan {
    /// The file it came from.
    pub file: PathBuf,
    /// Public listener.
    pub listen: SocketAddr,
    /// Shards, 1 or more.
    pub shards_count: u16,
    /// Which driver moves bytes.
    pub driver: Wanted,
    /// Connections are direct descriptors, where they can be had.
    pub direct: bool,
    /// What is sold.
    pub sale: Arc<Sale>,
    /// What every shard gets alike, limits already divided by `shards_count`; see [`Plan::shard_config`].
    pub shard: ShardConfig,
    /// Operator's listener.
    pub ops: OpsPlan,
    /// Who is denied from the start.
    pub deny: DenyPlan,
    /// Where the admission log goes; how much of it is in [`ShardConfig`].
    pub log: LogTarget,
    /// Files of the stores.
    pub store: StorePlan,
    /// How Redis is reached; `None`: the ledger is embedded.
    pub redis: Option<RedisPlan>,
}

impl std::fmt::Debug for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plan")
            .field("file", &self.file)
            .field("listen", &self.listen)
            .field("shards_count", &self.shards_count)
            .finish_non_exhaustive()
    }
}

impl Plan {
    /// The configuration of one shard of one run.
    ///
    /// `shard`: below `shards_count`; `shard_boot`: different from every earlier run's; `seed`: from the system's entropy.
    pub fn shard_config(&self, shard: ShardId, shard_boot: u64, seed: u64) -> ShardConfig {
        ShardConfig {
            shard,
            shard_boot,
            seed,
            ..self.shard.clone()
        }
    }

    /// The ticket keys.
    pub fn keys(&self) -> &KeyRing {
        &self.shard.keys
    }

    /// Descriptors that the server may have open at one time.
    pub fn descriptors_max(&self) -> u64 {
        let conns = match self.direct {
            true => 0,
            false => (self.shard.conns_max + PARKED_MAX) as u64,
        };
        u64::from(self.shards_count) * (conns + SHARD_DESCRIPTORS) + SPARE_DESCRIPTORS
    }

    /// Places in each shard's table of direct descriptors, which the limit of open files bounds; 0: it has none.
    pub fn direct_places(&self) -> u64 {
        match self.direct {
            true => (self.shard.conns_max as u64) + u64::from(ACCEPTS_MAX),
            false => 0,
        }
    }

    /// How many connections each shard may have when `descriptors_max` descriptors may be open; may be too few to start.
    pub fn conns_within(&self, descriptors_max: u64) -> u64 {
        if self.direct {
            return descriptors_max.saturating_sub(ACCEPTS_MAX.into());
        }
        let of_shard =
            descriptors_max.saturating_sub(SPARE_DESCRIPTORS) / u64::from(self.shards_count);
        of_shard.saturating_sub(SHARD_DESCRIPTORS + PARKED_MAX as u64)
    }

    /// The plan where direct descriptors cannot be had and `descriptors_max` descriptors may be open; a line that says so.
    pub fn without_direct(&self, descriptors_max: u64) -> (Self, String) {
        let mut plan = self.clone();
        plan.direct = false;
        let most = plan.conns_within(descriptors_max).max(CONNS_MIN);
        plan.shard.conns_max = plan.shard.conns_max.min(most as usize);
        let note = format!(
            "io.direct has no effect here: the limit of {descriptors_max} open files bounds connections, {} on each of {} shard(s) (server.conns_max is {})",
            plan.shard.conns_max, plan.shards_count, self.shard.conns_max,
        );
        (plan, note)
    }
}

/// The operator's listener.
#[derive(Clone, Debug)]
pub struct OpsPlan {
    /// Its address.
    pub listen: SocketAddr,
    /// What every request must carry; `None` only on loopback.
    pub token: Option<OpsToken>,
    /// Where it was read.
    pub token_file: Option<PathBuf>,
    /// Where changes are recorded.
    pub audit_log: PathBuf,
}

/// The ledger in Redis.
#[derive(Clone, Debug)]
pub struct RedisPlan {
    /// Servers, greeting, times.
    pub desk: DeskConfig,
    /// How its connections are encrypted; `None`: they are not.
    pub tls: Option<TlsClient>,
    /// What the steps of each SKU need.
    pub steps: Vec<StepPlan>,
    /// How long a SKU sells nothing after a failover.
    pub freeze_ms: u64,
    /// Versions with holes in their Lua engine are taken.
    pub accept_lua_holes: bool,
    /// How the budget is shared with other instances.
    pub leases: LeasePlan,
}

impl RedisPlan {
    /// The settings of TLS that its desks name.
    pub fn tls_clients(&self) -> Vec<(TlsId, TlsClient)> {
        let limiter = self.leases.limiter.as_ref();
        let of_limiter = limiter.and_then(|limiter| limiter.desk.tls.zip(limiter.tls.clone()));
        let of_ledger = self.desk.tls.zip(self.tls.clone());
        of_ledger.into_iter().chain(of_limiter).collect()
    }
}

/// How the budget of a stock in Redis is shared.
#[derive(Clone, Debug)]
pub struct LeasePlan {
    /// The name under which this instance draws; `None`: made of the host's name and the port.
    pub instance: Option<String>,
    /// Of the budgets and `weights`; an older one is not taken.
    pub version: u64,
    /// Its share of the demand, 1..=1000.
    pub weight: u32,
    /// The sum over all instances, at least `weight`.
    pub weights: u32,
    /// The Redis of the buckets; `None`: that of the stock.
    pub limiter: Option<LimiterPlan>,
}

/// A Redis of buckets.
#[derive(Clone, Debug)]
pub struct LimiterPlan {
    /// Servers, greeting, times.
    pub desk: DeskConfig,
    /// How its connections are encrypted; `None`: they are not.
    pub tls: Option<TlsClient>,
    /// Versions with holes in their Lua engine are taken.
    pub accept_lua_holes: bool,
}

/// Who is denied.
#[derive(Clone, Debug)]
pub struct DenyPlan {
    /// Those that the configuration names.
    pub subjects: Vec<DenySubject>,
    /// Where those are kept whom operators add.
    pub file: PathBuf,
}

/// Where the admission log goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// Nowhere.
    Off,
    /// Standard output.
    Stdout,
    /// This file, appended to.
    File(PathBuf),
}

/// Files of the stores, all in one directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorePlan {
    /// The directory.
    pub dir: PathBuf,
}

impl StorePlan {
    /// Journal and snapshots; the store thread writes.
    pub fn ledger(&self) -> PathBuf {
        self.dir.join(crate::store::LEDGER_FILE)
    }

    /// Orders, history, dead letters, payments; the worker writes.
    pub fn orders(&self) -> PathBuf {
        self.dir.join("orders.sqlite")
    }
}
