//! In-flight slots: how many asks may be open at once, for the instance, for each SKU and for each user (C4, C5).
//!
//! Called by the admission pipeline after the limits and before the ask; an unknown ask keeps its slot until the
//! ledger answers (design §12.5). Submits and status queries have slots of their own: neither can take the other's.
//! Of the submits' slots each SKU has `sku_min` that nobody else can take, and takes at most `sku_max`; a user takes at
//! most `user_max`. Invariants: in_flight = slots handed out, never negative, never above the cap.

use super::holds::{Hold, Holds};
use alloc::boxed::Box;
use weir_proto::ids::UserId;

/// Index of a SKU in the shard's fixed tables, 0..sku_count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SkuSlot(pub u16);

/// Which cap was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotsFull {
    /// The instance's cap.
    Instance,
    /// The SKU's own cap, or what is left is reserved for other SKUs: one hot SKU cannot take their concurrency (C4).
    Sku,
    /// The user's own cap.
    User,
}

/// Caps of one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotCaps {
    /// Most open submits in all.
    pub submits_max: u32,
    /// Most open status queries.
    pub status_max: u32,
    /// Most open submits of one SKU.
    pub sku_max: u32,
    /// Slots that nobody but each SKU itself may take; all SKUs together at most `submits_max`.
    pub sku_min: u32,
    /// Most open submits of one user; 1 or more.
    pub user_max: u32,
}

/// One open ask. Neither `Copy` nor `Clone`: it is given back exactly once, by value, on every path out (B24).
#[derive(Debug)]
#[must_use = "a slot that is not released blocks the sale for ever"]
pub struct Slot {
    submit: Option<(SkuSlot, Hold)>,
}

/// The counters.
#[derive(Debug)]
pub struct Slots {
    caps: SlotCaps,
    submits: u32,
    status: u32,
    by_sku: Box<[u32]>,
    /// Slots that no SKU has for itself, and how many of them are taken.
    shared_max: u32,
    shared: u32,
    by_user: Holds,
}

impl Slots {
    /// Counters for `sku_count` SKUs; allocates once. `secret` keys the hash of users.
    pub fn new(caps: SlotCaps, sku_count: u16, secret: [u8; 16]) -> Self {
        let sku_min = caps.sku_min.min(caps.sku_max);
        let shared_max = u32::from(sku_count)
            .checked_mul(sku_min)
            .and_then(|reserved| caps.submits_max.checked_sub(reserved))
            .expect("the slots that SKUs have for themselves are a part of the cap");
        Self {
            caps: SlotCaps { sku_min, ..caps },
            submits: 0,
            status: 0,
            by_sku: alloc::vec![0; usize::from(sku_count)].into_boxed_slice(),
            shared_max,
            shared: 0,
            by_user: Holds::new(caps.submits_max.max(1) as usize, caps.user_max, secret),
        }
    }

    /// Takes a slot for a submit of `sku` (which must be below `sku_count`) by `user`.
    /// # Errors
    /// The cap that was reached; nothing is counted then.
    pub fn acquire_submit(&mut self, sku: SkuSlot, user: UserId) -> Result<Slot, SlotsFull> {
        if self.submits >= self.caps.submits_max {
            return Err(SlotsFull::Instance);
        }
        let of_sku = self.by_sku[usize::from(sku.0)];
        let is_shared = of_sku >= self.caps.sku_min;
        if of_sku >= self.caps.sku_max || (is_shared && self.shared >= self.shared_max) {
            return Err(SlotsFull::Sku);
        }
        let hold = self
            .by_user
            .hold(user.into())
            .map_err(|_| SlotsFull::User)?;
        self.by_sku[usize::from(sku.0)] += 1;
        self.shared += u32::from(is_shared);
        self.submits += 1;
        Ok(Slot {
            submit: Some((sku, hold)),
        })
    }

    /// Takes a slot for a status query.
    /// # Errors
    /// `Instance` when every slot of status queries is taken.
    pub fn acquire_status(&mut self) -> Result<Slot, SlotsFull> {
        if self.status >= self.caps.status_max {
            return Err(SlotsFull::Instance);
        }
        self.status += 1;
        Ok(Slot { submit: None })
    }

    /// Gives a slot back.
    pub fn release(&mut self, slot: Slot) {
        let once = "each slot is released once, to the counters that made it";
        let Some((sku, hold)) = slot.submit else {
            self.status = self.status.checked_sub(1).expect(once);
            return;
        };
        self.submits = self.submits.checked_sub(1).expect(once);
        let of_sku = &mut self.by_sku[usize::from(sku.0)];
        *of_sku = of_sku.checked_sub(1).expect(once);
        self.shared -= u32::from(*of_sku >= self.caps.sku_min);
        self.by_user.release(hold);
    }

