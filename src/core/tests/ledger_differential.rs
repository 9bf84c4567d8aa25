//! The ledger against a naive model (lists and loops, written from the design, not from the code), and its journal and
//! snapshots against itself: 10^5 random steps with retries, duplicates, late reserves, restocks, late payments.
#![allow(clippy::unwrap_used)] // a test that meets one has failed

use weir_core::ask::*;
use weir_core::ledger::codec::{Entries, Journal};
use weir_core::ledger::{JournalError, Ledger, LedgerConfig, SkuPlan, Wrong};
use weir_core::order::contract::Money;
use weir_core::rng::Rng;
use weir_core::time::WallMs;
use weir_proto::ids::*;
use weir_proto::text::Text;

const WORLDS: u64 = 100;
const STEPS: u64 = 1_000;

fn text<const N: usize>(text: &str) -> Text<N> {
    Text::new(text.as_bytes()).unwrap()
}

fn sku(number: u64) -> SkuKey {
    SkuKey {
        activity: ActivityId(1),
        sku: SkuId(number),
    }
}

/// Everything that happened, as lists; every question is answered by walking them.
#[derive(Default)]
struct Model {
    skus: Vec<ModelSku>,
    reservations: Vec<ModelReservation>,
    /// SKU, user, request, turns it has lived through.
    tombstones: Vec<(SkuKey, UserId, RequestId, u32)>,
    ops: Vec<(SkuKey, RequestId, LedgerOp)>,
    reservations_max: usize,
    tombstones_max: usize,
}

struct ModelSku {
    key: SkuKey,
    open: bool,
    mode: Mode,
    quantity_max: u32,
    once: bool,
    total: u64,
    first: u64,
    epoch: u64,
    sold_out: bool,
}

struct ModelReservation {
    sku: SkuKey,
    user: UserId,
    request: RequestId,
    nonce: Nonce,
    held: Held,
}

impl Model {
    fn sum(&self, key: SkuKey, wanted: impl Fn(ReservationState) -> bool) -> u64 {
        let mine = self.reservations.iter().filter(|r| r.sku == key);
        mine.filter(|r| wanted(r.held.state))
            .map(|r| u64::from(r.held.quantity))
            .sum()
    }

    fn books(&self, key: SkuKey) -> Books {
        let total = self.skus.iter().find(|s| s.key == key).unwrap().total;
        let sold = self.sum(key, |state| state == ReservationState::Settled);
        let live = self.sum(key, ReservationState::is_live);
        Books {
            total,
            free: total - live,
            held: live - sold,
            sold,
            quarantined: 0,
        }
    }

    fn mark(&mut self, key: SkuKey) {
        let free = self.books(key).free;
        let sku = self.skus.iter_mut().find(|s| s.key == key).unwrap();
        if free == 0 && !sku.sold_out {
            sku.sold_out = true;
            sku.epoch += 1;
        }
    }

    fn reopen(&mut self) {
        let keys: Vec<SkuKey> = self.skus.iter().map(|s| s.key).collect();
        for key in keys {
            let free = self.books(key).free;
            let sku = self.skus.iter_mut().find(|s| s.key == key).unwrap();
            if sku.sold_out && free > 0 {
                sku.sold_out = false;
                sku.epoch += 1;
            }
        }
    }

    fn turn(&mut self) {
        for tombstone in &mut self.tombstones {
            tombstone.3 += 1;
        }
        self.tombstones.retain(|tombstone| tombstone.3 < 2);
    }

    fn apply(&mut self, op: &LedgerOp) -> LedgerAnswer {
        let answer = match op {
            LedgerOp::Reserve(reserve) => self.reserve(reserve),
            LedgerOp::Lookup(lookup) => self.lookup(lookup),
            LedgerOp::Confirm(target) => self.step(*target, |state| match state {
                ReservationState::Reserved => Some(ReservationState::Confirmed),
                ReservationState::Confirmed | ReservationState::Settled => Some(state),
                _ => None,
            }),
            LedgerOp::Settle(target) => self.step(*target, |state| {
                state.is_live().then_some(ReservationState::Settled)
            }),
            LedgerOp::Release(release) => self.step(release.target, |state| match state {
                ReservationState::Settled => None,
                live if live.is_live() => Some(match release.end {
                    ReleaseEnd::Closed => ReservationState::Closed,
                    ReleaseEnd::Failed => ReservationState::Failed,
                }),
                ended => Some(ended),
            }),
            LedgerOp::PaidLate(target) => self.paid_late(*target),
            LedgerOp::Open(Open { target, .. })
            | LedgerOp::Close(target)
            | LedgerOp::SetMode(SetMode { target, .. })
            | LedgerOp::Restock(Restock { target, .. }) => self.operate(*target, op),
        };
        if self.skus.iter().any(|s| s.key == op.sku()) {
            self.mark(op.sku());
        }
        answer
    }

