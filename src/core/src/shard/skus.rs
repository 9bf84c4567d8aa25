//! What this shard knows of each SKU: the owner's view, the sold-out mark, the share of the budget.
//!
//! Used by the pipeline. The mark only refuses faster, never admits (E3); it holds for its time to live and is renewed by
//! views and by SOLD_OUT answers of the same epoch; only a larger epoch is applied (E1, E2).

use crate::ask::Mode;
use crate::limit::budget::BudgetShare;
use crate::limit::inflight::SkuSlot;
use crate::limit::lease::ShardId;
use crate::planted::{self, Planted};
use crate::sale::{Activity, Sale, Sku};
use crate::time::Mono;
use crate::view::SkuView;
use alloc::sync::Arc;
use alloc::vec::Vec;
use weir_proto::ids::{SkuId, SkuKey, UserId};

/// Where a SKU stands in the sale and in this shard's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SkuIndex(pub u16);

/// One SKU as this shard knows it.
#[derive(Debug)]
pub struct SkuState {
    /// Its name.
    pub key: SkuKey,
    /// Its in-flight counter.
    pub slot: SkuSlot,
    /// This shard's prepaid budget.
    pub budget: BudgetShare,
    /// The owner's word; `None` until the first view.
    pub view: Option<SkuView>,
    /// Submits that got a unit by this shard's asks.
    pub admitted: u64,
    /// Submits that passed the budget.
    pub prepaid: u64,
    activity_at: u16,
    sku_at: u16,
    mark_until: Mono,
}

/// All SKUs.
#[derive(Debug)]
pub struct Skus {
    sale: Arc<Sale>,
    states: Vec<SkuState>,
    awaited: usize,
    owner_boot: u64,
}

impl Skus {
    /// Knows nothing of any SKU yet (design §12.13).
    pub fn new(now: Mono, sale: Arc<Sale>, shard: ShardId, shard_boot: u64) -> Self {
        let mut states = Vec::new();
        for (activity_at, activity) in (0_u16..).zip(&sale.activities) {
            for (sku_at, sku) in (0_u16..).zip(&activity.skus) {
                let key = SkuKey {
                    activity: activity.id,
                    sku: sku.id,
                };
                states.push(SkuState {
                    key,
                    slot: SkuSlot(states.len() as u16),
                    budget: BudgetShare::new(now, shard, key, shard_boot),
                    view: None,
                    admitted: 0,
                    prepaid: 0,
                    activity_at,
                    sku_at,
                    mark_until: Mono(0),
                });
            }
        }
        Self {
            sale,
            awaited: states.len(),
            states,
            owner_boot: 0,
        }
    }

    /// What is sold.
    pub fn sale(&self) -> &Sale {
        &self.sale
    }

    /// How many SKUs there are.
    pub fn count(&self) -> usize {
        self.states.len()
    }

    /// The SKU `sku` of the activity at `activity_at`.
    pub fn find(&self, activity_at: u16, sku: SkuId) -> Option<SkuIndex> {
        let found = self
            .states
            .iter()
            .position(|state| state.activity_at == activity_at && state.key.sku == sku)?;
        Some(SkuIndex(found as u16))
    }

    /// The SKU of that full name.
    pub fn find_key(&self, key: SkuKey) -> Option<SkuIndex> {
        self.states
            .iter()
            .position(|state| state.key == key)
            .map(|found| SkuIndex(found as u16))
    }

    /// Its state.
    pub fn state(&self, index: SkuIndex) -> &SkuState {
        &self.states[usize::from(index.0)]
    }

    /// Its state, to change.
    pub fn state_mut(&mut self, index: SkuIndex) -> &mut SkuState {
        &mut self.states[usize::from(index.0)]
    }

    /// Every state.
    pub fn states_mut(&mut self) -> impl Iterator<Item = &mut SkuState> {
        self.states.iter_mut()
    }

    /// Every state.
    pub fn states(&self) -> impl Iterator<Item = &SkuState> {
        self.states.iter()
    }

    /// What the sale says of it.
    pub fn spec(&self, index: SkuIndex) -> (&Activity, &Sku) {
        let state = self.state(index);
        let activity = &self.sale.activities[usize::from(state.activity_at)];
        (activity, &activity.skus[usize::from(state.sku_at)])
    }

    /// True once every SKU has a view: only then does the shard accept.
    pub fn is_ready(&self) -> bool {
        self.awaited == 0
    }

    /// The newest run of the ledger's owner seen.
    pub fn owner_boot(&self) -> u64 {
        self.owner_boot
    }

    /// Applies a view unless it is older than what is known. True when it shows a new run of the owner.
    pub fn apply(&mut self, now: Mono, view: SkuView) -> bool {
        let Some(index) = self.find_key(view.sku) else {
            return false;
        };
        let sold_out_ttl_ms = self.spec(index).1.sold_out_ttl_ms;
        let new_boot = view.boot > self.owner_boot;
        self.owner_boot = self.owner_boot.max(view.boot);
        let state = &mut self.states[usize::from(index.0)];
        match &state.view {
            Some(known)
                if (view.boot, view.version) < (known.boot, known.version)
                    && !planted::is(Planted::OldViewApplied) =>
            {
                return new_boot;
            }
            Some(_) => {}
            None => self.awaited -= 1,
        }
        state.mark_until = if view.sold_out {
            now.plus_ms(sold_out_ttl_ms)
        } else {
            Mono(0)
        };
        state.view = Some(view);
        new_boot
    }

    /// The ledger said SOLD_OUT in `epoch`: renews the mark of that epoch.
    pub fn sold_out(&mut self, now: Mono, index: SkuIndex, epoch: u64) {
        let sold_out_ttl_ms = self.spec(index).1.sold_out_ttl_ms;
        let state = self.state_mut(index);
        // The view with this epoch's filter comes before the answer; an older answer must not close a newer epoch.
        if state
            .view
            .as_ref()
            .is_some_and(|view| view.sold_out && view.stock_epoch == epoch)
            || planted::is(Planted::OldSoldOutApplied)
        {
            state.mark_until = now.plus_ms(sold_out_ttl_ms);
        }
    }
}

impl SkuState {
    /// True while the sold-out mark holds and `user` is surely no winner: refuse without asking.
    pub fn refuses_sold_out(&self, now: Mono, user: UserId) -> bool {
        let lost = |view: &SkuView| {
            !view.winners.may_contain(user) || planted::is(Planted::WinnersForgotten)
        };
        now < self.mark_until && self.view.as_ref().is_some_and(lost)
    }

    /// True while the sold-out mark holds.
    pub fn is_marked(&self, now: Mono) -> bool {
        now < self.mark_until
    }

    /// Panics unless every submit that takes stock spent a token, and only what is sold out is marked so; for checkers.
    pub fn audit(&self) {
        self.budget.audit();
        assert!(
            self.prepaid <= self.budget.books().spent,
            "each submit that takes stock is prepaid"
        );
        assert!(
            self.mark_until == Mono(0) || self.view.as_ref().is_some_and(|view| view.sold_out),
            "only what the view calls sold out is marked so"
        );
    }

    /// The mode; CLOSED before the first view.
    pub fn mode(&self) -> Mode {
        self.view.as_ref().map_or(Mode::Closed, |view| view.mode)
    }
}
