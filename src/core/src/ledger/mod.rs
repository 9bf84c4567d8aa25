//! The ledger: who holds which unit. A pure state machine; one atomic step per ask (design §5, §12.1-12.9).
//!
//! Called by [`owner::Owner`] (live) and at recovery (replay). `decide` reads, `take` is the only writer: a live step
//! encodes the entry it takes, a replay takes the entry it decodes, so both end in the same state. Refusals write
//! nothing. No clock decides anything: what time does (reopening, forgetting tombstones) comes as calls of the owner
//! and is journalled. A nonce is remembered as long as its reservation, thus longer than its ticket lives (R68).
//! Not here: durability, deadlines, answers' routes (the owner), budget (`limit::book`).

pub mod codec;
mod decide;
mod error;
mod ops;
pub mod owner;
mod reader;
mod recover;

mod sku;
mod snapshot;
mod tables;
mod take;

pub use error::{BooksFault, JournalError, Wrong};
pub use recover::{RecoverError, Recovered, recover};
pub use sku::OpsStep;

use crate::ask::{Books, LedgerAnswer, LedgerOp, Mode, ReservationState};
use crate::limits::{
    BATCH_BYTES_MAX, RESERVATIONS_EXTRA, RESERVATIONS_MAX, RESERVATIONS_PER_UNIT, TOMBSTONES_MAX,
};
use crate::order::contract::{Money, ORDER_MESSAGE_VERSION, OrderMessage};
use crate::planted::{self, Planted};
use crate::rng::Rng;
use crate::sale::Sale;
use crate::time::WallMs;
use alloc::vec::Vec;
use codec::{Entry, Journal};
use decide::Decision;
use sku::{Plan, Sku};
use tables::{HashKey, Record, Records, SkuIndex, Tombstones};
use weir_proto::ids::{ReservationId, SkuKey, UserId};

/// What the configuration says of one SKU.
#[derive(Clone, Copy, Debug)]
pub struct SkuPlan {
    /// Which.
    pub sku: SkuKey,
    /// Most reservations ever made of its first stock; then `TableFull`. 1..=`limits::RESERVATIONS_MAX`. Each unit of a
    /// restock adds `limits::RESERVATIONS_PER_UNIT`.
    pub reservations_max: u32,
    /// Price of one unit, written into each grant.
    pub unit_price: Money,
}

/// Sizes and keys of a ledger; fixed for the life of the process.
#[derive(Clone, Debug)]
pub struct LedgerConfig {
    /// SKUs that can be granted; others in the journal are kept and answer lookups.
    pub plans: Vec<SkuPlan>,
    /// Tombstones of one generation.
    pub tombstones_max: usize,
    /// Keys the index tables; any number, not stored.
    pub seed: u64,
}

/// Capacities of a ledger and its owner. The program takes those of [`limits`](crate::limits); the simulator draws smaller
/// ones, so that every cap is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerSizes {
    /// See [`RESERVATIONS_PER_UNIT`].
    pub reservations_per_unit: u64,
    /// See [`RESERVATIONS_EXTRA`].
    pub reservations_extra: u64,
    /// See [`BATCH_BYTES_MAX`]; at least four of the largest entries.
    pub batch_bytes_max: usize,
}

impl Default for LedgerSizes {
    fn default() -> Self {
        Self {
            reservations_per_unit: RESERVATIONS_PER_UNIT,
            reservations_extra: RESERVATIONS_EXTRA,
            batch_bytes_max: BATCH_BYTES_MAX,
        }
    }
}

impl LedgerConfig {
    /// Sizes for a sale, by `limits`.
    pub fn of_sale(sale: &Sale, seed: u64) -> Self {
        Self::sized(sale, seed, &LedgerSizes::default())
    }

    /// The same with other capacities.
    pub fn sized(sale: &Sale, seed: u64, sizes: &LedgerSizes) -> Self {
        let plans = sale.activities.iter().flat_map(|activity| {
            activity.skus.iter().map(|sku| SkuPlan {
                sku: SkuKey {
                    activity: activity.id,
                    sku: sku.id,
                },
                reservations_max: reservations_max(sku.first_stock, sizes),
                unit_price: sku.unit_price,
            })
        });
        Self {
            plans: plans.collect(),
            tombstones_max: TOMBSTONES_MAX,
            seed,
        }
    }
}

fn reservations_max(first_stock: u64, sizes: &LedgerSizes) -> u32 {
    let wanted = first_stock.saturating_mul(sizes.reservations_per_unit);
    wanted
        .saturating_add(sizes.reservations_extra)
        .min(RESERVATIONS_MAX) as u32
}

