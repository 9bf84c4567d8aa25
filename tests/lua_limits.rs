//! The limits' scripts on a real Redis against plain models: whole numbers, lists and loops. The clock comes in as two
//! more arguments in the place of TIME, here only, so that it may step back.
#![allow(clippy::unwrap_used)] // a test that meets one has failed

mod lua_part;
mod redis_part;

use lua_part::{Reply, Wire, clock, clock_us, with_clock};
use redis_part::Redis;
use weir_core::limit::gcra::Rate;
use weir_core::limit::lease::{LeaseDraw, LeaseReturn, ShardId};
use weir_core::limits::{BUDGET_RAMP_MS, BUDGET_RAMP_STEPS};
use weir_core::redis::lease::{self, Drawn, LeasePolicy, LeaseSteps, PolicySet};
use weir_core::redis::script::Script;
use weir_core::rng::Rng;
use weir_proto::ids::{ActivityId, SkuId, SkuKey};

const T: u64 = 1_796_000_000_000;

/// A text in a script, and what a mistake makes of it.
type Mistake = (Script, &'static str, &'static str);

/// The text of `script` with the test's clock behind its `count` arguments, and with the mistake if it is in this one.
fn rendered(script: Script, count: usize, mistake: Option<&Mistake>) -> String {
    let source = with_clock(script.source(), count);
    match mistake {
        Some((other, good, bad)) if *other == script => {
            assert!(source.contains(good), "{script:?}: {good}");
            source.replacen(good, bad, 1)
        }
        _ => source,
    }
}

const MISTAKES: [Mistake; 15] = [
    // The clock of each steps back, as in the seed.
    (
        Script::Bucket,
        "math.max(tonumber(state[3] or 0),",
        "math.max(0,",
    ),
    (
        Script::WindowLog,
        "math.max(tonumber(newest[2] or 0),",
        "math.max(0,",
    ),
    (Script::LeaseDraw, "math.max(at_us,", "math.max(0,"),
    // A remainder thrown away, one too many, two entries of one name.
    (Script::Bucket, "rest = millionths % 1000", "rest = 0"),
    (Script::WindowLog, "live >= limit", "live > limit"),
    (Script::WindowLog, "'%016d'", "'%d'"),
    // Not deducted, more than there is, the climb left out, a new bucket that is full, a missing one that is open.
    (
        Script::LeaseDraw,
        "units - tokens * UNITS_PER_TOKEN",
        "units",
    ),
    (
        Script::LeaseDraw,
        "math.min(want, part, saved)",
        "math.min(want, part)",
    ),
    (
        Script::LeaseDraw,
        "local step = math.min(STEPS,",
        "local step = math.max(STEPS,",
    ),
    (
        Script::LeasePolicy,
        "opened_us, answer = 0,",
        "opened_us, answer = burst * UNITS_PER_TOKEN,",
    ),
    (Script::LeaseDraw, "return {-1, 0,", "return {1, want,"),
    // Granted again, credited again, more than was drawn, of an earlier bucket.
    (
        Script::LeaseDraw,
        "if seq == tonumber(line_seq) then",
        "if false then",
    ),
    (Script::LeaseReturn, "or seq <= tonumber(returned_seq)", ""),
    (
        Script::LeaseReturn,
        "math.min(back, tonumber(outstanding))",
        "back",
    ),
    (
        Script::LeaseDraw,
        "if bucket == lease[2] then",
        "if bucket then",
    ),
];

#[test]
fn every_planted_mistake_in_a_limit_is_found() {
    let Some(redis) = Redis::start() else { return };
    for mistake in &MISTAKES {
        let mut wire = Wire::new(redis.connect());
        wire.ask(&["FLUSHALL"]);
        let found = std::panic::catch_unwind(|| match mistake.0 {
            Script::Bucket => buckets(&redis, Some(mistake)),
            Script::WindowLog => windows(&redis, Some(mistake)),
            _ => leases(&redis, Some(mistake)),
        });
        let why = found.expect_err(&format!("{mistake:?} is not found"));
        let why = why.downcast_ref::<String>().map_or("", String::as_str);
        assert!(!why.contains("no list"), "{mistake:?} is no script: {why}");
    }
}

