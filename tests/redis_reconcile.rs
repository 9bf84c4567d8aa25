//! `weir reconcile` with the ledger in a real Redis, one server and a cluster: equal books are equal, also while they sell
//! and while a slot moves; every kind of difference that is planted is named; repairs touch the order store only (G7).
#![allow(clippy::unwrap_used)] // a test that meets one has failed

mod bad_input_world;
#[path = "support/payment.rs"]
mod payment;
mod redis_part;

use bad_input_world::*;
use payment::payment;
use redis_part::Redis;
use redis_part::cluster::Cluster;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Reservations of the small sale; the first is paid.
const WON: u64 = 12;

/// Of an order the last digit of its number.
const ID: &str = "substr(printf('%x', reservation_id), -1)";

fn shop(name: &str, servers: &str) -> Shop {
    let shop = Shop::new(&format!("reconcile-{name}"));
    shop.use_redis(servers);
    shop
}

/// Exit code, the report if there is one, and what was said.
fn reconcile(shop: &Shop, more: &[&str]) -> (i32, Value, String) {
    let mut command = Command::new("timeout");
    command.arg(PATIENCE.as_secs().to_string());
    command.args([weir(), "reconcile", "--json", "--config"]);
    let output = command.arg(shop.toml()).args(more).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let report = serde_json::from_slice(&output.stdout).unwrap_or_default();
    (output.status.code().unwrap(), report, said)
}

/// How many differences there are of each kind.
fn counts(shop: &Shop) -> Value {
    let (code, report, said) = reconcile(shop, &[]);
    assert_eq!(code, 1, "{said} {report}");
    assert_eq!(report["balanced"], false);
    report["counts"].clone()
}

fn assert_equal(shop: &Shop) -> Value {
    let (code, report, said) = reconcile(shop, &[]);
    assert_eq!(code, 0, "{said} {report:#}");
    assert_eq!(report["balanced"], true);
    report
}

fn until_status(wire: &mut Wire, buyer: &Buyer, submit: &Submit, wanted: &str) -> Answer {
    let end = Instant::now() + PATIENCE;
    loop {
        let answer = wire.ask(&buyer.status(submit));
        if answer.json()["status"] == wanted {
            return answer;
        }
        assert!(Instant::now() < end, "{wanted}: {answer:?}");
    }
}

/// `WON` buyers win, one pays, everything becomes an order.
fn sell(shop: &Shop) {
    let running = shop.start();
    let (buyer, mut wire) = (Buyer::of(shop), running.wire());
    let won: Vec<Submit> = (1..=WON).map(|user| buyer.submit(user)).collect();
    for submit in &won {
        let end = Instant::now() + PATIENCE;
        while wire.ask(&buyer.bytes(submit)).code() == "DEPENDENCY_UNAVAILABLE" {
            assert!(Instant::now() < end);
        }
    }
    for submit in &won {
        until_status(&mut wire, &buyer, submit, "CREATED");
    }
    let told = until_status(&mut wire, &buyer, &won[0], "CREATED");
    let id = told.json()["reservation_id"].as_str().unwrap().to_owned();
    assert_eq!(
        wire.ask(&payment(&shop.plan(), &id)).code(),
        "PAYMENT_ACCEPTED"
    );
    until_status(&mut wire, &buyer, &won[0], "PAID");
    running.stop();
}

fn sql(shop: &Shop, sql: &str) {
    let file = rusqlite::Connection::open(shop.path("data/orders.sqlite")).unwrap();
    file.execute_batch(sql).unwrap();
}

fn say(redis: &Redis, commands: &[&str]) {
    for command in commands {
        let words: Vec<&str> = command.split(' ').collect();
        let said = redis.cli(&words);
        assert!(
            !said.starts_with("ERR") && !said.starts_with("WRONGTYPE"),
            "{command}: {said}"
        );
    }
}

/// The fields of a reservation's record.
fn record(redis: &Redis, number: u64) -> Vec<String> {
    let record = redis.cli(&["HGET", "{a1:s1}:res", &number.to_string()]);
    record.split(' ').map(str::to_owned).collect()
}

