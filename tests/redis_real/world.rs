//! One world of the differential test: a ledger in memory and the same SKUs in Redis, asked the same things in the same
//! order. Reservations have one number in the ledger and one per SKU in Redis; `World` keeps who is who.

use std::collections::BTreeSet;
use weir_core::ask::*;
use weir_core::ledger::codec::Journal;
use weir_core::ledger::{Ledger, LedgerConfig, SkuPlan};
use weir_core::limits::UNITS_MAX;
use weir_core::order::contract::Money;
use weir_core::redis::link::greeting::HomeId;
use weir_core::redis::reply::{self, Asked};
use weir_core::redis::step::{SkuSteps, StepPlan};
use weir_core::rng::Rng;
use weir_core::time::WallMs;
use weir_proto::ids::*;
use weir_proto::resp::{Value, command};
use weir_proto::text::Text;

/// SKUs of a world.
pub const SKUS: u64 = 3;
/// Far in the future: 2030.
pub const KEEP_UNTIL: WallMs = WallMs(1_900_000_000_000);

fn text<const N: usize>(text: &str) -> Text<N> {
    Text::new(text.as_bytes()).unwrap()
}

/// What a turn of a world asked; in the order of the replies.
enum Expected {
    Answer {
        op: LedgerOp,
        /// As the ledger in memory has it.
        want: LedgerAnswer,
    },
    /// One reply for each SKU.
    Reopen {
        reopened: usize,
    },
    /// Tombstones deleted.
    Forgotten,
    Nothing,
}

/// Tombstones of one request: SKU, user, request, and the turn in which it was last asked for.
type Tombstone = (SkuKey, UserId, RequestId, u64);

pub struct World {
    pub seed: u64,
    rng: Rng,
    ledger: Ledger,
    journal: Journal,
    wall: u64,
    steps: Vec<SkuSteps>,
    /// Of the ledger's reservation n at n - 1: its SKU, and Redis' reservation.
    made: Vec<(SkuKey, ReservationId)>,
    tombstones: Vec<Tombstone>,
    turn: u64,
    expected: Expected,
}

impl World {
    pub fn new(seed: u64) -> Self {
        let reservations_max = if seed.is_multiple_of(3) { 8 } else { 400 };
        let key = |number| SkuKey {
            activity: ActivityId(seed + 1),
            sku: SkuId(number),
        };
        let price = |number| Money {
            minor: number * 100,
            currency: *b"CNY",
        };
        let plan = |number| SkuPlan {
            sku: key(number),
            reservations_max,
            unit_price: price(number),
        };
        let ledger = Ledger::new(LedgerConfig {
            plans: (1..=SKUS).map(plan).collect(),
            tombstones_max: 4096, // Redis has no such cap
            seed: 9,
        });
        let steps = |number| {
            SkuSteps::new(StepPlan {
                sku: key(number),
                reservations_max,
                unit_price: price(number),
                keep_until: KEEP_UNTIL,
                policy: 1,
                ids_above: number << 32,
            })
        };
        Self {
            seed,
            rng: Rng::new(seed),
            ledger,
            journal: Journal::new(Vec::new()),
            wall: 1_000_000,
            steps: (1..=SKUS).map(steps).collect(),
            made: Vec::new(),
            tombstones: Vec::new(),
            turn: 0,
            expected: Expected::Nothing,
        }
    }

    fn steps_of(&self, key: SkuKey) -> &SkuSteps {
        &self.steps[key.sku.0 as usize - 1]
    }

    /// Does one step in memory and appends its frames; true when it is an ask.
    pub fn step(&mut self, out: &mut Vec<u8>) -> bool {
        self.wall += self.rng.below(50);
        let at = WallMs(self.wall);
        if self.journal.bytes().len() > 64 * 1024 {
            self.journal = Journal::new(Vec::new());
        }
        match self.rng.below(60) {
            0..6 => {
                let reopened = self.ledger.reopen(at, &mut self.journal);
                for steps in &self.steps {
                    steps.push_reopen(out);
                }
                self.expected = Expected::Reopen { reopened };
                false
            }
            6 => {
                self.ledger.turn_tombstones(at, &mut self.journal);
                self.forget_tombstones(out);
                false
            }
            _ => {
                let op = self.random_op();
                let want = self.ledger.apply(at, &op, &mut self.journal);
                if let (LedgerOp::Lookup(lookup), LedgerAnswer::NotFound) = (&op, want)
                    && lookup.tombstone
                {
                    self.remember_tombstone(lookup);
                }
                let steps = self.steps_of(op.sku());
                steps.push(&self.in_redis(op), &HomeId::default(), out);
                self.expected = Expected::Answer { op, want };
                true
            }
        }
    }

    fn remember_tombstone(&mut self, lookup: &Lookup) {
        let name = (lookup.sku, lookup.user, lookup.request_id);
        self.tombstones
            .retain(|other| (other.0, other.1, other.2) != name);
        self.tombstones.push((name.0, name.1, name.2, self.turn));
    }

