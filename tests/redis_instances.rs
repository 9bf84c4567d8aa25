//! Several instances on one stock in a real Redis, and the one worker that makes their orders (issue 6, shows 5 and 6).
#![allow(clippy::unwrap_used)] // a test that meets one has failed

mod bad_input_world;
#[path = "support/payment.rs"]
mod payment;
mod redis_part;

use bad_input_world::*;
use payment::payment;
use redis_part::Redis;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Units that `weir init` puts on sale.
const STOCK: u64 = 100;

/// The files of a worker and its instances: one sale, a directory for each process.
struct Chain {
    worker: Shop,
    instances: [Shop; 2],
}

impl Chain {
    fn new(name: &str, redis: &Redis) -> Self {
        let worker = Shop::new(&format!("instances-{name}-worker"));
        worker.use_redis(&redis.addr().to_string());
        worker.edit("# made_by = \"here\"", "made_by = \"worker\"");
        let instances = ["a", "b"].map(|letter| copy_of(&worker, &format!("{name}-{letter}")));
        Self { worker, instances }
    }

    fn worker(&self) -> Running {
        let mut command = Command::new(weir());
        command.args(["worker", "--config"]).arg(self.worker.toml());
        Running::of(command)
    }
}

/// The same sale with the same keys in another directory.
fn copy_of(shop: &Shop, name: &str) -> Shop {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("bad-input-instances-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    let copied = Command::new("cp")
        .arg("-a")
        .args([&shop.dir, &dir])
        .status();
    assert!(copied.unwrap().success());
    Shop { dir }
}

fn field(redis: &Redis, name: &str) -> u64 {
    let text = redis.cli(&["HGET", "{a1:s1}:sku", name]);
    text.parse()
        .unwrap_or_else(|_| panic!("{name} is {text:?}"))
}

fn orders(shop: &Shop, state: &str) -> u64 {
    let file = rusqlite::Connection::open(shop.path("data/orders.sqlite")).unwrap();
    let sql = "SELECT count(*) FROM orders WHERE state = ?1";
    file.query_row(sql, [state], |row| row.get::<_, i64>(0))
        .unwrap() as u64
}

/// Asks for the status until it is one of `wanted`; the whole answer.
fn until_status(wire: &mut Wire, buyer: &Buyer, submit: &Submit, wanted: &[&str]) -> Answer {
    let end = Instant::now() + PATIENCE;
    loop {
        let answer = wire.ask(&buyer.status(submit));
        let word = answer.json()["status"].clone();
        if wanted.iter().any(|wanted| word == *wanted) {
            return answer;
        }
        assert!(Instant::now() < end, "{wanted:?}: {answer:?}");
    }
}

/// Which reservation an answer names.
fn reservation(answer: &Answer) -> String {
    answer.json()["reservation_id"].as_str().unwrap().to_owned()
}

/// What an answer says, its time apart.
fn words(answer: &Answer) -> (u16, serde_json::Value) {
    let mut json = answer.json();
    let members = json.as_object_mut().unwrap();
    for name in ["server_time", "next_poll_after_ms"] {
        members.remove(name);
    }
    (answer.status, json)
}

#[test]
fn two_instances_sell_one_stock_and_the_worker_makes_every_order() {
    let Some(redis) = Redis::start() else { return };
    let chain = Chain::new("sale", &redis);
    let worker = chain.worker();
    let running = chain.instances.each_ref().map(Shop::start);
    let buyer = Buyer::of(&chain.worker);
    let mut wires = running.each_ref().map(Running::wire);
    let (mut winners, mut losers) = (Vec::new(), 0);
    for user in 1..=STOCK + 20 {
        let submit = buyer.submit(user);
        let answer = wires[(user % 2) as usize].ask(&buyer.bytes(&submit));
        match answer.code().as_str() {
            "SECKILL_QUEUED" => winners.push(submit),
            "SECKILL_SOLD_OUT" => losers += 1,
            other => panic!("{other}: {answer:?}"),
        }
    }
    assert_eq!((winners.len() as u64, losers), (STOCK, 20));
    // Each winner hears of its order, and of its first answer, from the instance that it did not ask.
    for submit in &winners {
        let other = &mut wires[((submit.user + 1) % 2) as usize];
        until_status(other, &buyer, submit, &["CREATED"]);
        assert_eq!(other.ask(&buyer.bytes(submit)).code(), "REQUEST_REPLAYED");
    }
    let mut at_worker = worker.wire();
    at_worker.send(&buyer.bytes(&buyer.submit(500)));
    let refused = at_worker.answer();
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.body.contains("sells nothing"), "{refused:?}");
    let won = until_status(&mut at_worker, &buyer, &winners[0], &["CREATED"]);
    let pay = payment(&chain.worker.plan(), &reservation(&won));
    wires[0].send(&pay);
    let refused = wires[0].answer();
    assert_eq!(
        (refused.status, refused.code().as_str()),
        (503, "DEPENDENCY_UNAVAILABLE")
    );
    assert!(refused.body.contains("weir worker"), "{refused:?}");
    at_worker.send(&pay);
    assert_eq!(at_worker.answer().code(), "PAYMENT_ACCEPTED");
    // All say the same of it.
    let paid = until_status(&mut at_worker, &buyer, &winners[0], &["PAID"]);
    for wire in &mut wires {
        let told = until_status(wire, &buyer, &winners[0], &["PAID"]);
        assert_eq!(words(&told), words(&paid));
    }
    assert_eq!(field(&redis, "free"), 0);
    assert_eq!(
        (field(&redis, "held"), field(&redis, "sold")),
        (STOCK - 1, 1)
    );
    until_stream_is_empty(&redis);
    // While all of them run, the worker's side agrees with the stock, and an instance has no side.
    let reconcile = |shop: &Shop| {
        let mut command = Command::new(weir());
        command.args(["reconcile", "--config"]).arg(shop.toml());
        command.output().unwrap()
    };
    let books = reconcile(&chain.worker);
    assert!(books.status.success(), "{books:?}");
    let refused = reconcile(&chain.instances[0]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("run it where `weir worker` runs"), "{said}");
    running.into_iter().for_each(|running| drop(running.stop()));
    worker.stop();
    assert_eq!(orders(&chain.worker, "CREATED"), STOCK - 1);
    assert_eq!(orders(&chain.worker, "PAID"), 1);
    for shop in &chain.instances {
        assert!(!shop.path("data/orders.sqlite").exists());
    }
}

