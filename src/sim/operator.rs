//! The operator of the sale: closes, opens, pauses and restocks, each under a request id, repeated until it is done.

use super::plan::Plan;
use std::fmt::Write;
use weir_core::ask::{
    Ask, AskId, LedgerAnswer, LedgerOp, Mode, Open, OpsRef, Outcome, Release, Restock, SetMode,
};
use weir_core::mail::{Addr, Mail};
use weir_core::port::{Effects, Event, Handler};
use weir_core::rng::Rng;
use weir_core::time::{Mono, NS_PER_MS, Now};
use weir_proto::ids::{RequestId, ReservationId, SkuKey};

/// Without an answer for so long the same wish is sent again.
const REPEAT_MS: u64 = 400;

/// One thing to be done.
#[derive(Debug)]
struct Wish {
    at: Mono,
    op: LedgerOp,
    ask: Option<AskId>,
    done: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Operator {
    wishes: Vec<Wish>,
    next_ask: u64,
}

impl Operator {
    pub fn new(plan: &Plan, rng: &mut Rng) -> Self {
        let mut wishes = Vec::new();
        for at in 0..plan.skus_count() {
            let sku = plan.sku_key(at);
            for step in 0..rng.below(4) {
                let at = Mono((200 + rng.below(plan.load_ms)) * NS_PER_MS);
                draw_step(plan, sku, step, at, rng, &mut wishes);
            }
        }
        wishes.sort_by_key(|wish| wish.at);
        Self {
            wishes,
            next_ask: 1,
        }
    }

    /// From now on this release is wanted, by mistake.
    pub fn release(&mut self, now: Mono, release: Release) {
        self.wishes.push(Wish {
            at: now,
            op: LedgerOp::Release(release),
            ask: None,
            done: false,
        });
    }

    /// True when a release of it was wanted by mistake.
    pub fn released(&self, reservation: ReservationId) -> bool {
        let is_it = |wish: &Wish| matches!(&wish.op, LedgerOp::Release(release) if release.target.reservation == reservation);
        self.wishes.iter().any(is_it)
    }

    /// Units of `sku` that were asked to be added.
    pub fn restocked(&self, sku: SkuKey) -> u64 {
        let units = self.wishes.iter().map(|wish| match wish.op {
            LedgerOp::Restock(restock) if wish.done && restock.target.sku == sku => restock.units,
            _ => 0,
        });
        units.sum()
    }

    /// True when every wish is carried out.
    pub fn is_done(&self) -> bool {
        self.wishes.iter().all(|wish| wish.done)
    }

    fn answered(&mut self, id: AskId, outcome: Outcome) {
        let asked = |wish: &&mut Wish| wish.ask == Some(id);
        let Some(wish) = self.wishes.iter_mut().find(asked) else {
            return; // an answer that came twice
        };
        match outcome {
            Outcome::Done(LedgerAnswer::OpsDone(_)) => wish.done = true,
            // Whatever it came to: the release was a mistake.
            Outcome::Done(_) if matches!(wish.op, LedgerOp::Release(_)) => wish.done = true,
            // Everything else is tried again, with the same request id, when its time comes.
            Outcome::Done(_) | Outcome::Failed(_) | Outcome::Unknown => {}
        }
    }
}

fn draw_step(plan: &Plan, sku: SkuKey, step: u64, at: Mono, rng: &mut Rng, wishes: &mut Vec<Wish>) {
    let mut wish = |at: Mono, name: &str, make: &dyn Fn(OpsRef) -> LedgerOp| {
        let mut text = String::new();
        let _ = write!(text, "ops-{}-{}-{step}-{name}", sku.activity, sku.sku);
        let request_id = RequestId::new(text.as_bytes()).expect("a short visible name");
        wishes.push(Wish {
            at,
            op: make(OpsRef { sku, request_id }),
            ask: None,
            done: false,
        });
    };
    let later = at.plus_ms(50 + rng.below(600));
    let mode = [Mode::Degraded, Mode::QueueOnly, Mode::Closed][rng.below(3) as usize];
    let units = 1 + rng.below(10);
    let policy = plan.sale.sku(sku).map(|(_, sku)| sku);
    match rng.below(4) {
        0 => {
            wish(at, "close", &LedgerOp::Close);
            let Some(policy) = policy else { return };
            wish(later, "open", &|target| {
                LedgerOp::Open(Open {
                    target,
                    stock: policy.first_stock,
                    quantity_max: policy.quantity_max,
                    once_per_activity: policy.once_per_activity,
                })
            });
        }
        1 => {
            wish(at, "mode", &|target| {
                LedgerOp::SetMode(SetMode { target, mode })
            });
            let mode = Mode::Normal;
            wish(later, "normal", &|target| {
                LedgerOp::SetMode(SetMode { target, mode })
            });
        }
        _ => wish(at, "restock", &|target| {
            LedgerOp::Restock(Restock { target, units })
        }),
    }
}

impl Handler for Operator {
    fn on_start(&mut self, _now: Now, _fx: &mut Effects) {}

    fn on_event(&mut self, now: Now, event: Event<'_>, fx: &mut Effects) {
        match event {
            Event::Mail(Mail::Answer(answer)) => self.answered(answer.id, answer.outcome),
            Event::Tick => {
                for wish in &mut self.wishes {
                    if wish.done || wish.at > now.mono {
                        continue;
                    }
                    wish.at = now.mono.plus_ms(REPEAT_MS);
                    let id = AskId(self.next_ask);
                    self.next_ask += 1;
                    wish.ask = Some(id);
                    fx.post(
                        Addr::Owner,
                        Mail::Ask(Ask {
                            from: Addr::Ops,
                            id,
                            deadline: wish.at,
                            op: wish.op,
                        }),
                    );
                }
            }
            _ => {}
        }
    }

    fn on_flush(&mut self, _now: Now, _fx: &mut Effects) {}

    fn next_deadline(&self) -> Option<Mono> {
        let open = self.wishes.iter().filter(|wish| !wish.done);
        open.map(|wish| wish.at).min()
    }
}
