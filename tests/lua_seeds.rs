//! The seeds' own scripts on a real Redis, as quoted in `lua_seeds/`: each of their defects is shown, and the same
//! stimulus on our script is right. A clock that steps comes in as two more arguments in the place of TIME, here only.
#![allow(clippy::unwrap_used)] // a test that meets one has failed

mod lua_part;
mod redis_part;

#[path = "lua_lint/rules.rs"]
mod rules;
#[path = "lua_lint/tokens.rs"]
mod tokens;

use lua_part::{Reply, Wire, clock, with_clock};
use redis_part::{PATIENCE, Redis};
use std::time::Instant;
use weir_core::redis::script::Script;
use weir_proto::resp::key_slot;

const BUCKET_000: &str = include_str!("lua_seeds/bucket_000.lua");
const BUCKET_002: &str = include_str!("lua_seeds/bucket_002.lua");
const WINDOW_002: &str = include_str!("lua_seeds/window_002.lua");
const RESERVE_004: &str = include_str!("lua_seeds/reserve_004.lua");

/// A bucket by the contract of seed 000: both scripts take the same arguments and say the same fields.
struct Bucket {
    source: String,
    key: &'static str,
}

impl Bucket {
    fn seed() -> Self {
        Self {
            source: with_clock(BUCKET_000, 5),
            key: "{u:1}:seed",
        }
    }

    fn ours() -> Self {
        Self {
            source: with_clock(Script::Bucket.source(), 5),
            key: "{u:1}:ours",
        }
    }

    /// Code, what is left, the wait and the time.
    fn take(&self, wire: &mut Wire, rate: &str, capacity: &str, cost: &str, ms: u64) -> [i64; 4] {
        let [seconds, micros] = clock(ms);
        let arguments = [rate, capacity, cost, "60000", &seconds, &micros];
        let reply = wire.text(&self.source, &[self.key], &arguments);
        reply.integers().try_into().unwrap()
    }
}

const T: u64 = 1_796_000_000_000;

#[test]
fn a_clock_that_steps_back_refills_the_seed_twice_and_ours_once() {
    let Some(redis) = Redis::start() else { return };
    let mut wire = Wire::new(redis.connect());
    for (bucket, passes_again) in [(Bucket::seed(), 4), (Bucket::ours(), 0)] {
        let mut take = |ms| bucket.take(&mut wire, "2", "4", "1", ms)[0];
        let first: i64 = (0..5).map(|_| take(T)).sum();
        assert_eq!(first, 4, "capacity 4");
        assert_eq!(take(T - 10_000), 0, "the clock has stepped back");
        let again: i64 = (0..5).map(|_| take(T)).sum();
        assert_eq!(again, passes_again, "{}, in the same instant", bucket.key);
        // And ours goes on at its rate.
        if passes_again == 0 {
            assert_eq!(
                [take(T + 499), take(T + 500), take(T + 999), take(T + 1000)],
                [0, 1, 0, 1]
            );
        }
    }
}

#[test]
fn the_seeds_retry_after_is_a_millisecond_early_and_ours_is_exact() {
    let Some(redis) = Redis::start() else { return };
    let mut wire = Wire::new(redis.connect());
    let (seed, ours) = (Bucket::seed(), Bucket::ours());
    for (bucket, told_ms) in [(&seed, 1999), (&ours, 2000)] {
        let mut take = |ms| bucket.take(&mut wire, "0.5", "1", "1", ms);
        assert_eq!(take(T)[0], 1);
        assert_eq!(take(T)[2], told_ms, "{}", bucket.key);
        let obeys = take(T + told_ms as u64)[0];
        assert_eq!(obeys, i64::from(told_ms == 2000), "{}", bucket.key);
    }
    // Whatever the rate: after the wait it passes, one millisecond before it does not.
    for (at, rate) in [
        "0.001",
        "0.007",
        "0.3",
        "1",
        "3",
        "7",
        "999.999",
        "1000000000",
    ]
    .into_iter()
    .enumerate()
    {
        let start = T + 1_000_000_000 * (at as u64 + 1);
        let key = [
            "{u:2}:0", "{u:2}:1", "{u:2}:2", "{u:2}:3", "{u:2}:4", "{u:2}:5", "{u:2}:6", "{u:2}:7",
        ][at];
        let bucket = Bucket {
            key,
            ..Bucket::ours()
        };
        let mut take = |cost, ms| bucket.take(&mut wire, rate, "5", cost, ms);
        assert_eq!(take("4", start)[0], 1);
        let mut now = start;
        for _ in 0..5 {
            let wait = take("3", now)[2] as u64;
            if wait > 0 {
                assert_eq!(take("3", now + wait - 1)[..2][0], 0, "rate {rate}");
            }
            now += wait;
            assert_eq!(take("3", now)[0], 1, "rate {rate}: it waited {wait} ms");
        }
    }
}

