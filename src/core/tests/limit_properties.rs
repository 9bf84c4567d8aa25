//! Buckets and the keyed table against a brute-force model in exact fractions, and the named field bugs.

use proptest::prelude::*;
use std::collections::HashMap;
use weir_core::limit::gcra::{Bucket, FULL_UNITS_MAX, Level, Policy, PolicyError, Rate, Verdict};
use weir_core::limit::rule::{Kind, Rule};
use weir_core::limit::table::{KeyedLimiter, SLOTS_PER_LINE, TableSpec};
use weir_core::time::{Mono, NS_PER_MS, NS_PER_S};

/// Tokens as an exact fraction over `per_ns`; refilled on every look, as the textbook says.
#[derive(Clone)]
struct Model {
    rate: Rate,
    capacity: u32,
    scaled: u128,
    last: u64,
}

impl Model {
    fn full(rate: Rate, capacity: u32, now: u64) -> Self {
        Self {
            rate,
            capacity,
            scaled: u128::from(capacity) * u128::from(rate.per_ns),
            last: now,
        }
    }

    fn refill(&mut self, now: u64) {
        let now = now.max(self.last);
        let cap = u128::from(self.capacity) * u128::from(self.rate.per_ns);
        self.scaled =
            (self.scaled + u128::from(now - self.last) * u128::from(self.rate.tokens)).min(cap);
        self.last = now;
    }

    fn take(&mut self, now: u64, cost: u32) -> Verdict {
        let mut at = self.clone();
        at.refill(now);
        let per = u128::from(self.rate.per_ns);
        let need = u128::from(cost) * per;
        if cost > self.capacity {
            return Verdict::Never;
        }
        if need <= at.scaled {
            if cost > 0 {
                at.scaled -= need;
                *self = at.clone();
            }
            return Verdict::Allow {
                remaining: u32::try_from(at.scaled / per).expect("u32"),
            };
        }
        if self.rate.tokens == 0 {
            return Verdict::Never;
        }
        let wait = (need - at.scaled).div_ceil(u128::from(self.rate.tokens));
        Verdict::Wait {
            retry_after_ns: u64::try_from(wait).expect("u64"),
        }
    }
}

fn any_rate() -> impl Strategy<Value = Rate> {
    let per = prop_oneof![
        Just(1u64),
        1..1000u64,
        Just(NS_PER_S),
        Just(60 * NS_PER_S),
        1..(10 * NS_PER_S),
        Just(999_999_937)
    ];
    (
        prop_oneof![
            0..10u64,
            1..100_000u64,
            Just(999_983u64),
            Just(1_000_000_001u64)
        ],
        per,
    )
        .prop_map(|(tokens, per_ns)| Rate { tokens, per_ns })
}

fn policy(rate: Rate, capacity: u32) -> Policy {
    Policy::new(rate, capacity).expect("within the bounds")
}

fn keyed(slots: usize, policy: Policy, overflow: Policy) -> KeyedLimiter {
    KeyedLimiter::new(
        Mono(0),
        &TableSpec {
            slots,
            rule: Rule::gcra(policy),
            overflow,
            secret: *b"a secret of test",
        },
    )
}

/// Cheap and repeatable chance for long runs.
struct Lcg(u64);

impl Lcg {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn a_bucket_equals_the_exact_model(
        rate in any_rate(), capacity in 1..5_000u32, start in 0..u64::MAX / 4,
        steps in prop::collection::vec((0..3u8, 0..3_000_000_000u64, 0..6_000u32), 1..60),
    ) {
        let mut bucket = Bucket::full(policy(rate, capacity), Mono(start));
        let mut model = Model::full(rate, capacity, start);
        let mut now = start;
        for (back, delta, cost) in steps {
            now = if back == 0 { now.saturating_sub(delta) } else { now + delta };
            let cost = if back == 1 { cost % 3 } else { cost };
            let before = bucket.clone();
            let verdict = bucket.take(Mono(now), cost);
            prop_assert_eq!(verdict, model.take(now, cost));
            prop_assert!(verdict.is_allow() || bucket == before, "a refusal writes nothing");
        }
    }

