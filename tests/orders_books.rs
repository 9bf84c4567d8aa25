//! Reconcile and export: equal books pass, every kind of damage is named, repairs are steps that hold when repeated.
#![allow(clippy::unwrap_used)] // helpers of tests

use std::path::PathBuf;
use weir::orders::export::{ExportError, export_to, export_to_file};
use weir::orders::facts::LedgerFacts;
use weir::orders::reconcile::{self, reconcile, repair};
use weir::orders::report::Report;
use weir::orders::schema;
use weir::orders::store::OrderStore;
use weir_core::ask::{AskId, Books, ReservationState};
use weir_core::limit::lease::ShardId;
use weir_core::mail::Addr;
use weir_core::order::contract::{
    Fenced, Money, NewOrder, ORDER_MESSAGE_VERSION, OrderBatch, OrderCommand, OrderMessage,
    PaymentAsk, PaymentId, StockTotal,
};
use weir_core::time::WallMs;
use weir_proto::ids::{ActivityId, RequestId, ReservationId, SkuId, SkuKey, UserId};

const SKU: SkuKey = SkuKey {
    activity: ActivityId(1),
    sku: SkuId(1),
};
const PRICE: Money = Money {
    minor: 900,
    currency: *b"CNY",
};

fn message(reservation: u64) -> OrderMessage {
    OrderMessage {
        version: ORDER_MESSAGE_VERSION,
        reservation: ReservationId(reservation),
        sku: SKU,
        user: UserId(1_000 + reservation),
        quantity: 1,
        request_id: RequestId::new(b"=request,0").unwrap(),
        unit_price: PRICE,
        reserved_at: WallMs(5),
    }
}

/// Two files' worth of state: four orders (created, paid, closed, refused by nobody) and one in the outbox.
struct World {
    dir: PathBuf,
    facts: LedgerFacts,
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

impl World {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("weir-books-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        let mut world = Self {
            dir,
            facts: LedgerFacts::default(),
        };
        let insert = |id| {
            OrderCommand::Insert(NewOrder {
                message: message(id),
                due: WallMs(1_000),
            })
        };
        let fenced = |id, version| Fenced {
            reservation: ReservationId(id),
            version,
        };
        let pay = OrderCommand::Pay(PaymentAsk {
            from: Addr::Shard(ShardId(0)),
            id: AskId(1),
            payment: PaymentId::new(b"pay-2").unwrap(),
            reservation: ReservationId(2),
            sku: SKU,
            amount: PRICE,
            paid_at: WallMs(7),
        });
        let commands = vec![
            OrderCommand::StockTotal(StockTotal {
                sku: SKU,
                total: 10,
            }),
            insert(1),
            insert(2),
            insert(3),
            pay,
            OrderCommand::Close(fenced(3, 1)),
            OrderCommand::Ack(fenced(1, 1)),
            OrderCommand::Ack(fenced(2, 2)),
            OrderCommand::Ack(fenced(3, 2)),
        ];
        let mut store = OrderStore::open(&world.file()).unwrap();
        let batch = OrderBatch {
            seq: 1,
            at: WallMs(9),
            commands,
        };
        store.execute(&batch).results.unwrap();
        use ReservationState as S;
        for (id, state) in [
            (1, S::Confirmed),
            (2, S::Settled),
            (3, S::Closed),
            (4, S::Reserved),
        ] {
            world.hold(id, state);
        }
        world.facts.books.insert(
            SKU,
            Books {
                total: 10,
                free: 7,
                held: 2,
                sold: 1,
                quarantined: 0,
            },
        );
        world
    }

    fn hold(&mut self, id: u64, state: ReservationState) {
        let held = (message(id), state);
        self.facts.reservations.insert(ReservationId(id), held);
    }

    fn file(&self) -> PathBuf {
        self.dir.join("orders.sqlite")
    }

    fn sql(&self, sql: &str) {
        let connection = rusqlite::Connection::open(self.file()).unwrap();
        connection.execute_batch(sql).unwrap();
    }

    fn report(&self) -> Report {
        reconcile(&self.facts, &schema::open_to_read(&self.file()).unwrap()).unwrap()
    }

    fn kinds(&self) -> Vec<(&'static str, u64)> {
        self.report().counts.into_iter().collect()
    }

    fn repair(&self) -> u64 {
        let mut connection = schema::open(&self.file()).unwrap();
        repair(&self.facts, &self.report(), &mut connection).unwrap()
    }
}

#[test]
fn orders_books_that_agree_balance_and_say_what_is_under_way() {
    let world = World::new("agree");
    let report = world.report();
    assert!(report.balanced, "{report}");
    assert_eq!((report.in_outbox, report.steps_open), (1, 0));
    assert_eq!((report.skus[0].orders_created, report.skus[0].sold), (1, 1));
    assert!(report.to_string().ends_with("The books balance."));
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["skus"][0]["total"], 10);
    assert_eq!(world.repair(), 0);
}

