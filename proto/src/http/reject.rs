//! Why a request's bytes are refused: one row per reason, with its status and a sentence for the client.
//!
//! Made by the parser (`Deadline` by the connection's owner). After any of them the caller sends one answer with
//! `Connection: close` and reads nothing more as HTTP: where the next request begins is no longer certain.

use super::response::Status;

macro_rules! rejects {
    ($($(#[$doc:meta])* $name:ident = $status:ident, $label:literal, $message:literal;)*) => {
        /// A refusal of bytes, before any resource is looked at.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum HttpReject { $($(#[$doc])* $name,)* }

        impl HttpReject {
            /// Every reason, for tables of metrics.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The status of the one answer.
            pub const fn status(self) -> Status {
                match self { $(Self::$name => Status::$status,)* }
            }

            /// The reason's name in metrics and logs, `snake_case`.
            pub const fn label(self) -> &'static str {
                match self { $(Self::$name => $label,)* }
            }

            /// What is wrong and what to send instead, one English sentence; repeats no byte of the request.
            pub const fn message(self) -> &'static str {
                match self { $(Self::$name => $message,)* }
            }
        }
    };
}

rejects! {
    /// Not `method SP target SP version` (RFC 9112 §3).
    RequestLine = BadRequest, "request_line", "The request line must be a method, one space, a target, one space and HTTP/1.1.";
    /// A target that is neither a path, nor a URL of this Host, nor `*` with OPTIONS (RFC 9112 §3.2).
    Target = BadRequest, "target", "The request target must be a path that starts with a slash, or a full http URL of the same Host.";
    /// Not of the form `HTTP/1.1` (RFC 9112 §2.3).
    Version = BadRequest, "version", "The request line must end with HTTP/1.1.";
    /// A version other than 1.0 and 1.1 (RFC 9110 §15.6.6).
    VersionUnsupported = VersionNotSupported, "version_unsupported", "Only HTTP/1.1 and HTTP/1.0 are spoken here.";
    /// A token that is no method we know (RFC 9110 §9.1).
    MethodUnknown = NotImplemented, "method_unknown", "This method is not known here; use GET, HEAD, POST or OPTIONS.";
    /// TRACE or CONNECT: never served, whatever the target (RFC 9110 §9.3.6, §9.3.8).
    MethodRefused = MethodNotAllowed, "method_refused", "TRACE and CONNECT are not served; use GET, HEAD, POST or OPTIONS.";
    /// LF without CR, or an empty line too many before the request (RFC 9112 §2.2).
    LineEnd = BadRequest, "line_end", "Every line must end with CR LF.";
    /// A line without a name, with a byte outside a token in it, or folded (RFC 9112 §5.1, §5.2).
    FieldName = BadRequest, "field_name", "A header line must be a name, a colon and a value on one line, without a space before the colon.";
    /// A control byte in a value (RFC 9110 §5.5).
    FieldValue = BadRequest, "field_value", "A header value must not hold control characters.";
    /// A field that has one value came twice.
    FieldRepeated = BadRequest, "field_repeated", "A header that takes one value was sent more than once.";
    /// No Host, two of them, or one that is no `host[:port]` (RFC 9112 §3.2).
    Host = BadRequest, "host", "Exactly one Host header with a host name or address and at most one port is needed.";
    /// Not digits only, or sent twice (RFC 9112 §6.3 rule 5).
    ContentLength = BadRequest, "content_length", "Content-Length must be one number in digits, sent once.";
    /// Anything but `chunked` once, or any of it in HTTP/1.0 (RFC 9112 §6.1).
    TransferEncoding = BadRequest, "transfer_encoding", "Transfer-Encoding must be exactly chunked, once, and only in HTTP/1.1.";
    /// One well-formed coding other than `chunked` (RFC 9112 §6.1).
    CodingUnknown = NotImplemented, "coding_unknown", "The only transfer coding known here is chunked.";
    /// Both lengths at once: the way requests are smuggled (RFC 9112 §6.1).
    FramingConflict = BadRequest, "framing_conflict", "Content-Length and Transfer-Encoding must not be sent together.";
    /// A chunk whose size, extension or end is malformed or over its limit (RFC 9112 §7.1).
    Chunk = BadRequest, "chunk", "The chunked body is malformed.";
    /// An expectation other than `100-continue` (RFC 9110 §10.1.1).
    Expectation = ExpectationFailed, "expectation", "The only expectation met here is 100-continue.";
    /// The request line is over its limit.
    RequestLineTooLong = UriTooLong, "request_line_too_long", "The request line is too long; at most 4096 bytes are read.";
    /// The head or the trailers are over their limit of bytes or lines (RFC 6585 §5).
    HeadTooLarge = HeaderFieldsTooLarge, "head_too_large", "The headers are too large; at most 64 lines and 16384 bytes are read.";
    /// The body is over its limit.
    BodyTooLarge = ContentTooLarge, "body_too_large", "The body is too large; at most 8192 bytes are read.";
    /// The request did not arrive in time. Never from the parser: for the owner of the connection's deadlines.
    Deadline = RequestTimeout, "deadline", "The request did not arrive in time.";
}
