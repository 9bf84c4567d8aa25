//! One budget for several `weir serve` on a real Redis: the sum of what they admit, one that is killed, buckets at another
//! Redis that stands still or loses its data, names that clash (D2-D6, J6; issue 6, shows 5 and 6).
#![allow(clippy::unwrap_used)] // a test that meets one has failed

mod bad_input_world;
mod redis_part;

use bad_input_world::*;
use redis_part::{Redis, until};
use std::process::Command;
use std::time::Instant;
use weir_core::limits::BUCKET_BURST_MS;

/// Tokens a second for all instances: few, so that a test's buyers want many more.
const RATE: u64 = 200;

/// A worker and two instances, with `RATE` for both and stock enough.
struct Chain {
    worker: Shop,
    instances: [Shop; 2],
}

impl Chain {
    fn new(name: &str, redis: &Redis, limiter: Option<&Redis>) -> Self {
        let shop = |who: &str| Shop::new(&format!("leases-{name}-{who}"));
        let chain = Self {
            worker: shop("worker"),
            instances: [shop("a"), shop("b")],
        };
        // The same sale with the same keys.
        for shop in &chain.instances {
            for file in ["weir.toml", "keys"] {
                let copied = Command::new("cp")
                    .arg("-a")
                    .args([chain.worker.path(file), shop.dir.clone()])
                    .status();
                assert!(copied.unwrap().success());
            }
        }
        for shop in chain.all() {
            shop.use_redis(&redis.addr().to_string());
            if let Some(limiter) = limiter {
                shop.set(
                    "limiter",
                    &format!(
                        "servers = [\"{}\"]\naccept_lua_holes = true\nreply_timeout = \"200ms\"",
                        limiter.addr()
                    ),
                );
            }
            shop.edit("# made_by = \"here\"", "made_by = \"worker\"");
            shop.edit("stock = 100", "stock = 100000");
            shop.edit("# budget = \"40000/s\"", &format!("budget = \"{RATE}/s\""));
        }
        chain
    }

    fn all(&self) -> impl Iterator<Item = &Shop> {
        self.instances.iter().chain([&self.worker])
    }

    fn worker(&self) -> Running {
        let mut command = Command::new(weir());
        command.args(["worker", "--config"]).arg(self.worker.toml());
        Running::of(command)
    }
}

/// Reservations that were made: each took a token.
fn reservations(redis: &Redis) -> u64 {
    let text = redis.cli(&["HGET", "{a1:s1}:sku", "reservations"]);
    text.parse().unwrap_or_else(|_| panic!("{text:?}"))
}

/// A buyer's crowd: users that are new each time.
struct Crowd {
    buyer: Buyer,
    next: u64,
}

impl Crowd {
    fn of(chain: &Chain) -> Self {
        Self {
            buyer: Buyer::of(&chain.worker),
            next: 1,
        }
    }

    /// `count` submits of new users at once on a connection; how many were granted, and how many heard 503.
    fn rush(&mut self, wire: &mut Wire, count: u64) -> (u64, u64) {
        for user in self.next..self.next + count {
            wire.send(&self.buyer.bytes(&self.buyer.submit(user)));
        }
        self.next += count;
        let (mut granted, mut refused) = (0, 0);
        for _ in 0..count {
            let answer = wire.answer();
            match answer.code().as_str() {
                "SECKILL_QUEUED" => granted += 1,
                "SYSTEM_OVERLOADED" | "DEPENDENCY_UNAVAILABLE" => refused += 1,
                other => panic!("{other}: {answer:?}"),
            }
        }
        (granted, refused)
    }

    /// Rushes until so many were granted.
    fn until_granted(&mut self, wire: &mut Wire, wanted: u64) {
        let end = Instant::now() + PATIENCE;
        let mut granted = 0;
        while granted < wanted {
            granted += self.rush(wire, 20).0;
            assert!(Instant::now() < end, "{granted} of {wanted}");
        }
    }
}

fn metric(running: &Running, line: &str) -> Option<u64> {
    let page = running.get_ops("/metrics").body;
    let mut lines = page.lines();
    let value = lines.find_map(|text| text.strip_prefix(line))?;
    // Rates are shown in thousandths.
    value.trim().parse::<f64>().ok().map(|value| value as u64)
}

const LABELS: &str = "{activity_id=\"1\",sku_id=\"1\"} ";

fn of_sku(running: &Running, name: &str) -> Option<u64> {
    metric(running, &format!("{name}{LABELS}"))
}

/// The most that all instances may have let in since `began`.
fn allowed(began: Instant) -> u64 {
    RATE * (began.elapsed().as_millis() as u64 + BUCKET_BURST_MS) / 1_000 + 1
}

