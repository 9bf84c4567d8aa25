//! The SQLite order store against its model, and against what sales broke on: duplicates, crashes, last units.

#![allow(clippy::unwrap_used)] // helpers of tests

use std::path::{Path, PathBuf};
use weir::orders::schema::{self, OpenError};
use weir::orders::store::OrderStore;
use weir_core::ask::AskId;
use weir_core::limit::lease::ShardId;
use weir_core::mail::Addr;
use weir_core::order::contract::{
    DeadLetter, DeadWhy, Fenced, Money, NewOrder, ORDER_MESSAGE_VERSION, OrderBatch, OrderCommand,
    OrderMessage, OrderResult, PaymentAsk, PaymentId, PaymentResult, Restocked, Standing,
    StockTotal,
};
use weir_core::order::model::{OrderModel, Tables};
use weir_core::order::state::OrderState;
use weir_core::rng::Rng;
use weir_core::time::WallMs;
use weir_proto::ids::{ActivityId, RequestId, ReservationId, SkuId, SkuKey, UserId};

/// A directory of its own, removed at the end.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weir-orders-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("orders.sqlite")
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const SKU: SkuKey = SkuKey {
    activity: ActivityId(1),
    sku: SkuId(1),
};
const PRICE: Money = Money {
    minor: 900,
    currency: *b"CNY",
};

fn message(reservation: u64, user: u64) -> OrderMessage {
    OrderMessage {
        version: ORDER_MESSAGE_VERSION,
        reservation: ReservationId(reservation),
        sku: SKU,
        user: UserId(user),
        quantity: 1,
        request_id: RequestId::new(b"request-00").unwrap(),
        unit_price: PRICE,
        reserved_at: WallMs(5),
    }
}

fn insert(reservation: u64, user: u64) -> OrderCommand {
    OrderCommand::Insert(NewOrder {
        message: message(reservation, user),
        due: WallMs(1_000),
    })
}

fn payment(id: &str, reservation: u64, minor: u64) -> OrderCommand {
    OrderCommand::Pay(PaymentAsk {
        from: Addr::Shard(ShardId(0)),
        id: AskId(1),
        payment: PaymentId::new(id.as_bytes()).unwrap(),
        reservation: ReservationId(reservation),
        sku: SKU,
        amount: Money { minor, ..PRICE },
        paid_at: WallMs(7),
    })
}

fn total(units: u64) -> OrderCommand {
    OrderCommand::StockTotal(StockTotal {
        sku: SKU,
        total: units,
    })
}

fn fenced(reservation: u64, version: u32) -> Fenced {
    Fenced {
        reservation: ReservationId(reservation),
        version,
    }
}

/// Runs batches on a store, numbering them.
struct Runner {
    store: OrderStore,
    seq: u64,
}

impl Runner {
    fn open(path: &Path) -> Self {
        Self {
            store: OrderStore::open(path).unwrap(),
            seq: 0,
        }
    }

    fn run(&mut self, at: u64, commands: &[OrderCommand]) -> Vec<OrderResult> {
        self.seq += 1;
        let done = self.store.execute(&OrderBatch {
            seq: self.seq,
            at: WallMs(at),
            commands: commands.to_vec(),
        });
        assert_eq!(done.seq, self.seq);
        done.results.unwrap()
    }

    fn one(&mut self, at: u64, command: OrderCommand) -> OrderResult {
        self.run(at, &[command]).pop().unwrap()
    }

    fn pay(&mut self, at: u64, command: OrderCommand) -> PaymentResult {
        match self.one(at, command) {
            OrderResult::Payment(result, _) => result,
            other => panic!("not a payment's result: {other:?}"),
        }
    }
}

fn stands(reservation: u64, state: OrderState, version: u32, acked: u32) -> Standing {
    Standing {
        reservation: ReservationId(reservation),
        sku: SKU,
        state,
        version,
        acked,
    }
}

