//! Requests that are none: bytes that break HTTP, paths and bodies that are not ours, payments that nobody signed, and
//! connections that stall. Each has the one status that it must be answered with.

use crate::sim::plan::Plan;
use weir_core::rng::Rng;
use weir_core::time::WallMs;
use weir_proto::payment::sign_callback;

/// Bytes and the status of their answer.
pub(super) struct Prank {
    pub bytes: Vec<u8>,
    pub status: u16,
}

/// Whole requests and beginnings of requests, by their status; `{path}` is a path of the sale.
const PRANKS: &[(&str, u16)] = &[
    ("GET / HTTP/1.1\nHost: a\n\n", 400),
    ("GET nowhere HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: a\r\nBad Name: x\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\n\r\n", 400),
    (
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\n",
        400,
    ),
    (
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, chunked\r\n\r\n",
        400,
    ),
    (
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        400,
    ),
    (
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n",
        501,
    ),
    (
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n",
        413,
    ),
    (
        "POST / HTTP/1.1\r\nHost: a\r\nExpect: miracles\r\nContent-Length: 1\r\n\r\n",
        417,
    ),
    ("BREW / HTTP/1.1\r\nHost: a\r\n\r\n", 501),
    ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
    ("TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", 405),
    ("GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n", 404),
    ("GET /v1/seckill/{path} HTTP/1.1\r\nHost: a\r\n\r\n", 405),
    (
        "GET /v1/activities/10001/skus/90001/requests/x HTTP/1.1\r\nHost: a\r\n\r\n",
        400,
    ),
    (
        "GET /v1/activities/10001/skus/5/requests/req-00000001 HTTP/1.1\r\nHost: a\r\n\r\n",
        404,
    ),
    (
        "POST /v1/seckill/{path} HTTP/1.1\r\nHost: a\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}",
        400,
    ),
    (
        "POST /v1/seckill/{path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
        400,
    ),
    (
        "POST /v1/seckill/{path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 81\r\n\r\n\
     {\"request_id\":\"req-00000001\",\"activity_id\":1,\"sku_id\":1,\"user_id\":1,\"quantity\":0}",
        400,
    ),
    (
        "POST /v1/seckill/{path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nIdempotency-Key: req-00000002\r\n\
     Content-Length: 81\r\n\r\n\
     {\"request_id\":\"req-00000001\",\"activity_id\":1,\"sku_id\":1,\"user_id\":1,\"quantity\":1}",
        400,
    ),
    (
        "POST /v1/payments/callback HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
        401,
    ),
    // Stalls: nothing follows.
    ("POST /v1/seck", 408),
    (
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nthree",
        408,
    ),
];

impl Prank {
    /// One of all.
    pub fn draw(plan: &Plan, sku: usize, wall: WallMs, rng: &mut Rng) -> Self {
        let drawn = rng.below(PRANKS.len() as u64 + 3) as usize;
        let Some((text, status)) = PRANKS.get(drawn).copied() else {
            return match drawn - PRANKS.len() {
                0 => Self::long(5_000, "GET /", "", " HTTP/1.1\r\nHost: a\r\n\r\n", 414),
                1 => Self::long(80, "GET / HTTP/1.1\r\nHost: a\r\n", "X: y\r\n", "\r\n", 431),
                _ => Self::signed(plan, wall),
            };
        };
        let path = plan.activity(sku).path_id;
        Self {
            bytes: text.replace("{path}", path.as_str()).into_bytes(),
            status,
        }
    }

    /// Too much of something: `times` times `more`, or a letter.
    fn long(times: usize, start: &str, more: &str, end: &str, status: u16) -> Self {
        let more = if more.is_empty() { "a" } else { more };
        let bytes = [start, &more.repeat(times), end].concat().into_bytes();
        Self { bytes, status }
    }

    /// A payment callback that is signed and has no payment in it.
    fn signed(plan: &Plan, wall: WallMs) -> Self {
        let mut bytes =
            b"POST /v1/payments/callback HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n\
            Content-Length: 2\r\nX-Weir-Signature: "
                .to_vec();
        sign_callback(b"{}", &plan.payment_key, wall.0, &mut bytes);
        bytes.extend_from_slice(b"\r\n\r\n{}");
        Self { bytes, status: 400 }
    }
}
