//! The ledger's only writer: one entry changes the state, the same way live and in a replay; and the full audit.

use super::Ledger;
use super::codec::{Entry, Granted};
use super::error::BooksFault;
use super::sku::{OpsDone, OpsStep, Sku};
use super::tables::{Record, RequestName, SkuIndex};
use crate::ask::{Books, ReservationState};
use crate::limits::UNITS_MAX;
use crate::planted::{self, Planted};
use crate::time::WallMs;
use alloc::vec;
use weir_proto::ids::{RequestId, ReservationId, SkuKey};

impl Ledger {
    /// # Errors
    /// What of the entry is not possible in this state; nothing was changed then.
    pub(super) fn take(&mut self, entry: &Entry) -> Result<(), &'static str> {
        let at = match entry {
            Entry::Granted(granted) => {
                self.take_grant(granted)?;
                granted.at
            }
            Entry::Moved {
                reservation,
                to,
                at,
            } => {
                self.take_move(*reservation, *to, *at)?;
                *at
            }
            Entry::Tombstoned {
                sku,
                user,
                request_id,
                at,
            } => {
                let sku = self.find_sku(*sku).ok_or("the SKU was never opened")?;
                self.tombstones.insert(RequestName {
                    sku,
                    user: *user,
                    request_id: *request_id,
                });
                *at
            }
            Entry::TombstonesTurned { at } => {
                self.tombstones.turn();
                *at
            }
            Entry::Ops {
                sku,
                request_id,
                step,
                at,
            } => {
                self.take_ops(*sku, *request_id, *step, *at)?;
                *at
            }
            Entry::Reopened { sku, at } => {
                let index = self.find_sku(*sku).ok_or("the SKU was never opened")?;
                let sku = &mut self.skus[usize::from(index)];
                if !sku.reopens() {
                    return Err("the SKU has nothing to reopen with");
                }
                sku.reopen();
                if planted::is(Planted::EpochStays) {
                    sku.epoch -= 1;
                }
                *at
            }
        };
        self.clock = self.clock.max(at);
        Ok(())
    }

    fn take_grant(&mut self, granted: &Granted) -> Result<(), &'static str> {
        let index = self
            .find_sku(granted.sku)
            .ok_or("the SKU was never opened")?;
        let name = RequestName {
            sku: index,
            user: granted.user,
            request_id: granted.request_id,
        };
        if granted.reservation != self.records.next_id() {
            return Err("reservations are numbered densely");
        }
        if self.records.request(&name).is_some()
            || self.records.nonce(index, &granted.nonce).is_some()
        {
            return Err("request or nonce was granted before");
        }
        if self
            .records
            .user(index, granted.user)
            .is_some_and(|record| record.state.is_live())
        {
            return Err("the user holds already");
        }
        let sku = &mut self.skus[usize::from(index)];
        let units = u64::from(granted.quantity);
        if units == 0 || sku.sold_out || sku.books.free < units {
            return Err("fewer units are free than granted");
        }
        sku.hold(units);
        sku.reservations += 1;
        self.records.push(Record {
            id: granted.reservation,
            name,
            nonce: granted.nonce,
            nonce_until: granted.nonce_until,
            quantity: granted.quantity,
            unit_price: granted.unit_price,
            state: ReservationState::Reserved,
            granted_at: granted.at,
            moved_at: granted.at,
        });
        Ok(())
    }

    fn take_move(
        &mut self,
        id: ReservationId,
        to: ReservationState,
        at: WallMs,
    ) -> Result<(), &'static str> {
        use ReservationState::{Closed, Confirmed, Failed, PaidLate, Reserved, Settled};
        let record = self.records.get(id).ok_or("no such reservation")?;
        let from = record.state;
        let units = u64::from(record.quantity);
        let can_sell_again = self.can_sell_again(record);
        let sku = &mut self.skus[usize::from(record.name.sku)];
        match (from, to) {
            (Reserved, Confirmed) | (Closed | Failed, PaidLate) => {}
            (Reserved | Confirmed, Settled) => sku.settle(units),
            (Reserved | Confirmed, Closed | Failed) => sku.give_back(units),
            (Closed | Failed, Settled) if can_sell_again => sku.sell_again(units),
            (Closed, Closed) | (Failed, Failed) if planted::is(Planted::ReleaseTwice) => {
                sku.give_back(units);
            }
            _ => return Err("the reservation's state does not lead there"),
        }
        self.records.set_state(id, to, at);
        Ok(())
    }

    fn take_ops(
        &mut self,
        key: SkuKey,
        request_id: RequestId,
        step: OpsStep,
        at: WallMs,
    ) -> Result<(), &'static str> {
        let found = self.find_sku(key);
        let index = match (found, step) {
            (Some(index), _) => index,
            (None, OpsStep::Open { stock, .. }) if stock <= UNITS_MAX => self.add_sku(key)?,
            (None, _) => return Err("the SKU was never opened"),
        };
        let sku = &mut self.skus[usize::from(index)];
        match step {
            OpsStep::Open {
                stock,
                quantity_max,
                once_per_activity,
            } => {
                if found.is_none() || planted::is(Planted::StockSetAtStart) {
                    sku.add(stock);
                    sku.sold_out = stock == 0; // the first stock is no reopening
                }
                sku.open = true;
                sku.quantity_max = quantity_max;
                sku.once_per_activity = once_per_activity;
            }
            OpsStep::Close => sku.open = false,
            OpsStep::SetMode(mode) => sku.mode = mode,
            OpsStep::Restock(units) => {
                if units > UNITS_MAX - sku.books.total {
                    return Err("more units than a SKU can have");
                }
                sku.add(units);
                sku.restocked += units;
            }
        }
        sku.remember_ops(OpsDone {
            request_id,
            step,
            at,
        });
        Ok(())
    }

    pub(super) fn add_sku(&mut self, key: SkuKey) -> Result<SkuIndex, &'static str> {
        let sku = Sku::new(key, self.plan(key));
        self.insert_sku(sku)
    }

    pub(super) fn insert_sku(&mut self, sku: Sku) -> Result<SkuIndex, &'static str> {
        let index =
            SkuIndex::try_from(self.skus.len()).map_err(|_| "more SKUs than a ledger can have")?;
        let Err(place) = self.by_key.binary_search_by_key(&sku.key, |&(key, _)| key) else {
            return Err("the SKU is there twice");
        };
        self.by_key.insert(place, (sku.key, index));
        self.skus.push(sku);
        Ok(index)
    }

    /// Recomputes all books from the reservations.
    /// # Errors
    /// The first SKU and what does not hold of it.
    pub fn check(&self) -> Result<(), BooksFault> {
        let mut books = vec![Books::default(); self.skus.len()];
        let mut counts = vec![0u32; self.skus.len()];
        for record in self.records.rows() {
            let index = usize::from(record.name.sku);
            let fault = |what| BooksFault {
                sku: self.skus[index].key,
                what,
            };
            let units = u64::from(record.quantity);
            counts[index] += 1;
            match record.state {
                ReservationState::Reserved | ReservationState::Confirmed => {
                    books[index].held += units
                }
                ReservationState::Settled => books[index].sold += units,
                ReservationState::Closed
                | ReservationState::Failed
                | ReservationState::PaidLate => {}
            }
            let named = self.records.request(&record.name).map(|found| found.id);
            if named != Some(record.id) {
                return Err(fault("a reservation is not found by its request"));
            }
            let bound = self.records.user(record.name.sku, record.name.user);
            if bound.is_none_or(|bound| record.state.is_live() && bound.id != record.id) {
                return Err(fault("a user has two live reservations, or none is found"));
            }
        }
        for (index, sku) in self.skus.iter().enumerate() {
            let fault = |what| Err(BooksFault { sku: sku.key, what });
            if sku.books.held != books[index].held {
                return fault("held units differ from the sum of unpaid reservations");
            }
            if sku.books.sold != books[index].sold {
                return fault("sold units differ from the sum of paid reservations");
            }
            if !sku.books.balance() {
                return fault("total is not free + held + sold + quarantined");
            }
            if sku.books.free == 0 && !sku.sold_out {
                return fault("no unit is free, but it is not marked sold out");
            }
            if sku.reservations != counts[index] {
                return fault("the count of reservations is wrong");
            }
        }
        Ok(())
    }
}
