//! The owner's stories: answers follow commits, nothing acknowledged is lost at any crash, one fault ends the grants.
#![allow(clippy::unwrap_used)] // a test that meets one has failed
#![allow(clippy::result_large_err)] // a full mailbox gives the mail back by value

use std::collections::HashMap;
use std::sync::Arc;
use weir_core::ask::*;
use weir_core::journal::*;
use weir_core::ledger::owner::{Owner, OwnerConfig, OwnerFault};
use weir_core::limit::gcra::Rate;
use weir_core::limit::lease::{LeaseDraw, ShardId};
use weir_core::limits::*;
use weir_core::mail::{Addr, Mail};
use weir_core::order::contract::{Money, OrderMessage};
use weir_core::port::{Effects, Event, Handler};
use weir_core::rng::Rng;
use weir_core::sale::*;
use weir_core::time::{Mono, Now, WallMs};
use weir_core::view::SkuView;
use weir_proto::ids::*;
use weir_proto::text::Text;

const SKU: SkuKey = SkuKey {
    activity: ActivityId(1),
    sku: SkuId(10),
};

fn text<const N: usize>(text: &str) -> Text<N> {
    Text::new(text.as_bytes()).unwrap()
}

fn sale(stock: u64) -> Arc<Sale> {
    Arc::new(Sale {
        activities: vec![Activity {
            id: SKU.activity,
            version: 1,
            path_id: text("path"),
            opens_at: WallMs(0),
            closes_at: WallMs(u64::MAX),
            retention_ms: 0,
            device_salt: [0; 32],
            skus: vec![Sku {
                id: SKU.sku,
                first_stock: stock,
                quantity_max: 2,
                once_per_activity: false,
                unit_price: Money {
                    minor: 100,
                    currency: *b"CNY",
                },
                unpaid_timeout_ms: 60_000,
                budget: Rate {
                    tokens: 1000,
                    per_ns: 1_000_000_000,
                },
                sold_out_ttl_ms: 3_000,
            }],
        }],
    })
}

/// A store that keeps what was synced and holds what was not.
#[derive(Default)]
struct Disk {
    image: Image,
    unsynced: Option<Batch>,
}

impl Disk {
    fn append(&mut self, batch: Batch) {
        assert!(self.unsynced.is_none(), "one batch in flight at a time");
        assert!(batch.bytes.len() <= BATCH_BYTES_MAX);
        self.unsynced = Some(batch);
    }

    fn sync(&mut self) -> Option<BatchResult> {
        let batch = self.unsynced.take()?;
        let result = BatchResult {
            seq: batch.seq,
            result: Ok(()),
            buffer: batch.bytes.clone(),
        };
        if let Some(snapshot) = &batch.snapshot {
            self.image.snapshot = Some((batch.seq, snapshot.clone()));
            self.image.batches.clear();
        } else {
            self.image.batches.push(batch);
        }
        Some(result)
    }
}

/// What the owner sent, in order.
#[derive(Default)]
struct Sent {
    answers: HashMap<u64, Outcome>,
    views: Vec<SkuView>,
    orders: Vec<OrderMessage>,
    /// Totals told to the worker, each with how many orders went before it.
    totals: Vec<(u64, usize)>,
    log: Vec<&'static str>,
    grants: Vec<u32>,
    stats: Option<Box<weir_core::stats::Stats>>,
}

struct Bench {
    owner: Owner,
    fx: Effects,
    disk: Disk,
    sent: Sent,
    now: Now,
    asks: u64,
    sale: Arc<Sale>,
}

impl Bench {
    /// Started, and asked for its image, but without an answer from the store yet.
    fn starting(sale: Arc<Sale>, mut image: Image) -> Self {
        image.boot_epoch += 1;
        let owner = Owner::new(OwnerConfig {
            sale: Arc::clone(&sale),
            shards_count: 1,
            seed: 3,
        });
        let mut bench = Self {
            owner,
            fx: Effects::new(0),
            disk: Disk {
                image,
                unsynced: None,
            },
            sent: Sent::default(),
            now: Now {
                mono: Mono(1_000_000),
                wall: WallMs(1_000),
            },
            asks: 0,
            sale,
        };
        bench.owner.on_start(bench.now, &mut bench.fx);
        bench.deliver();
        assert_eq!(bench.sent.log, ["recover"]);
        bench
    }