/// A bucket as it is told: millionths of a token, milliseconds, nothing rounded.
struct Model {
    millionths: u128,
    at_ms: u64,
}

#[test]
fn buckets_equal_an_exact_model_over_twenty_thousand_asks() {
    let Some(redis) = Redis::start() else { return };
    buckets(&redis, None);
}

fn buckets(redis: &Redis, mistake: Option<&Mistake>) {
    let mut wire = Wire::new(redis.connect());
    let source = rendered(Script::Bucket, 5, mistake);
    let rates = [
        "0.001",
        "0.3",
        "1",
        "2.5",
        "7.777",
        "999",
        "12345.678",
        "1000000000",
    ];
    let capacities = [1, 5, 1000, 1_000_000_000];
    let mut rng = Rng::new(3);
    let (mut passed, mut waits) = (0, 0);
    for number in 0..200 {
        let key = format!("{{u:{number}}}:bucket");
        let (mut rate, mut capacity) = (rates[0], capacities[0]);
        let mut model: Option<Model> = None;
        let mut clock_ms = T;
        for ask in 0..100 {
            if ask % 40 == 0 {
                // An operator changes rate and capacity: what is saved stays, up to the new capacity (field bug B33).
                rate = rates[rng.below(rates.len() as u64) as usize];
                capacity = capacities[rng.below(4) as usize];
            }
            let steps = [0, 1, 7, 999, 60_000, 100_000_000];
            let step = steps[rng.below(6) as usize];
            clock_ms += rng.below(step + 1);
            let back = if rng.chance(1, 10) {
                rng.below(5_000)
            } else {
                0
            };
            let cost = 1 + rng.below(capacity.min(2000));
            let [seconds, micros] = clock(clock_ms - back);
            let arguments = [
                rate,
                &capacity.to_string(),
                &cost.to_string(),
                "1",
                &seconds,
                &micros,
            ];
            let got = wire.text(&source, &[&key], &arguments).integers();

            let at_ms = model.as_ref().map_or(0, |model| model.at_ms);
            let now_ms = at_ms.max(clock_ms - back);
            let speed = millionths_per_ms(rate);
            let full = u128::from(capacity) * 1_000_000;
            let saved = model.as_ref().map_or(full, |model| {
                (model.millionths + u128::from(now_ms - model.at_ms) * speed).min(full)
            });
            let wanted = u128::from(cost) * 1_000_000;
            let milli = |millionths: u128| (millionths / 1000) as i64;
            if saved >= wanted {
                assert_eq!(
                    got,
                    [1, milli(saved - wanted), 0, now_ms as i64],
                    "{rate} {capacity} {cost}"
                );
                model = Some(Model {
                    millionths: saved - wanted,
                    at_ms: now_ms,
                });
                passed += 1;
            } else {
                let wait = (wanted - saved).div_ceil(speed) as i64;
                assert_eq!(
                    got,
                    [0, milli(saved), wait, now_ms as i64],
                    "{rate} {capacity} {cost}"
                );
                waits += 1;
            }
        }
        // Its TTL by the real clock: at least twice the time to fill, so that a key that is gone would be full.
        let Reply::Integer(ttl_ms) = wire.ask(&["PTTL", &key]) else {
            panic!("no TTL");
        };
        assert!(ttl_ms > 1_000, "{ttl_ms}");
    }
    assert!(passed > 2_000 && waits > 2_000, "{passed} {waits}");
}

fn millionths_per_ms(rate: &str) -> u128 {
    let (whole, decimals) = rate.split_once('.').unwrap_or((rate, ""));
    format!("{whole}{decimals:0<3}").parse().unwrap()
}

