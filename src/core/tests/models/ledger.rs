//! The ledger: two users, two requests each, one unit or two; reserve, lookup, confirm, settle, release, late payment,
//! restock, reopening, each at any time and any number of times. A state is the ledger's own snapshot.

use stateright::{Model, Property};
use weir_core::ask::*;
use weir_core::ledger::codec::Journal;
use weir_core::ledger::{Ledger, LedgerConfig, SkuPlan};
use weir_core::order::contract::Money;
use weir_core::time::WallMs;
use weir_proto::ids::*;
use weir_proto::text::Text;

const SKU: SkuKey = SkuKey {
    activity: ActivityId(1),
    sku: SkuId(1),
};
const USERS: u8 = 2;
const REQUESTS: u8 = 2;
const RESERVATIONS_MAX: u64 = 2;
const AT: WallMs = WallMs(1);

/// The model; with `soft_no` a status query says "no" without writing it down, which it must not.
#[derive(Clone, Copy, Debug)]
pub struct Steps {
    pub soft_no: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    snapshot: Vec<u8>,
    /// Requests that were told NOT_ACCEPTED, by bit.
    refused: u8,
    /// What the last step broke.
    wrong: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Reserve { user: u8, request: u8 },
    Lookup { user: u8, request: u8 },
    Confirm(u64),
    Settle(u64),
    Release(u64, ReleaseEnd),
    PaidLate(u64),
    Restock,
    Reopen,
}

fn config() -> LedgerConfig {
    LedgerConfig {
        plans: vec![SkuPlan {
            sku: SKU,
            reservations_max: 8,
            unit_price: Money {
                minor: 1,
                currency: *b"CNY",
            },
        }],
        tombstones_max: 8,
        seed: 1,
    }
}

fn text<const N: usize>(text: &str) -> Text<N> {
    Text::new(text.as_bytes()).unwrap()
}

fn name(user: u8, request: u8) -> (UserId, RequestId) {
    (
        UserId(u64::from(user) + 1),
        text(&format!("request-{user}-{request}")),
    )
}

fn bit(user: u8, request: u8) -> u8 {
    1 << (user * REQUESTS + request)
}

impl World {
    fn of(ledger: &Ledger) -> Vec<u8> {
        let mut snapshot = Vec::new();
        ledger.snapshot_into(&mut snapshot);
        snapshot
    }

    fn ledger(&self) -> Ledger {
        Ledger::restore(config(), &self.snapshot).expect("our own snapshot can be read")
    }
}

impl Steps {
    fn op(self, step: Step) -> Option<LedgerOp> {
        let target = |reservation| ReservationRef {
            sku: SKU,
            reservation: ReservationId(reservation),
        };
        Some(match step {
            Step::Reserve { user, request } => {
                let (who, request_id) = name(user, request);
                LedgerOp::Reserve(Reserve {
                    sku: SKU,
                    user: who,
                    request_id,
                    nonce: text(&format!("nonce-{user}-{request}")),
                    nonce_until: AT,
                    quantity: 1,
                })
            }
            Step::Lookup { user, request } => {
                let (who, request_id) = name(user, request);
                LedgerOp::Lookup(Lookup {
                    sku: SKU,
                    user: who,
                    request_id,
                    tombstone: !self.soft_no,
                })
            }
            Step::Confirm(id) => LedgerOp::Confirm(target(id)),
            Step::Settle(id) => LedgerOp::Settle(target(id)),
            Step::Release(id, end) => LedgerOp::Release(Release {
                target: target(id),
                end,
            }),
            Step::PaidLate(id) => LedgerOp::PaidLate(target(id)),
            Step::Restock => LedgerOp::Restock(Restock {
                target: OpsRef {
                    sku: SKU,
                    request_id: text("operator-2"),
                },
                units: 1,
            }),
            Step::Reopen => return None,
        })
    }
}

