//! Signed requests (B8) as a client meets them: what the shard asks for, in which order, and what a copy or a change gets.

#![allow(clippy::unwrap_used)]

mod shard_kit;

use shard_kit::*;
use weir_core::ask::LedgerAnswer;
use weir_core::limit::gcra::Rate;
use weir_proto::answer::Reason;

const SKEW_MS: u64 = 30_000;

fn asking() -> Kit {
    let mut config = config();
    config.signature = Some(signatures(&["app-2", "app-1"], SKEW_MS));
    let mut kit = Kit::open(config);
    kit.connect(0);
    kit
}

fn request() -> Vec<u8> {
    submit(7, "request-0001", &ticket(7, 1, true))
}

/// Sends a request and gives the reasons that were counted for it.
fn refusal(kit: &mut Kit, bytes: &[u8]) -> (Reason, u16) {
    let before = kit.shard.counters().by_reason.clone();
    let reply = kit.ask_once(0, bytes);
    let after = kit.shard.counters().by_reason.clone();
    let mut counted = Reason::ALL
        .iter()
        .filter(|reason| after[**reason as usize] > before[**reason as usize]);
    let reason = *counted.next().unwrap();
    assert!(counted.next().is_none());
    assert_eq!(reply.0, reason.row().http_status, "{}", reply.1);
    assert!(kit.asks().is_empty(), "a refusal asks nobody");
    (reason, reply.0)
}

#[test]
fn a_signed_submit_is_granted_under_either_live_key() {
    for kid in ["app-1", "app-2"] {
        let mut kit = asking();
        kit.bytes(0, &signed(&request(), kid, kit.now.wall.0));
        kit.end_turn();
        let asks = kit.asks();
        kit.answer(&asks[0], LedgerAnswer::Granted(held(31)));
        assert_eq!(kit.replies(0).pop().unwrap().0, 202);
        kit.shard.audit();
    }
}

#[test]
fn nothing_is_asked_for_when_the_operator_wants_no_signature() {
    let mut kit = Kit::open(config());
    kit.connect(0);
    kit.bytes(0, &request());
    kit.end_turn();
    assert_eq!(kit.asks().len(), 1);
    // A header that nobody asked for is read over, whatever it says.
    kit.bytes(
        0,
        &signed(&submit(8, "request-0002", &ticket(8, 1, true)), "nobody", 1),
    );
    kit.end_turn();
    assert_eq!(kit.asks().len(), 1);
}

#[test]
fn each_breach_has_its_reason_and_is_401() {
    let mut kit = asking();
    let now = kit.now.wall.0;
    let good = String::from_utf8(signed(&request(), "app-1", now)).unwrap();
    let with = |from: &str, to: &str| {
        assert!(good.contains(from), "{from}");
        good.replacen(from, to, 1).into_bytes()
    };
    for (bytes, expected) in [
        (request(), Reason::SignatureMissing),
        (with("k=app-1,", ""), Reason::SignatureShape),
        (
            with("k=app-1", &format!("k={}", "a".repeat(200))),
            Reason::SignatureShape,
        ),
        (signed(&request(), "app-3", now), Reason::SignatureKey),
        (
            signed(&request(), "app-1", now - SKEW_MS - 1),
            Reason::SignatureStale,
        ),
        (
            signed(&request(), "app-1", now + SKEW_MS + 1),
            Reason::SignatureStale,
        ),
        (
            with("\"quantity\":1", "\"quantity\":2"),
            Reason::SignatureWrong,
        ),
        (with("p_7vKh2P", "p_7vKh2P?x=1"), Reason::SignatureWrong),
        (with("p_7vKh2P", "p_7vKh2P?"), Reason::SignatureWrong),
        (with("k=app-1", "k=app-2"), Reason::SignatureWrong),
    ] {
        assert_eq!(refusal(&mut kit, &bytes), (expected, 401), "{expected:?}");
    }
    kit.shard.audit();
}

