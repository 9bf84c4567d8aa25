//! In-flight slots: how many asks may be open at once, for the instance and for each SKU (C5).
//!
//! Called by the admission pipeline after the limits and before the ask; an unknown ask keeps its slot until the
//! ledger answers (design §12.5). Invariants: in_flight = slots handed out, never negative, never above the cap; a
//! part of the instance's cap is reserved for status queries, so that a full sale can still be asked about.

use alloc::boxed::Box;

/// Index of a SKU in the shard's fixed tables, 0..sku_count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SkuSlot(pub u16);

/// Which cap was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotsFull {
    /// The instance's cap (less the reserve, for submits).
    Instance,
    /// The SKU's own cap: one hot SKU cannot take the concurrency of the others (C4).
    Sku,
}

/// Caps of one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotCaps {
    /// Most open asks in all, status queries included.
    pub instance_max: u32,
    /// Of these, slots that only status queries may use.
    pub status_reserved: u32,
    /// Most open submits of one SKU.
    pub sku_max: u32,
}

/// One open ask. Neither `Copy` nor `Clone`: it is given back exactly once, by value, on every path out (B24).
#[derive(Debug)]
#[must_use = "a slot that is not released blocks the sale for ever"]
pub struct Slot {
    sku: Option<SkuSlot>,
}

/// The counters.
#[derive(Debug)]
pub struct Slots {
    caps: SlotCaps,
    in_flight: u32,
    by_sku: Box<[u32]>,
}

impl Slots {
    /// Counters for `sku_count` SKUs; allocates once.
    pub fn new(caps: SlotCaps, sku_count: u16) -> Self {
        assert!(
            caps.status_reserved <= caps.instance_max,
            "the reserve is a part of the cap"
        );
        Self {
            caps,
            in_flight: 0,
            by_sku: alloc::vec![0; usize::from(sku_count)].into_boxed_slice(),
        }
    }

    /// Takes a slot for a submit of `sku` (which must be below `sku_count`).
    /// # Errors
    /// The cap that was reached; nothing is counted then.
    pub fn acquire_submit(&mut self, sku: SkuSlot) -> Result<Slot, SlotsFull> {
        if self.in_flight >= self.caps.instance_max - self.caps.status_reserved {
            return Err(SlotsFull::Instance);
        }
        let of_sku = &mut self.by_sku[usize::from(sku.0)];
        if *of_sku >= self.caps.sku_max {
            return Err(SlotsFull::Sku);
        }
        *of_sku += 1;
        self.in_flight += 1;
        Ok(Slot { sku: Some(sku) })
    }

    /// Takes a slot for a status query; may use the reserve.
    /// # Errors
    /// `Instance` when every slot is taken.
    pub fn acquire_status(&mut self) -> Result<Slot, SlotsFull> {
        if self.in_flight >= self.caps.instance_max {
            return Err(SlotsFull::Instance);
        }
        self.in_flight += 1;
        Ok(Slot { sku: None })
    }

    /// Gives a slot back.
    pub fn release(&mut self, slot: Slot) {
        if let Some(sku) = slot.sku {
            let of_sku = &mut self.by_sku[usize::from(sku.0)];
            *of_sku = of_sku
                .checked_sub(1)
                .expect("each slot is released once, to the counters that made it");
        }
        self.in_flight = self
            .in_flight
            .checked_sub(1)
            .expect("each slot is released once, to the counters that made it");
    }

    /// Open asks in all.
    pub const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Open submits of one SKU.
    pub fn of_sku(&self, sku: SkuSlot) -> u32 {
        self.by_sku[usize::from(sku.0)]
    }

    /// Panics unless exactly `open_count` slots are out: the audit of checkers and of an idle shard.
    pub fn audit(&self, open_count: u32) {
        assert_eq!(
            self.in_flight, open_count,
            "in-flight slots must equal open asks"
        );
        assert!(
            self.by_sku.iter().map(|n| u64::from(*n)).sum::<u64>() <= u64::from(self.in_flight)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const CAPS: SlotCaps = SlotCaps {
        instance_max: 5,
        status_reserved: 2,
        sku_max: 2,
    };

    #[test]
    fn a_hot_sku_leaves_room_for_others_and_status_has_its_reserve() {
        let mut slots = Slots::new(CAPS, 2);
        let mut open = Vec::new();
        open.push(slots.acquire_submit(SkuSlot(0)).expect("first"));
        open.push(slots.acquire_submit(SkuSlot(0)).expect("second"));
        assert_eq!(
            slots.acquire_submit(SkuSlot(0)).expect_err("hot SKU"),
            SlotsFull::Sku
        );
        open.push(slots.acquire_submit(SkuSlot(1)).expect("the other SKU"));
        assert_eq!(
            slots.acquire_submit(SkuSlot(1)).expect_err("instance"),
            SlotsFull::Instance
        );
        open.push(slots.acquire_status().expect("reserve"));
        open.push(slots.acquire_status().expect("reserve"));
        assert_eq!(
            slots.acquire_status().expect_err("all taken"),
            SlotsFull::Instance
        );
        slots.audit(5);
        assert_eq!((slots.of_sku(SkuSlot(0)), slots.of_sku(SkuSlot(1))), (2, 1));
        open.drain(..).for_each(|slot| slots.release(slot));
        slots.audit(0);
        assert_eq!((slots.of_sku(SkuSlot(0)), slots.of_sku(SkuSlot(1))), (0, 0));
        let again = slots.acquire_submit(SkuSlot(0)).expect("freed");
        slots.release(again);
    }

    #[test]
    #[should_panic(expected = "released once")]
    fn a_slot_of_other_counters_is_noticed() {
        let slot = Slots::new(CAPS, 1)
            .acquire_submit(SkuSlot(0))
            .expect("free");
        Slots::new(CAPS, 1).release(slot);
    }
}