#[test]
fn windows_equal_a_list_over_ten_thousand_asks() {
    let Some(redis) = Redis::start() else { return };
    windows(&redis, None);
}

fn windows(redis: &Redis, mistake: Option<&Mistake>) {
    let mut wire = Wire::new(redis.connect());
    // Its TTL is by the real clock, which must not end what the test's clock keeps.
    let ttl = "redis.call('PEXPIRE', log_key, window_ms)";
    let source = rendered(Script::WindowLog, 3, mistake);
    assert!(source.contains(ttl));
    let source = source.replace(ttl, &ttl.replace("window_ms", "window_ms + 3600000"));
    let mut rng = Rng::new(5);
    for number in 0..50 {
        let key = format!("{{u:{number}}}:log");
        let window = [1, 10, 1_000, 86_400_000][rng.below(4) as usize];
        let limit = [1, 2, 5, 30][rng.below(4) as usize];
        let mut list: Vec<u64> = Vec::new();
        let mut clock_ms = T;
        for _ in 0..200 {
            clock_ms += rng.below(2 * window / limit + 2);
            let back = if rng.chance(1, 10) {
                rng.below(2 * window)
            } else {
                0
            };
            let [seconds, micros] = clock(clock_ms - back);
            let arguments = [&window.to_string(), &limit.to_string(), &seconds, &micros];
            let arguments = arguments.map(String::as_str);
            let got = wire.text(&source, &[&key], &arguments).integers();

            let now = (clock_ms - back).max(list.last().copied().unwrap_or(0));
            let live: Vec<u64> = list
                .iter()
                .copied()
                .filter(|at| at + window > now)
                .collect();
            let count = live.len() as u64;
            if count < limit {
                assert_eq!(got, [1, (limit - count - 1) as i64, 0, now as i64]);
                list.push(now);
                let kept = wire.ask(&["ZCARD", &key]);
                assert_eq!(
                    kept,
                    Reply::Integer(count as i64 + 1),
                    "what has left is gone"
                );
            } else {
                let wait = live[(count - limit) as usize] + window - now;
                assert_eq!(got, [0, 0, wait as i64, now as i64]);
            }
        }
    }
    wire.script(Script::WindowLog, &["{u:1}:ttl"], &["60000", "1"]);
    let Reply::Integer(ttl_ms) = wire.ask(&["PTTL", "{u:1}:ttl"]) else {
        panic!("no TTL");
    };
    assert!((1..=60_000).contains(&ttl_ms), "{ttl_ms}");
}

/// A budget of one SKU and its instances, as the test sees them.
struct Budget {
    draw: String,
    give_back: String,
    policy: String,
    keys: [String; 2],
}

impl Budget {
    fn new(number: u64, mistake: Option<&Mistake>) -> Self {
        Self {
            draw: rendered(Script::LeaseDraw, 7, mistake),
            give_back: rendered(Script::LeaseReturn, 6, mistake),
            policy: rendered(Script::LeasePolicy, 6, mistake),
            keys: ["lease", "lines"].map(|name| format!("{{a1:s{number}}}:{name}")),
        }
    }

    /// Code, boot of the bucket, time.
    fn policy(&self, wire: &mut Wire, version: u64, rate: u64, weights: u64, us: u64) -> Vec<i64> {
        let [seconds, micros] = clock_us(us);
        let burst = (rate / 5).max(1); // 200 ms, as `limits::BUDGET_BURST_MS`
        let numbers =
            [version, rate * 1000, burst, weights, 86_400_000].map(|number| number.to_string());
        let mut arguments: Vec<&str> = numbers.iter().map(String::as_str).collect();
        arguments.extend([seconds.as_str(), micros.as_str()]);
        wire.text(&self.policy, &[&self.keys[0]], &arguments)
            .integers()
    }

