//! `weir serve` with its ledger in a real Redis: a sale from the first submit to the last order, what happens while Redis
//! is away, and what is said of a Redis that cannot hold a ledger (F1-F4, D6; issue: bad input).
#![allow(clippy::unwrap_used)] // a test that meets one has failed

mod bad_input_world;
mod redis_part;

use bad_input_world::*;
use redis_part::Redis;
use redis_part::cluster::Cluster;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

/// Units that `weir init` puts on sale.
const STOCK: u64 = 100;

/// A shop whose ledger is in `redis`.
fn shop(name: &str, redis: &Redis) -> Shop {
    shop_at(name, &redis.addr().to_string())
}

fn shop_at(name: &str, servers: &str) -> Shop {
    let shop = Shop::new(&format!("redis-{name}"));
    shop.use_redis(servers);
    shop
}

/// A field of the SKU's hash.
fn field(redis: &Redis, name: &str) -> u64 {
    let text = redis.cli(&["HGET", "{a1:s1}:sku", name]);
    text.parse()
        .unwrap_or_else(|_| panic!("{name} is {text:?}"))
}

/// Asks for the status until it is as wanted.
fn until_status(wire: &mut Wire, buyer: &Buyer, submit: &Submit, wanted: &[&str]) -> String {
    let end = Instant::now() + PATIENCE;
    loop {
        let answer = wire.ask(&buyer.status(submit));
        let word = answer.json()["status"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        if wanted.contains(&word.as_str()) {
            return word;
        }
        assert!(Instant::now() < end, "{wanted:?}: {answer:?}");
    }
}

fn orders(shop: &Shop) -> u64 {
    let file = rusqlite::Connection::open(shop.path("data/orders.sqlite")).unwrap();
    let sql = "SELECT count(*) FROM orders WHERE state = 'CREATED'";
    file.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap() as u64
}

#[test]
fn a_sale_on_redis_sells_each_unit_once_and_every_order_follows() {
    let Some(redis) = Redis::start() else { return };
    let shop = shop("sale", &redis);
    let running = shop.start();
    let buyer = Buyer::of(&shop);
    let mut wire = running.wire();
    let (mut winners, mut losers) = (Vec::new(), 0);
    for user in 1..=STOCK + 50 {
        // Somebody writes into the stream of the orders: no order waits for that.
        if user % 10 == 0 && user <= 30 {
            redis.cli(&["XADD", "{a1:s1}:orders", "*", "hello", "world"]);
        }
        let submit = buyer.submit(user);
        let answer = wire.ask(&buyer.bytes(&submit));
        match answer.code().as_str() {
            "SECKILL_QUEUED" => winners.push(submit),
            "SECKILL_SOLD_OUT" => losers += 1,
            other => panic!("{other}: {answer:?}"),
        }
        // The same request again, and another one of the same user.
        if user % 7 == 0 && user < STOCK {
            let again = winners.last().unwrap();
            assert_eq!(wire.ask(&buyer.bytes(again)).code(), "REQUEST_REPLAYED");
            let mut other = buyer.submit(user);
            other.body = other.body.replace("req-", "oth-");
            assert_eq!(wire.ask(&buyer.bytes(&other)).code(), "ALREADY_PURCHASED");
        }
    }
    assert_eq!((winners.len() as u64, losers), (STOCK, 50));
    for submit in &winners {
        until_status(&mut wire, &buyer, submit, &["CREATED"]);
    }
    // A winner's retry hears of its order although all is sold.
    assert_eq!(
        wire.ask(&buyer.bytes(&winners[3])).code(),
        "REQUEST_REPLAYED"
    );
    assert_eq!((field(&redis, "free"), field(&redis, "held")), (0, STOCK));
    until_metric(&running, "weir_redis_stream_unreadable_total", 3);
    // Nor do the others of its node wait for a SKU whose books somebody has changed.
    redis.cli(&["HINCRBY", "{a1:s1}:sku", "free", "7"]);
    let line = "weir_redis_errors_total{result=\"WEIRBOOKS\"}";
    until_metric_is(&running, line, |count| count > 1);
    redis.cli(&["HINCRBY", "{a1:s1}:sku", "free", "-7"]);
    until_metric(&running, "weir_redis_links_lost_total", 0);
    running.stop();
    assert_eq!(orders(&shop), STOCK);
    // A restart changes nothing: the stock is in Redis.
    let running = shop.start();
    let mut wire = running.wire();
    let late = wire.ask(&buyer.bytes(&buyer.submit(900)));
    assert_eq!(late.code(), "SECKILL_SOLD_OUT");
    until_status(&mut wire, &buyer, &winners[0], &["CREATED"]);
    running.stop();
}

#[test]
fn a_redis_that_stands_still_leaves_its_asks_open_until_they_are_known() {
    let Some(redis) = Redis::start() else { return };
    let shop = shop("still", &redis);
    shop.edit("request_budget = \"1900ms\"", "request_budget = \"200ms\"");
    let running = shop.start();
    let buyer = Buyer::of(&shop);
    let mut wire = running.wire();
    assert_eq!(
        wire.ask(&buyer.bytes(&buyer.submit(1))).code(),
        "SECKILL_QUEUED"
    );
    redis.signal("STOP");
    let asked: Vec<Submit> = (2..=9).map(|user| buyer.submit(user)).collect();
    for submit in &asked {
        let answer = wire.ask(&buyer.bytes(submit));
        let code = answer.code();
        // Until the link is given up asks are open; after that nothing is asked.
        let is_closed = code == "SECKILL_PENDING"
            || code == "DEPENDENCY_UNAVAILABLE"
            || code == "SYSTEM_OVERLOADED";
        assert!(is_closed, "{answer:?}");
    }
    redis.signal("CONT");
    running.until_ready_is(200);
    // Each is known in the end, and is what Redis says of it.
    let mut granted = 1;
    for submit in &asked {
        let word = until_status(&mut wire, &buyer, submit, &["CREATED", "NOT_ACCEPTED"]);
        granted += u64::from(word == "CREATED");
    }
    assert_eq!(field(&redis, "held"), granted);
    let sold = until_sold(&mut wire, &buyer, 20);
    until_status(&mut wire, &buyer, &sold, &["CREATED"]);
    running.stop();
    assert_eq!(orders(&shop), field(&redis, "held"));
}

/// Submits of new users until one is granted: the gate opens again.
fn until_sold(wire: &mut Wire, buyer: &Buyer, first: u64) -> Submit {
    let end = Instant::now() + PATIENCE;
    for user in first.. {
        let submit = buyer.submit(user);
        let answer = wire.ask(&buyer.bytes(&submit));
        if answer.code() == "SECKILL_QUEUED" {
            return submit;
        }
        assert!(
            Instant::now() < end,
            "nothing is sold again: {answer:?} to user {user}"
        );
    }
    unreachable!("there are users enough")
}

/// A total loss, while weir runs and while it does not: the books are mended from the grants that were told and from the
/// orders, nothing that was sold is sold again, and the sale goes on.
#[test]
fn a_redis_that_lost_its_data_gets_its_books_back_and_sells_on() {
    let Some(mut redis) = Redis::start() else {
        return;
    };
    let shop = shop("lost", &redis);
    shop.edit("# freeze = \"25s\"", "freeze = \"1s\"");
    let running = shop.start();
    let buyer = Buyer::of(&shop);
    let mut wire = running.wire();
    let mut submits: Vec<Submit> = (1..=20).map(|user| buyer.submit(user)).collect();
    let mut numbers = Vec::new();
    for submit in &submits {
        let answer = wire.ask(&buyer.bytes(submit));
        assert_eq!(answer.code(), "SECKILL_QUEUED");
        numbers.push(answer.json()["reservation_id"].clone());
    }
    // Two restocks: the answer of the second is lost with its server.
    let restock = |running: &Running, name: &str, units: u64| {
        let body = format!(r#"{{"request_id":"{name}","units":{units},"actor":"alice"}}"#);
        running.post_ops("/ops/v1/activities/1/skus/1/restock", &body)
    };
    assert_eq!(restock(&running, "restock-1", 2).code(), "OK");
    assert_eq!(restock(&running, "restock-2", 5).code(), "OK");
    redis.begin_anew(); // another run, another history, no keys
    until_metric(
        &running,
        "weir_redis_mended_total{activity_id=\"1\",sku_id=\"1\"} ",
        1,
    );
    running.until_ready_is(200);
    assert_eq!(
        [field(&redis, "total"), field(&redis, "free")],
        [STOCK + 7, STOCK + 7 - 20]
    );
    assert_eq!(restock(&running, "restock-2", 5).code(), "OK");
    assert_eq!(
        restock(&running, "restock-2", 6).code(),
        "REQUEST_ID_CONFLICT"
    );
    assert_eq!(field(&redis, "total"), STOCK + 7);
    submits.push(until_sold(&mut wire, &buyer, 21));
    running.stop();
    redis.begin_anew();
    let running = Running::of(shop.command());
    let mut wire = running.wire();
    until_metric(
        &running,
        "weir_redis_mended_total{activity_id=\"1\",sku_id=\"1\"} ",
        1,
    );
    submits.push(until_sold(&mut wire, &buyer, 1_000_000));
    for submit in &submits {
        until_status(&mut wire, &buyer, submit, &["CREATED"]);
    }
    // A repeat is answered as it was the first time.
    for (submit, number) in submits.iter().zip(&numbers) {
        assert_eq!(
            wire.ask(&buyer.bytes(submit)).json()["reservation_id"],
            *number
        );
    }
    assert_eq!(orders(&shop), submits.len() as u64);
    assert_eq!(
        [field(&redis, "total"), field(&redis, "held")],
        [STOCK + 7, submits.len() as u64]
    );
    running.kill();
}

/// Beside what it sold a stock is not made anew: every reservation would be found there, and its units free once more.
#[test]
fn a_stock_whose_key_was_deleted_sells_nothing_until_the_rest_of_it_is_deleted_too() {
    let Some(redis) = Redis::start() else { return };
    let shop = shop("deleted", &redis);
    shop.edit("# freeze = \"25s\"", "freeze = \"1s\"");
    let running = shop.start();
    let buyer = Buyer::of(&shop);
    let mut wire = running.wire();
    let mut submits: Vec<Submit> = (1..=5).map(|user| buyer.submit(user)).collect();
    for submit in &submits {
        assert_eq!(wire.ask(&buyer.bytes(submit)).code(), "SECKILL_QUEUED");
        until_status(&mut wire, &buyer, submit, &["CREATED"]);
    }
    redis.cli(&["DEL", "{a1:s1}:sku"]);
    let labels = "{activity_id=\"1\",sku_id=\"1\"} ";
    until_metric(&running, &format!("weir_redis_mending{labels}"), 1);
    until_error(&redis, "WEIRBOOKS");
    assert_eq!(redis.cli(&["EXISTS", "{a1:s1}:sku"]), "0");
    let refused = wire.ask(&buyer.bytes(&buyer.submit(6)));
    assert_ne!(refused.code(), "SECKILL_QUEUED");
    for name in ["ops", "res", "req", "user", "pending", "nonce", "orders"] {
        redis.cli(&["DEL", &format!("{{a1:s1}}:{name}")]);
    }
    until_metric(&running, &format!("weir_redis_mended_total{labels}"), 1);
    running.until_ready_is(200);
    assert_eq!(
        ["total", "free", "held"].map(|name| field(&redis, name)),
        [STOCK, STOCK - 5, 5]
    );
    submits.push(until_sold(&mut wire, &buyer, 21));
    for submit in &submits {
        until_status(&mut wire, &buyer, submit, &["CREATED"]);
    }
    running.kill();
}

/// Waits until the server has answered with an error of that code.
fn until_error(redis: &Redis, code: &str) {
    let end = Instant::now() + PATIENCE;
    loop {
        let errors = redis.cli(&["INFO", "errorstats"]);
        if errors.contains(&format!("errorstat_{code}")) {
            return;
        }
        assert!(Instant::now() < end, "no {code}: {errors}");
    }
}

/// `weir ctl` against a running weir.
fn ctl(shop: &Shop, ops: SocketAddr, wish: &str) -> (bool, String) {
    let config = shop.path("weir.toml");
    let done = std::process::Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["ctl", wish, "--activity", "1", "--sku", "1", "--config"])
        .arg(config)
        .args(["--ops", &ops.to_string()])
        .output()
        .unwrap();
    let text = [done.stdout, done.stderr].concat();
    let text = String::from_utf8(text).unwrap();
    (done.status.success(), text)
}

#[test]
fn an_operator_freezes_thaws_and_rebuilds_by_one_command_each() {
    let Some(redis) = Redis::start() else { return };
    let shop = shop("ctl", &redis);
    let running = shop.start();
    let buyer = Buyer::of(&shop);
    let mut wire = running.wire();
    let won = until_sold(&mut wire, &buyer, 1);
    until_status(&mut wire, &buyer, &won, &["CREATED"]);
    let (is_done, said) = ctl(&shop, running.ops, "freeze");
    assert!(is_done && said.contains("\"action\":\"freeze\""), "{said}");
    wire.send(&buyer.bytes(&buyer.submit(500)));
    assert_eq!(wire.answer().status, 503);
    until_status(&mut wire, &buyer, &won, &["CREATED"]); // everything else goes on
    let (is_done, said) = ctl(&shop, running.ops, "thaw");
    assert!(is_done, "{said}");
    let other = until_sold(&mut wire, &buyer, 600);
    until_status(&mut wire, &buyer, &other, &["CREATED"]);
    // A record that is gone, as a hand at the wrong key takes it: its order is there, and brings it back.
    let lost = |name: &str| {
        let key = format!("{{a1:s1}}:{name}");
        redis.cli(&["DEL", &key]);
    };
    ["res", "req", "user", "nonce", "pending"]
        .into_iter()
        .for_each(lost);
    redis.cli(&[
        "HSET",
        "{a1:s1}:sku",
        "free",
        "100",
        "held",
        "0",
        "keep",
        "",
    ]);
    let (is_done, said) = ctl(&shop, running.ops, "rebuild");
    assert!(is_done, "{said}");
    assert_eq!([field(&redis, "free"), field(&redis, "held")], [98, 2]);
    until_status(&mut wire, &buyer, &won, &["CREATED"]);
    let nobody = SocketAddr::from(([127, 0, 0, 1], redis_part::free_port()));
    let (is_done, said) = ctl(&shop, nobody, "thaw");
    assert!(!is_done && said.contains("is weir running"), "{said}");
    running.stop();
}

fn until_metric(running: &Running, line: &str, wanted: u64) {
    until_metric_is(running, line, |value| value == wanted);
}

fn until_metric_is(running: &Running, line: &str, is_so: impl Fn(u64) -> bool) {
    let end = Instant::now() + PATIENCE;
    loop {
        let page = running.get_ops("/metrics").body;
        let found = page.lines().find_map(|text| text.strip_prefix(line));
        let value = found.and_then(|value| value.trim().parse().ok());
        if value.is_some_and(&is_so) {
            return;
        }
        let redis = page.lines().filter(|line| line.starts_with("weir_redis"));
        let redis: Vec<&str> = redis.collect();
        assert!(Instant::now() < end, "{line} is {found:?}: {redis:#?}");
    }
}

/// What `serve` says of a Redis that cannot hold its ledger; nothing has started then.
fn refused(shop: &Shop, wanted: &[&str]) {
    let said = shop.refusal();
    for words in wanted {
        assert!(said.contains(words), "{words:?} is not in: {said}");
    }
}

#[test]
fn what_is_wrong_with_a_redis_is_said_before_anything_starts() {
    let Some(redis) = Redis::start() else { return };
    // Nobody there.
    let nobody = shop_at("nobody", &format!("127.0.0.1:{}", redis_part::free_port()));
    refused(&nobody, &["no connection", "mend redis.servers"]);
    let code = run(&[weir()], &nobody).status.code();
    assert_eq!(code, Some(75), "a supervisor tries again");
    // A name that no resolver knows (RFC 6761 reserves .invalid).
    let nameless = shop_at("nameless", "redis.invalid:6379");
    refused(&nameless, &["redis.invalid:6379", "has no address"]);
    // Holes in its Lua engine, which Debian mends without a new number.
    let holes = shop("holes", &redis);
    holes.edit("accept_lua_holes = true", "accept_lua_holes = false");
    let version = redis.cli(&["INFO", "server"]);
    if version.contains("redis_version:7.0.") {
        refused(&holes, &["CVE-2025-49844", "redis.accept_lua_holes = true"]);
    }
    // Another application's key.
    let foreign = shop("foreign", &redis);
    redis.cli(&["SET", "{a1:s1}:res", "something"]);
    refused(&foreign, &["{a1:s1}:res is a string", "redis.database"]);
    redis.cli(&["DEL", "{a1:s1}:res"]);
    // No node of a cluster.
    let single = shop("single", &redis);
    single.edit("# cluster = false", "cluster = true");
    refused(&single, &["it is no node of a cluster"]);
    // A replica.
    let Some(replica) = Redis::start() else {
        return;
    };
    replica.cli(&["REPLICAOF", "127.0.0.1", &redis.port.to_string()]);
    let of_replica = shop("replica", &replica);
    let master = format!("name its master (127.0.0.1:{})", redis.port);
    refused(&of_replica, &["it is a replica", &master]);
}

#[test]
fn a_cluster_of_which_a_node_is_away_is_served_by_the_others() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    let ports = [redis_part::free_port(), cluster.nodes[0].port];
    let servers = ports.map(|port| format!("127.0.0.1:{port}"));
    let shop = shop_at("away", &servers.join("\", \""));
    shop.edit("# cluster = false", "cluster = true");
    let running = shop.start();
    let buyer = Buyer::of(&shop);
    let mut wire = running.wire();
    let won = until_sold(&mut wire, &buyer, 1);
    until_status(&mut wire, &buyer, &won, &["CREATED"]);
    running.stop();
    shop.edit(
        &servers[1],
        &format!("127.0.0.1:{}", redis_part::free_port()),
    );
    refused(&shop, &["no connection", "mend redis.servers"]);
}

