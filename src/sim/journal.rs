//! What each durable step says on its own: marks, and promises that the ledger's own replay does not check.
//!
//! Called for every batch of the journal, or for every step in Redis, in order. The state kept here is the checker's, not
//! the ledger's.

use super::marks::{Happened, Marks};
use super::plan::Plan;
use super::tally::{Sin, SinKind};
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_core::ask::{Mode, ReservationState};
use weir_core::ledger::codec::{Entries, Entry};
use weir_core::ledger::{OpsStep, Reservation};
use weir_core::time::WallMs;
use weir_proto::ids::{ReservationId, SkuKey, UserId};

/// A SKU as its entries left it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sale {
    pub open: bool,
    pub mode: Mode,
    pub quantity_max: u32,
    pub once: bool,
}

impl Sale {
    /// Before its first stock.
    pub const NEVER_OPENED: Self = Self {
        open: false,
        mode: Mode::Normal,
        quantity_max: 0,
        once: false,
    };
}

/// A unit held for somebody.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grant {
    pub sku: SkuKey,
    pub user: UserId,
    pub quantity: u32,
    pub reservation: ReservationId,
    pub at: WallMs,
}

/// See the module.
pub(super) struct JournalEye {
    plan: Arc<Plan>,
    pub sales: BTreeMap<SkuKey, Sale>,
    /// Where each stands.
    rows: BTreeMap<ReservationId, ReservationState>,
    /// The newest reservation of each user.
    users: BTreeMap<(SkuKey, UserId), ReservationId>,
    last_at: WallMs,
}

impl JournalEye {
    pub fn new(plan: Arc<Plan>) -> Self {
        Self {
            plan,
            sales: BTreeMap::new(),
            rows: BTreeMap::new(),
            users: BTreeMap::new(),
            last_at: WallMs(0),
        }
    }

    /// Reads one batch; what cannot be read, the ledger's replay tells.
    pub fn see(&mut self, batch: &[u8], marks: &mut Marks, sins: &mut Vec<Sin>) {
        let Ok(mut entries) = Entries::of(batch) else {
            return;
        };
        while let Ok(Some(entry)) = entries.next_entry() {
            let at = match entry {
                Entry::Granted(granted) => {
                    let grant = Grant {
                        sku: granted.sku,
                        user: granted.user,
                        quantity: granted.quantity,
                        reservation: granted.reservation,
                        at: granted.at,
                    };
                    self.granted(&grant, marks, sins);
                    granted.at
                }
                Entry::Moved {
                    reservation,
                    to,
                    at,
                } => {
                    self.moved(reservation, to, marks, sins);
                    at
                }
                Entry::Tombstoned { at, .. } => {
                    marks.happened(Happened::Tombstoned, 1);
                    at
                }
                Entry::TombstonesTurned { at } => {
                    marks.happened(Happened::TombstonesTurned, 1);
                    at
                }
                Entry::Ops { sku, step, at, .. } => {
                    self.ops(sku, step, marks);
                    at
                }
                Entry::Reopened { at, .. } => {
                    marks.happened(Happened::Reopened, 1);
                    at
                }
            };
            if at < self.last_at {
                let what = format!("an entry of {at:?} follows one of {:?}", self.last_at);
                sins.push(Sin::new(SinKind::Broken, what));
            }
            self.last_at = self.last_at.max(at);
        }
    }

    /// Only a sale that is open, to whom it allows, as many as it allows (requirements B6, F5, J1).
    pub fn granted(&mut self, granted: &Grant, marks: &mut Marks, sins: &mut Vec<Sin>) {
        marks.happened(Happened::Granted, 1);
        let who = (granted.sku, granted.user);
        let before = self.users.insert(who, granted.reservation);
        let before = before.and_then(|before| self.rows.get(&before).copied());
        if before.is_some() {
            marks.happened(Happened::HeldAgain, 1);
        }
        if before.is_some_and(ReservationState::is_live) {
            let what = format!("{} is a second one of its user", granted.reservation);
            sins.push(Sin::new(SinKind::DoubleGrant, what));
        }
        self.rows
            .insert(granted.reservation, ReservationState::Reserved);
        let ended = [ReservationState::Closed, ReservationState::PaidLate];
        let is_second = before.is_some_and(|state| ended.contains(&state));
        let wrong = match self.sales.get(&granted.sku) {
            None => Some("was never put on sale"),
            Some(sale) if !sale.open => Some("is closed"),
            Some(sale) if matches!(sale.mode, Mode::QueueOnly | Mode::Closed) => Some("is paused"),
            Some(sale) if granted.quantity > sale.quantity_max => Some("gives nobody so many"),
            Some(sale) if sale.once && is_second => Some("is sold once per user"),
            Some(_) => None,
        };
        if let Some(wrong) = wrong {
            let what = format!(
                "{} was granted of {:?}, which {wrong}",
                granted.reservation, granted.sku
            );
            sins.push(Sin::new(SinKind::Broken, what));
        }
        // A clock that stepped back between shard and owner would excuse it; stored times do not step back.
        let opens_at = self
            .plan
            .sale
            .activity(granted.sku.activity)
            .map(|found| found.opens_at);
        if !self.plan.steps_back() && opens_at.is_none_or(|opens_at| granted.at < opens_at) {
            let what = format!("{} was granted before the sale opened", granted.reservation);
            sins.push(Sin::new(SinKind::Broken, what));
        }
    }

    /// It stands so now, however it came to.
    pub fn put(&mut self, found: &Reservation, sins: &mut Vec<Sin>) {
        let message = &found.message;
        let who = (message.sku, message.user);
        if found.state.is_live() {
            let before = self.users.insert(who, message.reservation);
            let before = before.filter(|before| *before != message.reservation);
            let before = before.and_then(|before| self.rows.get(&before).copied());
            if before.is_some_and(ReservationState::is_live) {
                let what = format!("{} is a second one of its user", message.reservation);
                sins.push(Sin::new(SinKind::DoubleGrant, what));
            }
        }
        self.rows.insert(message.reservation, found.state);
    }

    /// Everything that was held is forgotten; [`Self::put`] says what there is.
    pub fn forget(&mut self) {
        self.rows.clear();
        self.users.clear();
    }

    pub fn moved(
        &mut self,
        reservation: ReservationId,
        to: ReservationState,
        marks: &mut Marks,
        sins: &mut Vec<Sin>,
    ) {
        let Some(state) = self.rows.get_mut(&reservation) else {
            return;
        };
        let from = std::mem::replace(state, to);
        if !marks.reservation(from, to) {
            let what = format!("{reservation} went from {from:?} to {to:?}");
            sins.push(Sin::new(SinKind::Broken, what));
        }
    }

    fn ops(&mut self, key: SkuKey, step: OpsStep, marks: &mut Marks) {
        let sale = self.sales.entry(key).or_insert(Sale::NEVER_OPENED);
        let happened = match step {
            OpsStep::Open {
                quantity_max,
                once_per_activity,
                ..
            } => {
                sale.open = true;
                sale.quantity_max = quantity_max;
                sale.once = once_per_activity;
                Happened::Opened
            }
            OpsStep::Close => {
                sale.open = false;
                Happened::Closed
            }
            OpsStep::SetMode(mode) => {
                sale.mode = mode;
                Happened::of_mode(mode)
            }
            OpsStep::Restock(_) => Happened::Restocked,
        };
        marks.happened(happened, 1);
    }
}
