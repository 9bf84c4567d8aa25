//! From the store's image to serving: recover, open what is new in the configuration, show, answer.

use super::outbox::Outbox;
use super::{Due, Owner, OwnerFault, Phase, Unsnapped, sale_skus};
use crate::ask::{LedgerOp, Open, OpsRef};
use crate::journal::Image;
use crate::ledger::{Recovered, recover};
use crate::limit::book::LeaseBook;
use crate::limits::{OUTBOX_RESCAN_MS, REOPEN_TICK_MS, TOMBSTONE_TTL_MS, VIEW_REFRESH_MS};
use crate::planted::{self, Planted};
use crate::port::Effects;
use crate::sale::Sku;
use crate::time::Now;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use weir_proto::ids::{RequestId, SkuKey};

impl Unsnapped {
    fn of(image: &Image) -> Self {
        let snapshot = image.snapshot.as_ref();
        Self {
            batches: image.batches.len() as u64,
            bytes: image.batches.iter().map(|batch| batch.bytes.len()).sum(),
            snapshot_bytes: snapshot.map_or(0, |(_, bytes)| bytes.len()),
        }
    }
}

impl Owner {
    pub(super) fn recovered(&mut self, now: Now, image: &Image, fx: &mut Effects) {
        if self.phase != Phase::Recovering {
            return; // a repeated image: this run has one already
        }
        self.boot = image.boot_epoch;
        self.views.set_boot(image.boot_epoch);
        let started = recover(self.ledger_config(), image)
            .map_err(OwnerFault::Image)
            .and_then(|recovered| Ok((recovered, self.open_leases(now)?)));
        match started {
            Err(fault) => self.poison(fault, fx),
            Ok((Recovered { ledger, last_seq }, leases)) => {
                // The worker may have started first: what it asked for is sent now, not when it asks again.
                let is_asked = self.outbox.is_walking();
                self.outbox = Outbox::new(&ledger);
                self.ledger = ledger;
                self.leases = leases;
                self.batches.last_seq = last_seq;
                self.unsnapped = Unsnapped::of(image);
                self.phase = Phase::Serving;
                self.due = Due {
                    tick: now.mono.plus_ms(REOPEN_TICK_MS),
                    views: now.mono.plus_ms(VIEW_REFRESH_MS),
                    outbox: now.mono.plus_ms(OUTBOX_RESCAN_MS),
                    tombstones: now.mono.plus_ms(TOMBSTONE_TTL_MS),
                };
                self.open_sale(now);
                self.show_recovered(fx);
                if is_asked {
                    self.send_outbox(fx);
                }
            }
        }
    }

    fn open_leases(&self, now: Now) -> Result<Vec<(SkuKey, LeaseBook)>, OwnerFault> {
        let book = |(key, sku): (SkuKey, &Sku)| {
            LeaseBook::new(now.mono, self.boot, sku.budget, self.config.shards_count)
                .map(|book| (key, book))
                .map_err(|error| OwnerFault::Budget(key, error))
        };
        sale_skus(&self.config.sale).map(book).collect()
    }

    /// Puts on sale what the configuration has and the ledger does not; takes changed policies over. One batch holds
    /// it: the most SKUs of a process make 70 bytes each.
    fn open_sale(&mut self, now: Now) {
        let sale = Arc::clone(&self.config.sale);
        for (key, sku) in sale_skus(&sale) {
            let name = match self.ledger.sku(key) {
                None => "weir-first-stock".into(),
                Some(_) if planted::is(Planted::StockSetAtStart) => {
                    format!("weir-stock-{:016x}", self.boot)
                }
                Some(state)
                    if state.open
                        && (state.quantity_max != sku.quantity_max
                            || state.once_per_activity != sku.once_per_activity) =>
                {
                    format!("weir-policy-{:016x}", self.boot)
                }
                Some(_) => continue,
            };
            let request_id = RequestId::new(name.as_bytes());
            let target = OpsRef {
                sku: key,
                request_id: request_id.expect("our own names are short visible ASCII"),
            };
            let open = LedgerOp::Open(Open {
                target,
                stock: sku.first_stock,
                quantity_max: sku.quantity_max,
                once_per_activity: sku.once_per_activity,
            });
            self.ledger
                .apply(now.wall, &open, &mut self.batches.journal);
        }
    }

    /// Without a batch to wait for, what was recovered is committed and can be shown.
    fn show_recovered(&mut self, fx: &mut Effects) {
        if self.batches.journal.entries() == 0 && self.batches.in_flight.is_none() {
            let mut views = Vec::new();
            self.views.capture(&self.ledger, &mut views);
            for view in views {
                self.views.show(view);
            }
            self.broadcast(fx);
        }
    }
}
