//! Ledger, journal, worker and order store together, with real files: sales, payments, closes, a restock, restarts.
//! At the end the two files agree row by row.
#![allow(clippy::unwrap_used, clippy::result_large_err)] // helpers of tests; the seam gives mail back whole

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use weir::orders::facts::LedgerFacts;
use weir::orders::reconcile::reconcile;
use weir::orders::schema;
use weir::orders::store::OrderStore;
use weir::store::{LedgerStore, StoreConfig};
use weir_core::ask::{
    Ask, AskId, LedgerAnswer, LedgerOp, OpsRef, Outcome, ReservationState, Reserve, Restock,
};
use weir_core::ledger::owner::{Owner, OwnerConfig};
use weir_core::limit::gcra::Rate;
use weir_core::limit::lease::ShardId;
use weir_core::mail::{Addr, Mail};
use weir_core::order::contract::{Money, PaymentAsk, PaymentId, PaymentResult};
use weir_core::order::worker::Worker;
use weir_core::port::{Effects, Event, Handler};
use weir_core::rng::Rng;
use weir_core::sale::{Activity, Sale, Sku};
use weir_core::time::{Mono, Now, WallMs};
use weir_proto::ids::{ActivityId, Nonce, PathId, RequestId, ReservationId, SkuId, SkuKey, UserId};

const SKU: SkuKey = SkuKey {
    activity: ActivityId(1),
    sku: SkuId(1),
};
const PRICE: Money = Money {
    minor: 900,
    currency: *b"CNY",
};
const STOCK: u64 = 40;
const RESTOCKED: u64 = 25;
const UNPAID_MS: u64 = 4_000;

fn sale() -> Arc<Sale> {
    let sku = Sku {
        id: SKU.sku,
        first_stock: STOCK,
        quantity_max: 1,
        once_per_activity: false,
        unit_price: PRICE,
        unpaid_timeout_ms: UNPAID_MS,
        budget: Rate::per_second(1_000),
        sold_out_ttl_ms: 2_000,
    };
    Arc::new(Sale {
        activities: vec![Activity {
            id: SKU.activity,
            version: 1,
            path_id: PathId::new(b"path").unwrap(),
            opens_at: WallMs(0),
            closes_at: WallMs(u64::MAX),
            retention_ms: 0,
            device_salt: [0; 32],
            skus: vec![sku],
        }],
    })
}

struct Parts {
    owner: Owner,
    journal: LedgerStore,
    worker: Worker,
    orders: OrderStore,
}

struct World {
    dir: PathBuf,
    sale: Arc<Sale>,
    parts: Option<Parts>,
    runs: u32,
    now: Now,
    mail: VecDeque<(Addr, Mail)>,
    asks: u64,
    /// What the shard was told: grants by ask, payments by reservation.
    granted: BTreeMap<AskId, ReservationId>,
    paying: BTreeMap<AskId, ReservationId>,
    paid: BTreeMap<ReservationId, PaymentResult>,
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let dir = std::env::temp_dir().join(format!("weir-stack-{seed}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        let mut world = Self {
            dir,
            sale: sale(),
            parts: None,
            runs: 0,
            now: Now {
                mono: Mono(1),
                wall: WallMs(1_000_000),
            },
            mail: VecDeque::new(),
            asks: 0,
            granted: BTreeMap::new(),
            paying: BTreeMap::new(),
            paid: BTreeMap::new(),
        };
        world.start();
        world
    }

    /// Ends every part where it stands, with its mail, and starts again from the files.
    fn start(&mut self) {
        self.parts = None;
        self.mail.clear();
        self.runs += 1;
        let owner = Owner::new(OwnerConfig {
            sale: Arc::clone(&self.sale),
            shards_count: 1,
            seed: 1,
        });
        self.parts = Some(Parts {
            owner,
            journal: LedgerStore::open(&StoreConfig::new(&self.dir)).unwrap(),
            worker: Worker::new(Arc::clone(&self.sale), self.runs),
            orders: OrderStore::open(&self.dir.join("orders.sqlite")).unwrap(),
        });
        for part in [Addr::Store, Addr::OrderStore, Addr::Owner, Addr::Worker] {
            self.turn(part, None);
        }
        self.run_for(300);
    }

    fn turn(&mut self, part: Addr, event: Option<Event<'_>>) {
        let parts = self.parts.as_mut().unwrap();
        let handler: &mut dyn Handler = match part {
            Addr::Owner => &mut parts.owner,
            Addr::Store => &mut parts.journal,
            Addr::Worker => &mut parts.worker,
            _ => &mut parts.orders,
        };
        let mut fx = Effects::new(0);
        match event {
            Some(event) => handler.on_event(self.now, event, &mut fx),
            None => handler.on_start(self.now, &mut fx),
        }
        handler.on_flush(self.now, &mut fx);
        fx.deliver_posts(|to, mail| {
            self.mail.push_back((to, mail));
            Ok(())
        });
    }

