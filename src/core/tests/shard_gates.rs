//! The gates of a shard as those outside meet them: the door by source (A2), deny-lists and bans (A6),
//! hot SKUs and users (C4).

#![allow(clippy::unwrap_used, clippy::result_large_err)]

mod shard_kit;

use shard_kit::{Kit, SECRET, SKU, claims, config, keyed, status, submit, ticket};
use std::sync::Arc;
use weir_core::ask::LedgerAnswer;
use weir_core::limit::bans::BanPolicy;
use weir_core::limit::deny::{DenyList, DenySubject, user_hash};
use weir_core::limit::gcra::Rate;
use weir_core::limits::{BAN_GRACE_MS, HOT_WINDOW_MS};
use weir_core::mail::{Addr, BanLift, Mail};
use weir_core::port::{Event, Op};
use weir_core::stats::{HotName, HotTable};
use weir_proto::addr::{Cidr, Source};
use weir_proto::answer::Reason;
use weir_proto::ids::UserId;
use weir_proto::ticket::{DeviceClaim, TicketKey, mint_jws};

/// True when the shard closed `slot` without ending its side first.
fn dropped(kit: &Kit, slot: u32) -> bool {
    let is_close = |op: &Op| matches!(op, Op::Close(conn) if conn.slot == slot);
    kit.ops.iter().any(is_close) && !kit.finished(slot)
}

#[test]
fn a_source_at_its_connections_is_told_and_let_go_and_others_come_in() {
    let mut config = config();
    config.conns_per_source_max = 2;
    let mut kit = Kit::open(config);
    for slot in 0..3 {
        kit.connect(slot);
    }
    // One subscriber of IPv6 has a /64.
    kit.connect_from(3, "[2001:db8::1]:9");
    kit.connect_from(4, "[2001:db8::2]:9");
    kit.end_turn();
    let (status, body) = kit.replies(2).remove(0);
    assert_eq!(status, 429);
    assert!(body.contains("\"retry_after_ms\":1000"), "{body}");
    assert!(kit.finished(2), "it hears its answer, then the end");
    assert!((0..5).filter(|&slot| kit.finished(slot)).eq([2]));
    assert_eq!(kit.shard.counters().of(Reason::LimitedConns), 1);
    kit.shard.audit();
    // One of the two ends: its place is free.
    kit.hang_up(0);
    kit.connect(5);
    kit.end_turn();
    assert!(kit.out[5].is_empty(), "let in");
    kit.hang_up(2); // one of 16 slots tells at one time
    kit.connect_from(6, "[2001:db8::ffff]:9");
    kit.end_turn();
    assert_eq!(kit.replies(6)[0].0, 429);
    for slot in [1, 3, 4, 5, 6] {
        kit.hang_up(slot);
    }
    kit.shard.audit();
}

#[test]
fn new_connections_faster_than_the_limit_hear_the_exact_wait() {
    let mut config = config();
    config.connect = keyed(Rate::per_second(10), 2);
    let mut kit = Kit::open(config);
    for slot in 0..3 {
        kit.connect(slot);
    }
    kit.connect_from(3, "198.51.100.8:1");
    kit.end_turn();
    let (status, body) = kit.replies(2).remove(0);
    assert_eq!(status, 429);
    assert!(body.contains("\"retry_after_ms\":100"), "{body}");
    assert!(kit.out[0].is_empty() && kit.out[1].is_empty() && kit.out[3].is_empty());
    kit.advance_ms(100);
    kit.connect(4);
    kit.end_turn();
    assert!(kit.out[4].is_empty(), "it waited as long as it was told");
    assert_eq!(kit.shard.counters().of(Reason::LimitedConnects), 1);
}

#[test]
fn those_who_are_told_are_bounded_and_the_rest_is_closed_without_a_word() {
    let mut config = config();
    config.conns_max = 64; // a sixteenth: 4 are told at one time
    config.conns_per_source_max = 1;
    let mut kit = Kit::open(config);
    for slot in 0..8 {
        kit.connect(slot);
    }
    kit.end_turn();
    assert!((1..5).all(|slot| kit.finished(slot)));
    assert!((5..8).all(|slot| dropped(&kit, slot) && kit.out[slot as usize].is_empty()));
    kit.shard.audit();
    // Who was told and leaves makes room for the next one.
    kit.hang_up(1);
    kit.connect(9);
    kit.end_turn();
    assert_eq!(kit.replies(9)[0].0, 429);
}