    #[test]
    fn waiting_exactly_retry_after_passes_and_one_ms_or_ns_less_does_not(
        rate in any_rate(), capacity in 1..1_000u32, start in 0..u64::MAX / 4, used in 0..1_000u32, cost in 1..1_000u32, gap in 0..5_000_000_000u64,
    ) {
        let policy = policy(rate, capacity);
        let mut bucket = Bucket::full(policy, Mono(start));
        let mut table = KeyedLimiter::new(Mono(start), &TableSpec { slots: 256, rule: Rule::gcra(policy), overflow: Policy::CLOSED, secret: [9; 16] });
        let key = table.key(&used.to_le_bytes());
        for spent in [used % (capacity + 1), capacity / 2, 1] {
            prop_assert_eq!(bucket.take(Mono(start), spent), table.take(Mono(start), key, spent));
        }
        let now = Mono(start + gap);
        let cost = cost % capacity + 1;
        let verdict = bucket.check(now, cost);
        prop_assert_eq!(verdict, table.probe(now, key, cost).verdict);
        if let Verdict::Wait { retry_after_ns } = verdict {
            let ms = verdict.retry_after_ms().expect("a wait");
            for early in [now.plus_ms(ms - 1), now.plus_ns(retry_after_ns - 1)] {
                prop_assert!(!bucket.check(early, cost).is_allow());
                prop_assert!(!table.probe(early, key, cost).verdict.is_allow());
            }
            for due in [now.plus_ms(ms), now.plus_ns(retry_after_ns)] {
                prop_assert!(bucket.check(due, cost).is_allow());
                prop_assert!(table.probe(due, key, cost).verdict.is_allow());
            }
        }
    }

    #[test]
    fn a_policy_switch_never_gives_more_than_its_rule(
        old in any_rate(), new in any_rate(), old_capacity in 1..2_000u32, new_capacity in 1..2_000u32, used in 0..2_000u32, gap in 0..2_000_000_000u64,
    ) {
        let mut bucket = Bucket::full(policy(old, old_capacity), Mono(0));
        bucket.take(Mono(0), used % (old_capacity + 1));
        let now = Mono(gap);
        let before = bucket.level(now).remaining;
        bucket.set_policy(now, policy(new, new_capacity));
        let after = bucket.level(now).remaining;
        let rule = if new_capacity < old_capacity { before.min(new_capacity) } else { before + (new_capacity - old_capacity) };
        prop_assert!(after == rule || after + 1 == rule, "{before} -> {after}, rule {rule}: at most a part of one token is lost");
        prop_assert!(after <= new_capacity);
    }
}

#[test]
fn ten_million_steps_do_not_drift_and_a_billion_follow_by_arithmetic() {
    // 300,007 per second: 1e9 / 300,007 has no finite decimal; a period in whole nanoseconds would admit 90 per second too many (B04).
    let rate = Rate::per_second(300_007);
    let mut bucket = Bucket::with_tokens(policy(rate, 1), Mono(0), 0);
    let (mut now, mut passed) = (0u64, 0u64);
    while passed < 10_000_000 {
        let Verdict::Wait { retry_after_ns } = bucket.take(Mono(now), 1) else {
            panic!("the bucket is empty")
        };
        now += retry_after_ns;
        assert!(bucket.take(Mono(now), 1).is_allow());
        passed += 1;
        let exact = u128::from(passed) * u128::from(NS_PER_S);
        // Waiting for whole nanoseconds loses less than one per step of *this caller*; the bucket itself keeps them (capacity 1 caps it).
        assert!(u128::from(now) * 300_007 >= exact);
    }
    // With room to keep the fractions, step k comes at exactly ceil(k × 1e9 / 300,007), here and at k = 1e9.
    let mut bucket = Bucket::with_tokens(policy(rate, 2), Mono(0), 0);
    for k in 1..=100_000u64 {
        let due =
            u64::try_from((u128::from(k) * u128::from(NS_PER_S)).div_ceil(300_007)).expect("u64");
        assert!(!bucket.check(Mono(due - 1), 1).is_allow());
        assert!(bucket.take(Mono(due), 1).is_allow());
    }
    let far = 1_000_000_000u64;
    let due =
        u64::try_from((u128::from(far) * u128::from(NS_PER_S)).div_ceil(300_007)).expect("u64");
    let mut bulk = Bucket::with_tokens(policy(rate, 1_000_000_000), Mono(0), 0);
    assert_eq!(bulk.level(Mono(due - 1)).remaining, 999_999_999);
    assert_eq!(bulk.take_up_to(Mono(due), u32::MAX), 1_000_000_000);
}