#[test]
fn what_is_planted_in_redis_is_named() {
    let Some(redis) = Redis::start() else { return };
    let shop = shop("redis", &redis.addr().to_string());
    sell(&shop);
    let report = assert_equal(&shop);
    let sku = &report["skus"][0];
    assert_eq!(
        (&sku["total"], &sku["held"]),
        (&json!(100), &json!(WON - 1))
    );
    assert_eq!((&sku["sold"], &sku["orders_paid"]), (&json!(1), &json!(1)));

    let maker = redis.cli(&["HGET", "{a1:s1}:sku", "maker"]);
    let (second, third, fourth) = (record(&redis, 2), record(&redis, 3), record(&redis, 4));
    let request = format!("HDEL {{a1:s1}}:req {}:{}", second[4], second[7]);
    let nonce = format!("HDEL {{a1:s1}}:nonce {}", third[8]);
    let user = format!("HSET {{a1:s1}}:user {} 9", fourth[4]);
    say(
        &redis,
        &[
            &request,
            &nonce,
            &user,
            "HSET {a1:s1}:nonce made-up 777",
            "ZADD {a1:s1}:pending 1 2",
            "ZADD {a1:s1}:pending 1 888",
            "XADD {a1:s1}:orders * v 1 id 999 user 1 quantity 1",
            "XADD {a1:s1}:orders * v 1 id 2 user 666 quantity 1",
            "HSET {a1:s1}:sku next 3",
            "HINCRBY {a1:s1}:sku reservations 1",
            "HSET {a1:s1}:sku fence elsewhere",
            "HSET {a1:s1}:sku maker 5",
            "HINCRBY {a1:s1}:sku held 2",
            "HINCRBY {a1:s1}:sku free -1",
        ],
    );
    let planted = json!({
        "index_differs": 4, "pending_differs": 2, "message_differs": 2, "numbering_differs": 2, "sku_fenced": 1,
        "other_store": 1, "books_not_reservations": 1, "books_unbalanced": 1,
    });
    assert_eq!(counts(&shop), planted);
    // Nothing is repaired where others make the orders, and nothing of that in Redis by hand.
    let (code, _, said) = reconcile(&shop, &["--repair"]);
    assert_eq!(code, 2, "{said}");
    assert!(
        said.contains("another order store makes the orders"),
        "{said}"
    );
    say(&redis, &[&format!("HSET {{a1:s1}}:sku maker {maker}")]);
    let mut planted = planted;
    planted.as_object_mut().unwrap().remove("other_store");
    let before = redis.cli(&["HGETALL", "{a1:s1}:sku"]);
    let (code, report, said) = reconcile(&shop, &["--repair"]);
    assert_eq!((code, &report["counts"]), (1, &planted), "{said}");
    assert_eq!(redis.cli(&["HGETALL", "{a1:s1}:sku"]), before);
    assert!(said.contains("these need a person"), "{said}");
    let mut remedies = report["differences"].as_array().unwrap().iter();
    let fenced = remedies.find(|row| row["kind"] == "sku_fenced").unwrap();
    assert!(
        fenced["remedy"]
            .as_str()
            .unwrap()
            .contains("weir ctl rebuild")
    );

    // A stock that is gone, and keys that are not ours.
    say(&redis, &["FLUSHALL"]);
    assert_eq!(counts(&shop), json!({"sku_missing": 1}));
    say(&redis, &["SET {a1:s1}:sku text"]);
    let (code, _, said) = reconcile(&shop, &[]);
    assert_eq!(code, 2, "{said}");
    assert!(
        said.contains("key {a1:s1}:sku is a string, and weir keeps a hash"),
        "{said}"
    );
    say(&redis, &["CONFIG SET requirepass correct-horse"]);
    let (code, _, said) = reconcile(&shop, &[]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("it wants a password"), "{said}");
    drop(redis);
    let (code, _, said) = reconcile(&shop, &[]);
    assert_eq!(code, 75, "{said}");
    assert!(said.contains("no connection"), "{said}");
}

