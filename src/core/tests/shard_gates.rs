//! The gates of a shard as those outside meet them: the door by source (A2), hot SKUs and users (C4).

#![allow(clippy::unwrap_used, clippy::result_large_err)]

mod shard_kit;

use shard_kit::{Kit, config, keyed, submit, ticket};
use std::sync::Arc;
use weir_core::limit::gcra::Rate;
use weir_core::port::Op;
use weir_proto::addr::{Cidr, Source};
use weir_proto::answer::Reason;

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