#[test]
fn two_instances_admit_no_more_than_one_budget_and_share_it() {
    let Some(redis) = Redis::start() else { return };
    let chain = Chain::new("sum", &redis, None);
    let worker = chain.worker();
    let began = Instant::now(); // no bucket is there yet
    let running = chain.instances.each_ref().map(Shop::start);
    let mut wires = running.each_ref().map(Running::wire);
    let mut crowd = Crowd::of(&chain);
    let mut granted = [0, 0];
    // Twice the budget of one would have let in this many in half the time.
    while reservations(&redis) < 5 * RATE {
        for (wire, granted) in wires.iter_mut().zip(&mut granted) {
            *granted += crowd.rush(wire, 100).0;
        }
        let (made, most) = (reservations(&redis), allowed(began));
        assert!(made <= most, "{made} of {most}");
    }
    assert_eq!(granted.iter().sum::<u64>(), reservations(&redis));
    for granted in granted {
        assert!(granted > RATE / 4, "each got its part: {granted}");
    }
    // A name for each; the worker sells nothing and draws nothing.
    assert_eq!(redis.cli(&["HLEN", "{a1:s1}:lines"]), "2");
    // What ends in order gives back what it did not spend: nothing of it is left open.
    running.into_iter().for_each(|running| drop(running.stop()));
    worker.stop();
    let lines = redis.cli(&["HVALS", "{a1:s1}:lines"]);
    for line in lines.lines() {
        let words: Vec<u64> = line
            .split(' ')
            .filter_map(|word| word.parse().ok())
            .collect();
        let (seq, returned_seq) = (words[words.len() - 4], words[words.len() - 2]);
        assert!(returned_seq <= seq, "{line}");
    }
}

#[test]
fn one_that_is_killed_takes_only_its_unspent_tokens_and_comes_back_under_its_name() {
    let Some(redis) = Redis::start() else { return };
    let chain = Chain::new("kill", &redis, None);
    for (shop, name) in chain.instances.iter().zip(["one", "other"]) {
        shop.set("limiter", &format!("instance = \"{name}\""));
    }
    let worker = chain.worker();
    let began = Instant::now();
    let [doomed, other] = chain.instances.each_ref().map(Shop::start);
    let mut crowd = Crowd::of(&chain);
    let mut wire = doomed.wire();
    crowd.until_granted(&mut wire, RATE / 2);
    doomed.kill();
    // The other one gets the whole budget, the dead one's part included.
    let mut wire = other.wire();
    crowd.until_granted(&mut wire, 2 * RATE);
    let again = chain.instances[0].start();
    crowd.until_granted(&mut again.wire(), RATE / 2);
    assert!(reservations(&redis) <= allowed(began));
    let mut names = redis.cli(&["HKEYS", "{a1:s1}:lines"]);
    names = names
        .lines()
        .collect::<std::collections::BTreeSet<_>>()
        .into_iter()
        .collect::<Vec<_>>()
        .join(" ");
    assert_eq!(names, "one/0 other/0");
    for running in [again, other, worker] {
        running.stop();
    }
}

#[test]
fn buckets_that_are_away_close_submits_and_nothing_else_and_lost_ones_are_made_anew() {
    let (Some(redis), Some(mut limiter)) = (Redis::start(), Redis::start()) else {
        return;
    };
    let chain = Chain::new("away", &redis, Some(&limiter));
    let worker = chain.worker();
    let began = Instant::now();
    let running = chain.instances[0].start();
    let mut wire = running.wire();
    let mut crowd = Crowd::of(&chain);
    crowd.until_granted(&mut wire, RATE);
    assert_eq!(
        redis.cli(&["EXISTS", "{a1:s1}:lease"]),
        "0",
        "they are elsewhere"
    );
    limiter.signal("STOP");
    // What is leased is spent; then nothing is let in, and a draw has no answer.
    let end = Instant::now() + PATIENCE;
    loop {
        let (granted, refused) = crowd.rush(&mut wire, 50);
        let unknown = metric(&running, "weir_limiter_result_unknown_total ");
        let reachable = of_sku(&running, "weir_budget_reachable");
        if (granted, refused) == (0, 50) && unknown > Some(0) && reachable == Some(0) {
            break;
        }
        assert!(Instant::now() < end, "{granted} {unknown:?} {reachable:?}");
    }
    let known = Submit {
        user: 1,
        ..crowd.buyer.submit(1)
    };
    let status = wire.ask(&crowd.buyer.status(&known));
    assert_eq!(status.status, 200, "{status:?}");
    assert_eq!(
        running.get_ops("/readyz").status,
        200,
        "status is worth its traffic"
    );
    limiter.signal("CONT");
    crowd.until_granted(&mut wire, RATE);
    assert!(reservations(&redis) <= allowed(began));
    // It loses its data: a bucket that is not there is not full, and is made anew.
    limiter.begin_anew();
    let bucket_before = Instant::now();
    let made_before = reservations(&redis);
    crowd.until_granted(&mut wire, RATE);
    let leased = RATE * 4; // what was out when the bucket was lost: two leases' lives of it at most
    assert!(reservations(&redis) - made_before <= allowed(bucket_before) + leased);
    assert_eq!(limiter.cli(&["EXISTS", "{a1:s1}:lease"]), "1");
    running.stop();
    worker.stop();
}