    fn started(sale: Arc<Sale>, image: Image) -> Self {
        let mut bench = Self::starting(sale, image);
        bench.recover();
        bench.sync();
        bench
    }

    fn new(stock: u64) -> Self {
        Self::started(sale(stock), Image::default())
    }

    fn recover(&mut self) {
        let image = self.disk.image.clone();
        self.turn(vec![Mail::Recovered(Box::new(image))]);
    }

    /// The process dies; what was not synced is lost or kept, as a disk may do.
    fn crash(self, keeps_unsynced: bool) -> Self {
        let mut disk = self.disk;
        if keeps_unsynced {
            disk.sync();
        }
        Self::started(self.sale, disk.image)
    }

    fn deliver(&mut self) {
        let (disk, sent) = (&mut self.disk, &mut self.sent);
        self.fx.deliver_posts(|to, mail| {
            match mail {
                Mail::Append(batch) => {
                    sent.log.push("append");
                    disk.append(*batch);
                }
                Mail::RecoverAsk => sent.log.push("recover"),
                Mail::Answer(answer) => {
                    sent.log.push("answer");
                    let before = sent.answers.insert(answer.id.0, answer.outcome);
                    assert!(before.is_none(), "an ask is answered once");
                }
                Mail::View(view) => {
                    assert_eq!(to, Addr::Shard(ShardId(0)));
                    sent.log.push("view");
                    sent.views.push(view);
                }
                Mail::Reserved(orders) => {
                    assert_eq!(to, Addr::Worker);
                    sent.log.push("orders");
                    sent.orders.extend(orders);
                }
                Mail::StockTotal(total) => {
                    assert_eq!(to, Addr::Worker);
                    sent.totals.push((total.total, sent.orders.len()));
                }
                Mail::LeaseGrant(grant) => sent.grants.push(grant.tokens),
                Mail::Stats(stats) => sent.stats = Some(stats),
                other => panic!("unexpected mail {other:?}"),
            }
            Ok(())
        });
    }

    fn turn(&mut self, mail: Vec<Mail>) {
        for mail in mail {
            self.owner
                .on_event(self.now, Event::Mail(mail), &mut self.fx);
        }
        self.owner.on_flush(self.now, &mut self.fx);
        self.deliver();
    }

    fn ask(&mut self, op: LedgerOp) -> Mail {
        self.asks += 1;
        Mail::Ask(Ask {
            from: Addr::Shard(ShardId(0)),
            id: AskId(self.asks),
            deadline: self.now.mono.plus_ms(100),
            op,
        })
    }

    fn reserve(&mut self, user: u64) -> Mail {
        self.ask(LedgerOp::Reserve(Reserve {
            sku: SKU,
            user: UserId(user),
            request_id: text(&format!("request-{user}")),
            nonce: text(&format!("nonce-{user}")),
            nonce_until: WallMs(1_000_000),
            quantity: 1,
        }))
    }

    fn buy(&mut self, users: impl IntoIterator<Item = u64>) -> Vec<u64> {
        let mut ids = Vec::new();
        let mut mail = Vec::new();
        for user in users {
            mail.push(self.reserve(user));
            ids.push(self.asks);
        }
        self.turn(mail);
        ids
    }

    fn release(&mut self, id: u64) -> Mail {
        self.ask(LedgerOp::Release(Release {
            target: target(id),
            end: ReleaseEnd::Closed,
        }))
    }

    /// Lets the store sync until nothing is in flight.
    fn sync(&mut self) {
        while let Some(result) = self.disk.sync() {
            self.turn(vec![Mail::Appended(Box::new(result))]);
        }
    }

    fn fail(&mut self, fault: StoreFault) {
        let batch = self.disk.unsynced.take().unwrap();
        let result = BatchResult {
            seq: batch.seq,
            result: Err(fault),
            buffer: batch.bytes,
        };
        self.turn(vec![Mail::Appended(Box::new(result))]);
    }