#[test]
fn what_a_user_of_redis_may_not_read_is_said_and_not_guessed() {
    let Some(redis) = Redis::start() else { return };
    let readme = include_str!("../README.md");
    let (_, list) = readme
        .split_once("`ACL SETUSER weir on >PASSWORD `")
        .unwrap();
    let list = list.split("```").nth(1).unwrap();
    let words = list.split_whitespace().skip_while(|word| *word == "text");
    let rule: Vec<&str> = "ACL SETUSER weir on >correct-horse"
        .split(' ')
        .chain(words)
        .collect();
    assert_eq!(redis.cli(&rule), "OK");
    let shop = shop("acl", &redis.addr().to_string());
    let file = shop.path("keys/redis.password");
    std::fs::write(&file, "correct-horse\n").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o400)).unwrap();
    shop.edit("# user = \"weir\"", "user = \"weir\"");
    shop.edit(
        "# password_file = \"keys/redis.password\"",
        "password_file = \"keys/redis.password\"",
    );
    sell(&shop);
    say(
        &redis,
        &["XADD {a1:s1}:orders * v 1 id 2 user 666 quantity 1"],
    );
    let report = assert_equal(&shop);
    assert_eq!(report["in_stream"], 1);
    assert!(
        report["notes"].to_string().contains("lacks +xrange"),
        "{report:#}"
    );
    assert_eq!(redis.cli(&["ACL", "SETUSER", "weir", "+xrange"]), "OK");
    assert_eq!(counts(&shop), json!({"message_differs": 1}));
}

#[test]
fn orders_and_reservations_that_part_are_named_and_the_order_store_is_repaired() {
    let Some(redis) = Redis::start() else { return };
    let shop = shop("orders", &redis.addr().to_string());
    sell(&shop);
    let rewrite = |number: u64, state: &str| {
        let mut fields = record(&redis, number);
        state.clone_into(&mut fields[0]);
        let (number, record) = (number.to_string(), fields.join(" "));
        redis.cli(&["HSET", "{a1:s1}:res", &number, &record])
    };
    // One is closed in Redis only, one waits for its order though it has one, one is gone.
    rewrite(2, "3");
    rewrite(3, "0");
    lose(&redis, 4);
    // The one that is closed in Redis gave its unit back.
    say(
        &redis,
        &["HINCRBY {a1:s1}:sku held -1", "HINCRBY {a1:s1}:sku free 1"],
    );
    sql(
        &shop,
        &format!(
            "UPDATE orders SET user_id = 555 WHERE {ID} = '5'; DELETE FROM order_history WHERE {ID} = '6'; \
             DELETE FROM orders WHERE {ID} = '6'; UPDATE stock SET total = 90, taken = 3"
        ),
    );
    let planted = json!({
        "states_differ": 2, "pending_differs": 1, "reservation_missing": 1, "identity_differs": 1, "order_missing": 1,
        "total_differs": 1, "taken_differs": 1,
    });
    assert_eq!(counts(&shop), planted);
    let in_redis = || {
        [
            redis.cli(&["HGETALL", "{a1:s1}:sku"]),
            redis.cli(&["HGETALL", "{a1:s1}:res"]),
            redis.cli(&["ZRANGE", "{a1:s1}:pending", "0", "-1"]),
        ]
    };
    let before = in_redis();
    // While somebody makes orders there, nothing is repaired.
    let lock = std::fs::File::open(shop.path("data/ledger.lock")).unwrap();
    lock.lock().unwrap();
    let (code, _, said) = reconcile(&shop, &["--repair"]);
    assert_eq!(code, 2, "{said}");
    assert!(
        said.contains("is in use by a server; stop it first"),
        "{said}"
    );
    drop(lock);
    let (code, report, said) = reconcile(&shop, &["--repair"]);
    // The total goes with the names of its restocks, which only the worker tells.
    let left = json!({
        "pending_differs": 1, "reservation_missing": 1, "identity_differs": 1, "total_differs": 1,
    });
    assert_eq!((code, &report["counts"]), (1, &left), "{said} {report:#}");
    assert_eq!(
        report["steps_open"], 3,
        "the worker asks again, or confirms"
    );
    assert_eq!(in_redis(), before);
    // Two live orders of one user, which only a writer that drops the key can make.
    sql(
        &shop,
        &format!(
            "UPDATE orders SET live = NULL WHERE {ID} = '8'; \
             UPDATE orders SET user_id = (SELECT user_id FROM orders WHERE {ID} = '7') WHERE {ID} = '8'; \
             UPDATE orders SET quantity = 500 WHERE {ID} = '9'"
        ),
    );
    let more = json!({
        "pending_differs": 1, "reservation_missing": 1, "identity_differs": 3, "two_live_orders": 1, "oversold": 1,
        "taken_differs": 1, "total_differs": 1,
    });
    assert_eq!(counts(&shop), more);
    // Orders of another kind of ledger, and of nobody.
    sql(&shop, "UPDATE meta SET value = 7 WHERE key = 'ledger_id'");
    let (code, _, said) = reconcile(&shop, &[]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("made with an embedded ledger"), "{said}");
    shop.edit("# made_by = \"here\"", "made_by = \"worker\"");
    std::fs::remove_file(shop.path("data/orders.sqlite")).unwrap();
    let (code, _, said) = reconcile(&shop, &[]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("run it where `weir worker` runs"), "{said}");
}

