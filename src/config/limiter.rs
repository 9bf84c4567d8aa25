//! The section `[limiter]`: how instances share the budget of a stock in Redis, and where its buckets are.
//!
//! Called by [`super::redis`].

use super::ceilings::NAME_BYTES_MAX;
use super::document::Section;
use super::plan::{LeasePlan, LimiterPlan};
use super::redis::desk;
use std::path::Path;
use weir_core::limits::INSTANCE_BYTES_MAX;
use weir_core::tls::TlsId;

/// Names the settings of TLS of the buckets' Redis.
const LIMITER_TLS: TlsId = TlsId(1);

const _: () = assert!(NAME_BYTES_MAX <= INSTANCE_BYTES_MAX);

/// `None`: something is wrong and reported.
pub fn leases(section: &Section<'_, '_>, dir: &Path) -> Option<LeasePlan> {
    let weight = section.number("weight") as u32; // at most 1,000
    let weights = section.number("weights") as u32; // at most a million
    let version = section.number("budget_version");
    let instance = section.optional_text("instance");
    if weight > weights && !section.is_wrong() && weights > 1 {
        section.wrong(
            "weights",
            format!("is the sum of all instances' weights, and smaller than this one's ({weight})"),
        );
    }
    let servers = section.optional_endpoints("servers");
    let accept_lua_holes = section.flag("accept_lua_holes");
    let limiter = match servers {
        None => None,
        Some(servers) => {
            let (desk, tls) = desk(section, dir, servers, LIMITER_TLS)?;
            Some(LimiterPlan {
                desk,
                tls,
                accept_lua_holes,
            })
        }
    };
    (!section.is_wrong()).then_some(LeasePlan {
        instance,
        version,
        weight,
        weights: weights.max(weight),
        limiter,
    })
}