#[test]
fn the_bounds_of_a_policy_are_refused_by_name_and_hold_at_their_edge() {
    let rate = |tokens, per_ns| Rate { tokens, per_ns };
    assert_eq!(Policy::new(rate(1, 0), 1), Err(PolicyError::ZeroPeriod));
    assert_eq!(Policy::new(rate(1, 1), 0), Err(PolicyError::ZeroCapacity));
    assert_eq!(
        Policy::new(rate((1 << 31) + 1, 1 << 31), 1),
        Err(PolicyError::RateTooFine)
    );
    assert_eq!(
        Policy::new(rate(1, FULL_UNITS_MAX), 2),
        Err(PolicyError::TooLong)
    );
    let edge = policy(rate((1 << 31) - 1, FULL_UNITS_MAX), 1);
    let mut bucket = Bucket::full(edge, Mono(0));
    assert!(bucket.take(Mono(u64::MAX - 1), 1).is_allow());
    assert!(matches!(
        bucket.take(Mono(u64::MAX), 1),
        Verdict::Wait { .. }
    ));
    let mut table = keyed(64, edge, Policy::CLOSED);
    let key = table.key(b"edge");
    assert!(table.take(Mono(1 << 61), key, 1).is_allow());
    assert!(!table.take(Mono((1 << 61) + 1), key, 1).is_allow());
    // B12: rate 0 and capacity 0 always refuse and never divide.
    let mut closed = Bucket::full(Policy::CLOSED, Mono(5));
    assert_eq!(closed.take(Mono(9), 1), Verdict::Never);
    assert_eq!(
        closed.level(Mono(9)),
        Level {
            remaining: 0,
            full_in_ns: Some(0)
        }
    );
}

#[test]
fn the_field_bugs_of_one_bucket() {
    // B01: no extra cell after idle.
    let mut five = Bucket::full(policy(Rate::per_second(5), 5), Mono(0));
    assert!((0..5).all(|_| five.take(Mono(0), 1).is_allow()) && !five.take(Mono(0), 1).is_allow());
    let passed = (0..9)
        .filter(|_| five.take(Mono(2 * NS_PER_S), 1).is_allow())
        .count();
    assert_eq!(passed, 5);
    // B14, B15: 2,500/s and 100/s under an open-loop flood.
    for (rate, calls_per_s, seconds) in [
        (2_500u64, 10_000u64, 1u64),
        (100, 5_000, 10),
        (15_000, 40_000, 2),
    ] {
        let mut bucket = Bucket::with_tokens(policy(Rate::per_second(rate), 2), Mono(0), 0); // 2: room for the part of a token between calls
        let every = NS_PER_S / calls_per_s;
        let passed = (1..=calls_per_s * seconds)
            .filter(|i| bucket.take(Mono(i * every), 1).is_allow())
            .count() as u64;
        assert!(
            passed <= rate * seconds && passed + rate * seconds / 100 >= rate * seconds,
            "{rate}/s admitted {passed}"
        );
    }
    // B20: a reload gives no fresh burst. B22: raising 10 to 100 gives exactly 90 at once. B33: the new rate applies to the debt.
    let mut drained = Bucket::full(policy(Rate::per_second(5), 5), Mono(0));
    drained.take(Mono(0), 5);
    drained.set_policy(Mono(0), policy(Rate::per_second(6), 5));
    assert!(!drained.take(Mono(0), 1).is_allow());
    let per_minute = |n| {
        policy(
            Rate {
                tokens: n,
                per_ns: 60 * NS_PER_S,
            },
            u32::try_from(n).expect("small"),
        )
    };
    let mut raised = Bucket::full(per_minute(10), Mono(0));
    let passed = (0..1_010)
        .filter(|_| raised.take(Mono(0), 1).is_allow())
        .count();
    assert_eq!(passed, 10);
    raised.set_policy(Mono(0), per_minute(100));
    assert_eq!(raised.take_up_to(Mono(0), 1_000), 90);
    let mut slow = Bucket::full(
        policy(
            Rate {
                tokens: 1,
                per_ns: 60 * NS_PER_S,
            },
            1,
        ),
        Mono(0),
    );
    slow.take(Mono(0), 1);
    slow.set_policy(
        Mono(0),
        policy(
            Rate {
                tokens: 100,
                per_ns: 60 * NS_PER_S,
            },
            1,
        ),
    );
    assert_eq!(
        slow.check(Mono(0), 1),
        Verdict::Wait {
            retry_after_ns: 600_000_000
        }
    );
    // B35: the wait of 5/s is 200 ms, not 0.
    let mut fifth = Bucket::full(policy(Rate::per_second(5), 1), Mono(0));
    fifth.take(Mono(0), 1);
    assert_eq!(fifth.check(Mono(0), 1).retry_after_ms(), Some(200));
    // B11: refunds never lift above the capacity.
    fifth.refund(Mono(0), u32::MAX);
    assert_eq!(fifth.level(Mono(0)).remaining, 1);
}