    /// Code, tokens, seq, boot of the bucket, TTL, pause, time.
    fn draw(&self, wire: &mut Wire, who: &Instance, seq: u64, want: u64, us: u64) -> Vec<i64> {
        let [seconds, micros] = clock_us(us);
        let numbers =
            [who.boot, seq, want, who.weight, 86_400_000].map(|number| number.to_string());
        let mut arguments = vec![who.name.as_str()];
        arguments.extend(numbers.iter().map(String::as_str));
        arguments.extend([seconds.as_str(), micros.as_str()]);
        let keys = self.keys.each_ref().map(String::as_str);
        wire.text(&self.draw, &keys, &arguments).integers()
    }

    /// Code, tokens credited, time.
    fn give_back(
        &self,
        wire: &mut Wire,
        who: &Instance,
        seq: u64,
        tokens: u64,
        us: u64,
    ) -> Vec<i64> {
        let [seconds, micros] = clock_us(us);
        let numbers = [who.boot, seq, tokens, who.lease_boot].map(|number| number.to_string());
        let mut arguments = vec![who.name.as_str()];
        arguments.extend(numbers.iter().map(String::as_str));
        arguments.extend([seconds.as_str(), micros.as_str()]);
        let keys = self.keys.each_ref().map(String::as_str);
        wire.text(&self.give_back, &keys, &arguments).integers()
    }
}

struct Instance {
    name: String,
    boot: u64,
    seq: u64,
    weight: u64,
    lease_boot: u64,
    /// Of the last draw.
    tokens: i64,
    holds: u64,
}

/// Millionths of a token that a new bucket of `rate` has let in after `us`: an eighth of the rate more at each step.
fn climbed(rate: u64, us: u64) -> u64 {
    let step_us = BUDGET_RAMP_MS * 1000 / BUDGET_RAMP_STEPS;
    (0..BUDGET_RAMP_STEPS)
        .map(|step| rate * us.saturating_sub(step * step_us) / BUDGET_RAMP_STEPS)
        .sum()
}

#[test]
fn leases_never_exceed_rate_times_time_whatever_is_lost_repeated_or_restarted() {
    let Some(redis) = Redis::start() else { return };
    leases(&redis, None);
}

