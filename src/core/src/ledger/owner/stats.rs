//! The owner's counters, for `/metrics` (names of seed 000 §12.1 where they exist, `weir_ledger_*` for the rest).

use super::{Owner, Phase};
use crate::ask::Failure;
use crate::mail::Addr;
use crate::stats::{Label, Sample, Stats};
use alloc::vec::Vec;

/// What happened since the start; each only grows.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub batches: u64,
    pub entries: u64,
    pub journal_bytes: u64,
    pub snapshots: u64,
    late: u64,
    busy: u64,
    refused_otherwise: u64,
}

impl Counts {
    pub fn refused(&mut self, failure: Failure) {
        match failure {
            Failure::Late => self.late += 1,
            Failure::Busy => self.busy += 1,
            Failure::Poisoned
            | Failure::Recovering
            | Failure::UnknownSku
            | Failure::Unavailable
            | Failure::Frozen => {
                self.refused_otherwise += 1;
            }
        }
    }
}

impl Owner {
    pub(super) fn stats(&self) -> Stats {
        let mut samples = Vec::with_capacity(16 + 16 * self.leases.len());
        let mut put = |name, label, value| samples.push(Sample { name, label, value });
        let counts = &self.counts;
        for (name, value) in [
            ("weir_ledger_batches_total", counts.batches),
            ("weir_ledger_entries_total", counts.entries),
            ("weir_ledger_journal_bytes_total", counts.journal_bytes),
            ("weir_ledger_snapshots_total", counts.snapshots),
            ("weir_ledger_orders_resent_total", self.outbox.resent),
            ("weir_ledger_serving", u64::from(self.is_serving())),
            ("weir_redis_orders_elsewhere", 0), // nobody else can read this ledger
            ("weir_lease_refused", 0),          // it hands out all of the budget itself
            (
                "weir_ledger_poisoned",
                u64::from(matches!(self.phase, Phase::Poisoned(_))),
            ),
        ] {
            put(name, Label::None, value);
        }
        for (result, value) in [
            ("late", counts.late),
            ("busy", counts.busy),
            ("closed", counts.refused_otherwise),
        ] {
            put(
                "weir_ledger_asks_failed_total",
                Label::Result(result),
                value,
            );
        }
        for sku in self.ledger.skus() {
            let label = Label::Sku(sku.sku);
            put("seckill_stock_epoch", label, sku.epoch);
            put("weir_ledger_units_total", label, sku.books.total);
            put("weir_ledger_units_free", label, sku.books.free);
            put("weir_ledger_units_held", label, sku.books.held);
            put("weir_ledger_units_sold", label, sku.books.sold);
            put(
                "weir_ledger_units_quarantined",
                label,
                sku.books.quarantined,
            );
            put(
                "weir_ledger_reservations",
                label,
                u64::from(sku.reservations),
            );
            put("weir_ledger_mode", Label::SkuMode(sku.sku, sku.mode), 1);
        }
        for view in self.views.shown() {
            put(
                "seckill_soldout_version",
                Label::Sku(view.sku),
                view.version,
            );
        }
        for (sku, book) in &self.leases {
            let (label, rate, all) = (Label::Sku(*sku), book.rate().milli_per_s(), book.counts());
            put("weir_budget_policy_version", label, book.version());
            put("seckill_admission_rate_limit", label, rate);
            put("weir_lease_tokens_granted_total", label, all.granted);
            put("weir_lease_tokens_returned_total", label, all.returned);
            put("weir_lease_tokens_void_total", label, all.void);
            put("weir_lease_draws_stale_total", label, all.stale_draws);
        }
        Stats {
            from: Addr::Owner,
            samples,
            hot: Vec::new(),
        }
    }
}