/// A random command over few ids, so that collisions of every kind happen.
fn draw(rng: &mut Rng) -> OrderCommand {
    let sku = SkuKey {
        activity: ActivityId(1),
        sku: SkuId(1 + rng.below(3)),
    };
    let reservation = ReservationId(1 + rng.below(400));
    // A reservation belongs to one user and SKU, as the ledger keeps it; users collide across reservations.
    let sku = if rng.chance(19, 20) {
        SkuKey {
            sku: SkuId(1 + reservation.0 % 3),
            ..sku
        }
    } else {
        sku
    };
    let message = OrderMessage {
        sku,
        reservation,
        user: UserId(1 + (reservation.0 * 7919) % 90),
        quantity: 1 + (reservation.0 % 4) as u32,
        ..message(reservation.0, 0)
    };
    let target = Fenced {
        reservation,
        version: 1 + rng.below(4) as u32,
    };
    match rng.below(20) {
        0..=6 => OrderCommand::Insert(NewOrder {
            message,
            due: WallMs(1 + rng.below(3_000)),
        }),
        7..=10 => {
            let right = PRICE.minor * u64::from(message.quantity);
            let minor = if rng.chance(9, 10) { right } else { right + 1 };
            OrderCommand::Pay(PaymentAsk {
                from: Addr::Shard(ShardId(0)),
                id: AskId(rng.next_u64()),
                payment: PaymentId::new(format!("pay-{}", rng.below(600)).as_bytes()).unwrap(),
                reservation,
                sku,
                amount: Money { minor, ..PRICE },
                paid_at: WallMs(rng.below(1_000)),
            })
        }
        11..=12 => OrderCommand::Close(target),
        13 => OrderCommand::CloseDue {
            limit: 1 + rng.below(5) as u32,
        },
        14 => OrderCommand::Resell(target),
        15 => OrderCommand::LoseUnit(target),
        16..=17 => OrderCommand::Ack(target),
        18 if rng.chance(1, 3) => OrderCommand::Bury(DeadLetter {
            message,
            why: DeadWhy::StockShort,
            attempts: 5,
        }),
        18 if rng.chance(1, 2) => OrderCommand::Restocked {
            restock: Restocked {
                sku,
                request_id: RequestId::new(format!("restock-{}", rng.below(200)).as_bytes())
                    .unwrap(),
                units: 1 + rng.below(2),
                at: WallMs(rng.below(1_000)),
            },
            adds: rng.chance(1, 4),
        },
        18 => OrderCommand::StockTotal(StockTotal {
            sku,
            total: rng.below(80),
        }),
        _ if rng.chance(1, 2) => OrderCommand::Unacked {
            after: ReservationId(rng.below(400)),
            limit: 1 + rng.below(20) as u32,
        },
        _ => OrderCommand::Rows {
            sku,
            after: ReservationId(rng.below(400) * rng.below(2)),
            limit: 1 + rng.below(20) as u32,
        },
    }
}

/// The rows of a query, as text.
fn rows(path: &Path, sql: &str) -> Vec<String> {
    let connection = schema::open_to_read(path).unwrap();
    let mut statement = connection.prepare(sql).unwrap();
    let columns = statement.column_count();
    statement
        .query_map([], |row| {
            let texts: Vec<String> = (0..columns)
                .map(|column| match row.get_ref(column).unwrap() {
                    rusqlite::types::ValueRef::Integer(number) => number.to_string(),
                    rusqlite::types::ValueRef::Text(text) => {
                        String::from_utf8(text.to_vec()).unwrap()
                    }
                    other => format!("{other:?}"),
                })
                .collect();
            Ok(texts.join(" "))
        })
        .unwrap()
        .map(Result::unwrap)
        .collect()
}

