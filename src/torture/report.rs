//! What a run counted and found: for programs by serde, for people in words, with a verdict at the end.

use super::limits::FINDINGS_MAX;
use super::promises::{Findings, Sin};
use super::told::Told;
use serde::Serialize;
use weir_proto::answer::Code;

/// Counts of one lane, added up at the end.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Tally {
    /// Servers killed under load, in recovery or in a file operation.
    pub kills: u64,
    /// Answers that promise something.
    pub acked: u64,
    /// Sales.
    pub sales: u64,
    /// Grants among them, each request once.
    pub grants: u64,
    /// Payments that were said to be booked.
    pub payments: u64,
    /// Orders that were said to be closed.
    pub closings: u64,
    /// Requests that were told "sold out".
    pub sold_outs: u64,
    /// Requests without an answer: their server died first.
    pub unanswered: u64,
    /// Writes that no sync had covered when the server died.
    pub unsynced_writes: u64,
    /// Power cuts whose files were read and compared.
    pub cuts: u64,
    /// Syncs that failed.
    pub sync_errors: u64,
    /// Writes that failed.
    pub write_errors: u64,
    /// Disks that ran full, small file systems and refused writes together.
    pub full_disks: u64,
    /// Of these, small file systems of their own.
    #[serde(skip)]
    pub full_file_systems: u64,
    /// Servers that stood still for a while.
    pub pauses: u64,
    /// Steps of the wall clock.
    pub clock_jumps: u64,
    /// Torn ends of the journal.
    pub torn_tails: u64,
    /// Flipped bits of the journal.
    pub flipped_bits: u64,
    /// Why a fault could not be made here; empty when all were.
    pub not_possible: Vec<String>,
    /// Broken promises.
    #[serde(skip)]
    pub findings: Findings,
}

impl Tally {
    /// Counts what a load was told.
    pub fn count(&mut self, told: &[Told]) {
        let requests =
            |wanted: &dyn Fn(&Told) -> bool| told.iter().filter(|told| wanted(told)).count() as u64;
        self.acked += told.iter().map(|told| told.said.len() as u64).sum::<u64>();
        self.grants += requests(&|told| told.reservation().is_some());
        self.payments += requests(&Told::is_paid);
        self.closings += requests(&Told::is_closed);
        self.sold_outs += requests(&|told| told.was_told(Code::SeckillSoldOut));
        self.unanswered += requests(&|told| told.unanswered.is_some());
    }

    /// Adds another lane's.
    pub fn add(&mut self, other: Self) {
        for (mine, theirs) in [
            (&mut self.kills, other.kills),
            (&mut self.sales, other.sales),
            (&mut self.acked, other.acked),
            (&mut self.grants, other.grants),
            (&mut self.payments, other.payments),
            (&mut self.closings, other.closings),
            (&mut self.sold_outs, other.sold_outs),
            (&mut self.unanswered, other.unanswered),
            (&mut self.unsynced_writes, other.unsynced_writes),
            (&mut self.cuts, other.cuts),
            (&mut self.sync_errors, other.sync_errors),
            (&mut self.write_errors, other.write_errors),
            (&mut self.full_disks, other.full_disks),
            (&mut self.full_file_systems, other.full_file_systems),
            (&mut self.pauses, other.pauses),
            (&mut self.clock_jumps, other.clock_jumps),
            (&mut self.torn_tails, other.torn_tails),
            (&mut self.flipped_bits, other.flipped_bits),
        ] {
            *mine += theirs;
        }
        self.not_possible.extend(other.not_possible);
        self.findings.0.extend(other.findings.0);
    }
}

/// What `weir torture --json` prints.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TortureReport {
    /// Of all lanes together.
    #[serde(flatten)]
    pub tally: Tally,
    /// Grants, payments and closings that were told and are gone.
    pub lost: u64,
    /// Times that more was sold than there is.
    pub oversold: u64,
    /// Users with two units, requests with two grants.
    pub double_grants: u64,
    /// Syncs and writes that failed, and disks that ran full.
    pub disk_faults: u64,
    /// Promises broken in another way: see `findings`.
    pub other_broken: u64,
    /// Which.
    pub seed: u64,
    /// How disks ran full: `tmpfs+quota`, or `quota` where no file system may be mounted.
    pub full_disk_by: &'static str,
    /// Seconds that it took.
    pub seconds: u64,
    /// The first broken promises in words.
    pub findings: Vec<String>,
}

impl TortureReport {
    /// `tally`: of all lanes together.
    pub fn new(tally: Tally, seed: u64, seconds: u64) -> Self {
        let found = &tally.findings;
        let lost = [Sin::LostGrant, Sin::LostPayment, Sin::LostClosing]
            .map(|sin| found.count(sin))
            .iter()
            .sum();
        let (oversold, double_grants) = (found.count(Sin::Oversold), found.count(Sin::DoubleGrant));
        let words = found
            .0
            .iter()
            .take(FINDINGS_MAX)
            .map(|finding| format!("{:?}: {}", finding.sin, finding.what));
        Self {
            lost,
            oversold,
            double_grants,
            disk_faults: tally.sync_errors + tally.write_errors + tally.full_disks,
            other_broken: found.0.len() as u64 - lost - oversold - double_grants,
            seed,
            full_disk_by: match tally.full_file_systems {
                0 => "quota",
                _ => "tmpfs+quota",
            },
            seconds,
            findings: words.collect(),
            tally,
        }
    }

    /// True when no promise broke.
    pub fn is_clean(&self) -> bool {
        self.lost + self.oversold + self.double_grants + self.other_broken == 0
    }

    /// The report in words; the verdict is its last line.
    pub fn text(&self) -> String {
        let told = &self.tally;
        let mut out = format!(
            "{} kills in {} sales, {} s (seed {})\n\
             {} answers were compared with the books: {} grants, {} payments, {} closed orders, {} \"sold out\"; {} requests died unanswered\n\
             {} power cuts ({} writes were not synced when the server died)\n\
             disk: {} failed syncs, {} failed writes, {} full disks (by {})\n\
             {} pauses, {} steps of the clock, {} torn tails, {} flipped bits\n",
            told.kills,
            told.sales,
            self.seconds,
            self.seed,
            told.acked,
            told.grants,
            told.payments,
            told.closings,
            told.sold_outs,
            told.unanswered,
            told.cuts,
            told.unsynced_writes,
            told.sync_errors,
            told.write_errors,
            told.full_disks,
            self.full_disk_by,
            told.pauses,
            told.clock_jumps,
            told.torn_tails,
            told.flipped_bits,
        );
        for what in &told.not_possible {
            out += &format!("not tried here: {what}\n");
        }
        for what in &self.findings {
            out += &format!("  {what}\n");
        }
        out += &if self.is_clean() {
            "verdict: every promise held\n".to_owned()
        } else {
            format!(
                "verdict: BROKEN: {} lost, {} oversold, {} double grants, {} other\n",
                self.lost, self.oversold, self.double_grants, self.other_broken
            )
        };
        out
    }
}
