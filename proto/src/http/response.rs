//! Answers: a prebuilt head per status and connection, the date patched in, the length patched after the body.
//!
//! Called by whoever answers a request. `begin` writes the head into the connection's output, the caller appends the body,
//! `finish` sets Content-Length or takes the body away again (HEAD, 204, 304). Nothing is allocated but by `out`'s growth.

use super::Connection;
use super::date::DateCache;
use super::quota::Quota;
use crate::answer::Reason;
use alloc::vec::Vec;

/// The interim answer to `Expect: 100-continue` (RFC 9110 §15.2.1).
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// What every resource of ours may allow; the `Allow` of a refused TRACE or CONNECT (RFC 9110 §10.2.1).
pub const ALLOW_ALL: &str = "GET, HEAD, POST, OPTIONS";

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $code:literal $reason:literal,)*) => {
        /// The statuses weir answers with.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum Status { $($(#[$doc])* $name = $code,)* }

        impl Status {
            /// Every status, for tables.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The status of a three-digit code; `None` for one that weir never sends.
            pub const fn from_code(code: u16) -> Option<Self> {
                match code { $($code => Some(Self::$name),)* _ => None }
            }

            /// From the status line up to where the date goes.
            const fn template(self, connection: Connection) -> &'static [u8] {
                match (self, connection) { $(
                    (Self::$name, Connection::Keep) =>
                        concat!("HTTP/1.1 ", $code, " ", $reason, "\r\nCache-Control: no-store\r\nDate: ").as_bytes(),
                    (Self::$name, Connection::KeepNamed) =>
                        concat!("HTTP/1.1 ", $code, " ", $reason,
                            "\r\nCache-Control: no-store\r\nConnection: keep-alive\r\nDate: ").as_bytes(),
                    (Self::$name, Connection::Close) =>
                        concat!("HTTP/1.1 ", $code, " ", $reason,
                            "\r\nCache-Control: no-store\r\nConnection: close\r\nDate: ").as_bytes(),
                )* }
            }
        }
    };
}

statuses! {
    /// 200
    Ok = 200 "OK",
    /// 202
    Accepted = 202 "Accepted",
    /// 204; has no body.
    NoContent = 204 "No Content",
    /// 304; has no body.
    NotModified = 304 "Not Modified",
    /// 400
    BadRequest = 400 "Bad Request",
    /// 401
    Unauthorized = 401 "Unauthorized",
    /// 403
    Forbidden = 403 "Forbidden",
    /// 404
    NotFound = 404 "Not Found",
    /// 405; must carry `Allow`.
    MethodNotAllowed = 405 "Method Not Allowed",
    /// 408
    RequestTimeout = 408 "Request Timeout",
    /// 409
    Conflict = 409 "Conflict",
    /// 413
    ContentTooLarge = 413 "Content Too Large",
    /// 414
    UriTooLong = 414 "URI Too Long",
    /// 415
    UnsupportedMediaType = 415 "Unsupported Media Type",
    /// 417
    ExpectationFailed = 417 "Expectation Failed",
    /// 422
    UnprocessableContent = 422 "Unprocessable Content",
    /// 429
    TooManyRequests = 429 "Too Many Requests",
    /// 431
    HeaderFieldsTooLarge = 431 "Request Header Fields Too Large",
    /// 500
    InternalError = 500 "Internal Server Error",
    /// 501
    NotImplemented = 501 "Not Implemented",
    /// 503
    ServiceUnavailable = 503 "Service Unavailable",
    /// 505
    VersionNotSupported = 505 "HTTP Version Not Supported",
}

impl Status {
    /// The status of a reason's row.
    pub fn of(reason: Reason) -> Self {
        Self::from_code(reason.row().http_status).expect("every row's status is in this table")
    }

    /// The three-digit code.
    pub const fn code(self) -> u16 {
        self as u16
    }

    /// False for those that never have a body (RFC 9110 §15.3.5, §15.4.5).
    pub const fn has_body(self) -> bool {
        !matches!(self, Self::NoContent | Self::NotModified)
    }
}

/// What a body is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContentType {
    /// JSON, UTF-8 by definition (RFC 8259 §8.1).
    #[default]
    Json,
    /// Plain text in UTF-8.
    Text,
    /// Prometheus text format 0.0.4.
    Metrics,
}

impl ContentType {
    /// The rest of the head after the date: this field's line, its own CRLF and the one before it.
    const fn lines(self) -> &'static [u8] {
        match self {
            Self::Json => b"\r\nContent-Type: application/json\r\n",
            Self::Text => b"\r\nContent-Type: text/plain; charset=utf-8\r\n",
            Self::Metrics => b"\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n",
        }
    }
}

/// What a head says besides its status.
#[derive(Clone, Copy, Debug)]
pub struct Meta<'a> {
    /// The turn's date.
    pub date: &'a DateCache,
    /// What becomes of the connection.
    pub connection: Connection,
    /// True in answer to HEAD: the body only tells its length.
    pub head_only: bool,
    /// What the body is.
    pub content_type: ContentType,
    /// `Retry-After` in whole seconds.
    pub retry_after_s: Option<u32>,
    /// `Allow`, required with 405.
    pub allow: Option<&'static str>,
    /// `RateLimit` and `RateLimit-Policy`: the limit that decided.
    pub quota: Option<Quota>,
    /// The configured origin that asked; from the configuration, never copied from a request.
    pub cors_origin: Option<&'a [u8]>,
}