    fn reserve(&mut self, r: &Reserve) -> LedgerAnswer {
        let Some(sku) = self.skus.iter().find(|s| s.key == r.sku) else {
            return LedgerAnswer::NotOpen;
        };
        let mine: Vec<_> = self
            .reservations
            .iter()
            .filter(|o| o.sku == r.sku)
            .collect();
        if let Some(same) = mine
            .iter()
            .find(|o| o.user == r.user && o.request == r.request_id)
        {
            return if same.held.quantity == r.quantity {
                LedgerAnswer::Repeated(same.held)
            } else {
                LedgerAnswer::RequestIdConflict
            };
        }
        let entombed = |t: &&(SkuKey, UserId, RequestId, u32)| {
            (t.0, t.1, t.2) == (r.sku, r.user, r.request_id)
        };
        if self.tombstones.iter().any(|t| entombed(&t)) {
            return LedgerAnswer::Tombstoned;
        }
        if mine.iter().any(|o| o.nonce == r.nonce) {
            return LedgerAnswer::ReplayRejected;
        }
        let of_user = || mine.iter().filter(|o| o.user == r.user);
        if let Some(live) = of_user().find(|o| o.held.state.is_live()) {
            return LedgerAnswer::AlreadyHolds(live.held);
        }
        // Once per activity: the newest request decides, and only a FAILED one leaves the user free.
        if let Some(last) = of_user().next_back()
            && sku.once
            && last.held.state != ReservationState::Failed
        {
            return LedgerAnswer::AlreadyHolds(last.held);
        }
        if !sku.open {
            return LedgerAnswer::NotOpen;
        }
        if sku.mode == Mode::QueueOnly || sku.mode == Mode::Closed {
            return LedgerAnswer::ModeRefused(sku.mode);
        }
        if r.quantity == 0 || r.quantity > sku.quantity_max {
            return LedgerAnswer::QuantityRefused;
        }
        if sku.sold_out {
            return LedgerAnswer::SoldOut { epoch: sku.epoch };
        }
        if self.books(r.sku).free < u64::from(r.quantity) {
            return LedgerAnswer::QuantityRefused;
        }
        if mine.len() >= self.reservations_max + 4 * (sku.total - sku.first) as usize {
            return LedgerAnswer::TableFull;
        }
        let held = Held {
            reservation: ReservationId(self.reservations.len() as u64 + 1),
            state: ReservationState::Reserved,
            quantity: r.quantity,
        };
        self.reservations.push(ModelReservation {
            sku: r.sku,
            user: r.user,
            request: r.request_id,
            nonce: r.nonce,
            held,
        });
        LedgerAnswer::Granted(held)
    }

    fn lookup(&mut self, l: &Lookup) -> LedgerAnswer {
        if !self.skus.iter().any(|s| s.key == l.sku) {
            return LedgerAnswer::NotOpen;
        }
        let found = self
            .reservations
            .iter()
            .find(|o| (o.sku, o.user, o.request) == (l.sku, l.user, l.request_id));
        if let Some(found) = found {
            return LedgerAnswer::Found(found.held);
        }
        let is_young = |t: &(SkuKey, UserId, RequestId, u32)| {
            (t.0, t.1, t.2, t.3) == (l.sku, l.user, l.request_id, 0)
        };
        if !l.tombstone || self.tombstones.iter().any(is_young) {
            return LedgerAnswer::NotFound;
        }
        if self.tombstones.iter().filter(|t| t.3 == 0).count() >= self.tombstones_max {
            return LedgerAnswer::TableFull;
        }
        self.tombstones.push((l.sku, l.user, l.request_id, 0));
        LedgerAnswer::NotFound
    }