fn compare_tables(path: &Path, tables: &Tables) {
    let orders: Vec<String> = tables
        .orders
        .values()
        .map(|row| {
            format!(
                "{} {} {} {} {} {}",
                row.message.reservation.0,
                row.message.user.0,
                row.message.quantity,
                row.state.text(),
                row.version,
                row.acked
            )
        })
        .collect();
    let sql = "SELECT reservation_id, user_id, quantity, state, version, acked_version FROM orders \
               ORDER BY reservation_id";
    assert_eq!(rows(path, sql), orders);
    let live: Vec<String> = tables.live.values().map(|id| id.0.to_string()).collect();
    let mut sql_live = rows(path, "SELECT reservation_id FROM orders WHERE live = 1");
    let mut live_sorted = live;
    live_sorted.sort();
    sql_live.sort();
    assert_eq!(sql_live, live_sorted);
    let stock: Vec<String> = tables
        .stock
        .iter()
        .map(|(key, row)| format!("{} {} {}", key.sku.0, row.total, row.taken))
        .collect();
    let sql = "SELECT sku_id, total, taken FROM stock ORDER BY activity_id, sku_id";
    assert_eq!(rows(path, sql), stock);
    let restocks = tables.restocks.iter();
    let restocks: Vec<String> = restocks
        .map(|told| {
            format!(
                "{} {} {} {}",
                told.sku.sku.0, told.request_id, told.units, told.at.0
            )
        })
        .collect();
    let sql = "SELECT sku_id, request_id, units, at_ms FROM restocks ORDER BY number";
    assert_eq!(rows(path, sql), restocks);
    let mut refunds: Vec<String> = tables
        .refunds
        .iter()
        .map(|(id, refund)| {
            let state = if refund.due { "DUE" } else { "VOID" };
            format!("{id} {} {} {state}", refund.amount.minor, refund.why.text())
        })
        .collect();
    refunds.sort();
    let mut sql_refunds = rows(
        path,
        "SELECT payment_id, amount_minor, why, state FROM refunds",
    );
    sql_refunds.sort();
    assert_eq!(sql_refunds, refunds);
    let mut history: Vec<String> = tables
        .history
        .iter()
        .map(|(id, version, to)| format!("{} {version} {}", id.0, to.text()))
        .collect();
    let mut sql_history = rows(
        path,
        "SELECT reservation_id, version, to_state FROM order_history",
    );
    history.sort();
    sql_history.sort();
    assert_eq!(sql_history, history);
    let dead: Vec<String> = tables.dead.keys().map(|id| id.0.to_string()).collect();
    let sql = "SELECT reservation_id FROM dead_letters ORDER BY reservation_id";
    assert_eq!(rows(path, sql), dead);
}

#[test]
fn orders_in_sqlite_and_in_the_model_answer_alike() {
    for seed in 0..4 {
        let dir = Dir::new(&format!("differential-{seed}"));
        let mut rng = Rng::new(seed);
        let mut model = OrderModel::new();
        let mut runner = Runner::open(&dir.file());
        let (mut commands_run, mut at, mut kinds) = (0, 0, [0_u32; 9]);
        while commands_run < 10_000 {
            let commands: Vec<OrderCommand> =
                (0..=rng.below(120)).map(|_| draw(&mut rng)).collect();
            commands_run += commands.len();
            at += rng.below(40);
            let by_store = runner.run(at, &commands);
            let by_model = model
                .execute(&OrderBatch {
                    seq: runner.seq,
                    at: WallMs(at),
                    commands: commands.clone(),
                })
                .results
                .unwrap();
            for ((command, store), model) in commands.iter().zip(&by_store).zip(&by_model) {
                assert_eq!(store, model, "seed {seed}, at {at}: {command:?}");
                let kind = match store {
                    OrderResult::Moved(_) => 0,
                    OrderResult::Stands(_) => 1,
                    OrderResult::StockShort => 2,
                    OrderResult::Payment(..) => 3,
                    OrderResult::Closed { .. } => 4,
                    OrderResult::Unacked { .. } => 5,
                    OrderResult::Missing => 6,
                    OrderResult::Done | OrderResult::Broken => 7,
                    OrderResult::Rows { .. } => 8,
                };
                kinds[kind] += 1;
            }
            if rng.chance(1, 20) {
                drop(runner.store);
                runner.store = OrderStore::open(&dir.file()).unwrap();
            }
        }
        assert!(kinds.iter().all(|&count| count > 20), "{kinds:?}");
        compare_tables(&dir.file(), &model.tables);
    }
}