#[test]
fn an_instance_that_is_killed_loses_nothing_that_it_acknowledged() {
    let Some(redis) = Redis::start() else { return };
    let chain = Chain::new("kill", &redis);
    let worker = chain.worker();
    let [doomed, other] = chain.instances.each_ref().map(Shop::start);
    let buyer = Buyer::of(&chain.worker);
    let mut wire = doomed.wire();
    assert_eq!(
        wire.ask(&buyer.bytes(&buyer.submit(1))).code(),
        "SECKILL_QUEUED"
    );
    // Many at once; some are answered, then it is gone with the rest under way.
    let asked: Vec<Submit> = (2..=80).map(|user| buyer.submit(user)).collect();
    asked
        .iter()
        .for_each(|submit| wire.send(&buyer.bytes(submit)));
    let told: Vec<String> = (0..10).map(|_| wire.answer().code()).collect();
    doomed.kill();
    let mut wire = other.wire();
    let mut granted = 1;
    for (at, submit) in asked.iter().enumerate() {
        let end = until_status(&mut wire, &buyer, submit, &["CREATED", "NOT_ACCEPTED"]);
        let has_order = end.json()["status"] == "CREATED";
        granted += u64::from(has_order);
        if told.get(at).is_some_and(|code| code == "SECKILL_QUEUED") {
            assert!(has_order, "{at}: {end:?}");
        }
        if !has_order {
            // The door is closed for ever: the same request again is no grant (design §12.5).
            let again = wire.ask(&buyer.bytes(submit));
            assert_eq!(again.json()["original_code"], "NOT_ACCEPTED", "{again:?}");
        }
    }
    assert_eq!(field(&redis, "held"), granted);
    // The other one sells what is left, and no more.
    let mut sold = 0;
    for user in 1_000..1_000 + STOCK {
        match wire.ask(&buyer.bytes(&buyer.submit(user))).code().as_str() {
            "SECKILL_QUEUED" => sold += 1,
            "SECKILL_SOLD_OUT" => {}
            code => panic!("{code}"),
        }
    }
    assert_eq!(granted + sold, STOCK);
    assert_eq!((field(&redis, "free"), field(&redis, "held")), (0, STOCK));
    other.stop();
    worker.stop();
    assert_eq!(orders(&chain.worker, "CREATED"), STOCK);
}