#[test]
fn a_proxy_is_not_limited_and_the_clients_behind_it_are() {
    let mut config = config();
    config.source = Source::ProxyProtocol;
    config.trusted = Arc::new([Cidr::parse("198.51.100.0/24").unwrap()]);
    config.conns_per_source_max = 2;
    config.timeouts.linger_ms = 1_000;
    let mut kit = Kit::open(config);
    let header = |client: u8| format!("PROXY TCP4 203.0.113.{client} 192.0.2.1 5 80\r\n");
    for slot in 0..6 {
        kit.connect(slot);
        kit.bytes(slot, header(1 + (slot / 3) as u8).as_bytes());
    }
    // The proxy's own health check, and a stranger who speaks the protocol.
    kit.connect(6);
    kit.bytes(6, b"PROXY UNKNOWN\r\n");
    kit.connect_from(7, "192.0.2.77:1");
    kit.bytes(7, header(9).as_bytes());
    kit.end_turn();
    let told: Vec<u32> = (0..6).filter(|&slot| kit.finished(slot)).collect();
    assert_eq!(told, [2], "one of 16 slots tells");
    assert!(dropped(&kit, 5), "the second one finds nobody to tell it");
    assert!(kit.out[6].is_empty());
    assert_eq!(kit.replies(7)[0].0, 400);
    kit.shard.audit();
}

#[test]
fn who_is_turned_away_without_a_word_is_not_read_in_the_rest_of_the_turn() {
    let mut config = config();
    config.source = Source::ProxyProtocol;
    config.trusted = Arc::new([Cidr::parse("198.51.100.0/24").unwrap()]);
    config.conns_per_source_max = 1;
    let mut kit = Kit::open(config);
    for slot in 0..3 {
        kit.connect(slot);
        kit.bytes(slot, b"PROXY TCP4 203.0.113.1 192.0.2.1 5 80\r\n");
    }
    // Behind the header, in the same turn.
    kit.bytes(2, &submit(7, "request-7", &ticket(7, 1, false)));
    kit.end_turn();
    assert!(dropped(&kit, 2) && kit.out[2].is_empty());
    assert_eq!(kit.asks().len(), 0, "nothing of it reaches the ledger");
    kit.shard.audit();
}

#[test]
fn a_hot_user_is_told_to_wait_and_takes_no_slot_of_others() {
    let mut config = config();
    config.user_inflight_max = 2;
    let mut kit = Kit::open(config);
    kit.connect(0);
    for request in 0..3 {
        let bytes = submit(7, &format!("request-{request}"), &ticket(7, request, false));
        kit.bytes(0, &bytes);
    }
    kit.connect(1);
    kit.bytes(1, &submit(8, "request-9", &ticket(8, 9, false)));
    kit.end_turn();
    assert_eq!(kit.asks().len(), 3, "two of the hot user, one of the other");
    assert_eq!(kit.shard.counters().of(Reason::InflightUser), 1);
    kit.run_ms(200); // asks are unknown; the third reply waited for them
    let statuses: Vec<u16> = kit.replies(0).iter().map(|reply| reply.0).collect();
    assert_eq!(statuses, [202, 202, 429]);
    kit.shard.audit();
}

fn deny(kit: &mut Kit, subjects: &[DenySubject]) {
    let list = Arc::new(DenyList::build(subjects.iter().copied()));
    kit.event(Event::Mail(Mail::Deny(list)));
    kit.end_turn();
}

fn network(text: &str) -> DenySubject {
    DenySubject::Network(Cidr::parse(text).unwrap())
}

/// A submit of `user` whose ticket binds `device`.
fn device_submit(user: u64, request: &str, device: &str) -> Vec<u8> {
    let mut claims = claims(user, 3);
    claims.device = DeviceClaim::of_device(&[9; 32], device.as_bytes()).unwrap();
    let mut ticket = Vec::new();
    let key = TicketKey::new(b"k1", SECRET).unwrap();
    mint_jws(&claims, &key, &mut ticket).unwrap();
    let text = String::from_utf8(submit(user, request, &ticket)).unwrap();
    let header = format!("\r\nX-Weir-Device: {device}\r\nAccept-Language");
    text.replace("\r\nAccept-Language", &header).into_bytes()
}

