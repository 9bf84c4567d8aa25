//! Whether this process should get traffic, and if not, which part is not ready and why (for `/readyz`).
//!
//! Closed by construction (design §1.3): a part that gives no counters, or not the one that says it is well, is not ready.

use super::gather::{Part, part_name};
use serde::Serialize;
use weir_core::mail::Addr;
use weir_core::stats::Stats;

/// One part that is not ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct NotReady {
    pub part: String,
    pub why: &'static str,
    /// Waiting does not help.
    pub needs_restart: bool,
}

/// A counter that must have a value for a part to be ready.
struct Rule {
    applies: fn(Addr) -> bool,
    sample: &'static str,
    wanted: u64,
    why: &'static str,
    needs_restart: bool,
}

const RULES: &[Rule] = &[
    Rule {
        applies: |addr| matches!(addr, Addr::Shard(_)),
        sample: "weir_shard_ready",
        wanted: 1,
        why: "it does not know the state of every SKU yet; it waits for the ledger's owner",
        needs_restart: false,
    },
    Rule {
        applies: |addr| matches!(addr, Addr::Shard(_)),
        sample: "weir_shard_draining",
        wanted: 0,
        why: "it is shutting down",
        needs_restart: false,
    },
    // Before `serving`: a poisoned owner does not serve either, and this says why.
    Rule {
        applies: |addr| matches!(addr, Addr::Owner | Addr::Store),
        sample: "weir_ledger_poisoned",
        wanted: 0,
        why: "a write or sync of the ledger's store failed, or its journal cannot be read; nothing is granted until a restart; look at the space and health of its disk first",
        needs_restart: true,
    },
    Rule {
        applies: |addr| addr == Addr::Owner,
        sample: "weir_redis_orders_elsewhere",
        wanted: 0,
        why: "the orders of this stock are made in another data_dir, or by a later run of this one, and a stock has one order store; stop the other process, or set orders.made_by = \"worker\" here. If the other store is lost for good, see README, Several instances",
        needs_restart: true,
    },
    Rule {
        applies: |addr| addr == Addr::Owner,
        sample: "weir_ledger_serving",
        wanted: 1,
        why: "it is still recovering from its journal; or Redis holds the ledger, and cannot be asked, has books that are being mended after a failover or a restart (weir_redis_mending), or `weir worker` has put nothing on sale there yet",
        needs_restart: false,
    },
    Rule {
        applies: |addr| addr == Addr::Owner,
        sample: "weir_lease_refused",
        wanted: 0,
        why: "the bucket in Redis refuses its draws of the shared budget: another process draws under its name, or there are too many names; give it a name of its own in limiter.instance",
        needs_restart: true,
    },
    Rule {
        applies: |addr| addr == Addr::Worker,
        sample: "weir_orders_store_healthy",
        wanted: 1,
        why: "a write or sync of the order store failed; no order is made until a restart; look at the space and health of its disk first",
        needs_restart: true,
    },
];

/// At most one reason per part, in the order of `parts`; empty: ready.
pub(super) fn not_ready(parts: &[Part]) -> Vec<NotReady> {
    parts
        .iter()
        .filter_map(|part| {
            let (why, needs_restart) = reason(part.addr, part.stats.as_ref())?;
            let part = part_name(part.addr);
            Some(NotReady {
                part,
                why,
                needs_restart,
            })
        })
        .collect()
}

fn reason(addr: Addr, stats: Option<&Stats>) -> Option<(&'static str, bool)> {
    let Some(stats) = stats else {
        return Some(("it did not answer within a second", false));
    };
    let value = |name| {
        let mut found = stats.samples.iter().filter(|sample| sample.name == name);
        found.next().map(|sample| sample.value)
    };
    RULES
        .iter()
        .filter(|rule| (rule.applies)(addr))
        .find(|rule| value(rule.sample) != Some(rule.wanted))
        .map(|rule| (rule.why, rule.needs_restart))
}