fn leases(redis: &Redis, mistake: Option<&Mistake>) {
    let mut wire = Wire::new(redis.connect());
    let mut rng = Rng::new(11);
    let (mut repeats, mut voids, mut credits, mut granted_in_all) = (0, 0, 0, 0);
    for number in 0..30 {
        let budget = Budget::new(number, mistake);
        let rate = [1, 40, 1_000, 250_000, 5_000_000][rng.below(5) as usize];
        let mut us = T * 1000;
        let mut now_us = us;
        let mut instances: Vec<Instance> = (0..4)
            .map(|at| Instance {
                name: format!("instance-{at}"),
                boot: 100 + at,
                seq: 0,
                weight: 1 + at,
                lease_boot: 0,
                tokens: 0,
                holds: 0,
            })
            .collect();
        let nothing = budget.draw(&mut wire, &instances[0], 1, 10, us);
        assert_eq!(nothing[..2], [-1, 0], "a missing bucket is not open");
        let mut opened = budget.policy(&mut wire, 1, rate, 10, us)[1] as u64;
        let (mut granted, mut credited) = (0, 0);
        for _ in 0..200 {
            let step = [10, 1_000, 50_000, 400_000][rng.below(4) as usize];
            us += rng.below(step);
            let told_us = us
                - if rng.chance(1, 8) {
                    rng.below(300_000)
                } else {
                    0
                };
            now_us = now_us.max(told_us);
            let who = &mut instances[rng.below(4) as usize];
            match rng.below(20) {
                0 => {
                    who.boot += 10; // it has died with what it held
                    who.seq = 0;
                    who.holds = 0;
                }
                1 if rng.chance(1, 4) => {
                    wire.ask(&["DEL", &budget.keys[0]]); // Redis lost it
                    assert_eq!(budget.draw(&mut wire, who, who.seq + 1, 10, told_us)[0], -1);
                    opened = budget.policy(&mut wire, 1, rate, 10, now_us)[1] as u64;
                    (granted, credited) = (0, 0);
                }
                2..5 => {
                    let back = rng.below(who.holds + 5);
                    let got = budget.give_back(&mut wire, who, who.seq, back, told_us);
                    assert!(got[1] <= back as i64);
                    if got[0] == 1 {
                        assert!(got[1] as u64 <= who.holds, "more than it drew");
                        credited += got[1];
                        who.holds = who.holds.saturating_sub(back);
                        credits += 1;
                        let again = budget.give_back(&mut wire, who, who.seq, back, told_us);
                        assert_eq!(again[..2], [0, 0], "credited once");
                    } else {
                        voids += 1;
                    }
                }
                5 if who.seq > 0 && who.lease_boot == opened => {
                    let again = budget.draw(&mut wire, who, who.seq, 1 << 20, told_us);
                    assert_eq!(again[..2], [2, who.tokens], "the same seq, the same tokens");
                    repeats += 1;
                    if who.seq > 1 {
                        let older = budget.draw(&mut wire, who, who.seq - 1, 10, told_us);
                        assert_eq!(older[..2], [0, 0], "an older seq gets nothing");
                    }
                }
                _ => {
                    who.seq += 1;
                    let want = rng.below(rate / 4 + 50);
                    let got = budget.draw(&mut wire, who, who.seq, want, told_us);
                    assert_eq!(got[0], 1);
                    assert!(got[1] >= 0 && got[1] as u64 <= want);
                    if who.lease_boot != opened {
                        who.holds = 0;
                    }
                    who.lease_boot = got[3] as u64;
                    who.tokens = got[1];
                    who.holds += got[1] as u64;
                    granted += got[1];
                    granted_in_all += got[1];
                }
            }
            let let_in = climbed(rate, now_us - opened) / 1_000_000;
            assert!(
                granted - credited <= let_in as i64,
                "{granted} granted, {credited} came back, {let_in} let in at {rate}/s"
            );
        }
    }
    assert!(repeats > 100 && voids > 50 && credits > 100 && granted_in_all > 1_000_000);
}

#[test]
fn an_asker_that_comes_often_gets_the_whole_rate_and_a_raise_adds_no_tokens_at_once() {
    let Some(redis) = Redis::start() else { return };
    let mut wire = Wire::new(redis.connect());
    let budget = Budget::new(1, None);
    let one = Instance {
        name: "one".to_owned(),
        boot: 1,
        seq: 0,
        weight: 1,
        lease_boot: 0,
        tokens: 0,
        holds: 0,
    };
    let start = T * 1000;
    budget.policy(&mut wire, 1, 1_000, 1, start);
    let mut total = 0;
    for turn in 1..=300 {
        total += budget.draw(&mut wire, &one, turn, 1 << 20, start + turn * 10_000)[1];
    }
    let let_in = climbed(1_000, 3_000_000) as i64 / 1_000_000;
    // Each of the seven steps of the climb is seen at the next draw, 10 ms late at most.
    assert!(
        (let_in - 10..=let_in).contains(&total),
        "{total} of {let_in}"
    );
    let now = start + 3_000_000;
    assert_eq!(budget.draw(&mut wire, &one, 301, 1 << 20, now)[1], 0);
    assert_eq!(budget.policy(&mut wire, 2, 1_000_000, 1, now)[0], 1);
    assert_eq!(
        budget.draw(&mut wire, &one, 302, 1 << 20, now)[1],
        0,
        "a raise is speed"
    );
    let faster = budget.draw(&mut wire, &one, 303, 1 << 20, now + 1_000);
    assert_eq!(faster[1], 1_000);
    assert_eq!(
        budget.policy(&mut wire, 1, 5, 1, now)[0],
        0,
        "an older policy"
    );
    assert_eq!(
        budget.policy(&mut wire, 2, 5, 1, now)[0],
        2,
        "the same one changes nothing"
    );
    let after = budget.draw(&mut wire, &one, 304, 1 << 20, now + 2_000);
    assert_eq!(after[1], 1_000);
}

