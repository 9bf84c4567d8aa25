//! The bytes that everything here is fed: a phone's submit on the day of the sale, with a ticket of either form.
//!
//! Used by the scenarios of ours and of the peers alike: both read the same bytes. Keys, SKU and claims are those of the
//! kit that core's own tests use.

use crate::shard_kit::{SECRET, ticket};
use weir_proto::ticket::{KeyRing, TicketKey};

/// The form of a ticket.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// JWS with HS256.
    Jws,
    /// Ours, with keyed BLAKE3.
    Compact,
}

/// User `user`'s ticket.
pub fn ticket_of(user: u64, form: Form) -> Vec<u8> {
    ticket(user, 1, form == Form::Compact)
}

/// The key under every ticket here.
pub fn ticket_key() -> TicketKey {
    TicketKey::new(b"k1", SECRET).expect("a sound key")
}

/// The ring with that key.
pub fn key_ring() -> KeyRing {
    KeyRing::new(ticket_key(), None).expect("one key")
}

/// A submit as a phone's browser sends it, with `token` for its ticket.
pub fn submit(user: u64, token: &[u8]) -> Vec<u8> {
    submit_to("p_7vKh2P", user, token)
}

/// The same to another path.
pub fn submit_to(path_id: &str, user: u64, token: &[u8]) -> Vec<u8> {
    let token = core::str::from_utf8(token).expect("tickets are ASCII");
    let body = format!(
        "{{\"request_id\":\"req-2026-11-30-{user:08}\",\"activity_id\":10001,\"sku_id\":90001,\"user_id\":{user},\"quantity\":1}}"
    );
    format!(
        "POST /v1/seckill/{path_id} HTTP/1.1\r\n\
         Host: sale.shop.example\r\n\
         User-Agent: Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.5 Mobile/15E148 Safari/604.1\r\n\
         Accept: application/json\r\n\
         Accept-Language: en-GB,en;q=0.9\r\n\
         Accept-Encoding: gzip, deflate, br\r\n\
         Origin: https://shop.example\r\n\
         Authorization: Bearer {token}\r\n\
         Content-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// `token` with its last character exchanged, so that its MAC is wrong and everything before it right.
pub fn forged(token: &[u8]) -> Vec<u8> {
    let mut token = token.to_vec();
    let at = token.len() - 3; // the last ones may carry bits that must be zero
    token[at] = if token[at] == b'A' { b'B' } else { b'A' };
    token
}