/// Reconciles until it says that all is equal and no step is open.
fn until_equal(shop: &Shop) -> Value {
    let end = Instant::now() + PATIENCE;
    loop {
        let (code, report, said) = reconcile(shop, &[]);
        if code == 0 && report["steps_open"] == 0 && report["in_outbox"] == 0 {
            return report;
        }
        assert!(Instant::now() < end, "{said} {report:#}");
    }
}

/// Takes a reservation out of Redis, as if its grant and all that followed had never been.
fn lose(redis: &Redis, number: u64) {
    let gone = record(redis, number);
    say(
        redis,
        &[
            &format!("HDEL {{a1:s1}}:res {number}"),
            &format!("HDEL {{a1:s1}}:req {}:{}", gone[4], gone[7]),
            &format!("HDEL {{a1:s1}}:nonce {}", gone[8]),
            &format!("HDEL {{a1:s1}}:user {}", gone[4]),
            "HINCRBY {a1:s1}:sku reservations -1",
            "HINCRBY {a1:s1}:sku held -1",
            "HINCRBY {a1:s1}:sku free 1",
        ],
    );
}

#[test]
fn what_the_remedies_say_mends() {
    let Some(redis) = Redis::start() else { return };
    let shop = shop("remedies", &redis.addr().to_string());
    shop.edit("# freeze = \"25s\"", "freeze = \"1s\"");
    sell(&shop);
    // By --repair and the next start: an order that is lost, one that was closed and Redis did not hear of it.
    sql(
        &shop,
        &format!(
            "DELETE FROM order_history WHERE {ID} = '6'; DELETE FROM orders WHERE {ID} = '6'; \
             UPDATE orders SET state = 'CLOSED', live = NULL WHERE {ID} = '5'; UPDATE stock SET total = 90, taken = taken - 2"
        ),
    );
    let planted = json!({"order_missing": 1, "states_differ": 1, "total_differs": 1});
    assert_eq!(counts(&shop), planted);
    let (code, report, said) = reconcile(&shop, &["--repair"]);
    let left = json!({"total_differs": 1}); // the process itself tells it
    assert_eq!(
        (code, &report["steps_open"], &report["counts"]),
        (1, &json!(2), &left),
        "{said} {report:#}"
    );
    let running = shop.start();
    let report = until_equal(&shop);
    let sku = &report["skus"][0];
    assert_eq!(
        (&sku["held"], &sku["stock_total"], &sku["orders_created"]),
        (&json!(WON - 2), &json!(100), &json!(WON - 2))
    );
    // By `weir ctl rebuild`: a reservation that Redis lost.
    lose(&redis, 4);
    assert_eq!(counts(&shop), json!({"reservation_missing": 1}));
    let done = Command::new(weir())
        .args(["ctl", "rebuild", "--activity", "1", "--sku", "1"])
        .args(["--ops", &running.ops.to_string(), "--config"])
        .arg(shop.toml())
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
    assert_eq!(assert_equal(&shop)["skus"][0], report["skus"][0]);
    running.stop();
    // By itself: a stock that Redis lost.
    say(&redis, &["FLUSHALL"]);
    assert_eq!(counts(&shop), json!({"sku_missing": 1}));
    let running = shop.start();
    assert_eq!(until_equal(&shop)["skus"][0], report["skus"][0]);
    running.stop();
}

