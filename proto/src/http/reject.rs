//! What breach of HTTP a request is refused for, the row of the table of reasons it ends in, and what to send instead.
//!
//! Made by the parser only. Finer than `Reason`, so that vectors and clients learn which rule was broken. After any of
//! them the caller sends one answer with `Connection: close` and reads nothing more as HTTP: where the next request
//! begins is no longer certain.

use super::response::Status;
use crate::answer::Reason;

macro_rules! rejects {
    ($($(#[$doc:meta])* $name:ident = $reason:ident, $detail:literal;)*) => {
        /// A refusal of bytes, before any resource is looked at.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum HttpReject { $($(#[$doc])* $name,)* }

        impl HttpReject {
            /// Every breach.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The row of the one answer: status, code, metric.
            pub const fn reason(self) -> Reason {
                match self { $(Self::$name => Reason::$reason,)* }
            }

            /// What to send instead, one English sentence for the answer's `detail`; repeats no byte of the request.
            pub const fn detail(self) -> &'static str {
                match self { $(Self::$name => $detail,)* }
            }
        }
    };
}

impl HttpReject {
    /// The status of the one answer.
    pub fn status(self) -> Status {
        Status::of(self.reason())
    }
}

rejects! {
    /// Not `method SP target SP version` (RFC 9112 §3).
    RequestLine = HttpTarget, "The request line must be a method, one space, a target, one space and HTTP/1.1.";
    /// A target that is neither a path, nor a URL of this Host, nor `*` with OPTIONS (RFC 9112 §3.2).
    Target = HttpTarget, "The request target must be a path that starts with a slash, or a full http URL of the same Host.";
    /// Not of the form `HTTP/1.1` (RFC 9112 §2.3).
    Version = HttpTarget, "The request line must end with HTTP/1.1.";
    /// A version other than 1.0 and 1.1 (RFC 9110 §15.6.6).
    VersionUnsupported = HttpVersion, "Only HTTP/1.1 and HTTP/1.0 are spoken here.";
    /// A token that is no method we know (RFC 9110 §9.1).
    MethodUnknown = HttpMethodUnknown, "This method is not known here; use GET, HEAD, POST or OPTIONS.";
    /// TRACE or CONNECT: never served, whatever the target (RFC 9110 §9.3.6, §9.3.8).
    MethodRefused = MethodNotAllowed, "TRACE and CONNECT are not served; use GET, HEAD, POST or OPTIONS.";
    /// LF without CR, or an empty line too many before the request (RFC 9112 §2.2).
    LineEnd = HttpSyntax, "Every line must end with CR LF.";
    /// A line without a name, with a byte outside a token in it, or folded (RFC 9112 §5.1, §5.2).
    FieldName = HttpHeader, "A header line must be a name, a colon and a value on one line, without a space before the colon.";
    /// A control byte in a value (RFC 9110 §5.5).
    FieldValue = HttpHeader, "A header value must not hold control characters.";
    /// A field that has one value came twice.
    FieldRepeated = HttpHeader, "A header that takes one value was sent more than once.";
    /// No Host, two of them, or one that is no `host[:port]` (RFC 9112 §3.2).
    Host = HttpHost, "Exactly one Host header with a host name or address and at most one port is needed.";
    /// Not digits only, or sent twice (RFC 9112 §6.3 rule 5).
    ContentLength = HttpLength, "Content-Length must be one number in digits, sent once.";
    /// Anything but `chunked` once, or any of it in HTTP/1.0 (RFC 9112 §6.1).
    TransferEncoding = HttpTransferEncoding, "Transfer-Encoding must be exactly chunked, once, and only in HTTP/1.1.";
    /// One well-formed coding other than `chunked` (RFC 9112 §6.1).
    CodingUnknown = HttpCodingUnknown, "The only transfer coding known here is chunked.";
    /// Both lengths at once: the way requests are smuggled (RFC 9112 §6.1).
    FramingConflict = HttpLength, "Content-Length and Transfer-Encoding must not be sent together.";
    /// A chunk whose size, extension or end is malformed or over its limit (RFC 9112 §7.1).
    Chunk = HttpChunk, "The chunked body is malformed.";
    /// An expectation other than `100-continue` (RFC 9110 §10.1.1).
    Expectation = HttpExpectation, "The only expectation met here is 100-continue.";
    /// The request line is over its limit.
    RequestLineTooLong = HttpTargetTooLong, "The request line is too long; at most 4096 bytes are read.";
    /// The head or the trailers are over their limit of bytes or lines (RFC 6585 §5).
    HeadTooLarge = HttpHeadTooLarge, "The headers are too large; at most 64 lines and 16384 bytes are read.";
    /// The body is over its limit.
    BodyTooLarge = HttpBodyTooLarge, "The body is too large; at most 8192 bytes are read.";
}
