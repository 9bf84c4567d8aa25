//! A shard's limits as a client and an operator see them: headers, the told pace, a shadow, a change of policy (C1, C6).

#![allow(clippy::unwrap_used)] // a test's unwrap is its assertion

mod shard_kit;

use shard_kit::{Kit, config, keyed, status, submit, ticket};
use weir_core::ask::LedgerAnswer;
use weir_core::limit::dimension::Dim;
use weir_core::limit::gcra::{Policy, Rate};
use weir_core::limit::rule::{Kind, Rule};
use weir_core::mail::{LimitChange, Mail};
use weir_core::port::Event;
use weir_core::shard::config::ShardConfig;
use weir_core::time::NS_PER_S;
use weir_proto::answer::read_u64_member;

const fn per(tokens: u64, per_ns: u64) -> Rate {
    Rate { tokens, per_ns }
}

/// One submit of user 7, answered by the ledger if it gets there; status and the whole response.
fn one(kit: &mut Kit, number: u8) -> (u16, String) {
    let request = submit(7, &format!("request-{number:04}"), &ticket(7, number, true));
    whole(kit, &request)
}

fn whole(kit: &mut Kit, request: &[u8]) -> (u16, String) {
    kit.out[0].clear();
    kit.bytes(0, request);
    kit.end_turn();
    if let Some(ask) = kit.asks().pop() {
        kit.answer(&ask, LedgerAnswer::QuantityRefused);
    }
    let text = String::from_utf8(kit.out[0].clone()).unwrap();
    let status = text["HTTP/1.1 ".len()..][..3].parse().unwrap();
    (status, text)
}

fn line<'a>(response: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = response.split("\r\n");
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

fn limited_by(kind: Kind, rate: Rate, capacity: u32) -> ShardConfig {
    let mut config = config();
    config.user = keyed(rate, capacity);
    config.user.rule = Rule::new(kind, *config.user.rule.policy()).unwrap();
    config
}

fn change(kit: &mut Kit, rate: Rate, capacity: u32) {
    let policy = Policy::new(rate, capacity).unwrap();
    let change = LimitChange {
        dim: Dim::User,
        policy,
    };
    kit.event(Event::Mail(Mail::LimitChange(change)));
    kit.end_turn();
}

fn counter(kit: &mut Kit, name: &str, dimension: &str) -> Option<u64> {
    use weir_core::stats::Label;
    kit.event(Event::Mail(Mail::StatsAsk));
    kit.end_turn();
    let stats = kit.mail.drain(..).find_map(|(_, mail)| match mail {
        Mail::Stats(stats) => Some(stats),
        _ => None,
    })?;
    let found = stats.samples.iter().find(|sample| {
        sample.name == name && matches!(sample.label, Label::Dimension(d) if d == dimension)
    });
    found.map(|sample| sample.value)
}

#[test]
fn headers_say_the_policy_what_is_left_and_when_it_grows() {
    for kind in Kind::ALL {
        let mut kit = Kit::open(limited_by(kind, per(3, 6 * NS_PER_S), 3)); // a window of 6 s
        kit.connect(0);
        let grow = match kind {
            Kind::Gcra | Kind::LeakyBucket => [2, 2, 2],
            Kind::FixedWindow | Kind::SlidingLog => [6, 6, 6],
            // One of what was charged leaves when the next window has covered all, half, or a third of it.
            Kind::SlidingCounter => [12, 9, 8],
        };
        for (left, grows) in [2, 1, 0].into_iter().zip(grow) {
            let (status, text) = one(&mut kit, 3 - left);
            assert_ne!(status, 429);
            assert_eq!(line(&text, "RateLimit-Policy"), Some("\"user\";q=3;w=6"));
            let expected = format!("\"user\";r={left};t={grows}");
            assert_eq!(line(&text, "RateLimit"), Some(&*expected), "{kind:?}");
        }
        let (status, text) = one(&mut kit, 9);
        assert_eq!(status, 429, "{kind:?}");
        let retry_after: u64 = line(&text, "Retry-After").unwrap().parse().unwrap();
        let expected = format!("\"user\";r=0;t={retry_after}");
        assert_eq!(line(&text, "RateLimit"), Some(&*expected), "{kind:?}");
        let wait_ms = read_u64_member(text.as_bytes(), "retry_after_ms").unwrap();
        assert_eq!(retry_after, wait_ms.div_ceil(1_000));
    }
}

