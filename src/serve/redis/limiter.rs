//! Looks at the Redis of the buckets, where it is another one than the stock's (D5).

use super::fault::{RedisError, Why};
use super::{Visit, resp};
use crate::config::RedisPlan;
use weir_core::limit::lease::{LeaseReturn, ShardId};
use weir_core::redis::lease::LeaseSteps;
use weir_core::redis::script::Script;
use weir_core::redis::step::SkuSteps;
use weir_proto::resp::Value;

/// # Errors
/// The first thing that is wrong; its message names keys of `[limiter]`.
pub(super) fn examine(plan: &RedisPlan, notes: &mut Vec<String>) -> Result<(), RedisError> {
    let Some(limiter) = &plan.leases.limiter else {
        return Ok(());
    };
    let of_limiter = RedisPlan {
        desk: limiter.desk.clone(),
        tls: limiter.tls.clone(),
        accept_lua_holes: limiter.accept_lua_holes,
        ..plan.clone()
    };
    let looked = look(&of_limiter, notes);
    looked.map_err(|error| RedisError {
        section: "limiter",
        ..error
    })
}

fn look(plan: &RedisPlan, notes: &mut Vec<String>) -> Result<(), RedisError> {
    for server in &plan.desk.servers {
        let mut visit = Visit::begin(plan, server)?;
        visit.greet(plan)?;
        visit.look_around(plan, notes)?;
        if plan.desk.is_cluster {
            visit.look_at_slots()?;
        } else {
            visit.look_at_buckets(plan)?;
        }
    }
    Ok(())
}

impl Visit<'_> {
    /// Keys of another application, and what this user may not do.
    fn look_at_buckets(&mut self, plan: &RedisPlan) -> Result<(), RedisError> {
        for script in [Script::LeasePolicy, Script::LeaseDraw, Script::LeaseReturn] {
            let load = [&b"SCRIPT"[..], b"LOAD", script.source().as_bytes()];
            self.must("SCRIPT LOAD", &load)?;
        }
        for step in &plan.steps {
            for name in ["lease", "lines"] {
                let key = SkuSteps::new(*step).key(name);
                let reply = self.must("TYPE", &[b"TYPE", key.as_bytes()])?;
                let value = resp::read(&reply);
                let is = value.text().ok_or_else(|| self.fail(Why::NoRedis))?;
                let is = String::from_utf8_lossy(is).into_owned();
                let wants = "hash";
                if is != wants && is != "none" {
                    return Err(self.fail(Why::Foreign { key, is, wants }));
                }
            }
            // Nothing comes back of a run that never was: it only reads.
            let nothing = LeaseReturn {
                shard: ShardId(0),
                sku: step.sku,
                owner_boot: 0,
                shard_boot: 0,
                seq: 1,
                tokens: 0,
            };
            let mut frame = Vec::new();
            LeaseSteps::new(step.sku, "weir").push_return(&nothing, &mut frame);
            let reply = self.must_frame("EVALSHA (lease_return)", &frame)?;
            debug_assert!(!matches!(resp::read(&reply), Value::Error(_)));
        }
        Ok(())
    }
}