/// A SKU as it stands in memory (with what is not committed yet).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SkuState {
    /// Which.
    pub sku: SkuKey,
    /// On sale.
    pub open: bool,
    /// The mode.
    pub mode: Mode,
    /// Most units of one request.
    pub quantity_max: u32,
    /// A closed order does not free its user.
    pub once_per_activity: bool,
    /// The books; while `sold_out`, free units wait for the reopening.
    pub books: Books,
    /// Grows at each sold-out and each reopening.
    pub epoch: u64,
    /// No unit can be had until the next reopening.
    pub sold_out: bool,
    /// Reservations made so far.
    pub reservations: u32,
}

/// A reservation in full, for reconcile and checkers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// The order message as it was or will be sent.
    pub message: OrderMessage,
    /// Where it stands.
    pub state: ReservationState,
    /// Since when.
    pub moved_at: WallMs,
}

/// The ledger of one process.
#[derive(Debug)]
pub struct Ledger {
    config: LedgerConfig,
    /// In the order they were first opened.
    skus: Vec<Sku>,
    /// Sorted by key.
    by_key: Vec<(SkuKey, SkuIndex)>,
    records: Records,
    tombstones: Tombstones,
    /// Time of the last entry; never runs back (design §12.14).
    clock: WallMs,
}

impl Ledger {
    /// An empty ledger; allocates its tables for good.
    pub fn new(config: LedgerConfig) -> Self {
        let records_max = config
            .plans
            .iter()
            .map(|plan| plan.reservations_max as usize)
            .sum();
        let mut rng = Rng::new(config.seed);
        let key = HashKey(rng.next_u64(), rng.next_u64());
        Self {
            skus: Vec::with_capacity(config.plans.len()),
            by_key: Vec::with_capacity(config.plans.len()),
            records: Records::with_capacity(records_max, key),
            tombstones: Tombstones::new(config.tombstones_max, key),
            clock: WallMs(0),
            config,
        }
    }

    /// One atomic step at `wall` (stored as the later of it and the last stored time). Appends at most one entry to
    /// `out`; a step that appends none changed nothing. Unknown SKUs answer `NotOpen`, `NotFound` or `NoReservation`.
    pub fn apply(&mut self, wall: WallMs, op: &LedgerOp, out: &mut Journal) -> LedgerAnswer {
        let at = self.stored_time(wall);
        match self.decide(at, op) {
            Decision::Answer(answer) => answer,
            Decision::Write(entry) => {
                self.write(&entry, out);
                if matches!(op, LedgerOp::Restock(_)) {
                    self.reserve_tables(); // an operator's step may allocate; the grants that follow may not
                }
                self.answer_for(&entry)
            }
        }
    }

    /// Makes units that gathered while sold out sellable: one epoch step for each such SKU. The owner calls it once
    /// per `limits::REOPEN_TICK_MS` (design §12.9). Returns how many SKUs reopened.
    pub fn reopen(&mut self, wall: WallMs, out: &mut Journal) -> usize {
        let at = self.stored_time(wall);
        let mut reopened = 0;
        for index in 0..self.skus.len() {
            if self.skus[index].reopens() {
                let sku = self.skus[index].key;
                self.write(&Entry::Reopened { sku, at }, out);
                reopened += 1;
            }
        }
        reopened
    }

    /// SKUs that wait for [`Self::reopen`].
    pub fn reopens(&self) -> usize {
        self.skus.iter().filter(|sku| sku.reopens()).count()
    }

    /// Forgets tombstones that are older than the last turn. The owner calls it once per `limits::TOMBSTONE_TTL_MS`.
    pub fn turn_tombstones(&mut self, wall: WallMs, out: &mut Journal) {
        if !self.tombstones.is_empty() {
            let at = self.stored_time(wall);
            self.write(&Entry::TombstonesTurned { at }, out);
        }
    }

    /// Takes every entry of a stored batch.
    /// # Errors
    /// Offset and cause; the ledger must not be used after one.
    pub fn replay(&mut self, batch: &[u8]) -> Result<(), JournalError> {
        let mut entries = codec::Entries::of(batch)?;
        loop {
            let offset = entries.offset();
            let Some(entry) = entries.next_entry()? else {
                return Ok(());
            };
            self.take(&entry).map_err(|what| JournalError {
                offset,
                wrong: Wrong::Impossible(what),
            })?;
        }
    }

