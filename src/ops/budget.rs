//! What an operator does to a SKU's admission rate while it sells (D1, D2): a newer policy, over all shards and instances.
//!
//! `POST /ops/v1/activities/A/skus/S/budget` with `{"version": 2, "rate": "500/s"}`, and `"weights"` where instances share it.
//! Checked as the configuration is, written to the audit log, sent to the owner; the answer says what its counters show
//! afterwards: a version below the one that holds is refused, the same one changes nothing. The other instances of a stock
//! in Redis find the change in the bucket. A restart takes the configuration's word, unless a bucket has a newer one.

use super::OpsListener;
use super::audit::Act;
use super::gather::Wanted;
use super::limits::RATE_BYTES_MAX;
use super::refusal::{Fault, Refusal};
use super::reply::Reply;
use crate::config::ceilings::BUDGET_VERSION_MAX;
use crate::config::units;
use serde::Serialize;
use std::net::SocketAddr;
use weir_core::limit::book::LeaseBook;
use weir_core::limits::BUCKET_WEIGHTS_MAX;
use weir_core::mail::{Addr, BudgetChange, Mail};
use weir_core::port::{ConnId, Effects};
use weir_core::stats::Label;
use weir_core::time::{Mono, Now};
use weir_proto::http::response::Status;
use weir_proto::ids::SkuKey;
use weir_proto::json::{JsonError, MemberFault, Object};

#[derive(Serialize)]
struct Done {
    code: &'static str,
    action: &'static str,
    activity_id: u64,
    sku_id: u64,
    /// Those that hold now.
    version: u64,
    rate_per_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    weights: Option<u64>,
}

/// A change whose answer waits for the owner's counters.
pub(super) struct Asked {
    pub conn: ConnId,
    sku: SkuKey,
    version: u64,
    act: Act,
}

impl OpsListener {
    /// Sends the change to the owner; the counters that are gathered next say what came of it.
    pub(super) fn ask_budget(
        &mut self,
        now: Now,
        (conn, peer): (ConnId, SocketAddr),
        sku: SkuKey,
        body: &[u8],
        fx: &mut Effects,
    ) -> Result<(), Refusal> {
        if self.sale.sku(sku).is_none() {
            return Err(Fault::UnknownSku.into());
        }
        let mut object = Object::open(body, &["version", "rate", "weights", "actor"])?;
        let (mut version, mut rate, mut weights, mut actor) = (None, None, None, None);
        while let Some(member) = object.next_member()? {
            match member.name {
                "version" => version = Some(member.integer(1..=BUDGET_VERSION_MAX)?),
                "rate" => {
                    let text = member.text()?.visible::<RATE_BYTES_MAX>();
                    let fault = MemberFault::Form("a rate such as 500/s or 1000/m");
                    let read = text.and_then(|text| Some((units::rate(text.as_str()).ok()?, text)));
                    rate = Some(read.ok_or_else(|| member.fault(fault))?);
                }
                "weights" => {
                    weights = Some(member.integer(1..=u64::from(BUCKET_WEIGHTS_MAX))? as u32);
                }
                _ => actor = Some(super::steps::actor(&member)?),
            }
        }
        let version = version.ok_or_else(|| JsonError::missing("version"))?;
        let (rate, text) = rate.ok_or_else(|| JsonError::missing("rate"))?;
        LeaseBook::new(Mono(0), 0, rate, 1)
            .map_err(|error| Refusal::from(Fault::Policy).with_detail(&error))?;
        let (activity, number, text) = (sku.activity, sku.sku, text.as_str());
        let subject = format!("activity {activity} SKU {number} version {version} {text}");
        let act = Act {
            action: "budget_change",
            subject: Some(subject),
            ttl_s: None,
            peer,
            actor,
            result: "ASKED",
        };
        // Before the mail: no crash leaves a change without a line.
        if !self.steps.audit().write_act(now.wall, &act) {
            return Err(Fault::AuditFailed.into());
        }
        let change = BudgetChange {
            sku,
            version,
            rate,
            weights,
        };
        fx.post(Addr::Owner, Mail::BudgetChange(change));
        self.gather.want(conn, Wanted::Budget);
        let conns = &mut self.conns;
        self.budgets
            .retain(|asked| conns.get_mut(asked.conn).is_some()); // whose client left
        self.budgets.push(Asked {
            conn,
            sku,
            version,
            act,
        });
        Ok(())
    }

    /// What came of the change that `conn` asked for. Mail keeps its order: the counters are of after it, or of before it
    /// when the owner was slow.
    pub(super) fn budget(&mut self, now: Now, conn: ConnId) -> Reply {
        let done = self.end_budget(now, conn);
        done.unwrap_or_else(|refusal| refusal.reply())
    }

    fn end_budget(&mut self, now: Now, conn: ConnId) -> Result<Reply, Refusal> {
        let at = self.budgets.iter().position(|asked| asked.conn == conn);
        let asked = self.budgets.swap_remove(at.ok_or(Fault::OwnerSilent)?);
        let Asked { sku, version, .. } = asked;
        let mut parts = self.gather.parts().iter();
        let owner = parts.find(|part| part.addr == Addr::Owner);
        let stats = owner.and_then(|part| part.stats.as_ref());
        let value = |name| {
            let mut samples = stats?.samples.iter();
            let found =
                samples.find(|sample| sample.name == name && sample.label == Label::Sku(sku));
            found.map(|sample| sample.value)
        };
        let held = value("weir_budget_policy_version");
        let rate_milli = value("seckill_admission_rate_limit").unwrap_or(0);
        let weights = value("weir_budget_weights");
        let (result, fault) = match held {
            Some(held) if held == version => ("DONE", None),
            Some(held) if held > version => ("REFUSED", Some(Fault::OlderBudget)),
            _ => ("UNKNOWN", Some(Fault::OwnerSilent)),
        };
        // Done is done, and its first line is on disk: the operator hears it even if this line fails.
        let line = Act {
            result,
            ..asked.act
        };
        self.steps.audit().write_act(now.wall, &line);
        if let Some(fault) = fault {
            return Err(fault.into());
        }
        let body = Done {
            code: "OK",
            action: "budget_change",
            activity_id: sku.activity.0,
            sku_id: sku.sku.0,
            version,
            rate_per_s: rate_milli as f64 / 1000.0,
            weights,
        };
        Ok(Reply::json(Status::Ok, &body))
    }
}