/// A worker comes back: everything that was won becomes an order, and nothing more, and its message is forgotten.
fn all_become_orders(chain: &Chain, redis: &Redis, at: Running, buyer: &Buyer, won: &[Submit]) {
    let worker = chain.worker();
    let mut wire = at.wire();
    for submit in won {
        until_status(&mut wire, buyer, submit, &["CREATED"]);
    }
    until_stream_is_empty(redis);
    at.stop();
    worker.stop();
    assert_eq!(orders(&chain.worker, "CREATED"), won.len() as u64);
}

#[test]
fn without_a_worker_reservations_wait_and_become_orders_when_it_is_back() {
    let Some(redis) = Redis::start() else { return };
    let chain = Chain::new("gap", &redis);
    let worker = chain.worker();
    let running = chain.instances[0].start();
    let buyer = Buyer::of(&chain.worker);
    let mut wire = running.wire();
    worker.kill();
    let won: Vec<Submit> = (1..=20).map(|user| buyer.submit(user)).collect();
    for submit in &won {
        assert_eq!(wire.ask(&buyer.bytes(submit)).code(), "SECKILL_QUEUED");
        until_status(&mut wire, &buyer, submit, &["QUEUED"]);
    }
    all_become_orders(&chain, &redis, running, &buyer, &won);
}

#[test]
fn what_a_dead_worker_had_taken_is_claimed_and_what_the_stream_lost_is_found() {
    let Some(redis) = Redis::start() else { return };
    let chain = Chain::new("claim", &redis);
    let worker = chain.worker();
    let running = chain.instances[0].start();
    let buyer = Buyer::of(&chain.worker);
    let mut wire = running.wire();
    worker.kill();
    let won: Vec<Submit> = (1..=30).map(|user| buyer.submit(user)).collect();
    for submit in &won {
        assert_eq!(wire.ask(&buyer.bytes(submit)).code(), "SECKILL_QUEUED");
    }
    // As if the dead one had taken ten and gone, and ten others had never come into the stream.
    let store = redis.cli(&["HGET", "{a1:s1}:sku", "maker"]);
    let stream = "{a1:s1}:orders";
    let read = ["XREADGROUP", "GROUP", "weir", &store, "COUNT", "10"];
    redis.cli(&[&read[..], &["STREAMS", stream, ">"]].concat());
    let ids = redis.cli(&["--json", "XRANGE", stream, "-", "+"]);
    let ids: serde_json::Value = serde_json::from_str(&ids).unwrap();
    for entry in &ids.as_array().unwrap()[20..] {
        redis.cli(&["XDEL", stream, entry[0].as_str().unwrap()]);
    }
    all_become_orders(&chain, &redis, running, &buyer, &won);
}

