//! Which ends of requests go to the admission log, and what a line says (requirement M2).
//!
//! Results that matter for trust (5xx, unknown) go all, the rest one in so many. The log's own box is bounded: what does
//! not fit is dropped and counted by the driver, never waited for. User ids appear as keyed hashes only.

use super::Shard;
use super::asks::RequestName;
use super::reply::Reply;
use crate::mail::{Addr, Mail};
use crate::port::Effects;
use crate::record::AdmissionRecord;
use crate::time::Now;
use weir_proto::answer::Decision;
use weir_proto::ids::UserId;

impl Shard {
    /// Hands one end to the log, if it is chosen.
    pub(super) fn log(
        &mut self,
        now: Now,
        reply: &Reply,
        request: Option<&RequestName>,
        latency_us: u64,
        fx: &mut Effects,
    ) {
        let every = match reply.reason.decision() {
            Decision::Unknown => 1,
            Decision::Admit | Decision::Replay => self.config.log_admitted_every,
            Decision::Inform | Decision::Reject if reply.reason.row().http_status >= 500 => {
                self.config.log_failed_every
            }
            Decision::Inform | Decision::Reject => self.config.log_refused_every,
        };
        if every == 0 || self.rng.below(u64::from(every)) != 0 {
            return;
        }
        let activity = request.and_then(|name| self.skus.sale().activity(name.sku.activity));
        let record = AdmissionRecord {
            at: now.wall,
            request_id: reply.request_id,
            sku: request.map(|name| name.sku),
            user_hash: request.map(|name| self.user_hash(name.user)),
            key_id: self.verified_kid,
            activity_version: activity.map_or(0, |activity| activity.version),
            reason: reply.reason,
            retry_after_ms: reply.retry_after_ms,
            latency_us,
        };
        self.counters.logged += 1;
        fx.post(Addr::Log, Mail::Record(record));
    }

    fn user_hash(&self, user: UserId) -> [u8; 8] {
        let hash = blake3::keyed_hash(&self.config.user_hash_key, &user.0.to_be_bytes());
        let mut short = [0; 8];
        short.copy_from_slice(&hash.as_bytes()[..8]);
        short
    }
}