#[test]
fn orders_damage_of_each_kind_is_named() {
    let raise = "UPDATE orders SET acked_version = 0 WHERE reservation_id = 1";
    let mut world = World::new("kinds");
    world.sql(raise);
    assert_eq!(world.report().steps_open, 1, "under way, not a difference");
    world.sql("UPDATE orders SET acked_version = 1 WHERE reservation_id = 1");

    world.facts.books.get_mut(&SKU).unwrap().free = 8;
    assert_eq!(world.kinds(), [("books_unbalanced", 1)]);
    world.facts.books.get_mut(&SKU).unwrap().free = 7;

    world.hold(3, ReservationState::Settled);
    assert_eq!(
        world.kinds(),
        [("books_not_reservations", 1), ("states_differ", 1)]
    );
    world.hold(3, ReservationState::Closed);

    world.sql("UPDATE orders SET user_id = 1 WHERE reservation_id = 2");
    assert_eq!(world.kinds(), [("identity_differs", 1)]);
    world.sql("UPDATE orders SET user_id = 1002 WHERE reservation_id = 2");

    world.sql("UPDATE stock SET total = 11");
    assert_eq!(world.kinds(), [("total_differs", 1)]);
    world.sql("UPDATE stock SET total = 10");

    let settled = world.facts.reservations.remove(&ReservationId(2)).unwrap();
    assert_eq!(
        world.kinds(),
        [("books_not_reservations", 1), ("reservation_missing", 1)]
    );
    world.facts.reservations.insert(ReservationId(2), settled);

    // Two live orders of one user, which only a writer that drops the key can make.
    world.sql(
        "UPDATE orders SET live = NULL, user_id = 1001 WHERE reservation_id = 2; \
         UPDATE orders SET user_id = 1001 WHERE reservation_id = 2",
    );
    assert_eq!(
        world.kinds(),
        [("identity_differs", 1), ("two_live_orders", 1)]
    );
}

#[test]
fn orders_only_what_two_looks_see_alike_lasts() {
    let mut world = World::new("looks");
    let look = |world: &World| {
        let orders = schema::open_to_read(&world.file()).unwrap();
        reconcile::look(&world.facts, &orders).unwrap()
    };
    world.hold(1, ReservationState::Closed);
    world.sql("UPDATE orders SET user_id = 1 WHERE reservation_id = 2");
    let first = look(&world);
    // The same two again, and one that the first look did not see.
    world.hold(3, ReservationState::Settled);
    let mut second = look(&world);
    assert_eq!(second.counts["states_differ"], 2);
    second.keep_lasting(&first);
    let rows: Vec<_> = second.counts.clone().into_iter().collect();
    assert_eq!(
        rows,
        [
            ("books_not_reservations", 1),
            ("identity_differs", 1),
            ("states_differ", 1)
        ]
    );
    // The ledger went on: another difference than before, so it was under way. Books of one moment need no second look.
    world.hold(1, ReservationState::Settled);
    world.facts.books.get_mut(&SKU).unwrap().free = 8;
    let mut third = look(&world);
    third.keep_lasting(&second);
    let rows: Vec<_> = third.counts.clone().into_iter().collect();
    assert_eq!(
        rows,
        [
            ("books_not_reservations", 1),
            ("books_unbalanced", 1),
            ("identity_differs", 1)
        ]
    );
    assert!(!third.balanced);
}

#[test]
fn orders_repairs_are_steps_that_hold_when_repeated() {
    let mut world = World::new("repair");
    // The order of 5 is lost, the stock row is behind and miscounted, the close of 1 never reached the orders.
    world.hold(5, ReservationState::Confirmed);
    world.hold(1, ReservationState::Closed);
    world.sql("UPDATE stock SET total = 3, taken = 3");
    assert_eq!(
        world.kinds(),
        [
            ("order_missing", 1),
            ("states_differ", 1),
            ("taken_differs", 1),
            ("total_differs", 1)
        ]
    );
    assert_eq!(world.repair(), 4);
    let report = world.report();
    assert!(report.balanced, "{report}");
    assert_eq!(
        report.steps_open, 2,
        "the worker confirms 5 and learns the end of 1 at its next start"
    );
    assert_eq!(report.skus[0].stock_taken, 3);
    assert_eq!(world.repair(), 0);
}

#[test]
fn orders_export_is_a_csv_that_only_its_owner_reads_and_that_overwrites_nothing() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::new("export");
    let mut bytes = Vec::new();
    assert_eq!(export_to(&world.file(), &mut bytes).unwrap(), 3);
    let text = String::from_utf8(bytes).unwrap();
    let lines: Vec<&str> = text.split("\r\n").collect();
    assert!(lines[0].starts_with("reservation_id,activity_id,"));
    assert_eq!(
        lines[2],
        "rsv_0000000000000002,1,1,1002,1,\"'=request,0\",900,CNY,PAID,2,5,9,9,1000,pay-2"
    );
    assert_eq!(lines[4..], [""], "three orders and the last line's end");
    let csv = world.dir.join("orders.csv");
    assert_eq!(export_to_file(&world.file(), &csv).unwrap(), 3);
    assert_eq!(std::fs::read_to_string(&csv).unwrap(), text);
    let mode = std::fs::metadata(&csv).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let again = export_to_file(&world.file(), &csv).unwrap_err();
    assert!(matches!(again, ExportError::Write(Some(_), _)));
    assert!(again.to_string().contains("not overwritten"));
}
