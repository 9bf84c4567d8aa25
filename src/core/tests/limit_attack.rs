//! A hundred million keys against a small table (B18, B19, B23): keys that were there decide as if alone, heavy keys
//! without a slot stay limited, quiet newcomers pass.

use weir_core::limit::gcra::{Policy, Rate, Verdict};
use weir_core::limit::rule::{Kind, Rule};
use weir_core::limit::table::{Key, KeyedLimiter, TableSpec};
use weir_core::time::{Mono, NS_PER_S};

/// Keys that each come once.
const ATTACKERS: u64 = 100_000_000;
/// Attackers between two calls of the keys that are watched.
const PER_ROUND: u64 = 10_000;
const EXISTING: u64 = 500;

fn table(kind: Kind, shared: Rate) -> KeyedLimiter {
    // Ten tokens an hour: whoever came in the last minutes is in debt, so the attack finds few free slots.
    let policy = Policy::new(per(10, 3_600 * NS_PER_S), 10).expect("enforceable");
    let spec = TableSpec {
        slots: 4_096,
        rule: Rule::new(kind, policy).expect("enforceable"),
        overflow: Policy::new(shared, 100).expect("enforceable"),
        secret: *b"a secret of test",
    };
    KeyedLimiter::new(Mono(0), &spec)
}

const fn per(tokens: u64, per_ns: u64) -> Rate {
    Rate { tokens, per_ns }
}

fn name(table: &KeyedLimiter, class: u8, number: u64) -> Key {
    let mut bytes = [class; 9];
    bytes[1..].copy_from_slice(&number.to_be_bytes());
    table.key(&bytes)
}

/// The existing keys' calls of one round; a few come more often than their rate.
fn calls(table: &mut KeyedLimiter, now: Mono, round: u64, answers: &mut Vec<Verdict>) {
    for number in (0..EXISTING).filter(|n| round == 0 || (n + round).is_multiple_of(n % 7 + 1)) {
        let key = name(table, b'e', number);
        answers.push(table.take(now, key, 1));
    }
}

#[test]
fn keys_that_are_there_decide_the_same_with_and_without_a_hundred_million_others() {
    for (kind, attackers) in [
        (Kind::Gcra, ATTACKERS),
        (Kind::SlidingLog, ATTACKERS / 20),
        (Kind::SlidingCounter, ATTACKERS / 20),
        (Kind::FixedWindow, ATTACKERS / 20),
    ] {
        let mut alone = table(kind, Rate::per_second(100));
        let mut attacked = table(kind, Rate::per_second(100));
        let (mut differences, mut decisions, mut refused) = (0u64, 0u64, 0u64);
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for round in 0..attackers / PER_ROUND {
            let now = Mono(0).plus_ms(round * 50); // every key is charged again long before it is out of debt
            with.clear();
            without.clear();
            calls(&mut alone, now, round, &mut without);
            calls(&mut attacked, now, round, &mut with);
            decisions += with.len() as u64;
            refused += with.iter().filter(|verdict| !verdict.is_allow()).count() as u64;
            differences += with.iter().zip(&without).filter(|(a, b)| a != b).count() as u64;
            for number in round * PER_ROUND..(round + 1) * PER_ROUND {
                let key = name(&attacked, b'a', number);
                attacked.take(now, key, 1);
            }
        }
        println!(
            "limit attack: {}: {attackers} keys, {decisions} decisions of {EXISTING} existing keys ({refused} refused), {differences} differences; {} lookups without a slot",
            kind.word(),
            attacked.overflow_total()
        );
        assert_eq!(differences, 0, "{kind:?}");
        assert!(refused > 1_000 && refused < decisions);
        assert!(attacked.overflow_total() > attackers / 2);
    }
}

#[test]
fn behind_a_full_table_heavy_keys_stay_limited_and_quiet_newcomers_pass() {
    let mut table = table(Kind::Gcra, Rate::per_second(20));
    let mut filler = 0;
    while table.entries_estimate(Mono(0), usize::MAX) < table.slots() as u64 {
        let key = name(&table, b'f', filler);
        filler += 1;
        for _ in 0..10 {
            table.take(Mono(0), key, 1); // drained: in debt for an hour
        }
    }
    // Forty keys hammer. Nobody knows them as heavy until each has had half its burst: the newcomers count after that.
    let heavy: Vec<Key> = (0..40).map(|number| name(&table, b'h', number)).collect();
    let start = Mono(60 * NS_PER_S);
    let (mut passed, mut newcomers, mut refused) = ([0u32; 40], 0u32, 0u32);
    for ms in 0..60_000u64 {
        let now = start.plus_ms(ms);
        for (key, passed) in heavy.iter().zip(&mut passed) {
            *passed += u32::from(table.take(now, *key, 1).is_allow());
        }
        if ms >= 20_000 && ms % 100 == 0 {
            let key = name(&table, b'q', ms);
            let probe = table.probe(now, key, 1);
            assert!(probe.is_overflow(), "the table is full");
            if probe.verdict.is_allow() {
                table.charge(&probe);
                newcomers += 1;
            } else {
                refused += 1;
            }
        }
    }
    println!(
        "limit attack: forty heavy keys passed {passed:?} of 60,000 calls each; {newcomers} quiet newcomers passed, {refused} were refused"
    );
    assert!(
        passed.iter().all(|&passed| passed <= 11),
        "its burst of 10 and one that came back in a minute, at most"
    );
    assert!(
        passed.iter().all(|&passed| passed >= 1),
        "limited, not barred"
    );
    assert!(
        refused * 100 <= newcomers,
        "one in a hundred at most is mistaken for a heavy one"
    );
}

#[test]
fn a_key_without_a_slot_that_comes_when_told_passes_and_a_nanosecond_earlier_does_not() {
    let mut table = table(Kind::Gcra, per(1, NS_PER_S));
    for filler in 0..200_000 {
        let key = name(&table, b'f', filler);
        table.take(Mono(0), key, 10);
    }
    let mut now = Mono(NS_PER_S);
    let (mut waits, mut passed) = (0, 0);
    for step in 0..2_000u64 {
        let key = name(&table, b'k', step % 7);
        let cost = (step % 3 + 1) as u32;
        let probe = table.probe(now, key, cost);
        if !probe.is_overflow() {
            now = now.plus_ms(1);
            continue; // an hour has passed: it found a slot
        }
        if let Verdict::Wait { retry_after_ns } = probe.verdict {
            waits += 1;
            let early = table.probe(now.plus_ns(retry_after_ns - 1), key, cost);
            assert!(
                !early.verdict.is_allow() || !early.is_overflow(),
                "step {step}: early"
            );
            now = now.plus_ns(retry_after_ns);
        }
        let due = table.probe(now, key, cost);
        if due.is_overflow() {
            assert!(
                due.verdict.is_allow(),
                "step {step}: told {:?}",
                probe.verdict
            );
            table.charge(&due);
            passed += 1;
        }
    }
    assert!(waits > 40 && passed > 60, "{waits} waits, {passed} passed");
}
