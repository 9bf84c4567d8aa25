//! Which ends of requests go to the admission log, and what a line says (requirement M2).
//!
//! Results that matter for trust (unknown, the beginning of a ban) go all, the rest one in so many. The log's own box is bounded: what does
//! not fit is dropped and counted by the driver, never waited for. User ids appear as keyed hashes only.

use super::Shard;
use super::asks::RequestName;
use super::reply::Reply;
use crate::limit::deny::user_hash;
use crate::mail::{Addr, Mail};
use crate::port::Effects;
use crate::record::AdmissionRecord;
use crate::time::Now;
use weir_proto::answer::Decision;

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
        let ban_began = core::mem::take(&mut self.gates.ban_began);
        let every = match reply.reason.decision() {
            _ if ban_began => 1,
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
            user_hash: request.map(|name| user_hash(&self.config.user_hash_key, name.user)),
            key_id: self.verified_kid,
            activity_version: activity.map_or(0, |activity| activity.version),
            reason: reply.reason,
            retry_after_ms: reply.retry_after_ms,
            latency_us,
        };
        self.counters.logged += 1;
        fx.post(Addr::Log, Mail::Record(record));
    }
}