#[test]
fn large_numbers_lose_digits_in_the_seed_and_none_in_ours() {
    let Some(redis) = Redis::start() else { return };
    let mut wire = Wire::new(redis.connect());
    let exact = "999999999986007";
    for (bucket, stored) in [
        (Bucket::seed(), "9.9999999998601e+14"),
        (Bucket::ours(), exact),
    ] {
        let mut take = |cost, ms| bucket.take(&mut wire, "1001", "1000000000000", cost, ms);
        take("20", T);
        let told = take("1", T + 7); // 7,007 thousandths came back
        assert_eq!(told[1].to_string(), exact);
        let kept = wire.ask(&["HGET", bucket.key, "tokens_milli"]);
        assert_eq!(kept.text(), stored, "{}", bucket.key);
    }
    // The seed's error of a bad argument comes behind its first write.
    let seed = Bucket::seed();
    wire.ask(&["FLUSHALL"]);
    let [seconds, micros] = clock(T);
    let arguments = ["1", "1", "1", "60000.5", &seconds, &micros];
    let reply = wire.text(&seed.source, &[seed.key], &arguments);
    assert!(matches!(reply, Reply::Error(_)), "{reply:?}");
    let ttl = wire.ask(&["PTTL", seed.key]);
    assert_eq!(
        ttl,
        Reply::Integer(-1),
        "written, and without a TTL for ever"
    );
    let ours = Bucket::ours();
    let reply = wire.text(&ours.source, &[ours.key], &arguments);
    assert_eq!(reply.integers(), [-1, 0, 0, 0]);
    assert_eq!(wire.ask(&["EXISTS", ours.key]), Reply::Integer(0));
}

#[test]
fn the_seeds_write_when_they_refuse_and_ours_do_not() {
    let Some(redis) = Redis::start() else { return };
    let mut wire = Wire::new(redis.connect());
    for (bucket, writes) in [(Bucket::seed(), true), (Bucket::ours(), false)] {
        bucket.take(&mut wire, "0.5", "1", "1", T);
        let before = wire.everything();
        assert_eq!(bucket.take(&mut wire, "0.5", "1", "1", T + 1000)[0], 0);
        let changed = before != wire.everything();
        assert_eq!(changed, writes, "{}", bucket.key);
    }
    // Seed 002 throws the refill away with each refusal: who asks often never passes, though its tokens have come.
    let mut seed = |ms: u64| {
        let now = ms.to_string();
        wire.text(BUCKET_002, &["{u:1}:002"], &["1", "0.001", &now, "1"])
    };
    let passes = Reply::Integer(1);
    assert_eq!(seed(T), passes);
    let often: Vec<Reply> = (1..=50).map(|at| seed(T + at * 100)).collect();
    assert!(!often.contains(&passes), "five tokens have come in 5 s");
    let bucket = Bucket {
        key: "{u:1}:often",
        ..Bucket::ours()
    };
    let mut take = |ms| bucket.take(&mut wire, "1", "1", "1", ms)[0];
    assert_eq!(take(T), 1);
    let often: i64 = (1..=50).map(|at| take(T + at * 100)).sum();
    assert_eq!(often, 5);
}

#[test]
fn the_seeds_window_counts_two_of_one_millisecond_once() {
    let Some(redis) = Redis::start() else { return };
    let mut wire = Wire::new(redis.connect());
    let now = T.to_string();
    let mut seed = || wire.text(WINDOW_002, &["{u:1}:seed"], &[&now, "1000", "2"]);
    let passed = (0..10).filter(|_| seed() == Reply::Integer(1)).count();
    assert_eq!(passed, 10, "ten pass where two may");
    let source = with_clock(Script::WindowLog.source(), 3);
    let mut ours = |ms| {
        let [seconds, micros] = clock(ms);
        let arguments = ["1000", "2", &seconds, &micros];
        let reply = wire.text(&source, &["{u:1}:ours"], &arguments);
        let [code, _, wait, _] = reply.integers()[..] else {
            panic!("{reply:?}");
        };
        (code, wait)
    };
    let passed = (0..10).filter(|_| ours(T).0 == 1).count();
    assert_eq!(passed, 2);
    assert_eq!(ours(T + 400), (0, 600));
    assert_eq!(
        ours(T - 5_000),
        (0, 1000),
        "a clock that steps back frees nothing"
    );
    assert_eq!(ours(T + 999), (0, 1));
    assert_eq!(ours(T + 1000), (1, 0));
    assert_eq!(ours(T + 1001), (1, 0));
    assert_eq!(ours(T + 1002), (0, 998));
}