#[test]
fn a_stock_whose_books_were_changed_by_hand_sells_nothing_until_they_balance() {
    let Some(redis) = Redis::start() else { return };
    let shop = shop("by-hand", &redis);
    let running = shop.start();
    let buyer = Buyer::of(&shop);
    let mut wire = running.wire();
    until_sold(&mut wire, &buyer, 1);
    redis.cli(&["HINCRBY", "{a1:s1}:sku", "free", "7"]);
    let line = "weir_redis_errors_total{result=\"WEIRBOOKS\"}";
    until_metric_is(&running, line, |count| count > 1);
    let held = field(&redis, "held");
    for user in 50..60 {
        let answer = wire.ask(&buyer.bytes(&buyer.submit(user)));
        assert_eq!(answer.status, 503, "{answer:?}");
    }
    assert_eq!(field(&redis, "held"), held);
    redis.cli(&["HINCRBY", "{a1:s1}:sku", "free", "-7"]);
    until_sold(&mut wire, &buyer, 100);
    until_metric(&running, "weir_redis_links_lost_total", 0);
    running.stop();
}

#[test]
fn any_node_of_a_cluster_will_do_to_begin_with() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    // The second half of its nodes were made replicas.
    let servers: Vec<String> = cluster.nodes[3..]
        .iter()
        .map(|node| format!("127.0.0.1:{}", node.port))
        .collect();
    let shop = shop_at("replicas", &servers.join("\", \""));
    shop.edit("# cluster = false", "cluster = true");
    let running = shop.start();
    let buyer = Buyer::of(&shop);
    let mut wire = running.wire();
    let won = until_sold(&mut wire, &buyer, 1);
    until_status(&mut wire, &buyer, &won, &["CREATED"]);
    running.stop();
}

#[test]
fn passwords_are_taken_from_a_guarded_file_and_never_shown() {
    let Some(redis) = Redis::start_with(&["--requirepass", "correct-horse"]) else {
        return;
    };
    let shop = shop("password", &redis);
    refused(&shop, &["it wants a password", "redis.password_file"]);
    let file = shop.path("keys/redis.password");
    let write = |text: &str| {
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o400)).unwrap();
    };
    write("battery-staple\n");
    shop.edit(
        "# password_file = \"keys/redis.password\"",
        "password_file = \"keys/redis.password\"",
    );
    let said = shop.refusal();
    assert!(
        said.contains("did not take the user and password"),
        "{said}"
    );
    assert!(!said.contains("battery-staple"), "{said}");
    std::fs::remove_file(&file).unwrap();
    write("correct-horse\n");
    let running = shop.start();
    let buyer = Buyer::of(&shop);
    let answer = running.wire().ask(&buyer.bytes(&buyer.submit(1)));
    assert_eq!(answer.code(), "SECKILL_QUEUED");
    running.stop();
}