#[test]
fn a_sale_that_runs_is_no_difference_and_a_lost_order_is_one_all_the_same() {
    let Some(redis) = Redis::start() else { return };
    let shop = shop("load", &redis.addr().to_string());
    shop.edit("\nstock = 100\n", "\nstock = 200000\n");
    sell(&shop);
    sql(
        &shop,
        "DELETE FROM order_history WHERE reservation_id = (SELECT max(reservation_id) FROM orders); \
         DELETE FROM orders WHERE reservation_id = (SELECT max(reservation_id) FROM orders); UPDATE stock SET taken = taken - 1",
    );
    let running = shop.start();
    let (buyer, is_over) = (Buyer::of(&shop), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let mut wire = running.wire();
        let (buyer, shop, is_over) = (&buyer, &shop, &is_over);
        scope.spawn(move || {
            let (plan, mut user) = (shop.plan(), 10_000);
            while !is_over.load(Ordering::Relaxed) {
                user += 1;
                let answer = wire.ask(&buyer.bytes(&buyer.submit(user)));
                if let (true, Some(id)) = (user % 3 == 0, answer.json()["reservation_id"].as_str())
                {
                    wire.ask(&payment(&plan, id)); // whether its order is there already, or not yet
                }
            }
        });
        let mut taken = 0;
        for look in 0..4 {
            let (code, report, said) = reconcile(shop, &[]);
            // The one that is planted, and nothing else.
            let is_right = code == 1 && report["counts"] == json!({"order_missing": 1});
            let sku = &report["skus"][0];
            let now_taken = sku["held"].as_u64().unwrap() + sku["sold"].as_u64().unwrap();
            if !is_right || (look > 0 && now_taken <= taken) {
                is_over.store(true, Ordering::Relaxed);
                panic!("look {look}, {taken} taken before: {said} {report:#}");
            }
            taken = now_taken;
        }
        is_over.store(true, Ordering::Relaxed);
    });
    running.stop();
}

#[test]
fn a_cluster_is_read_at_the_node_of_the_slot_also_while_the_slot_moves() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    let shop = shop("cluster", &cluster.nodes[0].addr().to_string());
    shop.edit("# cluster = false", "cluster = true");
    sell(&shop);
    assert_equal(&shop);
    let has = |at: &usize| cluster.nodes[*at].cli(&["EXISTS", "{a1:s1}:sku"]) == "1";
    let from = (0..3).find(has).unwrap();
    let to = (from + 1) % 3;
    let (source, target) = (&cluster.nodes[from], &cluster.nodes[to]);
    let slot = source.cli(&["CLUSTER", "KEYSLOT", "{a1:s1}:sku"]);
    let (source_id, target_id) = (
        source.cli(&["CLUSTER", "MYID"]),
        target.cli(&["CLUSTER", "MYID"]),
    );
    target.cli(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source_id]);
    source.cli(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target_id]);
    let port = target.port.to_string();
    let migrate = |names: &[&str]| {
        let keys = names.iter().map(|name| format!("{{a1:s1}}:{name}"));
        for key in keys {
            let said = source.cli(&["MIGRATE", "127.0.0.1", &port, &key, "0", "5000"]);
            assert!(said == "OK" || said == "NOKEY", "{key}: {said}");
        }
    };
    // Half of the keys are there: ASK.
    migrate(&["res", "user", "orders"]);
    let report = assert_equal(&shop);
    assert_eq!(report["skus"][0]["orders_paid"], 1);
    migrate(&[
        "sku", "req", "nonce", "pending", "ops", "events", "lease", "lines",
    ]);
    for node in [target, source] {
        assert_eq!(
            node.cli(&["CLUSTER", "SETSLOT", &slot, "NODE", &target_id]),
            "OK"
        );
    }
    // The node that is asked for the map may not know it yet: MOVED.
    let report = assert_equal(&shop);
    let notes = report["notes"].to_string();
    assert!(notes.contains("before the next reservation"), "{notes}");
    say(target, &["HINCRBY {a1:s1}:sku held 1"]);
    assert_eq!(
        counts(&shop),
        json!({"books_not_reservations": 1, "books_unbalanced": 1})
    );
    // A slot that nobody serves: it is waited for a while.
    for node in &cluster.nodes {
        node.cli(&["CLUSTER", "DELSLOTS", &slot]);
    }
    let (code, _, said) = reconcile(&shop, &[]);
    assert_eq!(code, 75, "{said}");
    assert!(said.contains("redis-cli --cluster check"), "{said}");
}