    fn wait_ms(&mut self, ms: u64) {
        self.now.mono = self.now.mono.plus_ms(ms);
        self.now.wall = self.now.wall.plus_ms(ms);
        self.owner.on_event(self.now, Event::Tick, &mut self.fx);
        self.owner.on_flush(self.now, &mut self.fx);
        self.deliver();
    }

    fn done(&self, id: u64) -> Option<LedgerAnswer> {
        match self.sent.answers.get(&id) {
            Some(Outcome::Done(answer)) => Some(*answer),
            None => None,
            Some(other) => panic!("ask {id} got {other:?}"),
        }
    }

    fn outcome(&self, id: u64) -> Option<Outcome> {
        self.sent.answers.get(&id).copied()
    }
}

fn target(id: u64) -> ReservationRef {
    ReservationRef {
        sku: SKU,
        reservation: ReservationId(id),
    }
}

#[test]
fn a_fresh_store_puts_the_first_stock_on_sale_and_shows_it_after_the_commit() {
    let mut bench = Bench::starting(sale(5), Image::default());
    let early = bench.buy([1])[0];
    assert_eq!(
        bench.outcome(early),
        Some(Outcome::Failed(Failure::Recovering))
    );
    assert_eq!(bench.owner.next_deadline(), None);
    bench.recover();
    assert!(bench.sent.views.is_empty(), "not committed, not shown");
    bench.sync();
    let view = &bench.sent.views[0];
    assert!(view.open && !view.sold_out && !view.poisoned && view.boot == 1);
    assert_eq!(bench.owner.ledger().sku(SKU).unwrap().books.free, 5);
}

#[test]
fn the_worker_learns_a_restock_after_its_commit_and_before_the_orders_that_use_it() {
    let mut bench = Bench::new(1);
    bench.buy([1]);
    bench.sync();
    assert_eq!(bench.sent.totals, [(1, 0)]);
    let restock = bench.ask(LedgerOp::Restock(Restock {
        target: OpsRef {
            sku: SKU,
            request_id: text("restock-1"),
        },
        units: 2,
    }));
    bench.turn(vec![restock]);
    assert_eq!(bench.sent.totals.len(), 1, "not committed, not told");
    bench.sync();
    assert_eq!(bench.sent.totals[1..], [(3, 1)]);
    bench.turn(vec![Mail::OutboxAsk { lacks: true }]);
    assert_eq!(
        bench.sent.totals[2..],
        [(3, 1)],
        "a new worker is told again"
    );
}

#[test]
fn no_answer_leaves_before_the_commit_that_covers_what_it_read() {
    let mut bench = Bench::new(1);
    let ids = bench.buy([1, 2]);
    assert!(
        ids.iter().all(|&id| bench.done(id).is_none()),
        "granted and sold out both wait"
    );
    let later = bench.buy([3])[0]; // rests on the batch in flight
    bench.sent.log.clear();
    bench.sync();
    assert!(matches!(bench.done(ids[0]), Some(LedgerAnswer::Granted(_))));
    assert_eq!(bench.done(ids[1]), Some(LedgerAnswer::SoldOut { epoch: 2 }));
    assert_eq!(bench.done(later), Some(LedgerAnswer::SoldOut { epoch: 2 }));
    assert_eq!(
        bench.sent.log,
        ["view", "answer", "answer", "orders", "answer"]
    );
    assert!(
        bench
            .sent
            .views
            .last()
            .unwrap()
            .winners
            .may_contain(UserId(1))
    );
    assert_eq!(bench.sent.orders[0].reservation, ReservationId(1));
    // With nothing in flight a refusal needs no commit.
    let refused = bench.buy([4])[0];
    assert_eq!(
        bench.done(refused),
        Some(LedgerAnswer::SoldOut { epoch: 2 })
    );
}