#[test]
fn answers_without_a_limit_and_shards_told_so_carry_no_such_header() {
    let mut config = limited_by(Kind::Gcra, per(1, NS_PER_S), 1);
    config.rate_limit_headers = false;
    let mut kit = Kit::open(config);
    kit.connect(0);
    one(&mut kit, 1);
    let (status, text) = one(&mut kit, 2);
    assert_eq!(status, 429);
    assert_eq!(line(&text, "RateLimit"), None);
    assert!(line(&text, "Retry-After").is_some());
    let mut kit = Kit::open(shard_kit::config());
    kit.connect(0);
    let (status, text) = whole(&mut kit, b"GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(status, 404);
    assert_eq!(line(&text, "RateLimit"), None);
}

#[test]
fn a_leaky_bucket_tells_pollers_their_pace() {
    let mut config = config();
    config.status = keyed(per(1, 5 * NS_PER_S), 3);
    config.status.rule = Rule::new(Kind::LeakyBucket, *config.status.rule.policy()).unwrap();
    let mut kit = Kit::open(config);
    kit.connect(0);
    let ticket = ticket(7, 1, true);
    let poll = |kit: &mut Kit| {
        kit.out[0].clear();
        kit.bytes(0, &status("request-0001", &ticket));
        kit.end_turn();
        kit.run_ms(200); // nobody answers: the poller is told to come again
        let text = String::from_utf8(kit.out[0].clone()).unwrap();
        read_u64_member(text.as_bytes(), "next_poll_after_ms")
    };
    let first = poll(&mut kit).unwrap();
    assert!(
        (400..800).contains(&first),
        "an idle bucket adds nothing: {first}"
    );
    let second = poll(&mut kit).unwrap();
    assert_eq!(
        second,
        5_000 - 200,
        "its turn is when the first one has drained"
    );
    let third = poll(&mut kit).unwrap();
    assert_eq!(third, 10_000 - 400);
    assert_eq!(poll(&mut kit), None, "the queue is full: refused at once");
}

#[test]
fn a_shadow_counts_what_it_would_have_refused_and_changes_no_answer() {
    let run = |shadow: Option<Rule>| {
        let mut config = limited_by(Kind::Gcra, per(1, NS_PER_S), 4);
        config.user.shadow = shadow;
        let alone = config.user.bytes();
        let mut kit = Kit::open(config);
        kit.connect(0);
        let answers: Vec<_> = (0..12)
            .map(|number| {
                kit.advance_ms(250);
                one(&mut kit, number).0
            })
            .collect();
        let deny = counter(&mut kit, "weir_limiter_shadow_would_deny_total", "user");
        let pass = counter(&mut kit, "weir_limiter_shadow_would_pass_total", "user");
        (answers, deny, pass, alone)
    };
    let strict = Rule::new(Kind::FixedWindow, Policy::new(per(1, NS_PER_S), 1).unwrap()).unwrap();
    let loose = Rule::new(
        Kind::SlidingLog,
        Policy::new(per(40, NS_PER_S), 40).unwrap(),
    )
    .unwrap();
    let (answers, deny, pass, bytes) = run(None);
    assert_eq!((deny, pass), (None, None), "no shadow, no counter");
    let passed = answers.iter().filter(|&&status| status != 429).count() as u64;
    assert!(passed > 4 && passed < 12);
    let (with_strict, deny, pass, with_bytes) = run(Some(strict));
    assert_eq!(with_strict, answers, "a shadow never changes a decision");
    assert_eq!(
        deny,
        Some(passed - 3),
        "three windows of a second, one each"
    );
    assert_eq!(pass, Some(0));
    assert!(with_bytes > bytes * 2, "its table is counted");
    let (with_loose, deny, pass, _) = run(Some(loose));
    assert_eq!(with_loose, answers);
    assert_eq!((deny, pass), (Some(0), Some(12 - passed)));
}

#[test]
fn a_change_of_policy_keeps_what_was_earned_and_locks_nobody_out() {
    // B20: drained, then a little faster: no fresh burst. B22: raised from 4 to 10: exactly 6 more. B33: a faster rate
    // applies to what is owed. B47: lowered: what is left is clamped, and it comes back.
    for kind in Kind::ALL {
        let mut kit = Kit::open(limited_by(kind, per(4, 60 * NS_PER_S), 4));
        kit.connect(0);
        let mut number = 0;
        let mut passes = |kit: &mut Kit, calls: u32| {
            (0..calls)
                .filter(|_| {
                    number += 1;
                    one(kit, number).0 != 429
                })
                .count()
        };
        assert_eq!(passes(&mut kit, 6), 4, "{kind:?}");
        change(&mut kit, per(5, 60 * NS_PER_S), 4);
        assert_eq!(passes(&mut kit, 3), 0, "{kind:?}: no fresh burst");
        if kind != Kind::SlidingLog {
            change(&mut kit, per(10, 60 * NS_PER_S), 10);
            assert_eq!(passes(&mut kit, 9), 6, "{kind:?}: the difference, at once");
            change(&mut kit, per(2, 60 * NS_PER_S), 2);
        }
        assert_eq!(passes(&mut kit, 2), 0, "{kind:?}: consumed stays consumed");
        change(&mut kit, per(2, NS_PER_S), 2);
        kit.advance_ms(8_000);
        assert!(
            passes(&mut kit, 4) >= 2,
            "{kind:?}: the faster rate applies to what was owed"
        );
        let changes = counter(&mut kit, "weir_limiter_policy_changes_total", "user");
        assert_eq!(changes, Some(if kind == Kind::SlidingLog { 2 } else { 4 }));
    }
}
