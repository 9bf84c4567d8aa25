//! A shard that answers every request with what it read, instead of deciding: for tests that send bytes and must know
//! what the handler saw. Reading, refusing, pipelining, deadlines and closing are the shard's own.
//!
//! Only in builds with debug assertions, and only after [`Shard::plant_echo`]: no optimised program holds this code.

use super::Shard;
use super::reply::Reply;
use core::fmt::Write;
use weir_proto::answer::Reason;
use weir_proto::http::Request;
use weir_proto::limits::BODY_BYTES_MAX;

impl Shard {
    /// From now on every request is answered 200; `detail` says what was read: `METHOD VERSION keep-alive=BOOL
    /// target=HASH body=BYTES:HASH`. A hash is the first 16 hexadecimal digits of BLAKE3 over the target as sent, and over
    /// the decoded body.
    pub fn plant_echo(&mut self) {
        self.echo = true;
    }
}

/// The reply that says what was read; `scratch`: room to join chunks.
pub(super) fn seen(request: &Request<'_>, scratch: &mut [u8; BODY_BYTES_MAX]) -> Reply {
    let mut target = blake3::Hasher::new();
    target.update(request.path);
    if let Some(query) = request.query {
        target.update(b"?").update(query);
    }
    let (target, body) = (target.finalize().to_hex(), request.body.in_one(scratch));
    let mut reply = Reply::new(Reason::NotAccepted);
    // Writing into a `Detail` never fails: what is too long is cut.
    let _ = write!(
        reply.detail,
        "{:?} {:?} keep-alive={} target={} body={}:{}",
        request.method,
        request.version,
        request.keep_alive,
        &target[..16],
        body.len(),
        &blake3::hash(body).to_hex()[..16]
    );
    reply
}