    fn named(&mut self, target: ReservationRef) -> Option<&mut ModelReservation> {
        self.reservations
            .iter_mut()
            .find(|o| o.sku == target.sku && o.held.reservation == target.reservation)
    }

    fn step(
        &mut self,
        target: ReservationRef,
        to: impl Fn(ReservationState) -> Option<ReservationState>,
    ) -> LedgerAnswer {
        let Some(found) = self.named(target) else {
            return LedgerAnswer::NoReservation;
        };
        match to(found.held.state) {
            None => LedgerAnswer::StepRefused(found.held),
            Some(state) => {
                found.held.state = state;
                LedgerAnswer::Now(found.held)
            }
        }
    }

    fn paid_late(&mut self, target: ReservationRef) -> LedgerAnswer {
        let Some(found) = self.named(target) else {
            return LedgerAnswer::NoReservation;
        };
        let (user, units) = (found.user, u64::from(found.held.quantity));
        let holds = self
            .reservations
            .iter()
            .any(|o| o.sku == target.sku && o.user == user && o.held.state.is_live());
        let can = !holds && self.books(target.sku).free >= units;
        self.step(target, |state| match state {
            ReservationState::Reserved | ReservationState::Confirmed => None,
            ReservationState::Closed | ReservationState::Failed if can => {
                Some(ReservationState::Settled)
            }
            ReservationState::Closed | ReservationState::Failed => Some(ReservationState::PaidLate),
            ended => Some(ended),
        })
    }

    fn operate(&mut self, target: OpsRef, op: &LedgerOp) -> LedgerAnswer {
        let key = target.sku;
        let is_known = self.skus.iter().any(|s| s.key == key);
        if !is_known {
            let LedgerOp::Open(open) = op else {
                return LedgerAnswer::NotOpen;
            };
            self.skus.push(ModelSku {
                key,
                open: true,
                mode: Mode::Normal,
                quantity_max: open.quantity_max,
                once: open.once_per_activity,
                total: open.stock,
                first: open.stock,
                epoch: 1,
                sold_out: open.stock == 0,
            });
        } else {
            if let Some(done) = self
                .ops
                .iter()
                .find(|o| (o.0, o.1) == (key, target.request_id))
            {
                return if done.2 == *op {
                    LedgerAnswer::OpsDone(self.books(key))
                } else {
                    LedgerAnswer::RequestIdConflict
                };
            }
            let sku = self.skus.iter_mut().find(|s| s.key == key).unwrap();
            match op {
                LedgerOp::Open(open) => {
                    sku.open = true;
                    sku.quantity_max = open.quantity_max;
                    sku.once = open.once_per_activity;
                }
                LedgerOp::Close(_) => sku.open = false,
                LedgerOp::SetMode(set) => sku.mode = set.mode,
                LedgerOp::Restock(restock) if restock.units == 0 => {
                    return LedgerAnswer::QuantityRefused;
                }
                LedgerOp::Restock(restock) => sku.total += restock.units,
                _ => unreachable!(),
            }
        }
        self.ops.push((key, target.request_id, *op));
        LedgerAnswer::OpsDone(self.books(key))
    }
}

fn config(reservations_max: u32, tombstones_max: usize) -> LedgerConfig {
    let plan = |number| SkuPlan {
        sku: sku(number),
        reservations_max,
        unit_price: Money {
            minor: number * 100,
            currency: *b"CNY",
        },
    };
    LedgerConfig {
        plans: vec![plan(3), plan(1), plan(2)],
        tombstones_max,
        seed: 9,
    }
}

fn operators_op(rng: &mut Rng, key: SkuKey) -> LedgerOp {
    let target = OpsRef {
        sku: key,
        request_id: text(&format!("operator-{}", rng.below(40))),
    };
    match rng.below(8) {
        0 => LedgerOp::Close(target),
        1 => LedgerOp::SetMode(SetMode {
            target,
            mode: [Mode::Normal, Mode::Degraded, Mode::QueueOnly, Mode::Closed]
                [rng.below(4) as usize],
        }),
        2 | 3 => LedgerOp::Restock(Restock {
            target,
            units: rng.below(4),
        }),
        _ => LedgerOp::Open(Open {
            target,
            stock: rng.below(12),
            quantity_max: 1 + rng.below(3) as u32,
            once_per_activity: rng.chance(1, 4),
        }),
    }
}

