//! HTTP/1.1 by hand: a strict resumable request parser, and responses from prebuilt heads.
//!
//! Called by weir-core for each connection's bytes, by weir-bench and the ops listener. Invariants: no allocation and no
//! copy while parsing (slices into the input), every byte of a head looked at once however it arrives, every refusal
//! final. Texts: RFC 9110 and RFC 9112, read at their strictest; `proto/tests/http_vectors.rs` holds us to 475 cases.

mod chunked;
mod class;
pub mod cors;
mod cursor;
pub mod date;
mod facts;
mod field;
pub mod letter;
mod parser;
pub mod quota;
mod reject;
pub mod response;
mod target;

pub use chunked::{ChunkedBody, Pieces};
pub use field::Field;
pub use parser::{Parsed, RequestParser};
pub use reject::HttpReject;

use crate::limits::BODY_BYTES_MAX;
use core::fmt;
use facts::{Kept, Lines};
use field::{Framing, Name};

/// A method that a resource may have; TRACE, CONNECT and unknown ones never reach a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Method {
    /// Read.
    #[default]
    Get,
    /// Read, but send the head only.
    Head,
    /// Submit.
    Post,
    /// Ask what is allowed; the preflight of CORS.
    Options,
    /// Known, so that a resource can answer 405 instead of 501.
    Put,
    /// As `Put`.
    Patch,
    /// As `Put`.
    Delete,
}

impl Method {
    /// The method's token.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Options => "OPTIONS",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}

/// The version a request was sent in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0: closes unless asked to stay, knows no chunks and no 100.
    Http10,
    /// HTTP/1.1.
    #[default]
    Http11,
}

/// What becomes of the connection after an answer (RFC 9112 §9.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connection {
    /// Stays open, which HTTP/1.1 assumes: no header says so.
    Keep,
    /// Stays open and says so: HTTP/1.0 would close.
    KeepNamed,
    /// Closes after this answer, and says so.
    Close,
}

/// One complete request; every slice lies in the parser's input.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The method.
    pub method: Method,
    /// The path as sent (nothing decoded), without its query; `*` for OPTIONS of the whole server.
    pub path: &'a [u8],
    /// What follows the question mark, when there is one.
    pub query: Option<&'a [u8]>,
    /// The version of the request line.
    pub version: Version,
    /// False when no further request may be read from this connection.
    pub keep_alive: bool,
    /// The body; empty when none was announced.
    pub body: Body<'a>,
    input: &'a [u8],
    kept: Kept,
}

impl<'a> Request<'a> {
    /// The value of a kept field, blanks around it dropped; `None` when the request has no such line.
    pub fn field(&self, field: Field) -> Option<&'a [u8]> {
        self.kept.field(field).map(|span| span.of(self.input))
    }

    /// The values of all `Forwarded` lines in the order of the head (RFC 7239 §4: they are one list).
    pub fn forwarded(&self) -> FieldLines<'a> {
        FieldLines::new(self.input, self.kept.forwarded, Framing::Forwarded)
    }

    /// The values of all `X-Forwarded-For` lines in the order of the head: they are one list.
    pub fn x_forwarded_for(&self) -> FieldLines<'a> {
        FieldLines::new(
            self.input,
            self.kept.x_forwarded_for,
            Framing::XForwardedFor,
        )
    }

    /// What the answer must say about the connection, unless the server itself wants to close.
    pub fn connection(&self) -> Connection {
        match (self.keep_alive, self.version) {
            (false, _) => Connection::Close,
            (true, Version::Http10) => Connection::KeepNamed,
            (true, Version::Http11) => Connection::Keep,
        }
    }
}

/// Shows neither path, query, fields nor body: they hold tickets and ids.
impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("method", &self.method)
            .field("path_bytes", &self.path.len())
            .field("version", &self.version)
            .field("keep_alive", &self.keep_alive)
            .field("body", &self.body)
            .finish_non_exhaustive()
    }
}

/// A request's body, 0..=`BODY_BYTES_MAX` bytes when decoded.
#[derive(Clone, Copy)]
pub enum Body<'a> {
    /// Announced by Content-Length, or absent: the bytes as they are.
    Whole(&'a [u8]),
    /// Announced by `Transfer-Encoding: chunked`.
    Chunked(ChunkedBody<'a>),
}

impl<'a> Body<'a> {
    /// The decoded length in bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Whole(bytes) => bytes.len(),
            Self::Chunked(chunked) => chunked.decoded_bytes(),
        }
    }

    /// True when there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The decoded body in one piece; `scratch` is written only when chunks have to be joined.
    pub fn in_one<'b>(&self, scratch: &'b mut [u8; BODY_BYTES_MAX]) -> &'b [u8]
    where
        'a: 'b,
    {
        let chunked = match self {
            Self::Whole(bytes) => return bytes,
            Self::Chunked(chunked) => chunked,
        };
        let mut filled = 0;
        for piece in chunked.pieces() {
            scratch[filled..filled + piece.len()].copy_from_slice(piece); // the parser held the sum to the limit
            filled += piece.len();
        }
        &scratch[..filled]
    }
}

/// Shows lengths only.
impl fmt::Debug for Body<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(bytes) => write!(f, "Whole({} bytes)", bytes.len()),
            Self::Chunked(chunked) => fmt::Debug::fmt(chunked, f),
        }
    }
}

/// The values of all lines of one name, in order, from a head that was already checked.
#[derive(Clone)]
pub struct FieldLines<'a> {
    rest: &'a [u8],
    name: Framing,
}

impl<'a> FieldLines<'a> {
    fn new(input: &'a [u8], lines: Lines, name: Framing) -> Self {
        Self {
            rest: lines.of(input),
            name,
        }
    }

    /// The value of `line` (without CRLF) when it has the name.
    fn value(&self, line: &'a [u8]) -> Option<&'a [u8]> {
        let (name, value) = field::split(line, line.len(), false).ok()?;
        (name == Name::Framing(self.name)).then(|| &line[value])
    }
}

impl<'a> Iterator for FieldLines<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        while let Some(line_feed) = memchr::memchr(b'\n', self.rest) {
            let (line, rest) = self.rest.split_at(line_feed + 1);
            self.rest = rest;
            if let Some(value) = self.value(&line[..line.len() - 2]) {
                return Some(value);
            }
        }
        None
    }
}

/// From the back, because the hop that is nearest to us is the last one.
impl<'a> DoubleEndedIterator for FieldLines<'a> {
    fn next_back(&mut self) -> Option<&'a [u8]> {
        while let Some(line) = self.rest.strip_suffix(b"\r\n") {
            let start = memchr::memrchr(b'\n', line).map_or(0, |line_feed| line_feed + 1);
            self.rest = &self.rest[..start];
            if let Some(value) = self.value(&line[start..]) {
                return Some(value);
            }
        }
        None
    }
}

/// Secrets stay out: shows how many bytes are left to walk.
impl fmt::Debug for FieldLines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FieldLines({} bytes)", self.rest.len())
    }
}