impl<'a> Meta<'a> {
    /// A JSON answer with nothing special about it.
    pub fn new(date: &'a DateCache, connection: Connection) -> Self {
        Self {
            date,
            connection,
            head_only: false,
            content_type: ContentType::Json,
            retry_after_s: None,
            allow: None,
            quota: None,
            cors_origin: None,
        }
    }
}

/// A head whose body is being appended.
#[derive(Debug)]
#[must_use = "an unfinished response has no valid Content-Length"]
pub struct OpenResponse {
    /// Where the digits of Content-Length are; `None` when the status has no body and no length.
    length_at: Option<usize>,
    body_at: usize,
    head_only: bool,
}

pub(super) const LENGTH: &[u8] = b"Content-Length: 000\r\n\r\n";
/// Digits reserved for the length: our bodies have 100 to 999 bytes, then nothing is moved.
pub(super) const LENGTH_DIGITS: usize = 3;

/// Writes the head of an answer to the end of `out`; the caller appends the body to `out`, then calls `finish`.
pub fn begin(out: &mut Vec<u8>, status: Status, meta: &Meta<'_>) -> OpenResponse {
    put_open_head(out, status, meta);
    let length_at = if status.has_body() {
        // Last, so that setting it moves nothing but itself and the body.
        out.extend_from_slice(LENGTH);
        Some(out.len() - LENGTH_DIGITS - b"\r\n\r\n".len())
    } else {
        out.extend_from_slice(b"\r\n"); // RFC 9110 §8.6: no Content-Length in a 204
        None
    };
    OpenResponse {
        length_at,
        body_at: out.len(),
        head_only: meta.head_only,
    }
}

/// Writes a head without the empty line that ends it.
pub(super) fn put_open_head(out: &mut Vec<u8>, status: Status, meta: &Meta<'_>) {
    out.extend_from_slice(status.template(meta.connection));
    out.extend_from_slice(meta.date.text());
    out.extend_from_slice(if status.has_body() {
        meta.content_type.lines()
    } else {
        b"\r\n"
    });
    put_extra_lines(out, meta);
}

/// The lines that only some answers have.
pub(super) fn put_extra_lines(out: &mut Vec<u8>, meta: &Meta<'_>) {
    if let Some(seconds) = meta.retry_after_s {
        put_number(out, b"Retry-After: ", seconds);
    }
    if let Some(methods) = meta.allow {
        put_line(out, b"Allow: ", methods.as_bytes());
    }
    if let Some(quota) = &meta.quota {
        quota.write(out);
    }
    if let Some(origin) = meta.cors_origin {
        put_line(out, b"Access-Control-Allow-Origin: ", origin);
        out.extend_from_slice(b"Access-Control-Expose-Headers: Retry-After, RateLimit, RateLimit-Policy\r\nVary: Origin\r\n");
    }
}

impl OpenResponse {
    /// Ends the answer: sets Content-Length to what was appended since `begin`, then drops the body if it must not be sent.
    pub fn finish(self, out: &mut Vec<u8>) {
        let body_bytes = out.len() - self.body_at;
        let Some(length_at) = self.length_at else {
            out.truncate(self.body_at);
            return;
        };
        if self.head_only {
            out.truncate(self.body_at); // RFC 9110 §9.3.2: the length stays
        }
        let (digits, first) = decimal(body_bytes as u64);
        let digits = &digits[first..];
        let tail = length_at + LENGTH_DIGITS..out.len();
        let tail_to = length_at + digits.len();
        if tail_to > tail.start {
            out.resize(out.len() + (tail_to - tail.start), 0);
        }
        if tail_to != tail.start {
            let end = tail_to + tail.len();
            out.copy_within(tail, tail_to);
            out.truncate(end);
        }
        out[length_at..tail_to].copy_from_slice(digits);
    }
}

/// A whole answer whose body is at hand.
pub fn write(out: &mut Vec<u8>, status: Status, meta: &Meta<'_>, body: &[u8]) {
    let open = begin(out, status, meta);
    out.extend_from_slice(body);
    open.finish(out);
}

/// Appends a header line.
pub(super) fn put_line(out: &mut Vec<u8>, name_and_colon: &[u8], value: &[u8]) {
    out.extend_from_slice(name_and_colon);
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

pub(super) fn put_number(out: &mut Vec<u8>, name_and_colon: &[u8], value: u32) {
    let (digits, first) = decimal(u64::from(value));
    put_line(out, name_and_colon, &digits[first..]);
}

/// The decimal digits of `value` at the end of the array, and where they start.
pub(super) fn decimal(mut value: u64) -> ([u8; 20], usize) {
    let mut digits = [b'0'; 20];
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            return (digits, first);
        }
    }
}