#[test]
fn one_batch_commits_while_the_next_fills() {
    let mut bench = Bench::new(10);
    bench.buy([1]);
    bench.buy([2]);
    bench.buy([3]);
    bench.sent.log.clear();
    let first = bench.disk.sync().unwrap();
    bench.turn(vec![Mail::Appended(Box::new(first.clone()))]);
    assert_eq!(bench.sent.log, ["answer", "orders", "append"]);
    bench.turn(vec![Mail::Appended(Box::new(first))]); // a repeated result means nothing
    assert_eq!(bench.sent.answers.len(), 1);
    bench.sync();
    assert_eq!(bench.sent.answers.len(), 3);
    let seqs: Vec<u64> = bench
        .disk
        .image
        .batches
        .iter()
        .map(|batch| batch.seq)
        .collect();
    assert_eq!(seqs, [1, 2, 3]);
}

#[test]
fn nothing_is_granted_while_the_order_store_is_gone() {
    let mut bench = Bench::new(10);
    let first = bench.buy([1])[0];
    bench.sync();
    assert!(matches!(
        bench.outcome(first),
        Some(Outcome::Done(LedgerAnswer::Granted(_)))
    ));
    bench.turn(vec![Mail::OrdersStopped]);
    assert!(bench.sent.views.last().unwrap().poisoned);
    let refused = bench.buy([2])[0];
    assert_eq!(
        bench.outcome(refused),
        Some(Outcome::Failed(Failure::Poisoned))
    );
    bench.wait_ms(VIEW_REFRESH_MS);
    assert!(
        bench.sent.views.last().unwrap().poisoned,
        "repeated views say it too"
    );
    assert_eq!(bench.owner.fault(), None, "the ledger itself is well");
    // A worker whose store is well asks for the outbox: the sale goes on.
    bench.turn(vec![Mail::OutboxAsk { lacks: true }]);
    assert!(!bench.sent.views.last().unwrap().poisoned);
    let again = bench.buy([2])[0];
    bench.sync();
    assert!(matches!(
        bench.outcome(again),
        Some(Outcome::Done(LedgerAnswer::Granted(_)))
    ));
}

#[test]
fn a_failed_commit_makes_everything_unknown_and_ends_the_grants() {
    let mut bench = Bench::new(10);
    let ids = [bench.buy([1])[0], bench.buy([2])[0]];
    bench.fail(StoreFault::Io);
    assert!(
        ids.iter()
            .all(|&id| bench.outcome(id) == Some(Outcome::Unknown))
    );
    assert!(bench.sent.views.last().unwrap().poisoned);
    assert_eq!(
        bench.owner.fault(),
        Some(&OwnerFault::Store(StoreFault::Io))
    );
    let later = bench.buy([3])[0];
    assert_eq!(
        bench.outcome(later),
        Some(Outcome::Failed(Failure::Poisoned))
    );
    let draws = bench.sent.grants.len();
    bench.turn(vec![Mail::LeaseDraw(draw(1))]);
    assert_eq!(bench.sent.grants.len(), draws, "no budget either");
    bench.wait_ms(VIEW_REFRESH_MS);
    assert!(bench.sent.views.last().unwrap().poisoned);
    assert!(bench.disk.unsynced.is_none(), "nothing is retried");
    // After the restart only what was synced counts.
    let bench = bench.crash(false);
    assert_eq!(bench.owner.ledger().reservations().count(), 0);
}

fn draw(seq: u64) -> LeaseDraw {
    LeaseDraw {
        shard: ShardId(0),
        sku: SKU,
        shard_boot: 1,
        seq,
        want: 100,
        weight: 1,
    }
}

#[test]
fn leases_start_empty_and_are_answered_again_by_the_same_number() {
    let mut bench = Bench::new(10);
    bench.turn(vec![Mail::LeaseDraw(draw(1))]);
    bench.wait_ms(1_000);
    bench.turn(vec![Mail::LeaseDraw(draw(2)), Mail::LeaseDraw(draw(2))]);
    assert_eq!(bench.sent.grants[0], 0);
    assert!(bench.sent.grants[1] > 0);
    assert_eq!(bench.sent.grants[1], bench.sent.grants[2]);
}

