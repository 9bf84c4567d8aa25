//! What a buyer meets: the shard's pipeline, told from the outside. Requirements A3-A5, B1-B7, C4-C6, D6, E1-E4, J1, J5.

#![allow(clippy::unwrap_used)]

mod shard_kit;

use shard_kit::*;
use std::sync::Arc;
use weir_core::ask::{Failure, LedgerAnswer, LedgerOp, Mode, Outcome};
use weir_core::limit::gcra::Rate;
use weir_core::limit::rule::{Kind, Rule};
use weir_core::port::{Event, Handler, Op};
use weir_core::shard::config::{Role, ShardConfig};
use weir_core::view::WinnersFilter;
use weir_proto::answer::read_u64_member;
use weir_proto::ids::UserId;

#[track_caller]
fn assert_code(reply: &(u16, String), status: u16, code: &str) {
    assert_eq!(reply.0, status, "{}", reply.1);
    assert!(
        reply.1.contains(&format!("\"code\":\"{code}\"")),
        "{}",
        reply.1
    );
}

#[test]
fn nothing_is_accepted_before_every_sku_has_a_view() {
    let mut kit = Kit::new(config());
    assert!(!kit.accepting && !kit.shard.is_ready(kit.now));
    kit.view(|_| {});
    assert!(kit.accepting);
    assert!(
        !kit.shard.is_ready(kit.now),
        "no tokens yet: the first buyer would be refused"
    );
    kit.lease();
    assert!(kit.shard.is_ready(kit.now));
    let mut poor = Kit::new(config());
    poor.view(|_| {});
    poor.advance_ms(1_000);
    assert!(
        poor.shard.is_ready(poor.now),
        "a budget of nearly nothing does not hold a server back"
    );
}

#[test]
fn a_submit_is_granted_and_its_retry_gets_the_first_answer() {
    for compact in [true, false] {
        let mut kit = Kit::open(config());
        kit.connect(0);
        let request = submit(7, "request-0001", &ticket(7, 1, compact));
        kit.bytes(0, &request);
        kit.end_turn();
        assert!(kit.replies(0).is_empty(), "the answer follows the commit");
        let asks = kit.asks();
        assert_eq!(asks.len(), 1);
        assert!(
            matches!(asks[0].op, LedgerOp::Reserve(reserve) if reserve.user == UserId(7) && reserve.quantity == 1)
        );
        kit.answer(&asks[0], LedgerAnswer::Granted(held(31)));
        let reply = kit.replies(0).pop().unwrap();
        assert_code(&reply, 202, "SECKILL_QUEUED");
        assert!(
            reply
                .1
                .contains("\"reservation_id\":\"rsv_000000000000001f\"")
        );
        assert!(read_u64_member(reply.1.as_bytes(), "next_poll_after_ms").is_some());
        let again = kit.ask_once(0, &request);
        assert_code(&again, 200, "REQUEST_REPLAYED");
        assert!(
            again.1.contains("rsv_000000000000001f")
                && again.1.contains("\"original_code\":\"SECKILL_QUEUED\"")
        );
        assert!(kit.asks().is_empty(), "a known answer costs no ask");
        kit.shard.audit();
    }
}

#[test]
fn replies_leave_in_request_order_whatever_the_order_of_answers() {
    let mut kit = Kit::open(config());
    kit.connect(0);
    let mut bytes = Vec::new();
    for user in 1..=3 {
        bytes.extend(submit(
            user,
            &format!("request-{user:04}"),
            &ticket(user, 1, true),
        ));
    }
    bytes.extend_from_slice(b"GET /nowhere HTTP/1.1\r\nHost: weir.test\r\n\r\n");
    kit.bytes(0, &bytes);
    kit.end_turn();
    let asks = kit.asks();
    assert_eq!(asks.len(), 3);
    assert!(kit.replies(0).is_empty());
    kit.answer(&asks[2], LedgerAnswer::Granted(held(3)));
    kit.answer(&asks[1], LedgerAnswer::SoldOut { epoch: 1 });
    assert!(kit.replies(0).is_empty());
    kit.answer(&asks[0], LedgerAnswer::AlreadyHolds(held(1)));
    let codes: Vec<u16> = kit.replies(0).iter().map(|reply| reply.0).collect();
    assert_eq!(codes, [409, 200, 202, 404]);
    kit.shard.audit();
}