#[test]
fn orders_two_live_for_one_user_are_impossible_and_the_second_is_failed_for_good() {
    let dir = Dir::new("unique");
    let mut runner = Runner::open(&dir.file());
    let results = runner.run(10, &[total(5), insert(1, 7), insert(2, 7), insert(2, 7)]);
    assert_eq!(
        results[1..],
        [
            OrderResult::Moved(stands(1, OrderState::Created, 1, 0)),
            OrderResult::Moved(stands(2, OrderState::Failed, 1, 0)),
            OrderResult::Stands(stands(2, OrderState::Failed, 1, 0)),
        ]
    );
    // A writer that bypasses the store is stopped by the key itself.
    let raw = rusqlite::Connection::open(dir.file()).unwrap();
    let forced = raw.execute(
        "UPDATE orders SET live = 1, state = 'CREATED' WHERE reservation_id = 2",
        [],
    );
    assert!(forced.unwrap_err().to_string().contains("UNIQUE"));
    // Closing frees the user (design §12.6).
    runner.one(11, OrderCommand::Close(fenced(1, 1)));
    let third = runner.one(12, insert(3, 7));
    assert_eq!(
        third,
        OrderResult::Moved(stands(3, OrderState::Created, 1, 0))
    );
}

#[test]
fn orders_never_exceed_the_stock_and_a_closed_one_gives_its_unit_back_once() {
    let dir = Dir::new("stock");
    let mut runner = Runner::open(&dir.file());
    assert_eq!(
        runner.one(1, insert(9, 9)),
        OrderResult::StockShort,
        "no total known: nothing is sold"
    );
    let results = runner.run(2, &[total(1), insert(1, 1), insert(2, 2)]);
    assert_eq!(results[2], OrderResult::StockShort);
    runner.one(3, OrderCommand::Close(fenced(1, 1)));
    let again = runner.one(4, OrderCommand::Close(fenced(1, 1)));
    assert_eq!(
        again,
        OrderResult::Stands(stands(1, OrderState::Closed, 2, 0)),
        "fenced: nothing moves twice"
    );
    assert!(matches!(runner.one(5, insert(2, 2)), OrderResult::Moved(_)));
    assert_eq!(runner.one(6, insert(3, 3)), OrderResult::StockShort);
    runner.run(7, &[total(2), total(1)]);
    assert!(
        matches!(runner.one(8, insert(3, 3)), OrderResult::Moved(_)),
        "a total only grows"
    );
    assert_eq!(rows(&dir.file(), "SELECT total, taken FROM stock"), ["2 2"]);
}

#[test]
fn orders_are_paid_once_by_one_payment_of_the_right_amount() {
    let dir = Dir::new("payments");
    let mut runner = Runner::open(&dir.file());
    assert_eq!(runner.pay(1, payment("p0", 1, 900)), PaymentResult::NoOrder);
    runner.run(1, &[total(5), insert(1, 1)]);
    assert_eq!(
        runner.pay(2, payment("p1", 1, 899)),
        PaymentResult::AmountDiffers
    );
    assert_eq!(
        runner.pay(2, payment("p1", 1, 899)),
        PaymentResult::AmountDiffers,
        "the first answer again"
    );
    assert_eq!(
        runner.pay(2, payment("p1", 1, 900)),
        PaymentResult::PaymentIdReused
    );
    assert_eq!(runner.pay(3, payment("p0", 1, 900)), PaymentResult::Paid);
    assert_eq!(
        runner.pay(4, payment("p0", 1, 900)),
        PaymentResult::Repeated
    );
    assert_eq!(
        runner.pay(5, payment("p2", 1, 900)),
        PaymentResult::PaidBefore
    );
    assert_eq!(
        runner.one(6, OrderCommand::Close(fenced(1, 1))),
        OrderResult::Stands(stands(1, OrderState::Paid, 2, 0)),
        "the payment won the race against the close"
    );
    assert_eq!(
        rows(&dir.file(), "SELECT payment_id, why, state FROM refunds"),
        ["p1 amount_differs DUE", "p2 paid_before DUE"]
    );
}

