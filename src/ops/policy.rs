//! What an operator does to a keyed limit while it runs: another rate and burst (B20, B22, B33, B47).
//!
//! `POST /ops/v1/limits/{ip|user|device|status}` with `{"rate": "2/s", "burst": 3}`. Checked as the configuration is, written
//! to the audit log, sent to every shard; each key keeps what it earned and what it consumed. The kind of rule stays, and
//! a restart takes the configuration's word again. Idempotent. What the shards did is in `weir_limiter_policy_changes_total`.

use super::OpsListener;
use super::audit::Act;
use super::limits::RATE_BYTES_MAX;
use super::refusal::{Fault, Refusal};
use super::reply::Reply;
use crate::config::ceilings::BURST_MAX;
use crate::config::units;
use serde::Serialize;
use std::net::SocketAddr;
use weir_core::limit::dimension::Dim;
use weir_core::limit::gcra::{Policy, PolicyError};
use weir_core::limit::rule::{Kind, Rule};
use weir_core::mail::{Addr, LimitChange, Mail};
use weir_core::port::Effects;
use weir_core::time::Now;
use weir_proto::http::response::Status;
use weir_proto::json::{JsonError, MemberFault, Object};

#[derive(Serialize)]
struct Done<'a> {
    code: &'static str,
    action: &'static str,
    dimension: &'static str,
    policy: &'static str,
    rate: &'a str,
    burst: u32,
    shards: u16,
}

impl OpsListener {
    /// Sends one dimension's new rate and burst to every shard.
    pub(super) fn change_limit(
        &mut self,
        now: Now,
        dim: Dim,
        peer: SocketAddr,
        body: &[u8],
        fx: &mut Effects,
    ) -> Result<Reply, Refusal> {
        let mut object = Object::open(body, &["rate", "burst", "actor"])?;
        let (mut rate, mut burst, mut actor) = (None, None, None);
        while let Some(member) = object.next_member()? {
            match member.name {
                "rate" => {
                    let text = member.text()?.visible::<RATE_BYTES_MAX>();
                    let fault = MemberFault::Form("a rate such as 2/s, 0.5/s or 10/m");
                    let read = text.and_then(|text| Some((units::rate(text.as_str()).ok()?, text)));
                    rate = Some(read.ok_or_else(|| member.fault(fault))?);
                }
                "burst" => burst = Some(member.integer(1..=BURST_MAX)? as u32),
                _ => actor = Some(super::steps::actor(&member)?),
            }
        }
        let (of_all, text) = rate.ok_or_else(|| JsonError::missing("rate"))?;
        let burst = burst.ok_or_else(|| JsonError::missing("burst"))?;
        let shards: Vec<Addr> = self.shards().collect();
        let shards_count = u16::try_from(shards.len()).expect("a plan has a u16 of shards");
        let started = &self.rules[dim as usize];
        let policy = Policy::new(of_all, burst)
            .and_then(|policy| policy.split(shards_count))
            .and_then(|policy| enforceable(started, policy))
            .map_err(|error| Refusal::from(Fault::Policy).with_detail(&error))?;
        let line = |result| Act {
            action: "limit_change",
            subject: Some(format!("{} {} {burst}", dim.word(), text.as_str())),
            ttl_s: None,
            peer,
            actor,
            result,
        };
        // Before the mail: no crash leaves a change without a line.
        if !self.steps.audit().write_act(now.wall, &line("ASKED")) {
            return Err(Fault::AuditFailed.into());
        }
        for shard in shards {
            fx.post(shard, Mail::LimitChange(LimitChange { dim, policy }));
        }
        self.steps.audit().write_act(now.wall, &line("DONE"));
        let body = Done {
            code: "OK",
            action: "limit_change",
            dimension: dim.word(),
            policy: started.kind().word(),
            rate: text.as_str(),
            burst,
            shards: shards_count,
        };
        Ok(Reply::json(Status::Ok, &body))
    }

    fn shards(&self) -> impl Iterator<Item = Addr> {
        let parts = self.gather.parts().iter().map(|part| part.addr);
        parts.filter(|addr| matches!(addr, Addr::Shard(_)))
    }
}

/// The policy, if a table that was made for `started` can enforce it.
fn enforceable(started: &Rule, policy: Policy) -> Result<Policy, PolicyError> {
    let rule = Rule::new(started.kind(), policy)?;
    if rule.kind() == Kind::SlidingLog && policy.capacity() > started.policy().capacity() {
        return Err(PolicyError::LogTooLong); // its slots have room for the first burst
    }
    Ok(policy)
}
