//! Bytes and orders of answers that a hostile or hasty client can bring about: nothing is dropped, nothing panics.

#![allow(clippy::unwrap_used)]

mod shard_kit;

use shard_kit::*;
use weir_core::ask::{Answer, Failure, LedgerAnswer, Outcome};
use weir_core::limits::{HELD_REPLIES_MAX, PIPELINE_MAX};
use weir_core::mail::Mail;
use weir_core::port::Event;

const NOWHERE: &[u8] = b"GET /nowhere HTTP/1.1\r\nHost: weir.test\r\n\r\n";

#[test]
fn a_client_that_ends_its_side_after_a_long_pipeline_gets_every_reply() {
    let mut kit = Kit::open(config());
    kit.connect(0);
    let sent = PIPELINE_MAX as usize + 36;
    kit.bytes_and_end(0, &NOWHERE.repeat(sent));
    kit.end_turn();
    kit.end_turn();
    assert_eq!(kit.replies(0).len(), sent);
    assert!(kit.finished(0), "then our side ends, too");
}

#[test]
fn a_client_that_ends_its_side_after_exactly_one_pipeline_is_ended_too() {
    let mut kit = Kit::open(config());
    kit.connect(0);
    kit.bytes_and_end(0, &NOWHERE.repeat(PIPELINE_MAX as usize));
    kit.end_turn();
    assert_eq!(kit.replies(0).len(), PIPELINE_MAX as usize);
    assert!(kit.finished(0));
}

#[test]
fn an_answer_that_overtakes_another_finds_a_place_whatever_waits_elsewhere() {
    let pipeline = PIPELINE_MAX as usize;
    let conns = HELD_REPLIES_MAX / (pipeline - 1) + 2;
    let mut limits = config();
    limits.conns_max = conns + 1;
    limits.inflight_max = 2_048;
    limits.sku_inflight_max = 2_048;
    let mut kit = Kit::open(limits);
    // Four asks of one connection; the first one will be answered last.
    kit.connect(0);
    let one = |user| submit(user, "request-0001", &ticket(user, 1, true));
    kit.bytes(0, &(1..=4).flat_map(one).collect::<Vec<_>>());
    kit.end_turn();
    let asks = kit.asks();
    assert_eq!(asks.len(), 4);
    // Everybody else has one ask and a full pipeline of replies that wait for it.
    for slot in 1..=conns as u32 {
        let user = 100 + u64::from(slot);
        kit.connect(slot);
        let mut bytes = submit(user, "request-0001", &ticket(user, 1, true));
        bytes.extend(NOWHERE.repeat(pipeline - 1));
        kit.bytes(slot, &bytes);
        kit.end_turn();
    }
    for ask in &asks[1..] {
        kit.event(Event::Mail(Mail::Answer(Answer {
            id: ask.id,
            outcome: Outcome::Failed(Failure::Busy), // the owner's batch is full: refused before the commit
        })));
    }
    kit.end_turn();
    assert!(kit.replies(0).is_empty());
    kit.answer(&asks[0], LedgerAnswer::Granted(held(1)));
    let codes: Vec<u16> = kit.replies(0).iter().map(|reply| reply.0).collect();
    assert_eq!(codes, [202, 503, 503, 503]);
    // And the others go on: what could not be read for want of places is read when they are free again.
    let mut number = 1;
    loop {
        let asks = kit.asks();
        if asks.is_empty() {
            break;
        }
        for ask in asks {
            number += 1;
            kit.answer(&ask, LedgerAnswer::Granted(held(number)));
        }
        kit.end_turn();
    }
    for slot in 1..=conns as u32 {
        assert_eq!(kit.replies(slot).len(), pipeline, "slot {slot}");
    }
    kit.shard.audit();
}

#[test]
fn a_client_that_waits_for_100_continue_gets_it_behind_the_replies_that_are_owed() {
    let mut kit = Kit::open(config());
    kit.connect(0);
    let first = submit(1, "request-0001", &ticket(1, 1, true));
    let second = submit(2, "request-0001", &ticket(2, 1, true));
    let second = String::from_utf8(second)
        .unwrap()
        .replace("Host:", "Expect: 100-continue\r\nHost:");
    let (head, body) = second.split_at(second.find("{").unwrap());
    kit.bytes(0, &first);
    kit.bytes(0, head.as_bytes());
    kit.end_turn();
    assert!(kit.out[0].is_empty());
    let ask = kit.asks().pop().unwrap();
    kit.answer(&ask, LedgerAnswer::Granted(held(1)));
    let codes = |kit: &Kit| -> Vec<u16> { kit.replies(0).iter().map(|reply| reply.0).collect() };
    assert_eq!(codes(&kit), [202, 100]);
    kit.bytes(0, body.as_bytes());
    kit.end_turn();
    let ask = kit.asks().pop().unwrap();
    kit.answer(&ask, LedgerAnswer::Granted(held(2)));
    assert_eq!(codes(&kit), [202, 100, 202]);
}