#[test]
fn a_table_equals_one_model_per_key_through_reuse_of_slots_and_moved_bases() {
    let mut chance = Lcg(11);
    for (rate, capacity) in [
        (Rate::per_second(5), 10u32),
        (
            Rate {
                tokens: 7,
                per_ns: 60 * NS_PER_S,
            },
            3,
        ),
        (
            Rate {
                tokens: 2_000_000_011,
                per_ns: NS_PER_S,
            },
            40,
        ), // fine units: the base of a line moves every 2 s
        (
            Rate {
                tokens: 1,
                per_ns: 3_600 * NS_PER_S,
            },
            2,
        ),
    ] {
        let mut table = keyed(1_024, policy(rate, capacity), Policy::CLOSED);
        let mut models: HashMap<u64, Model> = HashMap::new();
        let (mut now, mut clock) = (0u64, 0u64);
        for _ in 0..60_000 {
            now = match chance.below(50) {
                0 => now + chance.below(40 * NS_PER_S),
                1 => now.saturating_sub(chance.below(NS_PER_S)),
                _ => now + chance.below(20 * NS_PER_MS),
            };
            let (user, cost) = (
                chance.below(400),
                u32::try_from(chance.below(4)).expect("small"),
            );
            let key = table.key(&user.to_le_bytes());
            let effective = now.max(clock); // a table has one clock, moved by its charges
            let model = models
                .entry(user)
                .or_insert_with(|| Model::full(rate, capacity, 0));
            let probe = table.probe(Mono(now), key, cost);
            assert!(!probe.is_overflow(), "400 keys fit 1,024 slots");
            assert_eq!(
                probe.verdict,
                model.take(effective, cost),
                "user {user} at {now}"
            );
            if probe.verdict.is_allow() {
                table.charge(&probe);
                if cost > 0 {
                    clock = effective;
                }
            }
        }
    }
}

#[test]
fn at_half_load_hardly_any_key_overflows_and_at_seventy_percent_few() {
    let slow = policy(
        Rate {
            tokens: 1,
            per_ns: 3_600 * NS_PER_S,
        },
        1,
    );
    for (load_percent, overflow_permille_max) in [(25, 0), (50, 1), (70, 10)] {
        let mut table = keyed(1 << 16, slow, policy(Rate::per_second(1), 1));
        let keys = (table.slots() * load_percent / 100) as u64;
        for user in 0..keys {
            let key = table.key(&user.to_le_bytes());
            table.take(Mono(1), key, 1);
        }
        let overflow = table.overflow_total();
        println!("load {load_percent} %: {overflow} of {keys} keys found no slot");
        assert!(overflow * 1_000 <= keys * overflow_permille_max + 1_000);
        assert_eq!(table.entries_estimate(Mono(1), usize::MAX), keys - overflow);
    }
}

#[test]
fn in_a_crowded_table_every_key_that_has_a_slot_decides_as_if_alone() {
    // Debts of seconds, so that keys come and go: slots are left, taken by others, and taken again.
    let policy_each = policy(Rate::per_second(1), 3);
    for (slots, keys_count) in [(4, 5), (8, 10), (16, 18), (64, 60)] {
        let mut table = keyed(slots, policy_each, policy(Rate::per_second(2), 2));
        let mut chance = Lcg(slots as u64);
        let mut now = Mono(0);
        let keys: Vec<_> = (0..keys_count as u64)
            .map(|user| (table.key(&user.to_le_bytes()), user))
            .collect();
        let mut alone = vec![Bucket::full(policy_each, now); keys_count];
        let (mut with_slot, mut without) = (0u64, 0u64);
        for step in 0..200_000 {
            now = now.plus_ms(chance.below(600));
            let (key, user) = keys[chance.below(keys_count as u64) as usize];
            let cost = chance.below(3) as u32 + 1;
            let alone = &mut alone[user as usize];
            let is_owing = alone.level(now).full_in_ns != Some(0);
            let probe = table.probe(now, key, cost);
            if probe.is_overflow() {
                assert!(!is_owing, "step {step}: a key in debt lost its slot");
                without += 1;
            } else {
                with_slot += 1;
                assert_eq!(probe.verdict, alone.take(now, cost), "step {step}");
            }
            if probe.verdict.is_allow() {
                table.charge(&probe);
            }
            if chance.below(50) == 0 && !table.probe(now, key, 1).is_overflow() {
                table.refund(now, key, 1);
                alone.refund(now, 1);
            }
        }
        println!(
            "{slots} slots, {keys_count} keys: {with_slot} decisions with a slot, {without} without"
        );
        assert!(with_slot > 10_000, "{slots} slots");
    }
}

