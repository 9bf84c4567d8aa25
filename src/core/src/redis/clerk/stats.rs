//! The clerk's counters: the ledger's names where they mean the same, `weir_redis_*` for the rest.

use super::Clerk;
use crate::mail::Addr;
use crate::redis::desk::ERROR_WORDS;
use crate::stats::{Label, Sample, Stats};
use crate::time::Now;
use alloc::vec::Vec;

impl Clerk {
    /// True when every SKU is known, be it as lost, and its server can be asked for grants.
    fn is_serving(&self, now: Now) -> bool {
        let mut skus = self.skus.iter();
        let is_known = skus.all(|desked| match desked.state {
            // Who makes the orders has to know that nobody else does.
            Some(_) => self.config.maker.is_none() || self.stream.is_ours(desked.sku),
            None => desked.was_lost,
        });
        let is_reachable = self
            .skus
            .iter()
            .all(|desked| self.desk.can_ask(now, desked.sku));
        is_known && is_reachable && self.desk.changed().next().is_none()
    }

    pub(super) fn stats(&self, now: Now) -> Stats {
        let mut samples = Vec::with_capacity(16 + 16 * self.skus.len());
        let mut put = |name, label, value| samples.push(Sample { name, label, value });
        let counts = self.desk.counts();
        let changed = self.desk.changed().count() as u64;
        for (name, value) in [
            ("weir_ledger_serving", u64::from(self.is_serving(now))),
            ("weir_ledger_poisoned", 0),
            ("weir_redis_outbox_total", self.outbox.sent),
            ("weir_redis_stream_taken_total", self.stream.sent),
            ("weir_redis_stream_forgotten_total", self.stream.forgotten),
            ("weir_redis_stream_unreadable_total", self.stream.unreadable),
            (
                "weir_redis_orders_elsewhere",
                u64::from(self.stream.is_elsewhere),
            ),
            ("weir_redis_asks_total", counts.asks),
            ("weir_redis_resends_total", counts.resends),
            ("weir_redis_unknown_total", counts.unknown),
            ("weir_redis_refusals_total", counts.refusals),
            ("weir_redis_faults_total", counts.faults),
            ("weir_redis_broken_total", counts.broken),
            ("weir_redis_links_lost_total", counts.lost),
            ("weir_redis_orphans_total", self.outbox.orphans),
            ("weir_redis_servers_changed", changed),
            ("weir_redis_unreplicated_total", counts.unreplicated),
        ] {
            put(name, Label::None, value);
        }
        for desked in &self.skus {
            let Some(state) = &desked.state else {
                continue;
            };
            let label = Label::Sku(desked.sku);
            let books = &state.books;
            put("seckill_stock_epoch", label, state.epoch);
            put("weir_ledger_units_total", label, books.total);
            put("weir_ledger_units_free", label, books.free);
            put("weir_ledger_units_held", label, books.held);
            put("weir_ledger_units_sold", label, books.sold);
            put("weir_ledger_units_quarantined", label, books.quarantined);
            let reservations = u64::from(state.reservations);
            put("weir_ledger_reservations", label, reservations);
            put(
                "weir_ledger_mode",
                Label::SkuMode(desked.sku, state.mode),
                1,
            );
            let frozen = u64::from(!desked.frozen.is_empty());
            put("weir_redis_frozen", label, frozen);
            let mending = &desked.mending;
            let is_mending = u64::from(mending.is_mending());
            put("weir_redis_mending", label, is_mending);
            put("weir_redis_mended_total", label, mending.mended);
            put("weir_redis_grants_kept", label, mending.kept() as u64);
            put("weir_redis_grants_revoked_total", label, mending.revoked);
        }
        for view in self.watch.shown() {
            put(
                "seckill_soldout_version",
                Label::Sku(view.sku),
                view.version,
            );
        }
        self.put_faults(&mut samples);
        self.leases.put(now, &self.desk, &mut samples);
        Stats {
            from: Addr::Owner,
            samples,
            hot: Vec::new(),
        }
    }

    /// What Redis and the connections to it did wrong, by word.
    fn put_faults(&self, samples: &mut Vec<Sample>) {
        let mut put = |name, word, value| {
            let label = Label::Result(word);
            samples.push(Sample { name, label, value });
        };
        for (word, count) in ERROR_WORDS.iter().zip(self.desk.counts().errors) {
            put("weir_redis_errors_total", word, count);
        }
        for (word, count) in self.desk.link_faults() {
            put("weir_redis_link_faults_total", word, count);
        }
    }
}
