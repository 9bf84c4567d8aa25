//! What a run on Redis counted and found: for programs by serde, for people in words, with a verdict at the end.

use super::super::limits::FINDINGS_MAX;
use super::super::promises::{Findings, Sin};
use super::books::Counts;
use super::faults::Fault;
use super::limits::FINDING_CHARS_MAX;
use serde::Serialize;
use std::collections::BTreeMap;

/// One failover and what it cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Failover {
    /// What was done.
    pub fault: Fault,
    /// A process of weir was killed, too: an instance or the worker.
    pub weir_killed: bool,
    /// From the fault until another node was master, milliseconds.
    pub change_ms: u64,
    /// From the fault until the SKU sold again; `None`: never.
    pub thaw_ms: Option<u64>,
    /// Units that nobody could buy meanwhile.
    pub units_frozen: u64,
}

/// Counts of one run, without its verdict.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RedisTally {
    /// In order.
    pub thaws: Vec<Failover>,
    /// Faults after which the masters were the same.
    pub unchanged: u64,
    /// Processes of weir that were killed.
    pub weir_kills: u64,
    /// Instances that sold, beside the worker.
    pub instances: u64,
    /// Requests.
    pub requests: u64,
    /// Answers, also "not now".
    pub answers: u64,
    /// Answers that said "not now".
    pub not_now: u64,
    /// Questions that broke off unanswered; they were asked again.
    pub unanswered: u64,
    /// Broken promises.
    #[serde(skip)]
    pub findings: Findings,
}

/// What `weir torture --redis auto --json` prints.
#[derive(Clone, Debug, Serialize)]
pub struct RedisReport {
    /// Changes of the SKU's master.
    pub failovers: u64,
    /// Of each kind.
    pub faults: BTreeMap<Fault, u64>,
    /// Replicas that every grant waited for, and without which the master took no writes.
    pub wait_replicas: u64,
    /// See [`RedisTally`].
    #[serde(flatten)]
    pub tally: RedisTally,
    /// See [`Counts`].
    #[serde(flatten)]
    pub counts: Counts,
    /// Times that more was sold than there is.
    pub oversold: u64,
    /// Users with two live reservations or orders, requests with two grants.
    pub double_grants: u64,
    /// Grants and payments that were told and are gone, without a last word for their buyer.
    pub lost: u64,
    /// Requests without an end 30 s after load and faults.
    pub limbo: u64,
    /// Failovers after which the SKU did not sell again in time.
    pub never_thawed: u64,
    /// Promises broken in another way: see `findings`.
    pub other_broken: u64,
    /// Which.
    pub seed: u64,
    /// Seconds that it took.
    pub seconds: u64,
    /// The first broken promises in words.
    pub findings: Vec<String>,
}

impl RedisReport {
    /// Of one run.
    pub fn new(
        tally: RedisTally,
        counts: Counts,
        wait_replicas: u64,
        seed: u64,
        seconds: u64,
    ) -> Self {
        let found = &tally.findings;
        let lost = found.count(Sin::LostGrant) + found.count(Sin::LostPayment);
        let (oversold, double_grants) = (found.count(Sin::Oversold), found.count(Sin::DoubleGrant));
        let limbo = found.count(Sin::Limbo);
        let never_thawed = tally
            .thaws
            .iter()
            .filter(|one| one.thaw_ms.is_none())
            .count() as u64;
        let revoked = found.count(Sin::Revoked);
        let words = found.0.iter().take(FINDINGS_MAX);
        let words = words.map(|finding| {
            let words = format!("{:?}: {}", finding.sin, finding.what);
            words.chars().take(FINDING_CHARS_MAX).collect()
        });
        let mut faults = BTreeMap::new();
        for one in &tally.thaws {
            *faults.entry(one.fault).or_default() += 1;
        }
        Self {
            failovers: tally.thaws.len() as u64,
            faults,
            wait_replicas,
            counts,
            oversold,
            double_grants,
            lost,
            limbo,
            never_thawed,
            other_broken: found.0.len() as u64 - lost - oversold - double_grants - limbo - revoked,
            seed,
            seconds,
            findings: words.collect(),
            tally,
        }
    }

    /// True when no promise broke.
    pub fn is_clean(&self) -> bool {
        self.tally.findings.0.is_empty() && self.never_thawed == 0
    }

    /// The report in words; the verdict is its last line.
    pub fn text(&self) -> String {
        let (tally, counts) = (&self.tally, &self.counts);
        let mut out = format!(
            "{} failovers, {} faults without one, {} processes of weir killed ({} instances and a worker), {} s (seed {}), wait_replicas {}\n\
             {} requests, {} answers ({} \"not now\"), {} broke off and were asked again; {} grants, {} payments\n",
            self.failovers,
            tally.unchanged,
            tally.weir_kills,
            tally.instances,
            self.seconds,
            self.seed,
            self.wait_replicas,
            tally.requests,
            tally.answers,
            tally.not_now,
            tally.unanswered,
            counts.grants,
            counts.payments,
        );
        for one in &tally.thaws {
            let killed = if one.weir_killed {
                ", one of weir killed"
            } else {
                ""
            };
            let thaw = match one.thaw_ms {
                Some(ms) => format!("sold again after {ms} ms"),
                None => "did not sell again".to_owned(),
            };
            out += &format!(
                "  {:?}{killed}: another master after {} ms, {thaw}, {} units waited\n",
                one.fault, one.change_ms, one.units_frozen
            );
        }
        out += &format!(
            "revoked {} grants, each with a last word for its buyer; {} units were not sold in the end\n",
            counts.revoked, counts.unsold
        );
        for what in &self.findings {
            out += &format!("  {what}\n");
        }
        out += &if self.is_clean() {
            "verdict: every promise held\n".to_owned()
        } else {
            format!(
                "verdict: BROKEN: {} oversold, {} double grants, {} lost, {} limbo, {} revoked where nothing may be, {} never thawed, {} other\n",
                self.oversold,
                self.double_grants,
                self.lost,
                self.limbo,
                tally.findings.count(Sin::Revoked),
                self.never_thawed,
                self.other_broken,
            )
        };
        out
    }
}
