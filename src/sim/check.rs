//! What is checked after every turn: the durable journal replayed beside the owner, and what clients were told against it.
//!
//! Called by the director. The replica takes each batch when the store has it durable, so "answers follow commits" is
//! checked at the instant a client hears QUEUED.

use super::crowd::{Crowd, Heard, Wish};
use super::journal::JournalEye;
use super::marks::{Happened, Marks};
use super::plan::Plan;
use super::store::StoreModel;
use super::tally::{Sin, SinKind};
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_core::ledger::{Ledger, LedgerConfig};
use weir_core::mail::Addr;
use weir_core::shard::Shard;
use weir_io::sim::{StepInfo, World};
use weir_proto::ids::{ReservationId, SkuKey};

/// The audit of all reservations runs once per so many durable batches; the books are looked at after each.
const AUDIT_EVERY: usize = 32;
/// A shard audits itself once per so many turns of the world.
const SHARD_AUDIT_EVERY: u64 = 128;

/// Of each SKU: the owner's run and the view's version.
type Versions = BTreeMap<SkuKey, (u64, u64)>;

/// See the module.
pub(super) struct Checker {
    pub replica: Ledger,
    batches: usize,
    turns: u64,
    pub unknowns: u64,
    pub sins: Vec<Sin>,
    pub marks: Marks,
    journal: JournalEye,
    sold_out: BTreeMap<SkuKey, bool>,
    /// The newest view that each shard's run applied: its number, and the owner's run and version by SKU.
    views: BTreeMap<Addr, (u64, Versions)>,
    /// Reservations that clients were told of, with their wish.
    pub told: Vec<(ReservationId, u32)>,
}

impl Checker {
    pub fn new(config: LedgerConfig, plan: Arc<Plan>) -> Self {
        Self {
            marks: Marks::default(),
            journal: JournalEye::new(plan),
            sold_out: BTreeMap::new(),
            views: BTreeMap::new(),
            replica: Ledger::new(config),
            batches: 0,
            turns: 0,
            unknowns: 0,
            sins: Vec::new(),
            told: Vec::new(),
        }
    }

    /// Looks at what one turn did.
    pub fn after(&mut self, world: &mut World, info: StepInfo) {
        self.turns += 1;
        match info.part {
            Addr::Store => self.store_moved(world),
            Addr::Client(_) => self.crowd_moved(world, info.part),
            Addr::Shard(_) if self.turns.is_multiple_of(SHARD_AUDIT_EVERY) => {
                if let Some(shard) = world.part::<Shard>(info.part) {
                    shard.audit();
                    self.shard_moved(info.part, shard);
                }
            }
            _ => {}
        }
    }

    pub fn turns(&self) -> u64 {
        self.turns
    }

    fn sin(&mut self, kind: SinKind, what: impl Into<String>) {
        self.sins.push(Sin::new(kind, what));
    }

    /// Takes over what became durable.
    pub fn store_moved(&mut self, world: &World) {
        let Some(store) = world.part::<StoreModel>(Addr::Store) else {
            return;
        };
        let fresh = &store.disk[self.batches..];
        for batch in fresh {
            self.batches += 1;
            self.journal
                .see(&batch.bytes, &mut self.marks, &mut self.sins);
            if let Err(error) = self.replica.replay(&batch.bytes) {
                let what = format!(
                    "durable batch {} contradicts those before: {error}",
                    batch.seq
                );
                self.sins.push(Sin::new(SinKind::Broken, what));
            }
            if self.batches.is_multiple_of(AUDIT_EVERY) {
                self.audit();
            }
            self.check_books();
            self.mark_sold_out();
        }
    }

    /// Views are applied in their order.
    fn shard_moved(&mut self, addr: Addr, shard: &Shard) {
        let (boot, known) = self.views.entry(addr).or_default();
        if *boot != shard.boot() {
            *boot = shard.boot();
            known.clear();
        }
        for (sku, version) in shard.versions() {
            let before = known.insert(sku, version);
            if before.is_some_and(|before| version < before) {
                let what = format!("{addr:?} has view {version:?} of {sku:?} after {before:?}");
                self.sins.push(Sin::new(SinKind::Broken, what));
            }
        }
    }

    fn mark_sold_out(&mut self) {
        for sku in self.replica.skus() {
            let before = self.sold_out.insert(sku.sku, sku.sold_out);
            if sku.sold_out && before == Some(false) {
                self.marks.happened(Happened::SoldOut, 1);
            }
        }
    }

    /// sold + held ≤ total, and every unit in one place.
    fn check_books(&mut self) {
        let wrong = self
            .replica
            .skus()
            .find(|sku| !sku.books.balance() || sku.books.sold + sku.books.held > sku.books.total);
        if let Some(sku) = wrong {
            let what = format!("books of {:?}: {:?}", sku.sku, sku.books);
            self.sin(SinKind::Oversold, what);
        }
    }

    /// All books again from the reservations; live units against what there is.
    pub fn audit(&mut self) {
        let mut oversold = Vec::new();
        for sku in self.replica.skus() {
            let live = self.replica.reservations().filter(|reservation| {
                reservation.message.sku == sku.sku && reservation.state.is_live()
            });
            let units: u64 = live.map(|found| u64::from(found.message.quantity)).sum();
            if units > sku.books.total {
                oversold.push(format!(
                    "{:?}: {units} units live, {} exist",
                    sku.sku, sku.books.total
                ));
            }
        }
        let is_oversold = !oversold.is_empty();
        for what in oversold {
            self.sin(SinKind::Oversold, what);
        }
        if let Err(fault) = self.replica.check()
            && !is_oversold
        {
            self.sin(SinKind::Broken, format!("ledger: {fault}"));
        }
    }

    /// What clients heard must be durable already (design §12.3).
    fn crowd_moved(&mut self, world: &mut World, addr: Addr) {
        let Some(crowd) = world.part_mut::<Crowd>(addr) else {
            return;
        };
        self.sins.append(&mut crowd.sins);
        for heard in crowd.heard.drain(..) {
            match heard {
                Heard::Unknown => self.unknowns += 1,
                Heard::Queued { wish, reservation } => {
                    if let Some(what) =
                        contradiction(&self.replica, &crowd.wishes[wish as usize], reservation)
                    {
                        self.sins.push(Sin::new(SinKind::Lost, what));
                    }
                    self.told.push((reservation, wish));
                }
            }
        }
    }
}

fn contradiction(replica: &Ledger, wish: &Wish, reservation: ReservationId) -> Option<String> {
    let Some(found) = replica.reservation(reservation) else {
        return Some(format!(
            "{} was told QUEUED as {reservation}, which is not in the durable journal",
            wish.request_id
        ));
    };
    let message = found.message;
    (message.user != wish.user || message.request_id != wish.request_id).then(|| {
        format!(
            "{} was told QUEUED as {reservation}, which is {}'s",
            wish.request_id, message.request_id
        )
    })
}
