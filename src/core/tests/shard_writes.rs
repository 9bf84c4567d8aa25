//! Clients that take their replies slowly, or not at all.

#![allow(clippy::unwrap_used, clippy::result_large_err)]

mod shard_kit;

use shard_kit::{Kit, config};
use weir_core::port::Op;

const GET: &[u8] = b"GET /nowhere HTTP/1.1\r\nHost: a\r\n\r\n";
/// A closing reply follows.
const BAD: &[u8] = b"GET / HTTP/1.1\r\nHost : a\r\n\r\n";

/// A shard whose only client asked `request` and has taken nothing of the reply.
fn asked(request: &[u8]) -> Kit {
    let mut kit = Kit::open(config());
    kit.slow = true;
    kit.connect(0);
    kit.bytes(0, request);
    kit.end_turn();
    assert!(kit.fx.unsent_bytes(Kit::conn(0)) > 100);
    kit
}

fn closed(kit: &Kit) -> bool {
    let is_close = |op: &Op| matches!(op, Op::Close(conn) if conn.slot == 0);
    kit.ops.iter().any(is_close)
}

#[test]
fn a_client_that_goes_on_reading_keeps_its_connection_however_long_it_takes() {
    let mut kit = asked(GET);
    for _ in 0..40 {
        kit.run_ms(900); // 36 s: longer than the write and the idle time
        kit.take(0, 1);
    }
    assert!(!closed(&kit) && !kit.finished(0));
    kit.take(0, usize::MAX);
    kit.run_ms(29_000);
    assert!(
        !kit.finished(0),
        "the idle time runs from the last byte taken"
    );
    kit.run_ms(2_100);
    assert!(kit.finished(0));
}

#[test]
fn a_client_whose_outbox_never_empties_keeps_its_connection_while_it_reads() {
    let mut kit = asked(GET);
    for _ in 0..30 {
        kit.run_ms(900);
        kit.bytes(0, GET);
        kit.end_turn();
        kit.take(0, 150); // less than one reply
        assert!(kit.fx.unsent_bytes(Kit::conn(0)) > 0);
    }
    assert!(!closed(&kit) && !kit.finished(0));
}

#[test]
fn a_client_that_takes_nothing_for_the_write_time_is_dropped() {
    let mut kit = asked(GET);
    kit.run_ms(5_000);
    kit.take(0, 1);
    kit.run_ms(9_900);
    assert!(!closed(&kit), "it has 10 s from its last byte");
    kit.run_ms(1_200);
    assert!(
        closed(&kit),
        "and no more than one look of the wheel beyond"
    );
}

#[test]
fn a_refusal_that_is_read_slowly_is_not_cut_by_the_linger_time() {
    let mut kit = asked(BAD);
    assert!(kit.finished(0));
    for _ in 0..5 {
        kit.run_ms(900); // 4.5 s: longer than the linger time
        kit.take(0, 1);
    }
    assert!(!closed(&kit));
    kit.take(0, usize::MAX);
    kit.run_ms(1_900);
    assert!(
        !closed(&kit),
        "the linger time runs from the last byte taken"
    );
    kit.run_ms(1_200);
    assert!(closed(&kit));
}