/// What one step may not do, seen from outside.
fn misdeed(
    step: Step,
    answer: Option<LedgerAnswer>,
    before: &SkuState,
    after: &SkuState,
) -> Option<&'static str> {
    if after.epoch < before.epoch || after.epoch > before.epoch + 1 {
        return Some("an epoch moves by one step at most, forward");
    }
    if after.sold_out != before.sold_out && after.epoch == before.epoch {
        return Some("sold out and open again have epochs of their own");
    }
    if before.sold_out && !after.sold_out && step != Step::Reopen {
        return Some("only the reopening reopens");
    }
    match (step, answer) {
        (Step::Reserve { .. }, Some(LedgerAnswer::Granted(_))) if before.sold_out => {
            Some("nothing is granted while sold out")
        }
        (Step::Restock, Some(LedgerAnswer::OpsDone(books))) if books.total > 2 => {
            Some("a repeated restock adds nothing")
        }
        _ => None,
    }
}

use weir_core::ledger::SkuState;

impl Model for Steps {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        let mut ledger = Ledger::new(config());
        let open = LedgerOp::Open(Open {
            target: OpsRef {
                sku: SKU,
                request_id: text("operator-1"),
            },
            stock: 1,
            quantity_max: 1,
            once_per_activity: false,
        });
        ledger.apply(AT, &open, &mut Journal::new(Vec::new()));
        vec![World {
            snapshot: World::of(&ledger),
            refused: 0,
            wrong: None,
        }]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        let next = world.ledger().next_reservation().0;
        for user in 0..USERS {
            for request in 0..REQUESTS {
                if next <= RESERVATIONS_MAX {
                    steps.push(Step::Reserve { user, request });
                }
                steps.push(Step::Lookup { user, request });
            }
        }
        for id in 1..next {
            steps.extend([
                Step::Confirm(id),
                Step::Settle(id),
                Step::Release(id, ReleaseEnd::Closed),
                Step::Release(id, ReleaseEnd::Failed),
                Step::PaidLate(id),
            ]);
        }
        steps.extend([Step::Restock, Step::Reopen]);
    }

    fn next_state(&self, before: &World, step: Step) -> Option<World> {
        let mut ledger = before.ledger();
        let sku_before = ledger.sku(SKU).unwrap();
        let mut journal = Journal::new(Vec::new());
        let answer = match self.op(step) {
            Some(op) => Some(ledger.apply(AT, &op, &mut journal)),
            None => {
                ledger.reopen(AT, &mut journal);
                None
            }
        };
        let mut refused = before.refused;
        if let (Step::Lookup { user, request }, Some(LedgerAnswer::NotFound)) = (step, answer) {
            refused |= bit(user, request);
        }
        let wrong = misdeed(step, answer, &sku_before, &ledger.sku(SKU).unwrap());
        let after = World {
            snapshot: World::of(&ledger),
            refused,
            wrong,
        };
        (after != *before).then_some(after)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::<Self>::always("the books balance", |_, world| {
                let ledger = world.ledger();
                let books = ledger.sku(SKU).unwrap().books;
                ledger.check().is_ok() && books.sold + books.held <= books.total
            }),
            Property::<Self>::always("a user holds one unit at most", |_, world| {
                let ledger = world.ledger();
                let live = ledger.reservations().filter(|found| found.state.is_live());
                let mut users: Vec<_> = live.map(|found| found.message.user).collect();
                let count = users.len();
                users.sort();
                users.dedup();
                users.len() == count
            }),
            Property::<Self>::always("no grant follows a no", |_, world| {
                let ledger = world.ledger();
                let granted = |user, request| {
                    let (who, request_id) = name(user, request);
                    ledger.reservations().any(|found| {
                        (found.message.user, found.message.request_id) == (who, request_id)
                    })
                };
                (0..USERS).all(|user| {
                    (0..REQUESTS).all(|request| {
                        world.refused & bit(user, request) == 0 || !granted(user, request)
                    })
                })
            }),
            Property::<Self>::always("each step keeps to its rules", |_, world| {
                world.wrong.is_none()
            }),
            Property::<Self>::sometimes("a late payment buys a free unit", |_, world| {
                let ledger = world.ledger();
                let settled = ledger
                    .reservations()
                    .filter(|found| found.state == ReservationState::Settled);
                settled.count() == 2
            }),
        ]
    }
}
