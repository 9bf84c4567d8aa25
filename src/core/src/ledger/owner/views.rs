//! What shards are shown of each SKU: captured with a batch, shown after its commit, repeated on a timer (E1-E4).

use crate::ask::Mode;
use crate::ledger::{Ledger, SkuState};
use crate::rng::Rng;
use crate::view::{SkuView, WinnersFilter};
use alloc::sync::Arc;
use alloc::vec::Vec;
use weir_proto::ids::SkuKey;

/// The views of one owner run.
#[derive(Debug)]
pub(super) struct Views {
    seed: u64,
    boot: u64,
    /// The newest view of each SKU, committed or about to be; sorted by SKU.
    captured: Vec<SkuView>,
    /// The newest committed view of each SKU; sorted by SKU.
    shown: Vec<SkuView>,
    nobody: Arc<WinnersFilter>,
}

impl Views {
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            boot: 0,
            captured: Vec::new(),
            shown: Vec::new(),
            nobody: Arc::new(WinnersFilter::default()),
        }
    }

    pub fn set_boot(&mut self, boot: u64) {
        self.boot = boot;
    }

    /// Appends to `out` a view of each SKU that changed since the last capture, as it stands in memory now.
    pub fn capture(&mut self, ledger: &Ledger, out: &mut Vec<SkuView>) {
        for sku in ledger.skus() {
            let place = self
                .captured
                .binary_search_by_key(&sku.sku, |view| view.sku);
            let before = place.ok().map(|place| &self.captured[place]);
            if before.is_some_and(|view| is_same(view, &sku)) {
                continue;
            }
            let winners = match before {
                _ if !sku.sold_out => Arc::clone(&self.nobody),
                // Who is in the filter changes only by grants, and while sold out there are none.
                Some(view) if view.sold_out && view.stock_epoch == sku.epoch => {
                    Arc::clone(&view.winners)
                }
                _ => Arc::new(WinnersFilter::build(
                    self.filter_key(&sku),
                    ledger.users_of(sku.sku),
                )),
            };
            let view = SkuView {
                sku: sku.sku,
                boot: self.boot,
                version: before.map_or(1, |view| view.version + 1),
                stock_epoch: sku.epoch,
                sold_out: sku.sold_out,
                open: sku.open,
                mode: sku.mode,
                poisoned: false,
                winners,
            };
            put(&mut self.captured, view.clone());
            out.push(view);
        }
    }

    /// Makes a committed view the one that is shown.
    pub fn show(&mut self, view: SkuView) {
        put(&mut self.shown, view);
    }

    /// Marks every view poisoned, also of SKUs of the sale that have none yet: shards must know that nothing is sold.
    pub fn poison(&mut self, sale_skus: impl Iterator<Item = SkuKey>) {
        for sku in sale_skus {
            if self
                .shown
                .binary_search_by_key(&sku, |view| view.sku)
                .is_err()
            {
                let closed = SkuView {
                    sku,
                    boot: self.boot,
                    version: 0,
                    stock_epoch: 0,
                    sold_out: false,
                    open: false,
                    mode: Mode::Closed,
                    poisoned: true,
                    winners: Arc::clone(&self.nobody),
                };
                put(&mut self.shown, closed);
            }
        }
        for view in &mut self.shown {
            view.poisoned = true;
            view.version += 1;
        }
    }

    pub fn shown(&self) -> &[SkuView] {
        &self.shown
    }

    fn filter_key(&self, sku: &SkuState) -> u64 {
        let mut key = Rng::new(self.seed ^ self.boot);
        for part in [sku.sku.activity.0, sku.sku.sku.0, sku.epoch] {
            key = Rng::new(key.next_u64() ^ part);
        }
        key.next_u64()
    }
}

fn is_same(view: &SkuView, sku: &SkuState) -> bool {
    view.stock_epoch == sku.epoch
        && view.sold_out == sku.sold_out
        && view.open == sku.open
        && view.mode == sku.mode
}

fn put(views: &mut Vec<SkuView>, view: SkuView) {
    match views.binary_search_by_key(&view.sku, |other| other.sku) {
        Ok(place) => views[place] = view,
        Err(place) => views.insert(place, view),
    }
}
