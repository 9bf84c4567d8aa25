//! Cross-origin requests of configured shop pages (Fetch standard, §3.2 HTTP-CORS protocol).
//!
//! The caller looks the origin up in its configuration and sets `Meta::cors_origin`; unknown origins get no CORS header,
//! which makes the browser refuse. No credentials mode: tickets travel in a header, cookies mean nothing here.

use super::response::{self, Meta, Status};
use super::{Field, Method, Request};
use alloc::vec::Vec;

/// Methods a shop's page may use.
pub const ALLOW_METHODS: &str = "GET, POST";
/// Headers a shop's page may set.
pub const ALLOW_HEADERS: &str =
    "Authorization, Content-Type, Idempotency-Key, X-Weir-Device, X-Weir-Signature";
/// Seconds a browser may remember a preflight: ten minutes spare one request per submit and still follow a change the same sale.
pub const PREFLIGHT_MAX_AGE_S: u32 = 600;

/// Which of the configured origins is the request's `Origin`; compared byte by byte, as browsers send them.
pub fn allowed_origin(configured: &[impl AsRef<[u8]>], request: &Request<'_>) -> Option<usize> {
    let asked = request.field(Field::Origin)?;
    configured
        .iter()
        .position(|origin| origin.as_ref() == asked)
}

/// True for the question a browser asks before a cross-origin request.
pub fn is_preflight(request: &Request<'_>) -> bool {
    request.method == Method::Options
        && request.field(Field::Origin).is_some()
        && request.field(Field::AccessControlRequestMethod).is_some()
}

/// Writes the 204 answer to a preflight; with no `meta.cors_origin` it allows nothing.
pub fn write_preflight(out: &mut Vec<u8>, meta: &Meta<'_>) {
    // Ended by hand: what `begin` would end is still open for our lines.
    response::put_open_head(out, Status::NoContent, meta);
    if meta.cors_origin.is_some() {
        response::put_line(
            out,
            b"Access-Control-Allow-Methods: ",
            ALLOW_METHODS.as_bytes(),
        );
        response::put_line(
            out,
            b"Access-Control-Allow-Headers: ",
            ALLOW_HEADERS.as_bytes(),
        );
        response::put_number(out, b"Access-Control-Max-Age: ", PREFLIGHT_MAX_AGE_S);
    }
    out.extend_from_slice(b"\r\n");
}
