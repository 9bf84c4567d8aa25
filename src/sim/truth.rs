//! What is durably so in a world: the embedded ledger's journal replayed beside its owner, or the books in Redis.
//!
//! Owned by the checker, which holds everything that clients and orders say against it.

use super::books::Books;
use super::journal::JournalEye;
use super::marks::{Happened, Marks};
use super::plan::{Plan, REDIS};
use super::store::StoreModel;
use super::tally::{Sin, SinKind};
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_core::ledger::{Ledger, LedgerConfig, Reservation, SkuState};
use weir_core::mail::Addr;
use weir_io::sim::World;
use weir_proto::ids::{ReservationId, SkuKey};

/// The audit of all reservations runs once per so many durable batches; the books are looked at after each.
const AUDIT_EVERY: usize = 32;

/// See the module.
pub(super) enum Truth {
    Journal(Box<Replica>),
    Redis(Box<Books>),
}

/// The journal, replayed.
pub(super) struct Replica {
    ledger: Ledger,
    batches: usize,
    eye: JournalEye,
    sold_out: BTreeMap<SkuKey, bool>,
}

impl Truth {
    /// Of an embedded ledger.
    pub fn of_journal(config: LedgerConfig, plan: Arc<Plan>) -> Self {
        Self::Journal(Box::new(Replica {
            ledger: Ledger::new(config),
            batches: 0,
            eye: JournalEye::new(plan),
            sold_out: BTreeMap::new(),
        }))
    }

    /// True when a turn of that part may have moved it.
    pub fn moves_with(&self, part: Addr) -> bool {
        match self {
            Self::Journal(_) => part == Addr::Store,
            Self::Redis(_) => part == REDIS,
        }
    }

    /// Takes over what became durable.
    pub fn moved(&mut self, world: &mut World, marks: &mut Marks, sins: &mut Vec<Sin>) {
        match self {
            Self::Journal(replica) => {
                if let Some(store) = world.part::<StoreModel>(Addr::Store) {
                    replica.follow(store, marks, sins);
                }
            }
            Self::Redis(books) => {
                if let Some(model) = world.part_mut(REDIS) {
                    books.follow(model, marks, sins);
                }
            }
        }
    }

    /// All books again from the reservations; live units against what there is.
    pub fn audit(&self, sins: &mut Vec<Sin>) {
        match self {
            Self::Journal(replica) => replica.audit(sins),
            Self::Redis(books) => {
                let oversold = oversold(books.skus(), || books.reservations.values().copied());
                judge(oversold, books.fault(), sins);
            }
        }
    }

    /// A SKU's state; `None` when it was never opened.
    pub fn sku(&self, key: SkuKey) -> Option<SkuState> {
        match self {
            Self::Journal(replica) => replica.ledger.sku(key),
            Self::Redis(books) => books.sku(key),
        }
    }

    /// A reservation by its number.
    pub fn reservation(&self, id: ReservationId) -> Option<Reservation> {
        match self {
            Self::Journal(replica) => replica.ledger.reservation(id),
            Self::Redis(books) => books.reservations.get(&id).copied(),
        }
    }

    /// The same, also one that a server took with it.
    pub fn ever(&self, id: ReservationId) -> Option<Reservation> {
        let found = self.reservation(id);
        found.or_else(|| self.lost()?.get(&id).copied())
    }

    /// Reservations that were lost with a server; `None` where a server cannot be.
    pub fn lost(&self) -> Option<&BTreeMap<ReservationId, Reservation>> {
        match self {
            Self::Journal(_) => None,
            Self::Redis(books) => Some(&books.lost),
        }
    }

    /// Every reservation, by number.
    pub fn reservations(&self) -> Box<dyn Iterator<Item = Reservation> + '_> {
        match self {
            Self::Journal(replica) => Box::new(replica.ledger.reservations()),
            Self::Redis(books) => Box::new(books.reservations.values().copied()),
        }
    }

    /// Reservations ever made.
    pub fn grants(&self) -> u64 {
        match self {
            Self::Journal(replica) => replica.ledger.next_reservation().0 - 1,
            Self::Redis(books) => books.grants,
        }
    }
}

/// sold + held ≤ total, and every unit in one place.
pub(super) fn wrong_books(sku: &SkuState) -> Option<Sin> {
    let books = &sku.books;
    (!books.balance() || books.sold + books.held > books.total).then(|| {
        let what = format!("books of {:?}: {books:?}", sku.sku);
        Sin::new(SinKind::Oversold, what)
    })
}

/// SKUs of which more units are live than there are.
fn oversold<R: Iterator<Item = Reservation>>(
    skus: impl Iterator<Item = SkuState>,
    reservations: impl Fn() -> R,
) -> Vec<Sin> {
    let mut sins = Vec::new();
    for sku in skus {
        let is_live = |found: &Reservation| found.message.sku == sku.sku && found.state.is_live();
        let live = reservations().filter(is_live);
        let units: u64 = live.map(|found| u64::from(found.message.quantity)).sum();
        let total = sku.books.total;
        if units > total {
            let what = format!("{:?}: {units} units live, {total} exist", sku.sku);
            sins.push(Sin::new(SinKind::Oversold, what));
        }
    }
    sins
}

/// What is oversold has wrong books, too: it is told once.
fn judge(mut oversold: Vec<Sin>, fault: Option<String>, sins: &mut Vec<Sin>) {
    if let Some(fault) = fault.filter(|_| oversold.is_empty()) {
        sins.push(Sin::new(SinKind::Broken, format!("ledger: {fault}")));
    }
    sins.append(&mut oversold);
}

impl Replica {
    fn audit(&self, sins: &mut Vec<Sin>) {
        let oversold = oversold(self.ledger.skus(), || self.ledger.reservations());
        let fault = self.ledger.check().err().map(|fault| fault.to_string());
        judge(oversold, fault, sins);
    }

    fn follow(&mut self, store: &StoreModel, marks: &mut Marks, sins: &mut Vec<Sin>) {
        let fresh = &store.disk[self.batches..];
        for batch in fresh {
            self.batches += 1;
            self.eye.see(&batch.bytes, marks, sins);
            if let Err(error) = self.ledger.replay(&batch.bytes) {
                let what = format!(
                    "durable batch {} contradicts those before: {error}",
                    batch.seq
                );
                sins.push(Sin::new(SinKind::Broken, what));
            }
            if self.batches.is_multiple_of(AUDIT_EVERY) {
                self.audit(sins);
            }
            sins.extend(self.ledger.skus().find_map(|sku| wrong_books(&sku)));
            self.mark_sold_out(marks);
        }
    }

    fn mark_sold_out(&mut self, marks: &mut Marks) {
        for sku in self.ledger.skus() {
            let before = self.sold_out.insert(sku.sku, sku.sold_out);
            if sku.sold_out && before == Some(false) {
                marks.happened(Happened::SoldOut, 1);
            }
        }
    }
}