#[test]
fn both_edges_of_the_window_are_inside() {
    for (user, time_ms) in [(7, 0), (8, 2 * SKEW_MS)] {
        let mut kit = asking();
        let time_ms = kit.now.wall.0 - SKEW_MS + time_ms;
        let request = submit(user, "request-0001", &ticket(user, 1, true));
        kit.bytes(0, &signed(&request, "app-1", time_ms));
        kit.end_turn();
        assert_eq!(kit.asks().len(), 1, "signed at {time_ms}");
    }
}

#[test]
fn a_second_signature_line_is_no_request_at_all() {
    let mut kit = asking();
    let now = kit.now.wall.0;
    let twice = signed(&signed(&request(), "app-1", now), "app-1", now);
    assert_eq!(refusal(&mut kit, &twice), (Reason::HttpHeader, 400));
}

#[test]
fn chunks_and_an_absolute_target_are_signed_as_what_they_mean() {
    let mut kit = asking();
    let plain = String::from_utf8(signed(&request(), "app-1", kit.now.wall.0)).unwrap();
    let (head, body) = plain.split_once("\r\n\r\n").unwrap();
    let (first, second) = body.split_at(20);
    let head = head.replace("POST /", "POST http://weir.test/").replace(
        &format!("Content-Length: {}", body.len()),
        "Transfer-Encoding: chunked",
    );
    let chunked = format!(
        "{head}\r\n\r\n{:x}\r\n{first}\r\n{:x}\r\n{second}\r\n0\r\n\r\n",
        first.len(),
        second.len()
    );
    kit.bytes(0, chunked.as_bytes());
    kit.end_turn();
    assert_eq!(kit.asks().len(), 1, "{:?}", kit.replies(0));
}

#[test]
fn the_limit_of_an_address_comes_before_the_signature_and_the_signature_before_the_ticket() {
    let mut config = config();
    config.signature = Some(signatures(&["app-1"], SKEW_MS));
    config.ip = keyed(
        Rate {
            tokens: 1,
            per_ns: 1_000_000_000,
        },
        1,
    );
    let mut kit = Kit::open(config);
    kit.connect(0);
    let no_ticket = submit(7, "request-0001", b"");
    assert_eq!(
        refusal(&mut kit, &no_ticket),
        (Reason::SignatureMissing, 401)
    );
    assert_eq!(refusal(&mut kit, &no_ticket), (Reason::LimitedIp, 429));
    kit.advance_ms(1_000);
    let signed = signed(&no_ticket, "app-1", kit.now.wall.0);
    assert_eq!(refusal(&mut kit, &signed), (Reason::TicketMissing, 401));
}

#[test]
fn a_copy_within_the_window_gets_the_first_answer_and_no_second_unit() {
    let mut kit = asking();
    let bytes = signed(&request(), "app-1", kit.now.wall.0);
    kit.bytes(0, &bytes);
    kit.end_turn();
    let asks = kit.asks();
    kit.answer(&asks[0], LedgerAnswer::Granted(held(31)));
    assert_eq!(refusal(&mut kit, &bytes), (Reason::Replayed, 200));
    // The same ticket under another request id is for the ledger to refuse: its nonce is used.
    let other = submit(7, "request-0002", &ticket(7, 1, true));
    kit.bytes(0, &signed(&other, "app-1", kit.now.wall.0));
    kit.end_turn();
    let asks = kit.asks();
    kit.answer(&asks[0], LedgerAnswer::ReplayRejected);
    assert_eq!(kit.replies(0).pop().unwrap().0, 403);
    // After the window the copy is refused before anything is looked up.
    kit.advance_ms(SKEW_MS + 1);
    assert_eq!(refusal(&mut kit, &bytes), (Reason::SignatureStale, 401));
}

#[test]
fn a_status_query_needs_no_signature() {
    let mut kit = asking();
    kit.bytes(0, &status("request-0001", &ticket(7, 1, true)));
    kit.end_turn();
    assert_eq!(kit.asks().len(), 1);
}