#[test]
fn a_denied_address_is_refused_on_its_open_connection_and_at_the_door() {
    let mut kit = Kit::open(config());
    kit.connect(0);
    kit.connect_from(1, "203.0.113.9:1");
    deny(
        &mut kit,
        &[network("198.51.100.0/24"), network("198.51.0.0/16")],
    );
    let bytes = submit(7, "request-1", &ticket(7, 1, false));
    let (code, body) = kit.ask_once(0, &bytes);
    assert_eq!(code, 403);
    assert!(body.contains("\"ACCESS_DENIED\""), "{body}");
    assert_eq!(
        kit.ask_once(0, &status("request-1", &ticket(7, 1, true))).0,
        403
    );
    kit.connect_from(2, "[::ffff:198.51.7.7]:1");
    kit.end_turn();
    assert_eq!(kit.replies(2)[0].0, 403);
    assert!(kit.finished(2) && !kit.finished(1));
    assert_eq!(kit.shard.counters().of(Reason::DeniedAddress), 3);
    // The list is live in both directions.
    deny(&mut kit, &[]);
    kit.bytes(0, &bytes);
    kit.end_turn();
    assert_eq!(kit.asks().len(), 1);
}

#[test]
fn a_denied_user_or_device_cannot_submit_and_still_asks_how_things_stand() {
    let config = config();
    let hashed = user_hash(&config.user_hash_key, UserId(8));
    let mut kit = Kit::open(config);
    kit.connect(0);
    let device = DeviceClaim::of_device(&[9; 32], b"dev-1")
        .unwrap()
        .hash()
        .unwrap();
    let subjects = [
        DenySubject::User(UserId(7)),
        DenySubject::UserHash(hashed),
        DenySubject::Device(device),
    ];
    deny(&mut kit, &subjects);
    for user in [7, 8] {
        let bytes = submit(user, "request-1", &ticket(user, 1, true));
        assert_eq!(kit.ask_once(0, &bytes).0, 403, "user {user}");
    }
    assert_eq!(
        kit.ask_once(0, &device_submit(9, "request-9", "dev-1")).0,
        403
    );
    // A stranger learns nothing of who is denied: the ticket comes first.
    let (_, body) = kit.ask_once(0, &submit(7, "request-2", b"w1.k1.AAAA"));
    assert!(body.contains("TOKEN_INVALID"), "{body}");
    let counters = kit.shard.counters();
    assert_eq!(counters.of(Reason::DeniedUser), 2);
    assert_eq!(counters.of(Reason::DeniedDevice), 1);
    kit.bytes(0, &status("request-1", &ticket(7, 1, true)));
    kit.connect(1);
    kit.bytes(1, &device_submit(10, "request-10", "dev-2"));
    kit.end_turn();
    assert_eq!(
        kit.asks().len(),
        2,
        "status of the denied, submit of another"
    );
}

/// Sends submits of `user` every `BAN_GRACE_MS`, whatever is answered, until one is refused by a ban: its body.
fn hammer(kit: &mut Kit, user: u64) -> String {
    for round in 0..200_u64 {
        kit.advance_ms(BAN_GRACE_MS);
        let bytes = submit(user, &format!("request-{round:03}"), &ticket(user, 1, true));
        kit.out[0].clear();
        kit.bytes(0, &bytes);
        kit.end_turn();
        for ask in kit.asks() {
            kit.answer(&ask, LedgerAnswer::SoldOut { epoch: 1 });
        }
        let (_, body) = kit.replies(0).remove(0);
        if body.contains("TEMPORARILY_BANNED") {
            return body;
        }
    }
    panic!("who ignores every answer is banned");
}

#[test]
fn who_keeps_ignoring_429_is_banned_for_exactly_as_long_as_told_then_let_back() {
    let mut config = config();
    config.bans.user = BanPolicy {
        strikes: 5,
        window_ms: 60_000,
        first_ms: 3_000,
        max_ms: 10_000,
        forget_ms: 60_000,
    };
    config.user = keyed(
        Rate {
            tokens: 1,
            per_ns: 10_000_000_000,
        },
        1,
    );
    config.log_refused_every = 1_000_000_000;
    let mut kit = Kit::open(config);
    kit.connect(0);
    for expected_ms in [3_000, 6_000, 10_000] {
        kit.mail.clear();
        let body = hammer(&mut kit, 7);
        assert!(
            body.contains(&format!("\"retry_after_ms\":{expected_ms}")),
            "{body}"
        );
        let is_line = |(_, mail): &(Addr, Mail)| matches!(mail, Mail::Record(record) if record.reason == Reason::BannedUser);
        assert_eq!(
            kit.mail.iter().filter(|mail| is_line(mail)).count(),
            1,
            "its beginning is logged"
        );
        let once_more = submit(7, "request-again", &ticket(7, 1, true));
        kit.advance_ms(expected_ms - 1);
        let (code, body) = kit.ask_once(0, &once_more);
        assert_eq!(code, 403);
        assert!(
            body.contains("\"retry_after_ms\":1}"),
            "to the millisecond: {body}"
        );
        // Status stays open, and another user is not touched.
        kit.bytes(0, &status("request-again", &ticket(7, 1, true)));
        kit.connect(1);
        kit.bytes(
            1,
            &submit(
                8,
                &format!("request-{expected_ms}"),
                &ticket(8, expected_ms as u8, true),
            ),
        );
        kit.end_turn();
        let asks = kit.asks();
        assert_eq!(asks.len(), 2);
        for ask in asks {
            kit.answer(&ask, LedgerAnswer::NotFound);
        }
        kit.advance_ms(10_000);
        kit.hang_up(0);
        kit.hang_up(1);
        kit.connect(0);
        kit.bytes(0, &once_more);
        kit.end_turn();
        let asks = kit.asks();
        assert_eq!(asks.len(), 1, "let back");
        kit.answer(&asks[0], LedgerAnswer::NotFound);
        kit.hang_up(0);
        kit.connect(0);
    }
    let user = UserId(7);
    hammer(&mut kit, 7);
    kit.event(Event::Mail(Mail::BanLift(BanLift::User(user))));
    let (_, body) = kit.ask_once(0, &submit(7, "request-last", &ticket(7, 1, true)));
    assert!(
        body.contains("RATE_LIMITED"),
        "lifted, not unlimited: {body}"
    );
}