#[test]
fn a_second_maker_of_orders_is_refused_and_takes_none() {
    let Some(redis) = Redis::start() else { return };
    let chain = Chain::new("second", &redis);
    let second = &chain.instances[0];
    second.edit("made_by = \"worker\"", "made_by = \"here\"");
    let worker = chain.worker();
    let message = second.refusal();
    assert!(message.contains("another data_dir"), "{message}");
    // Neither while the first one is away: its orders are in its own store.
    worker.kill();
    let running = chain.instances[1].start();
    let buyer = Buyer::of(&chain.worker);
    let mut wire = running.wire();
    let won = buyer.submit(1);
    assert_eq!(wire.ask(&buyer.bytes(&won)).code(), "SECKILL_QUEUED");
    let message = second.refusal();
    assert!(message.contains("another data_dir"), "{message}");
    until_status(&mut wire, &buyer, &won, &["QUEUED"]);
    assert_eq!(orders(second, "CREATED"), 0);
    let worker = chain.worker();
    until_status(&mut wire, &buyer, &won, &["CREATED"]);
    // A copy of its directory takes over, and the one that was there before makes none any more.
    let copy = copy_of(&chain.worker, "second-copy");
    let mut command = Command::new(weir());
    command.args(["worker", "--config"]).arg(copy.toml());
    let _ = fs::remove_file(copy.path("data/ledger.lock"));
    let newest = Running::of(command);
    let not_ready = worker.until_ready_is(503);
    assert!(not_ready.body.contains("a later run"), "{not_ready:?}");
    newest.stop();
}

#[test]
fn a_user_who_may_not_read_the_stream_is_told_so_before_anything_starts() {
    let Some(redis) = Redis::start() else { return };
    let chain = Chain::new("rights", &redis);
    redis.cli(&[
        "ACL",
        "SETUSER",
        "half",
        "on",
        ">secret-word",
        "~*",
        "&*",
        "+@all",
        "-xreadgroup",
    ]);
    let file = chain.worker.path("keys/redis.password");
    fs::write(&file, "secret-word\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o400)).unwrap();
    chain.worker.set(
        "redis",
        "user = \"half\"\npassword_file = \"keys/redis.password\"",
    );
    let mut command = Command::new(weir());
    command
        .args(["worker", "--config"])
        .arg(chain.worker.toml());
    let message = the_refusal(&command.output().unwrap());
    assert!(
        message.contains("XREADGROUP was refused with NOPERM"),
        "{message}"
    );
}

/// Every message is forgotten once its order is confirmed, and the group holds none.
fn until_stream_is_empty(redis: &Redis) {
    redis_part::until("the stream is empty", || {
        redis.cli(&["XLEN", "{a1:s1}:orders"]) == "0"
    });
    let pending = redis.cli(&["XPENDING", "{a1:s1}:orders", "weir"]);
    assert!(pending.starts_with('0'), "{pending}");
}

#[test]
fn roles_that_do_not_fit_together_are_refused_before_anything_starts() {
    let Some(redis) = Redis::start() else { return };
    let chain = Chain::new("roles", &redis);
    let said = |shop: &Shop| {
        let output = Command::new(weir())
            .args(["worker", "--config"])
            .arg(shop.toml())
            .output();
        the_refusal(&output.unwrap())
    };
    let worker = chain.worker();
    let message = said(&chain.worker);
    assert!(message.contains("another weir"), "{message}");
    worker.stop();
    let shop = &chain.instances[0];
    shop.edit("made_by = \"worker\"", "made_by = \"here\"");
    let message = said(shop);
    assert!(message.contains("orders.made_by is \"here\""), "{message}");
    shop.edit("kind = \"redis\"", "kind = \"embedded\"");
    let message = said(shop);
    assert!(message.contains("ledger.kind is \"embedded\""), "{message}");
    shop.edit("made_by = \"here\"", "made_by = \"worker\"");
    let message = shop.refusal();
    assert!(message.contains("orders.made_by"), "{message}");
}