#[test]
fn ten_million_keys_neither_grow_the_table_nor_free_a_heavy_key_nor_shut_out_newcomers() {
    let mut table = keyed(
        4_096,
        policy(Rate::per_second(1), 5),
        policy(Rate::per_second(50), 10),
    );
    let bytes = table.bytes();
    assert_eq!(bytes, 4_096 * 16 + 4 * 256 * 8); // the sketch: four rows of a sixteenth of the slots
    assert_eq!(bytes, KeyedLimiter::bytes_for(4_096, Kind::Gcra, 5));
    let heavy = table.key(b"heavy");
    let (mut heavy_passed, mut newcomers_passed) = (0u64, 0u64);
    let mut now = Mono(0);
    for user in 0..10_000_000u64 {
        now = now.plus_ns(2_000); // 20 s in all
        let key = table.key(&user.to_le_bytes());
        newcomers_passed += u64::from(table.take(now, key, 1).is_allow());
        if user % 100 == 0 {
            heavy_passed += u64::from(table.take(now, heavy, 1).is_allow());
        }
    }
    let seconds = 20;
    assert!(
        heavy_passed <= 5 + seconds,
        "the heavy key took {heavy_passed}"
    );
    assert!(
        heavy_passed >= seconds / 2,
        "the heavy key is limited, not shut out"
    );
    let bound = 4_096 * (seconds + 1) + 10 + 50 * seconds; // each slot serves one newcomer a second, the rest share the overflow bucket
    assert!(
        newcomers_passed > 50 * (seconds - 1) && newcomers_passed <= bound,
        "{newcomers_passed} newcomers passed"
    );
    assert!(table.overflow_total() > 9_000_000);
    assert_eq!(table.bytes(), bytes);
}

#[test]
fn in_a_full_table_no_live_key_loses_its_state_and_the_newcomer_is_held_to_its_own_rate() {
    // B19, B23 with the numbers of the report: 1,000 live keys, then others.
    let per_hour = policy(
        Rate {
            tokens: 1,
            per_ns: 3_600 * NS_PER_S,
        },
        2,
    );
    let mut table = keyed(1_000, per_hour, policy(Rate::per_second(10), 1));
    let mut held = Vec::new();
    for user in 0..20_000u64 {
        let key = table.key(&user.to_le_bytes());
        let probe = table.probe(Mono(0), key, 2);
        if !probe.is_overflow() {
            table.charge(&probe);
            held.push(key);
        }
    }
    assert_eq!(held.len(), table.slots(), "a long flood fills every slot");
    let newcomer = table.key(b"the 1001st");
    let passed = (0..100u64)
        .filter(|i| table.take(Mono(0).plus_ms(i * 10), newcomer, 1).is_allow())
        .count();
    assert_eq!(
        passed, 2,
        "its own burst, as if it had a slot: neither unlimited nor shut out"
    );
    for key in held {
        assert!(
            matches!(table.take(Mono(NS_PER_S), key, 1), Verdict::Wait { .. }),
            "drained keys stay drained"
        );
    }
    assert!(
        table
            .take(Mono(2 * 3_600 * NS_PER_S), newcomer, 1)
            .is_allow(),
        "full buckets are free slots"
    );
    assert_eq!(
        table.entries_estimate(Mono(2 * 3_600 * NS_PER_S), usize::MAX),
        1
    );
}