/// `made`: the SKU of each reservation so far.
fn random_op(rng: &mut Rng, made: &[SkuKey]) -> LedgerOp {
    let key = sku(1 + rng.below(20) / 9); // mostly 1 and 2, seldom 3
    let user = UserId(1 + rng.below(25));
    let request_id = text(&format!("request-{}", rng.below(4)));
    let number = rng.below(made.len() as u64 + 2);
    let of_number = made.get((number as usize).wrapping_sub(1));
    let target = ReservationRef {
        sku: of_number
            .copied()
            .filter(|_| rng.chance(9, 10))
            .unwrap_or(key),
        reservation: ReservationId(number),
    };
    match rng.below(100) {
        0..45 => LedgerOp::Reserve(Reserve {
            sku: key,
            user,
            request_id,
            // Mostly one nonce per request; sometimes another's.
            nonce: if rng.chance(1, 10) {
                text(&format!("n-{}-request-{}", 1 + rng.below(25), rng.below(4)))
            } else {
                text(&format!("n-{}-{}", user.0, request_id))
            },
            nonce_until: WallMs(rng.below(100_000)),
            quantity: if rng.chance(3, 4) {
                1
            } else {
                rng.below(4) as u32
            },
        }),
        45..55 => LedgerOp::Lookup(Lookup {
            sku: key,
            user,
            request_id,
            tombstone: rng.chance(1, 2),
        }),
        55..63 => LedgerOp::Confirm(target),
        63..69 => LedgerOp::Settle(target),
        69..85 => LedgerOp::Release(Release {
            target,
            end: if rng.chance(2, 3) {
                ReleaseEnd::Closed
            } else {
                ReleaseEnd::Failed
            },
        }),
        85..93 => LedgerOp::PaidLate(target),
        _ => operators_op(rng, key),
    }
}

fn snapshot(ledger: &Ledger) -> Vec<u8> {
    let mut bytes = Vec::new();
    ledger.snapshot_into(&mut bytes);
    bytes
}

/// One world; counts answers by kind into `seen`.
fn live(seed: u64, seen: &mut [u64; 21]) {
    let mut rng = Rng::new(seed);
    let reservations_max = [6, 40, 400][rng.below(3) as usize];
    let tombstones_max = [2, 100][rng.below(2) as usize];
    let config = config(reservations_max, tombstones_max);
    let mut ledger = Ledger::new(config.clone());
    let mut shadow = Ledger::new(config.clone());
    let mut journal = Journal::new(Vec::new());
    let mut model = Model {
        reservations_max: reservations_max as usize,
        tombstones_max,
        ..Model::default()
    };
    let mut made = Vec::new();
    let mut wall = 1_000_000;
    for step in 0..STEPS {
        wall = (wall + rng.below(50)).saturating_sub(rng.below(2) * rng.below(60)); // the clock may step back
        let at = WallMs(wall);
        match rng.below(60) {
            0..6 => {
                ledger.reopen(at, &mut journal);
                model.reopen();
            }
            6 => {
                ledger.turn_tombstones(at, &mut journal);
                model.turn();
            }
            _ => {
                let op = random_op(&mut rng, &made);
                let before = journal.bytes().len();
                let got = ledger.apply(at, &op, &mut journal);
                let want = model.apply(&op);
                assert_eq!(got, want, "seed {seed}, step {step}: {op:?}");
                assert!(journal.bytes().len() - before <= weir_core::limits::ENTRY_BYTES_MAX);
                seen[kind_of(&got)] += 1;
                if matches!(got, LedgerAnswer::Granted(_)) {
                    made.push(op.sku());
                }
            }
        }
        for sku in &model.skus {
            let state = ledger.sku(sku.key).unwrap();
            assert_eq!(
                state.books,
                model.books(sku.key),
                "seed {seed}, step {step}"
            );
            assert_eq!(
                (state.open, state.mode, state.epoch, state.sold_out),
                (sku.open, sku.mode, sku.epoch, sku.sold_out),
                "seed {seed}, step {step}"
            );
        }
        if rng.chance(1, 20) {
            ledger.check().unwrap();
            shadow.replay(journal.bytes()).unwrap();
            let bytes = snapshot(&ledger);
            assert!(
                bytes == snapshot(&shadow),
                "a replay ends elsewhere: seed {seed}, step {step}"
            );
            if rng.chance(1, 3) {
                shadow = Ledger::restore(config.clone(), &bytes).unwrap();
                assert!(
                    bytes == snapshot(&shadow),
                    "a restore ends elsewhere: seed {seed}"
                );
            }
            if rng.chance(1, 10) {
                // From here on the restored one lives: its answers must be the same for ever.
                std::mem::swap(&mut ledger, &mut shadow);
            }
            journal = Journal::new(journal.into_bytes());
        }
    }
}

