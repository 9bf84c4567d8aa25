//! What checkers read of a shard, between turns; nobody else calls it.

use super::Shard;
use crate::limit::budget::ShareBooks;
use weir_proto::ids::SkuKey;

impl Shard {
    /// The budget of each SKU as this run received and used it, for checkers.
    pub fn budgets(&self) -> impl Iterator<Item = (SkuKey, &ShareBooks)> {
        self.skus
            .states()
            .map(|state| (state.key, state.budget.books()))
    }

    /// The number of this run.
    pub fn boot(&self) -> u64 {
        self.config.shard_boot
    }

    /// Of each SKU that has a view: the owner's run and the view's version, for checkers.
    pub fn versions(&self) -> impl Iterator<Item = (SkuKey, (u64, u64))> {
        self.skus.states().filter_map(|state| {
            let view = state.view.as_ref()?;
            Some((state.key, (view.boot, view.version)))
        })
    }

    /// Panics unless every slot and place is accounted for; for checkers, between turns.
    pub fn audit(&self) {
        let with_slot = self
            .asks
            .iter()
            .filter(|pending| pending.slot.is_some())
            .count();
        self.slots.audit(with_slot as u32);
        let holds = self.conns.holds_count() as u32;
        self.door.sources().audit(holds);
        let unanswered = self
            .asks
            .iter()
            .filter(|pending| pending.reply_to.is_some())
            .count();
        assert_eq!(
            self.replies.reserved_count(),
            unanswered,
            "places are kept for what is asked about, and for nothing else"
        );
        for state in self.skus.states() {
            state.audit();
        }
        if self.conns.open_count() == 0 {
            assert_eq!(
                self.replies.held_count(),
                0,
                "no reply waits for a connection that is gone"
            );
        }
    }
}
