//! What is checked after every turn: what is durable, and what clients were told against it.
//!
//! Called by the director. The truth moves when the store has a batch durable, or with each step in Redis, so "answers
//! follow commits" is checked at the instant a client hears QUEUED.

use super::crowd::{Crowd, Heard, Wish};
use super::director::CROWD;
use super::marks::Marks;
use super::tally::{Sin, SinKind};
use super::truth::Truth;
use std::collections::BTreeMap;
use weir_core::mail::Addr;
use weir_core::shard::Shard;
use weir_io::sim::{Seat, StepInfo, World};
use weir_proto::ids::{ReservationId, SkuKey};

/// A shard audits itself once per so many turns of the world.
const SHARD_AUDIT_EVERY: u64 = 128;

/// Of each SKU: the owner's run and the view's version.
type Versions = BTreeMap<SkuKey, (u64, u64)>;

/// See the module.
pub(super) struct Checker {
    pub truth: Truth,
    turns: u64,
    pub unknowns: u64,
    pub sins: Vec<Sin>,
    pub marks: Marks,
    /// The newest view that each shard's run applied: its number, and the owner's run and version by SKU.
    views: BTreeMap<Seat, (u64, Versions)>,
    /// Reservations that clients were told of, with their wish.
    pub told: Vec<(ReservationId, u32)>,
}

impl Checker {
    pub fn new(truth: Truth) -> Self {
        Self {
            marks: Marks::default(),
            views: BTreeMap::new(),
            truth,
            turns: 0,
            unknowns: 0,
            sins: Vec::new(),
            told: Vec::new(),
        }
    }

    /// Looks at what one turn did.
    pub fn after(&mut self, world: &mut World, info: StepInfo) {
        self.turns += 1;
        if self.truth.moves_with(info.part) {
            self.truth_moved(world);
        }
        match info.part {
            CROWD => self.crowd_moved(world, info.part),
            Addr::Shard(_) if self.turns.is_multiple_of(SHARD_AUDIT_EVERY) => {
                let seat = Seat {
                    machine: info.machine,
                    addr: info.part,
                };
                if let Some(shard) = world.part::<Shard>(seat) {
                    shard.audit();
                    self.shard_moved(seat, shard);
                }
            }
            _ => {}
        }
    }

    pub fn turns(&self) -> u64 {
        self.turns
    }

    /// Takes over what became durable.
    pub fn truth_moved(&mut self, world: &mut World) {
        self.truth.moved(world, &mut self.marks, &mut self.sins);
    }

    /// All books again from the reservations.
    pub fn audit(&mut self) {
        self.truth.audit(&mut self.sins);
    }

    /// Views are applied in their order.
    fn shard_moved(&mut self, seat: Seat, shard: &Shard) {
        let (boot, known) = self.views.entry(seat).or_default();
        if *boot != shard.boot() {
            *boot = shard.boot();
            known.clear();
        }
        for (sku, version) in shard.versions() {
            let before = known.insert(sku, version);
            if before.is_some_and(|before| version < before) {
                let what = format!("{seat:?} has view {version:?} of {sku:?} after {before:?}");
                self.sins.push(Sin::new(SinKind::Broken, what));
            }
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
                        contradiction(&self.truth, &crowd.wishes[wish as usize], reservation)
                    {
                        self.sins.push(Sin::new(SinKind::Lost, what));
                    }
                    self.told.push((reservation, wish));
                }
            }
        }
    }
}

fn contradiction(truth: &Truth, wish: &Wish, reservation: ReservationId) -> Option<String> {
    let Some(found) = truth.ever(reservation) else {
        return Some(format!(
            "{} was told QUEUED as {reservation}, of which nothing is durable",
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