fn kind_of(answer: &LedgerAnswer) -> usize {
    match answer {
        LedgerAnswer::Granted(_) => 0,
        LedgerAnswer::Repeated(_) => 1,
        LedgerAnswer::SoldOut { .. } => 2,
        LedgerAnswer::AlreadyHolds(_) => 3,
        LedgerAnswer::RequestIdConflict => 4,
        LedgerAnswer::ReplayRejected => 5,
        LedgerAnswer::Tombstoned => 6,
        LedgerAnswer::NotOpen => 7,
        LedgerAnswer::ModeRefused(_) => 8,
        LedgerAnswer::QuantityRefused => 9,
        LedgerAnswer::TableFull => 10,
        LedgerAnswer::Found(_) => 11,
        LedgerAnswer::NotFound => 12,
        LedgerAnswer::StepRefused(_) => 13,
        LedgerAnswer::NoReservation => 14,
        LedgerAnswer::OpsDone(_) => 15,
        LedgerAnswer::Now(held) => 15 + held.state as usize, // no step leads to Reserved, which is 0
    }
}

#[test]
fn ledger_model_replay_and_restore_agree_over_a_hundred_thousand_steps() {
    let mut seen = [0; 21];
    for seed in 0..WORLDS {
        live(seed, &mut seen);
    }
    assert!(
        seen[..21].iter().all(|&count| count > 100),
        "every kind of answer must be met often: {seen:?}"
    );
}

fn some_journal() -> (Ledger, Vec<u8>) {
    let mut rng = Rng::new(5);
    let mut ledger = Ledger::new(config(400, 100));
    let mut journal = Journal::new(Vec::new());
    while journal.entries() < 60 {
        let op = random_op(&mut rng, &[sku(1); 20]);
        ledger.apply(WallMs(1_000), &op, &mut journal);
        ledger.reopen(WallMs(1_000), &mut journal);
    }
    (ledger, journal.into_bytes())
}

#[test]
fn a_cut_or_altered_batch_is_an_error_or_another_ledger_but_never_a_panic() {
    let (_, batch) = some_journal();
    let fresh = || Ledger::new(config(400, 100));
    let mut whole = 0;
    for len in 0..batch.len() {
        let cut = fresh().replay(&batch[..len]);
        whole += usize::from(cut.is_ok());
    }
    assert_eq!(
        whole, 60,
        "only cuts between entries are whole: after the version byte and 59 entries"
    );
    for at in 0..batch.len() {
        for bit in [0, 3, 7] {
            let mut altered = batch.clone();
            altered[at] ^= 1 << bit;
            let mut other = fresh();
            if other.replay(&altered).is_ok() {
                other.check().unwrap();
            }
        }
    }
}

#[test]
fn a_cut_snapshot_is_an_error_and_an_altered_one_is_never_taken_for_the_same() {
    let (ledger, _) = some_journal();
    let bytes = snapshot(&ledger);
    for len in 0..bytes.len() {
        assert!(
            Ledger::restore(config(400, 100), &bytes[..len]).is_err(),
            "cut at {len}"
        );
    }
    for at in 0..bytes.len() {
        let mut altered = bytes.clone();
        altered[at] ^= 0x21;
        if let Ok(other) = Ledger::restore(config(400, 100), &altered) {
            assert_eq!(snapshot(&other), altered);
        }
    }
    let mut longer = bytes.clone();
    longer.push(0);
    let error = Ledger::restore(config(400, 100), &longer).unwrap_err();
    assert_eq!(error.wrong, Wrong::LeftOver);
}

#[test]
fn another_version_is_named() {
    let (_, mut batch) = some_journal();
    batch[0] = 2;
    let error = Entries::of(&batch).unwrap_err();
    let wrong = Wrong::Version(2);
    assert_eq!(error, JournalError { offset: 1, wrong });
    assert!(error.to_string().contains("start the newer program"));
}