#[test]
fn asks_past_their_deadline_are_not_done_but_the_workers_are() {
    let mut bench = Bench::new(10);
    let late = bench.reserve(1);
    let settle = bench.ask(LedgerOp::Settle(target(9)));
    bench.now.mono = bench.now.mono.plus_ms(101);
    bench.turn(vec![late, settle]);
    bench.sync();
    assert_eq!(bench.outcome(1), Some(Outcome::Failed(Failure::Late)));
    assert_eq!(bench.done(2), Some(LedgerAnswer::NoReservation));
    let other = SkuKey {
        sku: SkuId(99),
        ..SKU
    };
    let ask = bench.ask(LedgerOp::Confirm(ReservationRef {
        sku: other,
        reservation: ReservationId(1),
    }));
    bench.turn(vec![ask]);
    assert_eq!(bench.outcome(3), Some(Outcome::Failed(Failure::UnknownSku)));
}

#[test]
fn a_full_batch_answers_busy_and_loses_nothing() {
    let mut bench = Bench::new(10_000);
    bench.buy([1]);
    let ids = bench.buy(2..6_000); // more than one batch holds, while one is in flight
    let busy = |bench: &Bench| {
        let busy = Some(Outcome::Failed(Failure::Busy));
        ids.iter().filter(|&&id| bench.outcome(id) == busy).count()
    };
    assert!(busy(&bench) > 1_000);
    bench.sync();
    let granted = ids
        .iter()
        .filter(|&&id| {
            matches!(
                bench.outcome(id),
                Some(Outcome::Done(LedgerAnswer::Granted(_)))
            )
        })
        .count();
    assert_eq!(granted + busy(&bench), ids.len());
    assert_eq!(bench.owner.ledger().reservations().count(), granted + 1);
    assert_eq!(bench.sent.orders.len(), granted + 1);
}

#[test]
fn reopening_waits_for_the_tick_and_is_one_step() {
    let mut bench = Bench::new(2);
    bench.buy([1, 2]);
    bench.sync();
    let release = vec![bench.release(1), bench.release(2)];
    bench.turn(release);
    bench.sync();
    let id = bench.buy([3])[0];
    assert_eq!(bench.done(id), Some(LedgerAnswer::SoldOut { epoch: 2 }));
    bench.wait_ms(REOPEN_TICK_MS);
    bench.sync();
    let view = bench.sent.views.last().unwrap();
    assert!(!view.sold_out && view.stock_epoch == 3);
    let id = bench.buy([3])[0];
    bench.sync();
    assert!(matches!(bench.done(id), Some(LedgerAnswer::Granted(_))));
}

#[test]
fn the_filter_of_a_sold_out_view_knows_everyone_who_may_retry() {
    let mut bench = Bench::new(3);
    bench.buy([1, 2]);
    bench.sync();
    let release = vec![bench.release(1)];
    bench.turn(release);
    bench.sync();
    bench.buy([3, 4]);
    bench.sync();
    let view = bench.sent.views.last().unwrap();
    assert!(view.sold_out);
    assert!((1..=4).all(|user| view.winners.may_contain(UserId(user))));
    // A mode change while sold out keeps the filter.
    let mode = bench.ask(LedgerOp::SetMode(SetMode {
        target: OpsRef {
            sku: SKU,
            request_id: text("operator-1"),
        },
        mode: Mode::QueueOnly,
    }));
    bench.turn(vec![mode]);
    bench.sync();
    let view = bench.sent.views.last().unwrap();
    assert!(view.mode == Mode::QueueOnly && view.winners.may_contain(UserId(4)));
    let count = bench.sent.views.len();
    bench.turn(vec![Mail::ViewsAsk(ShardId(0))]);
    bench.wait_ms(VIEW_REFRESH_MS);
    assert_eq!(bench.sent.views.len(), count + 2);
}

#[test]
fn what_stays_unconfirmed_is_sent_again_and_what_is_confirmed_is_not() {
    let mut bench = Bench::new(10);
    bench.buy([1, 2, 3]);
    bench.sync();
    let confirm = vec![bench.ask(LedgerOp::Confirm(target(2)))];
    bench.turn(confirm);
    bench.sync();
    bench.sent.orders.clear();
    bench.wait_ms(OUTBOX_RESCAN_MS); // granted after the start's mark: waits one more period
    bench.wait_ms(OUTBOX_RESCAN_MS);
    let again: Vec<u64> = bench
        .sent
        .orders
        .iter()
        .map(|order| order.reservation.0)
        .collect();
    assert_eq!(again, [1, 3]);
    let mut bench = bench.crash(false);
    assert!(bench.sent.orders.is_empty());
    bench.turn(vec![Mail::OutboxAsk { lacks: true }]);
    let again: Vec<u64> = bench
        .sent
        .orders
        .iter()
        .map(|order| order.reservation.0)
        .collect();
    assert_eq!(again, [1, 3]);
    assert_eq!(bench.sent.orders[0].unit_price.minor, 100);
}