    /// The ledger's tombstones live for one to two turns; Redis' for a TTL. The same ones go here, by hand.
    fn forget_tombstones(&mut self, out: &mut Vec<u8>) {
        self.turn += 1;
        let turn = self.turn;
        let is_old = |tombstone: &Tombstone| tombstone.3 + 2 <= turn;
        let old: Vec<String> = self
            .tombstones
            .iter()
            .filter(|tombstone| is_old(tombstone))
            .map(|(sku, user, request, _)| {
                self.steps_of(*sku)
                    .key(&format!("tomb:{}:{request}", user.0))
            })
            .collect();
        self.tombstones.retain(|tombstone| !is_old(tombstone));
        self.expected = Expected::Nothing;
        if !old.is_empty() {
            let mut parts: Vec<&[u8]> = vec![b"DEL"];
            parts.extend(old.iter().map(String::as_bytes));
            command(out, &parts);
            self.expected = Expected::Forgotten;
        }
    }

    /// Holds the replies to the last step against the ledger in memory; what differs, in words.
    pub fn check(
        &mut self,
        mut next: impl FnMut(Told<'_>),
    ) -> Result<Option<LedgerAnswer>, String> {
        match std::mem::replace(&mut self.expected, Expected::Nothing) {
            Expected::Nothing => Ok(None),
            Expected::Forgotten => {
                next(&mut |_| {});
                Ok(None)
            }
            Expected::Reopen { reopened } => {
                let mut changed = Ok(0);
                for _ in 0..self.steps.len() {
                    next(&mut |value| match reply::stepped(value) {
                        Ok(Some(step)) => {
                            changed = changed.map(|count| count + usize::from(step.changed));
                        }
                        Ok(None) => {}
                        Err(fault) => changed = Err(fault),
                    });
                }
                if changed == Ok(reopened) {
                    Ok(None)
                } else {
                    Err(format!("{changed:?} reopened, not {reopened}"))
                }
            }
            Expected::Answer { op, want } => {
                let ids_above = self.steps_of(op.sku()).plan().ids_above;
                let mut got = None;
                next(&mut |value| {
                    let decided = reply::answer(Asked::of(&op), ids_above, value);
                    got = Some(decided.map(|decided| (decided.answer, decided.sells_out)));
                });
                let got = got.unwrap();
                self.check_answer(
                    &op,
                    want,
                    got.map_err(|fault| format!("{op:?}: {fault:?}"))?,
                )
            }
        }
    }

    fn check_answer(
        &mut self,
        op: &LedgerOp,
        want: LedgerAnswer,
        (got, sells_out_in): (LedgerAnswer, Option<u64>),
    ) -> Result<Option<LedgerAnswer>, String> {
        if let (LedgerAnswer::Granted(mine), LedgerAnswer::Granted(theirs)) = (want, got) {
            assert_eq!(mine.reservation.0, self.made.len() as u64 + 1);
            self.made.push((op.sku(), theirs.reservation));
            let state = self.ledger.sku(op.sku()).unwrap();
            let sells_out = state.sold_out.then_some(state.epoch);
            if sells_out_in != sells_out {
                return Err(format!("{op:?}: {sells_out_in:?}, not {sells_out:?}"));
            }
        }
        if self.in_memory(op.sku(), got) == Some(want) {
            Ok(Some(want))
        } else {
            Err(format!("{op:?}: {got:?}, not {want:?}"))
        }
    }

    /// An ask with the reservation's number in Redis.
    fn in_redis(&self, mut op: LedgerOp) -> LedgerOp {
        let translate = |target: &mut ReservationRef| {
            let known = (target.reservation.0 as usize).checked_sub(1);
            let known = known.and_then(|at| self.made.get(at));
            let above = self.steps_of(target.sku).plan().ids_above;
            let count = self.made.iter().filter(|(sku, _)| *sku == target.sku);
            target.reservation = match (known, target.reservation.0) {
                (Some((_, theirs)), _) => *theirs,
                (None, 0) => ReservationId(0),
                (None, _) => ReservationId(above + count.count() as u64 + 1),
            };
        };
        match &mut op {
            LedgerOp::Confirm(target) | LedgerOp::Settle(target) | LedgerOp::PaidLate(target) => {
                translate(target);
            }
            LedgerOp::Release(release) => translate(&mut release.target),
            _ => {}
        }
        op
    }

    /// Redis' answer with the reservation's number in the ledger; `None`: a reservation that the ledger does not have.
    fn in_memory(&self, sku: SkuKey, answer: LedgerAnswer) -> Option<LedgerAnswer> {
        let translate = |held: Held| {
            let known = self
                .made
                .iter()
                .position(|made| *made == (sku, held.reservation))?;
            Some(Held {
                reservation: ReservationId(known as u64 + 1),
                ..held
            })
        };
        Some(match answer {
            LedgerAnswer::Granted(held) => LedgerAnswer::Granted(translate(held)?),
            LedgerAnswer::Repeated(held) => LedgerAnswer::Repeated(translate(held)?),
            LedgerAnswer::AlreadyHolds(held) => LedgerAnswer::AlreadyHolds(translate(held)?),
            LedgerAnswer::Found(held) => LedgerAnswer::Found(translate(held)?),
            LedgerAnswer::Now(held) => LedgerAnswer::Now(translate(held)?),
            LedgerAnswer::StepRefused(held) => LedgerAnswer::StepRefused(translate(held)?),
            other => other,
        })
    }

    /// Appends a snapshot of each SKU, with every winner in one page.
    pub fn push_snapshots(&self, out: &mut Vec<u8>) {
        for steps in &self.steps {
            steps.push_snapshot(0, 1024, out);
        }
    }

    /// Holds a snapshot of SKU `number` against the ledger; what differs, in words.
    pub fn check_snapshot(&self, number: u64, value: &Value<'_>) -> Result<(), String> {
        let key = self.steps[number as usize - 1].plan().sku;
        let page = reply::page(key, value).map_err(|fault| format!("{key:?}: {fault:?}"))?;
        let state = page.as_ref().map(|page| page.state);
        if state != self.ledger.sku(key) {
            return Err(format!("{state:?}, not {:?}", self.ledger.sku(key)));
        }
        let Some(page) = page else {
            return Ok(());
        };
        let users: Result<BTreeSet<u64>, _> =
            page.winners.map(|user| user.map(|user| user.0)).collect();
        let wanted: BTreeSet<u64> = self.ledger.users_of(key).map(|user| user.0).collect();
        if page.cursor == 0 && users != Ok(wanted) {
            return Err(format!("the winners of {key:?} are others"));
        }
        Ok(())
    }

    /// What Redis should hold of SKU `number`: of each reservation its record without the times; and who is unconfirmed.
    pub fn records(&self, number: u64) -> Vec<(String, String, bool)> {
        let steps = &self.steps[number as usize - 1];
        let (key, above) = (steps.plan().sku, steps.plan().ids_above);
        let mine = self.ledger.reservations().zip(&self.made);
        mine.filter(|(_, (sku, _))| *sku == key)
            .map(|(reservation, (_, theirs))| {
                let message = &reservation.message;
                let record = format!(
                    "{} {} {} {} CNY {}",
                    reservation.state as u8,
                    message.quantity,
                    message.user.0,
                    message.unit_price.minor,
                    message.request_id
                );
                let is_pending = reservation.state == ReservationState::Reserved;
                ((theirs.0 - above).to_string(), record, is_pending)
            })
            .collect()
    }

    pub fn key(&self, number: u64, name: &str) -> String {
        self.steps[number as usize - 1].key(name)
    }

    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    fn random_op(&mut self) -> LedgerOp {
        let activity = ActivityId(self.seed + 1);
        let rng = &mut self.rng;
        let key = SkuKey {
            activity,
            sku: SkuId(1 + rng.below(20) / 9), // mostly 1 and 2, seldom 3
        };
        let user = UserId(1 + rng.below(25));
        let request_id = text(&format!("request:{}", rng.below(4)));
        let number = rng.below(self.made.len() as u64 + 2);
        let of_number = self.made.get((number as usize).wrapping_sub(1));
        let target = ReservationRef {
            sku: of_number
                .map(|(sku, _)| *sku)
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
                    text(&format!("n-{}-request:{}", 1 + rng.below(25), rng.below(4)))
                } else {
                    text(&format!("n-{}-{request_id}", user.0))
                },
                nonce_until: WallMs(0),
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
}

/// Reads one reply.
pub type Told<'a> = &'a mut dyn FnMut(&Value<'_>);

fn operators_op(rng: &mut Rng, key: SkuKey) -> LedgerOp {
    let target = OpsRef {
        sku: key,
        request_id: text(&format!("operator-{}", rng.below(40))),
    };
    let huge = rng.chance(1, 60).then(|| UNITS_MAX - 20 + rng.below(40));
    match rng.below(8) {
        0 => LedgerOp::Close(target),
        1 => LedgerOp::SetMode(SetMode {
            target,
            mode: [Mode::Normal, Mode::Degraded, Mode::QueueOnly, Mode::Closed]
                [rng.below(4) as usize],
        }),
        2 | 3 => LedgerOp::Restock(Restock {
            target,
            units: huge.unwrap_or(rng.below(4)),
        }),
        _ => LedgerOp::Open(Open {
            target,
            stock: huge.unwrap_or(rng.below(12)),
            quantity_max: 1 + rng.below(3) as u32,
            once_per_activity: rng.chance(1, 4),
        }),
    }
}