    /// Delivers at most `mails` mails of those that wait; true when none is left.
    fn deliver(&mut self, mails: usize) -> bool {
        for _ in 0..mails {
            let Some((to, mail)) = self.mail.pop_front() else {
                return true;
            };
            match (to, mail) {
                (Addr::Shard(_), Mail::Answer(answer)) => self.answered(answer.id, answer.outcome),
                (Addr::Shard(_), Mail::PaymentAnswer(answer)) => {
                    let reservation = self.paying[&answer.id];
                    self.paid.insert(reservation, answer.result);
                }
                (Addr::Shard(_), _) => {}
                (part, mail) => self.turn(part, Some(Event::Mail(mail))),
            }
        }
        self.mail.is_empty()
    }

    fn answered(&mut self, id: AskId, outcome: Outcome) {
        if let Outcome::Done(LedgerAnswer::Granted(held)) = outcome {
            let before = self.granted.insert(id, held.reservation);
            assert_eq!(before, None);
        }
    }

    fn run_for(&mut self, ms: u64) {
        for _ in 0..ms.div_ceil(50) {
            while !self.deliver(usize::MAX) {}
            self.now.mono = self.now.mono.plus_ms(50);
            self.now.wall = self.now.wall.plus_ms(50);
            for part in [Addr::Store, Addr::OrderStore, Addr::Owner, Addr::Worker] {
                self.turn(part, Some(Event::Tick));
            }
        }
        while !self.deliver(usize::MAX) {}
    }

    fn ask(&mut self, op: LedgerOp) {
        self.asks += 1;
        let ask = Ask {
            from: Addr::Shard(ShardId(0)),
            id: AskId(self.asks),
            deadline: self.now.mono.plus_ms(1_000),
            op,
        };
        self.mail.push_back((Addr::Owner, Mail::Ask(ask)));
    }

    fn buy(&mut self, user: u64) {
        let name = format!("request-{}", self.asks);
        self.ask(LedgerOp::Reserve(Reserve {
            sku: SKU,
            user: UserId(user),
            request_id: RequestId::new(name.as_bytes()).unwrap(),
            nonce: Nonce::new(name.as_bytes()).unwrap(),
            nonce_until: WallMs(u64::MAX >> 1),
            quantity: 1,
        }));
    }

    fn pay(&mut self, reservation: ReservationId) {
        self.asks += 1;
        let id = AskId(self.asks);
        self.paying.insert(id, reservation);
        let payment = format!("pay-{reservation}");
        let ask = PaymentAsk {
            from: Addr::Shard(ShardId(0)),
            id,
            payment: PaymentId::new(payment.as_bytes()).unwrap(),
            reservation,
            sku: SKU,
            amount: PRICE,
            paid_at: self.now.wall,
        };
        self.mail
            .push_back((Addr::Worker, Mail::PaymentAsk(Box::new(ask))));
    }
}

#[test]
fn orders_and_ledger_agree_after_sales_payments_closes_a_restock_and_restarts() {
    let (mut late, mut resumed) = (0, 0);
    for seed in 0..3 {
        let mut world = World::new(seed);
        let mut rng = Rng::new(seed);
        for round in 0..60 {
            for _ in 0..rng.below(4) {
                world.buy(1 + rng.below(200));
            }
            let granted: Vec<ReservationId> = world.granted.values().copied().collect();
            if !granted.is_empty() && rng.chance(2, 3) {
                let reservation = granted[rng.below(granted.len() as u64) as usize];
                world.pay(reservation);
            }
            if round == 30 {
                world.ask(LedgerOp::Restock(Restock {
                    target: OpsRef {
                        sku: SKU,
                        request_id: RequestId::new(b"restock-1").unwrap(),
                    },
                    units: RESTOCKED,
                }));
            }
            if round != 30 && rng.chance(1, 6) {
                // Stops in the middle of what is under way.
                world.deliver(rng.below(30) as usize);
                resumed += usize::from(!world.mail.is_empty());
                world.start();
            } else {
                world.run_for(rng.below(800));
            }
        }
        world.run_for(4 * UNPAID_MS);
        late += world
            .paid
            .values()
            .filter(|result| **result == PaymentResult::Late)
            .count();
        world.parts = None;
        let facts = LedgerFacts::read(&world.dir, &world.sale).unwrap();
        let orders = schema::open_to_read(&world.dir.join("orders.sqlite")).unwrap();
        let report = reconcile(&facts, &orders).unwrap();
        assert!(report.balanced, "seed {seed}: {report}");
        assert_eq!((report.in_outbox, report.steps_open), (0, 0), "seed {seed}");
        let sku = &report.skus[0];
        assert_eq!(sku.total, STOCK + RESTOCKED);
        assert_eq!((sku.held, sku.orders_created), (0, 0), "unpaid ones closed");
        assert_eq!(sku.sold, sku.orders_paid);
        for reservation in world.granted.values() {
            let (_, state) = facts.reservations[reservation];
            assert_ne!(state, ReservationState::Reserved, "no grant is forgotten");
            if world.paid.get(reservation) == Some(&PaymentResult::Paid) {
                assert_eq!(state, ReservationState::Settled, "seed {seed}");
            }
        }
        assert!(sku.sold > 5, "seed {seed}: {report}");
    }
    assert!(late > 0 && resumed > 5, "{late} late, {resumed} resumed");
}