#[test]
fn orders_paid_after_their_close_hold_no_unit_until_one_is_sold_again() {
    let dir = Dir::new("late");
    let mut runner = Runner::open(&dir.file());
    runner.run(1, &[total(1), insert(1, 1)]);
    let closed = runner.one(1_000, OrderCommand::CloseDue { limit: 9 });
    assert_eq!(
        closed,
        OrderResult::Closed {
            orders: vec![stands(1, OrderState::Closed, 2, 0)],
            next_due: None
        }
    );
    assert_eq!(
        runner.one(1_001, payment("p1", 1, 900)),
        OrderResult::Payment(
            PaymentResult::Late,
            Some(stands(1, OrderState::PaidLate, 3, 0))
        )
    );
    assert_eq!(
        rows(
            &dir.file(),
            "SELECT why, state, (SELECT taken FROM stock) FROM refunds"
        ),
        ["late DUE 0"]
    );
    assert_eq!(
        runner.one(1_002, OrderCommand::Resell(fenced(1, 3))),
        OrderResult::Moved(stands(1, OrderState::Paid, 4, 4))
    );
    assert_eq!(
        rows(
            &dir.file(),
            "SELECT why, state, (SELECT taken FROM stock) FROM refunds"
        ),
        ["late VOID 1"]
    );
    runner.one(1_003, OrderCommand::LoseUnit(fenced(1, 4)));
    assert_eq!(
        rows(
            &dir.file(),
            "SELECT why, state, (SELECT taken FROM stock) FROM refunds"
        ),
        ["unit_lost DUE 0"]
    );
}

#[test]
fn orders_survive_a_reopen_and_tell_what_the_ledger_has_not_acknowledged() {
    let dir = Dir::new("reopen");
    let mut runner = Runner::open(&dir.file());
    runner.run(50, &[total(9), insert(1, 1), insert(2, 2), insert(3, 3)]);
    runner.run(
        60,
        &[
            OrderCommand::Ack(fenced(2, 1)),
            payment("p", 3, 900),
            OrderCommand::Ack(fenced(3, 1)),
        ],
    );
    drop(runner);
    let mut runner = Runner::open(&dir.file());
    let page = |after, limit| OrderCommand::Unacked {
        after: ReservationId(after),
        limit,
    };
    let first = stands(1, OrderState::Created, 1, 0);
    let third = stands(3, OrderState::Paid, 2, 1);
    assert_eq!(
        runner.run(61, &[page(0, 1), page(1, 9)]),
        [
            OrderResult::Unacked {
                orders: vec![first],
                more: true,
                last_at: WallMs(60)
            },
            OrderResult::Unacked {
                orders: vec![third],
                more: false,
                last_at: WallMs(60)
            },
        ]
    );
}

#[test]
fn orders_one_poisoned_statement_leaves_nothing_and_stops_nobody() {
    let dir = Dir::new("poison");
    let mut runner = Runner::open(&dir.file());
    runner.one(1, total(9));
    let raw = rusqlite::Connection::open(dir.file()).unwrap();
    raw.execute_batch(
        "CREATE TRIGGER poison BEFORE INSERT ON order_history WHEN NEW.reservation_id = 2 \
         BEGIN SELECT RAISE(ABORT, 'poisoned'); END",
    )
    .unwrap();
    let results = runner.run(2, &[insert(1, 1), insert(2, 2), insert(3, 3)]);
    assert_eq!(results[1], OrderResult::Broken);
    assert!(matches!(results[0], OrderResult::Moved(_)));
    assert!(matches!(results[2], OrderResult::Moved(_)));
    assert_eq!(runner.store.reruns, 1);
    assert_eq!(
        rows(
            &dir.file(),
            "SELECT (SELECT count(*) FROM orders), taken FROM stock"
        ),
        ["2 2"]
    );
}