#[test]
fn instances_share_by_weight() {
    let Some(redis) = Redis::start() else { return };
    let mut wire = Wire::new(redis.connect());
    let budget = Budget::new(1, None);
    let instance = |name: &str, weight| Instance {
        name: name.to_owned(),
        boot: 1,
        seq: 0,
        weight,
        lease_boot: 0,
        tokens: 0,
        holds: 0,
    };
    let (large, small) = (instance("large", 3), instance("small", 1));
    let start = T * 1000;
    budget.policy(&mut wire, 1, 100_000, 4, start);
    let full = start + 10_000_000;
    let first = budget.draw(&mut wire, &large, 1, 1 << 20, full)[1];
    assert_eq!(first, 15_000, "three quarters of 200 ms");
    let second = budget.draw(&mut wire, &small, 1, 1 << 20, full)[1];
    assert_eq!(second, 1_250, "a quarter of what is left");
}

#[test]
fn the_programs_frames_draw_and_give_back() {
    let Some(redis) = Redis::start() else { return };
    let mut wire = Wire::new(redis.connect());
    let sku = SkuKey {
        activity: ActivityId(1),
        sku: SkuId(2),
    };
    let steps = LeaseSteps::new(sku, "host-a");
    let draw = LeaseDraw {
        shard: ShardId(1),
        sku,
        shard_boot: u64::MAX,
        seq: 1,
        want: 100,
        weight: 5,
    };
    let ask = |wire: &mut Wire, draw: &LeaseDraw| {
        steps.push_draw(draw, &mut wire.out);
        wire.send();
        wire.next(|reply| lease::drawn(draw, reply))
    };
    assert_eq!(ask(&mut wire, &draw), Ok(Drawn::NotOpen));
    let set = |wire: &mut Wire, version| {
        let policy = LeasePolicy {
            version,
            rate: Rate::per_second(1_000_000),
            weights: 5,
        };
        steps.push_policy(&policy, &mut wire.out);
        wire.send();
        let told = wire.next(lease::policy_set).unwrap();
        (told.set, told.holds.version, told.holds.weights)
    };
    assert_eq!(set(&mut wire, 7), (PolicySet::Applied, 7, 5));
    assert_eq!(set(&mut wire, 7), (PolicySet::Kept, 7, 5));
    assert_eq!(set(&mut wire, 6), (PolicySet::Older, 7, 5));
    // By the real clock: it climbs from nothing, so ask until something has come.
    let mut seq = 0;
    let grant = loop {
        seq += 1;
        match ask(&mut wire, &LeaseDraw { seq, ..draw }) {
            Ok(Drawn::Granted(grant)) if grant.tokens > 0 => break grant,
            Ok(Drawn::Granted(_)) => {}
            other => panic!("{other:?}"),
        }
    };
    assert!(grant.tokens <= 100 && grant.seq == seq && grant.ttl_ms > 0);
    let again = ask(&mut wire, &LeaseDraw { seq, ..draw });
    assert_eq!(again, Ok(Drawn::Granted(grant)), "sent again");
    let mut back = LeaseReturn {
        shard: ShardId(1),
        sku,
        owner_boot: grant.owner_boot,
        shard_boot: u64::MAX,
        seq,
        tokens: 1,
    };
    for (boot, wanted) in [(1, 0), (grant.owner_boot, 1), (grant.owner_boot, 0)] {
        back.owner_boot = boot;
        steps.push_return(&back, &mut wire.out);
        wire.send();
        assert_eq!(wire.next(lease::credited), Ok(wanted));
    }
}