/// Seed 004 makes a key inside its script. In a cluster that key lies in another slot; the error comes when the stock is
/// gone already. And it names an order by its millisecond.
#[test]
fn the_seeds_reserve_sells_a_unit_to_nobody_and_ours_does_not() {
    let options = [
        "--cluster-enabled",
        "yes",
        "--cluster-require-full-coverage",
        "no",
    ];
    let Some(redis) = Redis::start_with(&options) else {
        return;
    };
    let mut wire = Wire::new(redis.connect());
    let ours = [
        "sku", "res", "req", "nonce", "user", "pending", "orders", "events", "tomb:7:r", "ops",
    ]
    .map(|name| format!("{{a1:s1}}:{name}"));
    let ours: Vec<&str> = ours.iter().map(String::as_str).collect();
    for key in ["stock:1001", ours[0]] {
        let slot = key_slot(key.as_bytes()).to_string();
        assert_eq!(wire.ask(&["CLUSTER", "ADDSLOTS", &slot]).text(), "OK");
    }
    let began = Instant::now();
    while matches!(wire.ask(&["SET", "stock:1001", "1"]), Reply::Error(_)) {
        assert!(began.elapsed() < PATIENCE, "the cluster does not come up");
        std::thread::yield_now();
    }
    let reply = wire.text(RESERVE_004, &["stock:1001"], &["1", "1796000000000"]);
    assert!(
        matches!(&reply, Reply::Error(error) if error.contains("Script attempted to access")),
        "{reply:?}"
    );
    assert_eq!(
        wire.ask(&["GET", "stock:1001"]).text(),
        "0",
        "sold to nobody"
    );

    let keep = "1900000000000";
    let stock = ["op-1", keep, "2", "1", "0", "1", "here"];
    let opened = wire.script(Script::Open, &[ours[0], ours[9]], &stock);
    assert_eq!(opened.integers()[0], 16);
    // Two buyers in one millisecond are two orders.
    let source = with_clock(Script::Reserve.source(), 11);
    let [seconds, micros] = clock(1_899_000_000_000);
    for (user, sold_out) in [("7", 0), ("8", 1)] {
        let arguments = [
            "10", "100", "CNY", keep, "1", user, "r", user, "1", "here", &seconds, &micros,
        ];
        let reply = wire.text(&source, &ours[..9], &arguments).integers();
        assert_eq!((reply[0], reply[5]), (0, sold_out));
    }
    assert_eq!(wire.hash(ours[1]).len(), 2);

    let found = rules::check(RESERVE_004);
    assert!(
        found.iter().any(|finding| finding.rule == "keys"),
        "{found:?}"
    );

    let Some(alone) = Redis::start() else { return };
    let mut wire = Wire::new(alone.connect());
    wire.ask(&["SET", "stock:1001", "2"]);
    for _ in 0..2 {
        let reply = wire.text(RESERVE_004, &["stock:1001"], &["1", "1796000000000"]);
        assert_eq!(reply, Reply::Integer(1));
    }
    let orders = wire.hash("order:pending:stock:1001");
    assert_eq!(orders.len(), 1, "two sold, one order");
}

#[test]
fn the_lint_finds_what_is_wrong_with_each_seed() {
    for (name, source, wanted) in [
        ("bucket_000", BUCKET_000, &["floats", "header"][..]),
        (
            "bucket_002",
            BUCKET_002,
            &["bound", "floats", "order", "time"],
        ),
        ("window_002", WINDOW_002, &["order", "time"]),
        (
            "reserve_004",
            RESERVE_004,
            &["bound", "keys", "order", "time"],
        ),
    ] {
        let found = rules::check(source);
        for rule in wanted {
            assert!(
                found.iter().any(|finding| finding.rule == *rule),
                "{name}: {rule} in {found:?}"
            );
        }
    }
}