#[test]
fn by_default_a_buyer_above_the_limit_is_limited_and_never_banned() {
    let mut kit = Kit::open(config());
    kit.connect(0);
    for round in 0..40_u64 {
        // A whole burst at once, then the wait that was told: what scripts of shops and double clicks do.
        for request in 0..12 {
            let name = format!("request-{round:03}-{request:02}");
            kit.bytes(0, &submit(7, &name, &ticket(7, 1, true)));
        }
        kit.end_turn();
        for ask in kit.asks() {
            kit.answer(&ask, LedgerAnswer::SoldOut { epoch: 1 });
        }
        kit.advance_ms(2_000);
    }
    let counters = kit.shard.counters();
    assert!(counters.of(Reason::LimitedUser) > 100);
    assert_eq!(counters.of(Reason::BannedUser), 0);
}

#[test]
fn an_address_is_banned_only_where_that_is_configured() {
    let mut config = config();
    config.ip = keyed(
        Rate {
            tokens: 1,
            per_ns: 10_000_000_000,
        },
        1,
    );
    let hammered = |config: &weir_core::shard::config::ShardConfig| {
        let mut kit = Kit::open(config.clone());
        kit.connect(0);
        for _ in 0..30 {
            kit.advance_ms(BAN_GRACE_MS);
            kit.ask_once(0, &submit(7, "request-1", b"no ticket"));
        }
        kit.shard.counters().of(Reason::BannedAddress)
    };
    assert_eq!(hammered(&config), 0);
    config.bans.ip.strikes = 10;
    assert!(
        hammered(&config) > 10,
        "refused before its ticket is looked at"
    );
}

#[test]
fn hot_keys_are_shown_without_ids() {
    let config = config();
    let hash_key = config.user_hash_key;
    let mut kit = Kit::open(config);
    kit.now.mono = kit
        .now
        .mono
        .plus_ms(HOT_WINDOW_MS - kit.now.mono.0 / 1_000_000 % HOT_WINDOW_MS);
    kit.connect(0);
    for round in 0..10_u64 {
        let user = if round < 7 { 4242 } else { round };
        kit.bytes(
            0,
            &submit(user, &format!("request-{round}"), &ticket(user, 1, true)),
        );
    }
    kit.end_turn();
    kit.advance_ms(HOT_WINDOW_MS);
    kit.mail.clear();
    kit.event(Event::Mail(Mail::StatsAsk));
    kit.end_turn();
    let stats = kit.mail.iter().find_map(|(_, mail)| match mail {
        Mail::Stats(stats) => Some(stats),
        _ => None,
    });
    let hot = &stats.unwrap().hot;
    let top = |dimension: &str| -> (u64, HotName, u64) {
        let table: &HotTable = hot
            .iter()
            .find(|table| table.dimension == dimension)
            .unwrap();
        let top = table.keys.iter().max_by_key(|hot| hot.count).unwrap();
        (table.seen, top.name, top.count)
    };
    assert_eq!(
        top("user"),
        (10, HotName::User(user_hash(&hash_key, UserId(4242))), 7)
    );
    assert_eq!(top("sku"), (10, HotName::Sku(SKU), 10));
    let ip = weir_proto::addr::IpKey::new("198.51.100.7".parse().unwrap());
    assert_eq!(top("ip"), (10, HotName::Ip(ip), 10));
    assert!(!format!("{hot:?}").contains("4242"));
}
