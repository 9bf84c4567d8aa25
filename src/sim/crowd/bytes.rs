//! The buyers' requests as bytes, and the reading of replies.

use super::buyer::{Wish, device_name};
use crate::sim::plan::Plan;
use std::io::Write;
use weir_core::time::WallMs;
use weir_proto::addr::Source;
use weir_proto::ids::ReservationId;
use weir_proto::payment::sign_callback;
use weir_proto::signature::Signed;

/// A reply as a buyer reads it.
pub(super) struct Reply<'a> {
    pub status: u16,
    pub body: &'a [u8],
    /// Bytes of head and body.
    pub bytes: usize,
}

/// The first reply in `bytes`; `None` while it is not whole.
pub(super) fn read_reply(bytes: &[u8]) -> Option<Reply<'_>> {
    const LENGTH: &[u8] = b"Content-Length: ";
    let head_bytes = find(bytes, b"\r\n\r\n")? + 4;
    let head = &bytes[..head_bytes];
    let digits = |from: &[u8]| {
        let digits = from.iter().take_while(|byte| byte.is_ascii_digit());
        digits.fold(0, |sum, digit| sum * 10 + usize::from(digit - b'0'))
    };
    let status = digits(head.get(9..12)?) as u16;
    let body_bytes = find(head, LENGTH).map_or(0, |at| digits(&head[at + LENGTH.len()..]));
    let bytes_all = head_bytes + body_bytes;
    Some(Reply {
        status,
        body: bytes.get(head_bytes..bytes_all)?,
        bytes: bytes_all,
    })
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// A submit of `wish` with this ticket, quantity and path, signed at `wall` where that is asked for.
pub(super) fn put_submit(
    plan: &Plan,
    wish: &Wish,
    (ticket, quantity): (&[u8], u32),
    (path, wall): (&str, WallMs),
    out: &mut Vec<u8>,
) {
    let key = plan.sku_key(wish.sku);
    let mut body = Vec::with_capacity(128);
    let _ = write!(
        body,
        "{{\"request_id\":\"{}\",\"activity_id\":{},\"sku_id\":{},\"user_id\":{},\"quantity\":{quantity}}}",
        wish.request_id, key.activity, key.sku, wish.user.0
    );
    let _ = write!(
        out,
        "POST /v1/seckill/{path} HTTP/1.1\r\nHost: shop.test\r\nContent-Type: application/json\r\nContent-Length: {}\r\n",
        body.len()
    );
    let target = format!("/v1/seckill/{path}");
    let signed = Signed {
        method: b"POST",
        target: target.as_bytes(),
        body: &body,
    };
    plan.put_signature(wish.user, signed, wall, out);
    put_who(plan, wish, ticket, out);
    out.extend_from_slice(&body);
}

/// The last header lines: where the request comes from, from which device, with which ticket.
fn put_who(plan: &Plan, wish: &Wish, ticket: &[u8], out: &mut Vec<u8>) {
    let address = plan.address(wish.buyer);
    let _ = match plan.shard.source {
        Source::Peer | Source::ProxyProtocol => Ok(()),
        Source::XForwardedFor => write!(out, "X-Forwarded-For: {address}\r\n"),
        Source::Forwarded => write!(out, "Forwarded: for={address}\r\n"),
    };
    if let Some(device) = plan.device(wish.user) {
        let _ = write!(out, "X-Weir-Device: {}\r\n", device_name(device));
    }
    if !ticket.is_empty() {
        out.extend_from_slice(b"Authorization: Bearer ");
        out.extend_from_slice(ticket);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
}

/// What a proxy says of the client at the start of a connection, if a proxy is between them.
pub(super) fn greeting(plan: &Plan, buyer: u32) -> Vec<u8> {
    match plan.shard.source {
        Source::ProxyProtocol => {
            format!("PROXY TCP4 {} 10.0.0.1 4000 8080\r\n", plan.address(buyer)).into_bytes()
        }
        _ => Vec::new(),
    }
}

/// A status query of `wish`.
pub(super) fn put_status(plan: &Plan, wish: &Wish, out: &mut Vec<u8>) {
    let key = plan.sku_key(wish.sku);
    let _ = write!(
        out,
        "GET /v1/activities/{}/skus/{}/requests/{} HTTP/1.1\r\nHost: shop.test\r\n",
        key.activity, key.sku, wish.request_id
    );
    put_who(plan, wish, &wish.ticket, out);
}

/// One payment as its provider reports it.
pub(super) struct Payment<'a> {
    pub id: &'a str,
    pub reservation: ReservationId,
    pub amount_minor: u64,
}

/// A signed payment callback.
pub(super) fn put_payment(
    plan: &Plan,
    wall: WallMs,
    wish: &Wish,
    payment: &Payment<'_>,
    out: &mut Vec<u8>,
) {
    let key = plan.sku_key(wish.sku);
    let Payment {
        id,
        reservation,
        amount_minor,
    } = payment;
    let mut body = Vec::with_capacity(192);
    let _ = write!(
        body,
        "{{\"payment_id\":\"{id}\",\"reservation_id\":\"{reservation}\",\"activity_id\":{},\"sku_id\":{},\"amount_minor\":{amount_minor},\
         \"currency\":\"CNY\",\"paid_at_ms\":{}}}",
        key.activity, key.sku, wall.0
    );
    let _ = write!(
        out,
        "POST /v1/payments/callback HTTP/1.1\r\nHost: shop.test\r\nContent-Type: application/json\r\nContent-Length: {}\r\nX-Weir-Signature: ",
        body.len()
    );
    sign_callback(&body, &plan.payment_key, wall.0, out);
    out.extend_from_slice(b"\r\n\r\n");
    out.extend_from_slice(&body);
}