    /// Makes room for every grant that may still come, so that serving never allocates. Call after a recovery; a
    /// restock calls it itself.
    pub fn reserve_tables(&mut self) {
        let opened: usize = self.skus.iter().map(|sku| sku.room() as usize).sum();
        let plans = self.config.plans.iter();
        let unopened: usize = plans
            .filter(|plan| self.find_sku(plan.sku).is_none())
            .map(|plan| plan.reservations_max as usize)
            .sum();
        self.records.reserve(opened + unopened);
    }

    /// A SKU's state; `None` when it was never opened.
    pub fn sku(&self, key: SkuKey) -> Option<SkuState> {
        let sku = &self.skus[usize::from(self.find_sku(key)?)];
        Some(state_of(sku))
    }

    /// Every SKU that was ever opened, sorted.
    pub fn skus(&self) -> impl Iterator<Item = SkuState> + '_ {
        self.by_key
            .iter()
            .map(|&(_, index)| state_of(&self.skus[usize::from(index)]))
    }

    /// Users with a remembered reservation of `key`: they may retry and get their first answer. A user may come twice.
    pub fn users_of(&self, key: SkuKey) -> impl Iterator<Item = UserId> + '_ {
        let index = self.find_sku(key);
        self.records
            .rows()
            .iter()
            .filter(move |record| Some(record.name.sku) == index)
            .map(|record| record.name.user)
    }

    /// A reservation by its number.
    pub fn reservation(&self, id: ReservationId) -> Option<Reservation> {
        self.records
            .get(id)
            .map(|record| self.reservation_of(record))
    }

    /// Every reservation, in order of its number, which is dense from 1.
    pub fn reservations(&self) -> impl Iterator<Item = Reservation> + '_ {
        self.records
            .rows()
            .iter()
            .map(|record| self.reservation_of(record))
    }

    /// The number that the next grant gets.
    pub fn next_reservation(&self) -> ReservationId {
        self.records.next_id()
    }

    fn reservation_of(&self, record: &Record) -> Reservation {
        Reservation {
            message: OrderMessage {
                version: ORDER_MESSAGE_VERSION,
                reservation: record.id,
                sku: self.skus[usize::from(record.name.sku)].key,
                user: record.name.user,
                quantity: record.quantity,
                request_id: record.name.request_id,
                unit_price: record.unit_price,
                reserved_at: record.granted_at,
            },
            state: record.state,
            moved_at: record.moved_at,
        }
    }

    /// The time that an entry made at `wall` has.
    fn stored_time(&self, wall: WallMs) -> WallMs {
        if planted::is(Planted::ClockRunsBack) {
            return wall;
        }
        self.clock.max(wall)
    }

    fn find_sku(&self, key: SkuKey) -> Option<SkuIndex> {
        let place = self
            .by_key
            .binary_search_by_key(&key, |&(key, _)| key)
            .ok()?;
        Some(self.by_key[place].1)
    }

    fn plan(&self, key: SkuKey) -> Option<Plan> {
        let plan = self.config.plans.iter().find(|plan| plan.sku == key)?;
        Some(Plan {
            reservations_max: plan.reservations_max,
            unit_price: plan.unit_price,
        })
    }

    fn write(&mut self, entry: &Entry, out: &mut Journal) {
        out.push(entry);
        self.take(entry)
            .expect("an entry fits the state that it was decided on");
    }

    fn answer_for(&self, entry: &Entry) -> LedgerAnswer {
        let held = |id| self.records.get(id).map(Record::held);
        match entry {
            Entry::Granted(granted) => held(granted.reservation).map(LedgerAnswer::Granted),
            Entry::Moved { reservation, .. } => held(*reservation).map(LedgerAnswer::Now),
            Entry::Tombstoned { .. } => Some(LedgerAnswer::NotFound),
            Entry::Ops { sku, .. } => self.sku(*sku).map(|sku| LedgerAnswer::OpsDone(sku.books)),
            Entry::TombstonesTurned { .. } | Entry::Reopened { .. } => None,
        }
        .expect("an ask's entry names what it just made")
    }
}

fn state_of(sku: &Sku) -> SkuState {
    SkuState {
        sku: sku.key,
        open: sku.open,
        mode: sku.mode,
        quantity_max: sku.quantity_max,
        once_per_activity: sku.once_per_activity,
        books: sku.books,
        epoch: sku.epoch,
        sold_out: sku.sold_out,
        reservations: sku.reservations,
    }
}