#[test]
fn a_table_policy_switch_carries_every_key_also_spilled_ones() {
    let mut table = keyed(
        256,
        policy(
            Rate {
                tokens: 1,
                per_ns: 60 * NS_PER_S,
            },
            4,
        ),
        Policy::CLOSED,
    );
    let keys: Vec<_> = (0..160u64)
        .map(|user| table.key(&user.to_le_bytes()))
        .collect();
    let placed: Vec<_> = keys
        .into_iter()
        .filter(|key| table.take(Mono(0), *key, 4).is_allow())
        .collect();
    assert!(placed.len() > 150);
    let switch = Mono(60 * NS_PER_S); // one token has come back to each
    table
        .set_policy(
            switch,
            policy(
                Rate {
                    tokens: 1,
                    per_ns: 600 * NS_PER_S,
                },
                8,
            ),
            Policy::CLOSED,
        )
        .expect("enforceable");
    for key in &placed {
        assert_eq!(
            table.probe(switch, *key, 5).verdict,
            Verdict::Allow { remaining: 0 },
            "4 - 3 consumed of 8 leaves 5"
        );
        assert_eq!(
            table.take(switch, *key, 6),
            Verdict::Wait {
                retry_after_ns: 600 * NS_PER_S
            }
        );
    }
    let later = Mono(60 * NS_PER_S + 1_799 * NS_PER_S); // the third consumed token returns at 1,800 s
    for key in &placed {
        assert_eq!(
            table.probe(later, *key, 8).verdict,
            Verdict::Wait {
                retry_after_ns: NS_PER_S
            }
        );
    }
}

#[test]
fn a_slower_policy_keeps_spilled_keys_findable_after_their_home_line_emptied() {
    let per = |seconds| {
        policy(
            Rate {
                tokens: 1,
                per_ns: seconds * NS_PER_S,
            },
            4,
        )
    };
    let mut table = keyed(256, per(60), Policy::CLOSED);
    for filler in 1_000..1_110u64 {
        let key = table.key(&filler.to_le_bytes());
        table.take(Mono(0), key, 1);
    }
    let late: Vec<_> = (0..60u64)
        .map(|user| table.key(&user.to_le_bytes()))
        .collect();
    let placed: Vec<_> = late
        .into_iter()
        .filter(|key| table.take(Mono(0), *key, 4).is_allow())
        .collect();
    assert!(placed.len() > 50);
    table
        .set_policy(Mono(0), per(600), Policy::CLOSED)
        .expect("enforceable");
    let fillers_gone = Mono(1_000 * NS_PER_S);
    for key in &placed {
        assert_eq!(
            table.take(fillers_gone, *key, 4),
            Verdict::Wait {
                retry_after_ns: 1_400 * NS_PER_S
            }
        );
    }
}

#[test]
fn user_and_device_are_charged_together_or_not_at_all() {
    // B21: A = 1000/s, B = 1/min.
    let mut users = keyed(64, policy(Rate::per_second(1_000), 1_000), Policy::CLOSED);
    let mut devices = keyed(
        64,
        policy(
            Rate {
                tokens: 1,
                per_ns: 60 * NS_PER_S,
            },
            1,
        ),
        Policy::CLOSED,
    );
    let (user, device) = (users.key(b"user"), devices.key(b"device"));
    for turn in 0..3 {
        let (a, b) = (
            users.probe(Mono(1), user, 1),
            devices.probe(Mono(1), device, 1),
        );
        let verdict = a.verdict.and(b.verdict);
        assert_eq!(verdict.is_allow(), turn == 0);
        if verdict.is_allow() {
            users.charge(&a);
            devices.charge(&b);
        }
    }
    assert_eq!(
        users.probe(Mono(1), user, 0).verdict,
        Verdict::Allow { remaining: 999 }
    );
}

#[test]
#[should_panic(expected = "before the table is written again")]
fn a_probe_made_before_another_charge_cannot_be_charged() {
    let mut table = keyed(
        SLOTS_PER_LINE,
        policy(Rate::per_second(1), 1),
        Policy::CLOSED,
    );
    let (a, b) = (table.key(b"a"), table.key(b"b"));
    let (first, second) = (table.probe(Mono(1), a, 1), table.probe(Mono(1), b, 1));
    table.charge(&first);
    table.charge(&second);
}

#[test]
fn a_limit_split_over_shards_stays_within_its_stated_bound() {
    for shards in [1u16, 2, 7] {
        let whole = policy(Rate::per_second(50), 10);
        let part = whole.split(shards).expect("enforceable");
        let mut tables: Vec<_> = (0..shards)
            .map(|_| keyed(64, part, Policy::CLOSED))
            .collect();
        let (seconds, mut passed) = (20u64, 0u64);
        for ms in 0..=seconds * 1_000 {
            for table in &mut tables {
                let key = table.key(b"the same user everywhere");
                passed += u64::from(table.take(Mono(0).plus_ms(ms), key, 1).is_allow());
            }
        }
        let bound = u64::from(shards) * 10 + 50 * seconds;
        assert!(
            passed <= bound && passed + u64::from(shards) >= bound,
            "{shards} shards: {passed} of {bound}"
        );
    }
}