#[test]
fn a_worker_that_asks_before_the_recovery_is_answered_right_after_it() {
    let mut bench = Bench::new(10);
    bench.buy([1, 2, 3]);
    bench.sync();
    let (sale, image) = (Arc::clone(&bench.sale), bench.disk.image.clone());
    let mut bench = Bench::starting(sale, image);
    bench.turn(vec![Mail::OutboxAsk { lacks: true }]);
    assert!(bench.sent.orders.is_empty() && bench.sent.totals.is_empty());
    bench.recover();
    let again: Vec<u64> = bench
        .sent
        .orders
        .iter()
        .map(|order| order.reservation.0)
        .collect();
    assert_eq!(again, [1, 2, 3]);
    assert_eq!(bench.sent.totals[0], (10, 0), "totals go before the orders");
}

#[test]
fn an_outbox_larger_than_a_tick_goes_on_at_the_next_ticks() {
    let count = ORDER_BATCH_MAX * (OUTBOX_CHUNKS_PER_TICK + 1) + 10;
    let mut bench = Bench::new(count as u64);
    for start in (1..=count as u64).step_by(1_000) {
        bench.buy(start..(start + 1_000).min(count as u64 + 1));
        bench.sync();
    }
    assert_eq!(bench.sent.orders.len(), count);
    bench.sent.orders.clear();
    bench.turn(vec![Mail::OutboxAsk { lacks: true }]);
    assert_eq!(
        bench.sent.orders.len(),
        ORDER_BATCH_MAX * OUTBOX_CHUNKS_PER_TICK
    );
    bench.wait_ms(REOPEN_TICK_MS);
    assert_eq!(bench.sent.orders.len(), count);
    bench.wait_ms(REOPEN_TICK_MS);
    assert_eq!(bench.sent.orders.len(), count);
}

#[test]
fn a_damaged_image_keeps_the_door_closed_and_says_where() {
    let mut bench = Bench::new(10);
    for user in 1..=4 {
        bench.buy([user]);
        bench.sync();
    }
    let good = bench.disk.image.clone();
    let mut gap = good.clone();
    gap.batches.remove(2);
    let mut torn = good.clone();
    torn.batches[3].bytes.pop();
    let mut twice = good.clone();
    twice.batches[3] = Batch {
        seq: 4,
        ..good.batches[2].clone()
    };
    for (image, words) in [
        (gap, "batch 3 must follow, but batch 4"),
        (torn, "batch 4: the bytes end within a value"),
        (twice, "batch 4: the entry at byte 1 cannot follow"),
    ] {
        let mut bench = Bench::starting(sale(10), image);
        bench.recover();
        let fault = bench.owner.fault().unwrap().to_string();
        assert!(fault.contains(words), "{fault}");
        let id = bench.buy([9])[0];
        assert_eq!(bench.outcome(id), Some(Outcome::Failed(Failure::Poisoned)));
        assert!(bench.sent.views.last().unwrap().poisoned);
    }
    let bench = Bench::starting(sale(10), good);
    assert!(bench.owner.fault().is_none());
}

#[test]
fn a_changed_policy_is_taken_over_at_the_restart() {
    let bench = Bench::new(10);
    let mut changed = (*bench.sale).clone();
    changed.activities[0].skus[0].quantity_max = 1;
    changed.activities[0].skus[0].first_stock = 99;
    let bench = Bench::started(Arc::new(changed), bench.disk.image);
    let state = bench.owner.ledger().sku(SKU).unwrap();
    assert_eq!((state.quantity_max, state.books.total), (1, 10));
}