    /// Open asks in all.
    pub const fn in_flight(&self) -> u32 {
        self.submits + self.status
    }

    /// Open submits of one SKU.
    pub fn of_sku(&self, sku: SkuSlot) -> u32 {
        self.by_sku[usize::from(sku.0)]
    }

    /// Panics unless exactly `open_count` slots are out: the audit of checkers and of an idle shard.
    pub fn audit(&self, open_count: u32) {
        assert_eq!(
            self.in_flight(),
            open_count,
            "in-flight slots must equal open asks"
        );
        assert_eq!(self.by_sku.iter().sum::<u32>(), self.submits);
        let above = |of_sku: &u32| of_sku.saturating_sub(self.caps.sku_min);
        assert_eq!(self.by_sku.iter().map(above).sum::<u32>(), self.shared);
        assert!(self.shared <= self.shared_max && self.submits <= self.caps.submits_max);
        self.by_user.audit(self.submits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const CAPS: SlotCaps = SlotCaps {
        submits_max: 4,
        status_max: 2,
        sku_max: 3,
        sku_min: 1,
        user_max: 2,
    };

    fn take(slots: &mut Slots, sku: u16, user: u64) -> Result<Slot, SlotsFull> {
        slots.acquire_submit(SkuSlot(sku), UserId(user))
    }

    #[test]
    fn a_hot_sku_leaves_each_other_sku_its_slots_and_status_has_its_own() {
        let mut slots = Slots::new(CAPS, 3, [0; 16]);
        let mut open: Vec<Slot> = (1..=2)
            .map(|user| take(&mut slots, 0, user).expect("its own, then the shared one"))
            .collect();
        let refused = take(&mut slots, 0, 3).expect_err("the rest is others'");
        assert_eq!(refused, SlotsFull::Sku);
        open.push(take(&mut slots, 1, 4).expect("kept for SKU 1"));
        assert_eq!(take(&mut slots, 1, 5).expect_err("kept"), SlotsFull::Sku);
        open.push(take(&mut slots, 2, 6).expect("kept for SKU 2"));
        let refused = take(&mut slots, 2, 7).expect_err("all taken");
        assert_eq!(refused, SlotsFull::Instance);
        open.extend((0..2).map(|_| slots.acquire_status().expect("its own")));
        let refused = slots.acquire_status().expect_err("all taken");
        assert_eq!(refused, SlotsFull::Instance);
        slots.audit(6);
        open.drain(..).for_each(|slot| slots.release(slot));
        slots.audit(0);
        assert_eq!((slots.of_sku(SkuSlot(0)), slots.of_sku(SkuSlot(1))), (0, 0));
    }

    #[test]
    fn a_hot_user_leaves_room_for_others() {
        let mut slots = Slots::new(CAPS, 2, [0; 16]);
        let first = take(&mut slots, 0, 9).expect("first");
        let second = take(&mut slots, 1, 9).expect("second, of another SKU");
        assert_eq!(take(&mut slots, 0, 9).expect_err("third"), SlotsFull::User);
        let other = take(&mut slots, 0, 8).expect("another user");
        slots.release(first);
        let again = take(&mut slots, 0, 9).expect("freed");
        for slot in [second, other, again] {
            slots.release(slot);
        }
        slots.audit(0);
    }

    #[test]
    #[should_panic(expected = "released once")]
    fn a_slot_of_other_counters_is_noticed() {
        let slot = take(&mut Slots::new(CAPS, 1, [0; 16]), 0, 1).expect("free");
        Slots::new(CAPS, 1, [0; 16]).release(slot);
    }

    proptest! {
        /// Whatever the others do, a SKU below its minimum gets a slot (for a user below the user's cap).
        #[test]
        fn a_sku_below_its_minimum_is_never_refused(
            (submits_max, sku_max, sku_min) in (6_u32..20, 1_u32..20, 0_u32..3),
            steps in proptest::collection::vec((0_u16..2, any::<bool>()), 1..200),
        ) {
            let caps = SlotCaps { submits_max, status_max: 1, sku_max, sku_min, user_max: 1 };
            let mut slots = Slots::new(caps, 2, [0; 16]);
            let mut open: [Vec<Slot>; 2] = [Vec::new(), Vec::new()];
            for (step, (sku, comes)) in (0_u64..).zip(steps) {
                let mine = &mut open[usize::from(sku)];
                if !comes {
                    mine.pop().into_iter().for_each(|slot| slots.release(slot));
                } else {
                    let below = (mine.len() as u32) < sku_min.min(sku_max);
                    let taken = take(&mut slots, sku, step);
                    prop_assert!(taken.is_ok() || !below, "{taken:?}");
                    mine.extend(taken);
                    prop_assert!(mine.len() as u32 <= sku_max);
                }
                slots.audit(open.iter().map(Vec::len).sum::<usize>() as u32);
            }
        }
    }
}