#[test]
fn orders_wait_while_another_program_holds_the_lock_and_stop_for_good_when_the_disk_is_full() {
    use weir_core::order::contract::OrderFault;
    let dir = Dir::new("faults");
    let mut runner = Runner::open(&dir.file());
    runner.one(1, total(1_000_000));
    let raw = rusqlite::Connection::open(dir.file()).unwrap();
    raw.execute_batch("BEGIN IMMEDIATE").unwrap();
    let batch = OrderBatch {
        seq: 2,
        at: WallMs(2),
        commands: vec![insert(1, 1)],
    };
    assert_eq!(runner.store.execute(&batch).results, Err(OrderFault::Busy));
    raw.execute_batch("ROLLBACK").unwrap();
    let made = runner.store.execute(&batch);
    assert!(matches!(
        made.results.as_deref(),
        Ok([OrderResult::Moved(_)])
    ));
    assert_eq!(
        runner.store.execute(&batch),
        made,
        "a batch sent again gets its first results"
    );
    // SQLite's own ceiling answers like a full disk.
    runner.store.limit_pages_for_tests();
    let flood = OrderBatch {
        seq: 3,
        at: WallMs(3),
        commands: (10..1_000).map(|id| insert(id, id)).collect(),
    };
    assert_eq!(
        runner.store.execute(&flood).results,
        Err(OrderFault::DiskFull)
    );
    let next = OrderBatch { seq: 4, ..batch };
    assert_eq!(
        runner.store.execute(&next).results,
        Err(OrderFault::DiskFull),
        "nothing is taken until a restart"
    );
    assert_eq!(
        rows(&dir.file(), "SELECT count(*) FROM orders"),
        ["1"],
        "a batch is whole or absent"
    );
}

#[test]
fn orders_know_each_restock_once_and_page_the_newest_first_rows() {
    let dir = Dir::new("restocks");
    let mut runner = Runner::open(&dir.file());
    let restock = |number: u64| Restocked {
        sku: SKU,
        request_id: RequestId::new(format!("restock-{number}").as_bytes()).unwrap(),
        units: number,
        at: WallMs(number),
    };
    let told = |number, adds| OrderCommand::Restocked {
        restock: restock(number),
        adds,
    };
    // One that is in the total already; one that is not; both again.
    runner.run(1, &[told(1, false), total(10)]);
    runner.run(1, &[told(2, true), told(2, true), told(1, true)]);
    let ask = |after| OrderCommand::Rows {
        sku: SKU,
        after: ReservationId(after),
        limit: 10,
    };
    let page = |total, restocks| OrderResult::Rows {
        total,
        restocks,
        orders: Vec::new(),
        more: false,
    };
    let wanted = vec![page(12, vec![restock(1), restock(2)]), page(12, Vec::new())];
    assert_eq!(runner.run(1, &[ask(0), ask(1)]), wanted);
    let more: Vec<OrderCommand> = (3..=70).map(|number| told(number, false)).collect();
    runner.run(1, &more);
    let newest = (7..=70).map(restock).collect();
    assert_eq!(runner.run(1, &[ask(0)]), [page(12, newest)]);
}

#[test]
fn orders_file_of_version_1_learns_restocks() {
    let dir = Dir::new("version-1");
    let mut runner = Runner::open(&dir.file());
    runner.run(1, &[total(10)]);
    drop(runner);
    let raw = rusqlite::Connection::open(dir.file()).unwrap();
    raw.execute_batch("DROP TABLE restocks; PRAGMA user_version = 1")
        .unwrap();
    drop(raw);
    drop(OrderStore::open(&dir.file()).unwrap());
    assert_eq!(rows(&dir.file(), "SELECT count(*) FROM restocks"), ["0"]);
    assert_eq!(rows(&dir.file(), "SELECT total FROM stock"), ["10"]);
    assert_eq!(rows(&dir.file(), "PRAGMA user_version"), ["2"]);
}

#[test]
fn orders_file_of_a_newer_or_another_program_is_refused() {
    let dir = Dir::new("versions");
    drop(OrderStore::open(&dir.file()).unwrap());
    let raw = rusqlite::Connection::open(dir.file()).unwrap();
    raw.pragma_update(None, "user_version", 99).unwrap();
    let error = OrderStore::open(&dir.file()).unwrap_err();
    assert!(matches!(error, OpenError::Newer(_, 99)));
    assert!(error.to_string().contains("newer weir"));
    let other = dir.0.join("other.sqlite");
    rusqlite::Connection::open(&other)
        .unwrap()
        .execute_batch("CREATE TABLE x (y)")
        .unwrap();
    assert!(matches!(
        OrderStore::open(&other),
        Err(OpenError::Foreign(_))
    ));
    assert!(matches!(
        OrderStore::open(&dir.0.join("no/such/dir.sqlite")),
        Err(OpenError::File(..))
    ));
}
