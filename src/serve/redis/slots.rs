//! Whether a cluster serves every slot, and whether its masters let us in.

use super::fault::Why;
use super::{RedisError, Seen, Visit};
use crate::config::RedisPlan;
use weir_core::redis::endpoint::Endpoint;
use weir_core::redis::slots::SlotMap;
use weir_proto::resp::{self, Value};

/// Greets each master that the configuration does not name: what a certificate or a password does not fit would be found
/// out by buyers. Those that do not answer go to `away`.
///
/// # Errors
/// The first thing that is wrong with one that answers.
pub(super) fn greet_masters(
    plan: &RedisPlan,
    seen: &Seen,
    away: &mut Vec<RedisError>,
) -> Result<(), RedisError> {
    let masters = seen.masters.iter();
    for server in masters.filter(|node| !plan.desk.servers.contains(node)) {
        match Visit::begin(plan, server).and_then(|mut visit| visit.greet(plan)) {
            Err(error) if error.is_away() => away.push(error),
            greeted => greeted?,
        }
    }
    Ok(())
}

impl Visit<'_> {
    /// The masters of the cluster.
    pub(super) fn look_at_slots(&mut self) -> Result<Vec<Endpoint>, RedisError> {
        let reply = self.must("CLUSTER SLOTS", &[b"CLUSTER", b"SLOTS"])?;
        let map = SlotMap::from_reply(resp::read(&reply), self.server);
        let map = map.map_err(|reject| self.fail(Why::Slots(reject)))?;
        let mut masters = map.masters().to_vec();
        // Redis 7 and later name the port of TLS apart, and none where nodes do not tell each other.
        let shards = self.ask(&[b"CLUSTER", b"SHARDS"])?;
        if let Value::Error(error) = resp::read(&shards)
            && error.code == b"NOPERM"
            && self.has_shards()?
        {
            return Err(self.fail(Why::Refused {
                command: "CLUSTER SHARDS",
                word: "NOPERM".to_owned(),
            }));
        }
        if self.link.is_encrypted() && matches!(resp::read(&shards), Value::Array(_)) {
            let by_tls = SlotMap::from_reply_by_tls(resp::read(&shards), self.server);
            let by_tls = by_tls.map_err(|reject| self.fail(Why::Slots(reject)))?;
            masters = by_tls.masters().to_vec(); // but for those that are away
            if masters.is_empty() {
                return Err(self.fail(Why::NoTlsPorts));
            }
        }
        let uncovered: Vec<String> = map.uncovered().map(|range| range.to_string()).collect();
        if uncovered.is_empty() {
            return Ok(masters);
        }
        Err(self.fail(Why::Uncovered(uncovered)))
    }

    /// True from Redis 7.0 on.
    fn has_shards(&mut self) -> Result<bool, RedisError> {
        let lines = self.info("server")?;
        let mut versions = lines.iter().filter(|(name, _)| name == "redis_version");
        let major = versions
            .next()
            .and_then(|(_, version)| version.split('.').next());
        Ok(major
            .and_then(|major| major.parse::<u32>().ok())
            .is_some_and(|major| major >= 7))
    }
}