#[test]
fn a_newer_policy_is_followed_and_an_older_one_is_not_taken() {
    let Some(redis) = Redis::start() else { return };
    let chain = Chain::new("policy", &redis, None);
    let [old, new] = &chain.instances;
    new.edit(&format!("budget = \"{RATE}/s\""), "budget = \"55/s\"");
    new.set("limiter", "budget_version = 7\nweights = 3");
    let worker = chain.worker();
    let old = old.start();
    until("the old policy holds", || {
        of_sku(&old, "weir_budget_policy_version") == Some(1)
            && of_sku(&old, "weir_budget_open") == Some(1)
    });
    assert_eq!(of_sku(&old, "seckill_admission_rate_limit"), Some(RATE));
    assert_eq!(of_sku(&old, "weir_budget_policy_followed"), Some(0));
    let new = new.start();
    for running in [&old, &new, &worker] {
        until("the new one holds", || {
            of_sku(running, "weir_budget_policy_version") == Some(7)
                && of_sku(running, "seckill_admission_rate_limit") == Some(55)
                && of_sku(running, "weir_budget_weights") == Some(3)
        });
    }
    assert_eq!(of_sku(&old, "weir_budget_policy_followed"), Some(1));
    assert_eq!(of_sku(&new, "weir_budget_policy_followed"), Some(0));
    assert_eq!(redis.cli(&["HGET", "{a1:s1}:lease", "rate"]), "55000");
    // An operator at the other instance: older ones are refused, a newer one comes to everybody.
    let change = |body: &str| old.post_ops("/ops/v1/activities/1/skus/1/budget", body);
    let refused = change(r#"{"version":6,"rate":"900/s"}"#);
    assert_eq!(refused.status, 400, "{refused:?}");
    assert!(refused.body.contains("newer version"), "{refused:?}");
    let done = change(r#"{"version":8,"rate":"77/s","weights":4,"actor":"alice"}"#);
    assert_eq!(done.status, 200, "{done:?}");
    let told = done.json();
    assert_eq!(
        (&told["version"], &told["rate_per_s"], &told["weights"]),
        (&8.into(), &77.0.into(), &4.into())
    );
    for running in [&old, &new, &worker] {
        until("the operator's holds", || {
            of_sku(running, "weir_budget_policy_version") == Some(8)
                && of_sku(running, "seckill_admission_rate_limit") == Some(77)
                && of_sku(running, "weir_budget_weights") == Some(4)
        });
    }
    for running in [old, new, worker] {
        running.stop();
    }
}

#[test]
fn two_of_one_name_do_not_both_sell_and_a_wrong_limiter_is_told_before_anything_starts() {
    let Some(redis) = Redis::start() else { return };
    let chain = Chain::new("names", &redis, None);
    for shop in &chain.instances {
        shop.set("limiter", "instance = \"twin\"");
    }
    let worker = chain.worker();
    let first = chain.instances[0].start();
    let mut crowd = Crowd::of(&chain);
    crowd.until_granted(&mut first.wire(), 10);
    let second = chain.instances[1].start();
    crowd.until_granted(&mut second.wire(), 10);
    let told = first.until_ready_is(503);
    assert!(told.body.contains("limiter.instance"), "{told:?}");
    assert_eq!(second.get_ops("/readyz").status, 200);
    for running in [first, second, worker] {
        running.stop();
    }
    // Nobody there, and a database of somebody else.
    let shop = &chain.instances[0];
    let nobody = redis_part::free_port();
    shop.set(
        "limiter",
        &format!("servers = [\"127.0.0.1:{nobody}\"]\naccept_lua_holes = true"),
    );
    let said = shop.refusal();
    assert!(said.contains("mend limiter.servers"), "{said}");
    let Some(other) = Redis::start() else { return };
    other.cli(&["SET", "{a1:s1}:lines", "something"]);
    shop.edit(&format!("127.0.0.1:{nobody}"), &other.addr().to_string());
    let said = shop.refusal();
    assert!(said.contains("{a1:s1}:lines is a string"), "{said}");
    assert!(said.contains("limiter.database"), "{said}");
    shop.set("limiter", "weight = 5\nweights = 4");
    let said = shop.refusal();
    assert!(said.contains("weights"), "{said}");
}