#[test]
fn a_good_request_before_a_bad_one_is_answered_and_nothing_after_it() {
    let mut kit = Kit::open(config());
    kit.connect(0);
    let mut bytes = submit(1, "request-0001", &ticket(1, 1, true));
    bytes.extend_from_slice(b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n");
    bytes.extend(submit(2, "request-0002", &ticket(2, 1, true)));
    kit.bytes(0, &bytes);
    kit.end_turn();
    let asks = kit.asks();
    assert_eq!(asks.len(), 1);
    kit.answer(&asks[0], LedgerAnswer::Granted(held(1)));
    let codes: Vec<u16> = kit.replies(0).iter().map(|reply| reply.0).collect();
    assert_eq!(codes, [202, 400]);
    assert!(
        kit.ops
            .iter()
            .any(|op| matches!(op, Op::Finish(conn) if *conn == Kit::conn(0)))
    );
    kit.bytes(0, &submit(3, "request-0003", &ticket(3, 1, true)));
    kit.end_turn();
    assert_eq!(kit.replies(0).len(), 2);
}

#[test]
fn after_a_429_exactly_retry_after_ms_passes_and_one_less_does_not() {
    let shapes = [
        (1, 2_000_000_000, 3),
        (3, 7_000_000, 1),
        (10, 1_000_000_000, 5),
        (7, 3_000_000_000, 2),
    ];
    let of_every_kind = |shape| Kind::ALL.map(|kind| (kind, shape));
    for (kind, (tokens, per_ns, capacity)) in shapes.into_iter().flat_map(of_every_kind) {
        let mut config = config();
        config.user = keyed(Rate { tokens, per_ns }, capacity);
        config.user.rule = Rule::new(kind, *config.user.rule.policy()).unwrap();
        let mut kit = Kit::open(config);
        kit.connect(0);
        let mut number = 0;
        let mut one = |kit: &mut Kit| {
            number += 1;
            let request = submit(7, &format!("request-{number:04}"), &ticket(7, number, true));
            kit.out[0].clear();
            kit.bytes(0, &request);
            kit.end_turn();
            if let Some(ask) = kit.asks().pop() {
                kit.answer(&ask, LedgerAnswer::QuantityRefused);
            }
            kit.replies(0).pop().unwrap()
        };
        for _ in 0..capacity {
            assert_ne!(one(&mut kit).0, 429);
        }
        let refused = one(&mut kit);
        assert_code(&refused, 429, "RATE_LIMITED");
        let wait_ms = read_u64_member(refused.1.as_bytes(), "retry_after_ms").unwrap();
        kit.advance_ms(wait_ms - 1);
        assert_eq!(
            one(&mut kit).0,
            429,
            "{kind:?}: one millisecond early at {tokens}/{per_ns}"
        );
        kit.advance_ms(1);
        assert_ne!(
            one(&mut kit).0,
            429,
            "{kind:?}: exactly on time at {tokens}/{per_ns}"
        );
    }
}

#[test]
fn user_device_and_budget_are_charged_all_or_nothing() {
    let mut kit = Kit::new(config());
    kit.view(|_| {}); // no tokens yet: the budget is empty
    kit.connect(0);
    for number in 0..10 {
        let reply = kit.ask_once(
            0,
            &submit(7, &format!("request-{number:04}"), &ticket(7, number, true)),
        );
        assert_code(&reply, 503, "SYSTEM_OVERLOADED");
        assert!(read_u64_member(reply.1.as_bytes(), "retry_after_ms").is_some());
    }
    kit.lease();
    kit.bytes(0, &submit(7, "request-0010", &ticket(7, 10, true)));
    kit.end_turn();
    assert_eq!(
        kit.asks().len(),
        1,
        "the user's burst of 3 was not charged by refusals of the budget"
    );
}

#[test]
fn sold_out_is_answered_here_but_a_winner_is_looked_up() {
    let mut kit = Kit::open(config());
    kit.connect(0);
    kit.view(|view| {
        view.version = 2;
        view.sold_out = true;
        view.stock_epoch = 1;
        view.winners = Arc::new(WinnersFilter::build(5, [UserId(7)].into_iter()));
    });
    let loser = kit.ask_once(0, &submit(8, "request-0008", &ticket(8, 1, true)));
    assert_code(&loser, 200, "SECKILL_SOLD_OUT");
    assert!(kit.asks().is_empty());
    kit.bytes(0, &submit(7, "request-0007", &ticket(7, 1, true)));
    kit.end_turn();
    let asks = kit.asks();
    assert_eq!(asks.len(), 1);
    kit.out[0].clear();
    kit.answer(&asks[0], LedgerAnswer::Repeated(held(5)));
    assert_code(&kit.replies(0)[0], 200, "REQUEST_REPLAYED");
    // The mark dies with its time to live: then the ledger is asked again.
    kit.advance_ms(3_001);
    kit.bytes(0, &submit(9, "request-0009", &ticket(9, 1, true)));
    kit.end_turn();
    assert_eq!(kit.asks().len(), 1);
}

#[test]
fn an_older_view_does_not_undo_a_newer_one() {
    let mut kit = Kit::open(config());
    kit.connect(0);
    kit.view(|view| (view.version, view.stock_epoch) = (5, 2));
    kit.view(|view| (view.version, view.stock_epoch, view.sold_out) = (4, 1, true));
    kit.bytes(0, &submit(8, "request-0008", &ticket(8, 1, true)));
    kit.end_turn();
    assert_eq!(
        kit.asks().len(),
        1,
        "SOLD_OUT of an older epoch came late and is ignored"
    );
}

#[test]
fn unknown_is_told_in_time_and_keeps_its_slot_until_the_ledger_answers() {
    let mut kit = Kit::open(config());
    kit.connect(0);
    kit.bytes(0, &submit(7, "request-0007", &ticket(7, 1, true)));
    kit.end_turn();
    let ask = kit.asks().pop().unwrap();
    kit.run_ms(101);
    assert_code(&kit.replies(0)[0], 202, "SECKILL_PENDING");
    let twin = kit.ask_once(0, &submit(7, "request-0007", &ticket(7, 1, true)));
    assert_code(&twin, 202, "SECKILL_PENDING");
    kit.run_ms(1_100);
    let lookup = kit.asks().pop().expect("it is looked up, not sent again");
    assert_eq!(lookup.id, ask.id);
    assert!(matches!(lookup.op, LedgerOp::Lookup(lookup) if !lookup.tombstone));
    kit.answer(&ask, LedgerAnswer::Granted(held(9)));
    let later = kit.ask_once(0, &submit(7, "request-0007", &ticket(7, 1, true)));
    assert_code(&later, 200, "REQUEST_REPLAYED");
    kit.answer(&lookup, LedgerAnswer::Found(held(9))); // a second answer finds nothing and harms nothing
    kit.shard.audit();
}

/// A ledger in Redis may still carry out what was sent on a connection that is gone: only a tombstone ends that.
#[test]
fn a_lost_answer_of_a_remote_ledger_leaves_the_ask_open_until_a_lookup_with_a_tombstone_tells() {
    let mut kit = Kit::open(ShardConfig {
        is_ledger_remote: true,
        ..config()
    });
    kit.connect(0);
    kit.bytes(0, &submit(7, "request-0007", &ticket(7, 1, true)));
    kit.end_turn();
    let ask = kit.asks().pop().unwrap();
    kit.outcome(&ask, Outcome::Unknown);
    assert_code(&kit.replies(0)[0], 202, "SECKILL_PENDING");
    // Lookups that are not carried out tell nothing; it is asked about again and again, never sent again.
    for failure in [Failure::Unavailable, Failure::Late] {
        kit.run_ms(1_100);
        let lookup = kit.asks().pop().expect("it is looked up");
        assert_eq!(lookup.id, ask.id);
        assert!(matches!(lookup.op, LedgerOp::Lookup(lookup) if lookup.tombstone));
        kit.outcome(&lookup, Outcome::Failed(failure));
        let twin = kit.ask_once(0, &submit(7, "request-0007", &ticket(7, 1, true)));
        assert_code(&twin, 202, "SECKILL_PENDING");
        assert!(kit.asks().is_empty(), "it is known to be open");
    }
    kit.run_ms(1_100);
    let lookup = kit.asks().pop().expect("it is looked up");
    kit.answer(&lookup, LedgerAnswer::NotFound);
    kit.bytes(0, &submit(7, "request-0007", &ticket(7, 1, true)));
    kit.end_turn();
    let again = kit.asks().pop().expect("now the ledger is asked again");
    assert!(matches!(again.op, LedgerOp::Reserve(_)));
    kit.shard.audit();
}

/// Otherwise `weir worker`, which draws nothing, would turn without end.
#[test]
fn a_shard_that_sells_nothing_waits_for_no_lease() {
    let mut kit = Kit::new(ShardConfig {
        role: Role::MakesOrders,
        is_ledger_remote: true,
        ..config()
    });
    kit.end_turn();
    assert_eq!(kit.shard.next_deadline(), None);
}

#[test]
fn a_new_run_of_the_owner_frees_what_the_old_one_will_never_answer() {
    let mut kit = Kit::open(config());
    kit.connect(0);
    kit.bytes(0, &submit(7, "request-0007", &ticket(7, 1, true)));
    kit.end_turn();
    kit.view(|view| view.boot = 2);
    assert_code(&kit.replies(0)[0], 202, "SECKILL_PENDING");
    kit.shard.audit();
}

#[test]
fn bindings_paths_and_signatures_have_their_codes() {
    let mut kit = Kit::open(config());
    kit.connect(0);
    let good = ticket(7, 1, true);
    let mut forged = good.clone();
    let last = forged.len() - 2;
    forged[last] = if forged[last] == b'A' { b'B' } else { b'A' };
    assert_code(
        &kit.ask_once(0, &submit(7, "request-0001", &forged)),
        403,
        "TOKEN_INVALID",
    );
    assert_code(
        &kit.ask_once(0, &submit(8, "request-0001", &good)),
        403,
        "TOKEN_INVALID",
    );
    assert_code(
        &kit.ask_once(0, &submit(7, "request-0001", b"")),
        401,
        "UNAUTHENTICATED",
    );
    assert_code(
        &kit.ask_once(0, &submit(7, "short", &good)),
        400,
        "INVALID_ARGUMENT",
    );
    let text = String::from_utf8(submit(7, "request-0001", &good)).unwrap();
    assert_code(
        &kit.ask_once(0, text.replace("p_7vKh2P", "p_other").as_bytes()),
        404,
        "NOT_FOUND",
    );
    assert_code(
        &kit.ask_once(0, text.replace("90001", "90002").as_bytes()),
        404,
        "NOT_FOUND",
    );
    assert_code(
        &kit.ask_once(0, text.replace("application/json", "text/plain").as_bytes()),
        400,
        "INVALID_ARGUMENT",
    );
    assert_code(
        &kit.ask_once(
            0,
            b"GET /v1/seckill/p_7vKh2P HTTP/1.1\r\nHost: weir.test\r\n\r\n",
        ),
        405,
        "METHOD_NOT_ALLOWED",
    );
    kit.advance_ms(700_000);
    assert_code(
        &kit.ask_once(0, &submit(7, "request-0001", &good)),
        403,
        "TOKEN_EXPIRED",
    );
}

#[test]
fn the_schedule_and_the_mode_are_honoured_and_status_goes_on() {
    let mut kit = Kit::open(config());
    kit.connect(0);
    kit.now.wall.0 = OPENS_AT - 90_500;
    let early = kit.ask_once(0, &submit(7, "request-0001", &ticket(7, 1, true)));
    assert_code(&early, 403, "NOT_OPEN");
    assert_eq!(
        read_u64_member(early.1.as_bytes(), "opens_in_ms"),
        Some(91_000)
    );
    kit.now.wall.0 = OPENS_AT + 1_000;
    for (version, mode, code) in [(2, Mode::QueueOnly, 503), (3, Mode::Closed, 503)] {
        kit.view(|view| (view.version, view.mode) = (version, mode));
        assert_eq!(
            kit.ask_once(0, &submit(7, "request-0001", &ticket(7, 1, true)))
                .0,
            code
        );
        kit.out[0].clear();
        kit.bytes(0, &status("request-0001", &ticket(7, 1, true)));
        kit.end_turn();
        let asks = kit.asks();
        assert!(matches!(asks[0].op, LedgerOp::Lookup(lookup) if lookup.tombstone));
        kit.answer(&asks[0], LedgerAnswer::NotFound);
        assert_code(&kit.replies(0)[0], 200, "NOT_ACCEPTED");
    }
    kit.now.wall.0 = OPENS_AT + 3_600_000;
    assert_code(
        &kit.ask_once(0, &submit(7, "request-0001", &ticket(7, 1, true))),
        403,
        "NOT_OPEN",
    );
}

#[test]
fn deadlines_are_absolute_and_answered() {
    let mut kit = Kit::open(config());
    kit.connect(0);
    kit.bytes(0, b"GET / HTTP/1.1\r\nHost:");
    kit.end_turn();
    for _ in 0..5 {
        kit.run_ms(900);
        kit.bytes(0, b"a"); // a byte now and then wins nothing
        kit.end_turn();
        assert!(kit.replies(0).is_empty());
    }
    kit.run_ms(600);
    assert_code(&kit.replies(0)[0], 408, "REQUEST_TIMEOUT");
    kit.connect(1);
    kit.run_ms(30_500);
    assert!(
        kit.ops
            .iter()
            .any(|op| matches!(op, Op::Finish(conn) if *conn == Kit::conn(1))),
        "idle ends without a word"
    );
    assert!(kit.out[1].is_empty());
    kit.run_ms(3_000);
    assert!(
        kit.ops
            .iter()
            .any(|op| matches!(op, Op::Close(conn) if *conn == Kit::conn(1))),
        "the linger time is bounded"
    );
}

#[test]
fn a_long_pipeline_pauses_reading_and_goes_on() {
    let mut config = config();
    config.user = keyed(Rate::per_second(1_000), 1_000);
    let mut kit = Kit::open(config);
    kit.connect(0);
    let mut bytes = Vec::new();
    for number in 0..200 {
        bytes.extend(submit(
            1 + number,
            &format!("request-{number:04}"),
            &ticket(1 + number, 1, true),
        ));
    }
    kit.bytes(0, &bytes);
    kit.end_turn();
    let (mut answered, mut rounds) = (0, 0);
    while kit.replies(0).len() < 200 {
        let asks = kit.asks();
        assert!(
            asks.len() <= 64,
            "at most 64 requests of a connection are open"
        );
        assert!(!asks.is_empty());
        for ask in asks.iter().rev() {
            kit.answer(ask, LedgerAnswer::Granted(held(answered)));
            answered += 1;
        }
        rounds += 1;
    }
    assert_eq!(kit.replies(0).len(), 200);
    assert!(
        rounds >= 3 && answered > 100,
        "{rounds} rounds, {answered} asks"
    );
    kit.shard.audit();
}

#[test]
fn preflight_names_the_shop_and_others_get_no_permission() {
    let mut kit = Kit::open(config());
    kit.connect(0);
    let preflight = |origin: &str| {
        format!(
            "OPTIONS /v1/seckill/p_7vKh2P HTTP/1.1\r\nHost: weir.test\r\nOrigin: {origin}\r\nAccess-Control-Request-Method: POST\r\n\r\n"
        )
    };
    kit.bytes(0, preflight("https://shop.example").as_bytes());
    kit.end_turn();
    let text = String::from_utf8(kit.out[0].clone()).unwrap();
    assert!(
        text.starts_with("HTTP/1.1 204")
            && text.contains("Access-Control-Allow-Origin: https://shop.example\r\n"),
        "{text}"
    );
    kit.out[0].clear();
    kit.bytes(0, preflight("https://evil.example").as_bytes());
    kit.end_turn();
    assert!(
        !String::from_utf8(kit.out[0].clone())
            .unwrap()
            .contains("Access-Control-Allow-Origin")
    );
}

#[test]
fn drain_answers_what_is_owed_and_ends() {
    let mut kit = Kit::open(config());
    kit.connect(0);
    kit.connect(1);
    kit.bytes(0, &submit(7, "request-0001", &ticket(7, 1, true)));
    kit.end_turn();
    let ask = kit.asks().pop().unwrap();
    kit.event(Event::Drain);
    kit.end_turn();
    assert!(!kit.accepting);
    kit.bytes(1, &submit(8, "request-0002", &ticket(8, 1, true)));
    kit.end_turn();
    kit.answer(&ask, LedgerAnswer::Granted(held(1)));
    assert_code(&kit.replies(0)[0], 202, "SECKILL_QUEUED");
    kit.show(0, true);
    kit.show(1, true);
    kit.end_turn();
    kit.run_ms(6_000);
    kit.end_turn();
    assert!(kit.ops.iter().any(|op| matches!(op, Op::Stop)));
}

#[test]
fn a_request_has_its_own_deadline_not_the_one_of_the_request_before_it() {
    let mut kit = Kit::open(config());
    kit.connect(0);
    kit.bytes(0, b"GET /first HTTP/1.1\r\nHost: w");
    kit.end_turn();
    kit.run_ms(4_900);
    kit.bytes(0, b"eir.test\r\n\r\nGET /second HTTP/1.1\r\n");
    kit.end_turn();
    kit.run_ms(4_000); // past the first one's deadline, within the second one's
    kit.bytes(0, b"Host: weir.test\r\n\r\n");
    kit.end_turn();
    let codes: Vec<u16> = kit.replies(0).iter().map(|reply| reply.0).collect();
    assert_eq!(codes, [404, 404]);
}

#[test]
fn drain_ends_a_connection_as_soon_as_its_last_answer_is_out() {
    let mut kit = Kit::open(config());
    kit.connect(0);
    kit.bytes(0, &submit(7, "request-0001", &ticket(7, 1, true)));
    kit.end_turn();
    let ask = kit.asks().pop().unwrap();
    kit.event(Event::Drain);
    kit.end_turn();
    assert!(!kit.ops.iter().any(|op| matches!(op, Op::Finish(_))));
    kit.answer(&ask, LedgerAnswer::Granted(held(1)));
    assert!(
        kit.ops
            .iter()
            .any(|op| matches!(op, Op::Finish(conn) if *conn == Kit::conn(0)))
    );
}

#[test]
fn drain_waits_for_a_connection_that_closes_late_without_spinning() {
    let mut kit = Kit::open(config());
    kit.connect(0);
    kit.event(Event::Drain);
    kit.end_turn();
    kit.advance_ms(3_600_000);
    kit.event(Event::Tick);
    kit.end_turn();
    assert!(
        kit.ops
            .iter()
            .any(|op| matches!(op, Op::Close(conn) if *conn == Kit::conn(0))),
        "past its deadline the drain waits for nobody"
    );
    let due = kit.shard.next_deadline().unwrap();
    assert!(due > kit.now.mono, "{due:?} at {:?}", kit.now.mono);
}