#[test]
fn drain_answers_everything_first() {
    let mut bench = Bench::new(10);
    let id = bench.buy([1])[0];
    bench.owner.on_event(bench.now, Event::Drain, &mut bench.fx);
    let mut ops = Vec::new();
    bench.turn(Vec::new());
    bench.fx.take_ops(&mut ops);
    assert!(ops.is_empty(), "a batch is in flight");
    bench.sync();
    bench.fx.take_ops(&mut ops);
    assert!(!ops.is_empty() && bench.done(id).is_some());
}

#[test]
fn stats_tell_the_books() {
    let mut bench = Bench::new(10);
    bench.buy([1]);
    bench.sync();
    bench.turn(vec![Mail::StatsAsk]);
    let stats = bench.sent.stats.take().unwrap();
    let value = |name| {
        let found = stats.samples.iter().find(|sample| sample.name == name);
        found.unwrap().value
    };
    assert_eq!(value("weir_ledger_units_free"), 9);
    assert_eq!(value("weir_ledger_units_held"), 1);
    assert_eq!(value("weir_ledger_serving"), 1);
    assert_eq!(value("weir_ledger_batches_total"), 2);
}

/// A random life of the owner with a crash at each batch boundary in turn; what was answered must be there after it.
#[test]
fn a_crash_at_any_batch_boundary_loses_nothing_that_was_acknowledged() {
    for crash_at in 0..60 {
        for keeps_unsynced in [false, true] {
            live_and_crash(crash_at, keeps_unsynced);
        }
    }
}

fn live_and_crash(crash_at: u64, keeps_unsynced: bool) {
    let mut rng = Rng::new(crash_at * 2 + u64::from(keeps_unsynced));
    let mut bench = Bench::new(20);
    let mut users: HashMap<u64, u64> = HashMap::new(); // ask -> user
    let mut synced = 0;
    while synced < crash_at {
        for _ in 0..rng.below(4) {
            let user = 1 + rng.below(60);
            let id = bench.buy([user])[0];
            users.insert(id, user);
        }
        if rng.chance(1, 3) {
            let reservation = 1 + rng.below(30);
            let op = match rng.below(3) {
                0 => LedgerOp::Confirm(target(reservation)),
                1 => LedgerOp::Settle(target(reservation)),
                _ => LedgerOp::Release(Release {
                    target: target(reservation),
                    end: ReleaseEnd::Closed,
                }),
            };
            let mail = bench.ask(op);
            bench.turn(vec![mail]);
        }
        if rng.chance(1, 4) {
            bench.wait_ms(REOPEN_TICK_MS);
        }
        if let Some(result) = bench.disk.sync() {
            bench.turn(vec![Mail::Appended(Box::new(result))]);
        }
        synced += 1;
    }
    let answers = std::mem::take(&mut bench.sent.answers);
    let orders = std::mem::take(&mut bench.sent.orders);
    let bench = bench.crash(keeps_unsynced);
    let ledger = bench.owner.ledger();
    ledger.check().unwrap();
    for (id, outcome) in answers {
        match outcome {
            Outcome::Done(LedgerAnswer::Granted(held) | LedgerAnswer::Repeated(held)) => {
                let found = ledger.reservation(held.reservation).unwrap();
                assert_eq!(found.message.user, UserId(users[&id]), "a grant was lost");
            }
            Outcome::Done(LedgerAnswer::Now(held)) => {
                let found = ledger.reservation(held.reservation).unwrap();
                let rank = |state| match state {
                    ReservationState::Reserved => 0,
                    ReservationState::Confirmed => 1,
                    _ => 2,
                };
                assert!(rank(found.state) >= rank(held.state), "a step was lost");
            }
            _ => {}
        }
    }
    for order in orders {
        assert_eq!(
            ledger.reservation(order.reservation).unwrap().message,
            order
        );
    }
}

#[cfg(weir_planted)]
#[test]
fn the_crash_story_finds_answers_that_leave_before_their_commit() {
    weir_core::planted::set(weir_core::planted::Planted::AnswerBeforeCommit);
    let found = (0..60)
        .filter(|&crash_at| std::panic::catch_unwind(|| live_and_crash(crash_at, false)).is_err());
    assert!(found.count() > 5, "a lost answer must be noticed");
}
