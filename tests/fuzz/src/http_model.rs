//! A slow, obvious reader of requests: whole lines, copies everywhere, one rule after the other as RFC 9112 and
//! ARCHITECTURE's limits give them. It knows nothing of resuming: it is asked again with all the bytes.

use weir_proto::http::{Field, HttpReject};
use weir_proto::limits::*;

/// What a reader made of the bytes at the start of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    Done(Facts),
    NeedMore,
    Reject(HttpReject),
}

/// All that a handler can learn of one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    pub method: String,
    pub minor: u8,
    pub path: Vec<u8>,
    pub query: Option<Vec<u8>>,
    pub keep_alive: bool,
    pub fields: Vec<Option<Vec<u8>>>,
    pub forwarded: Vec<Vec<u8>>,
    pub x_forwarded_for: Vec<Vec<u8>>,
    pub body: Vec<u8>,
    pub consumed: usize,
}

/// The fields that a request keeps, with their names on the wire.
pub const KEPT: [(Field, &str); Field::COUNT] = [
    (Field::Host, "host"),
    (Field::Authorization, "authorization"),
    (Field::ContentType, "content-type"),
    (Field::IdempotencyKey, "idempotency-key"),
    (Field::Device, "x-weir-device"),
    (Field::AcceptLanguage, "accept-language"),
    (Field::Origin, "origin"),
    (
        Field::AccessControlRequestMethod,
        "access-control-request-method",
    ),
    (
        Field::AccessControlRequestHeaders,
        "access-control-request-headers",
    ),
    (Field::Signature, "x-weir-signature"),
];

const LISTS: [&str; 2] = ["accept-language", "access-control-request-headers"];
const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "OPTIONS", "PUT", "PATCH", "DELETE"];

/// The first message of `input`.
pub fn read(input: &[u8]) -> Seen {
    match message(input) {
        Ok(Some(facts)) => Seen::Done(facts),
        Ok(None) => Seen::NeedMore,
        Err(reject) => Seen::Reject(reject),
    }
}

type Line<'a> = Option<(&'a [u8], usize)>;

/// The line from `from` on without its CRLF, and where the next one begins.
fn line(
    input: &[u8],
    from: usize,
    end_max: usize,
    too_long: HttpReject,
) -> Result<Line<'_>, HttpReject> {
    match input
        .iter()
        .skip(from)
        .position(|&byte| byte == b'\n')
        .map(|at| from + at)
    {
        Some(end) if end < end_max => match input[from..end].strip_suffix(b"\r") {
            Some(line) => Ok(Some((line, end + 1))),
            None => Err(HttpReject::LineEnd),
        },
        _ if input.len() >= end_max => Err(too_long),
        _ => Ok(None),
    }
}

pub fn is_token(text: &[u8]) -> bool {
    !text.is_empty()
        && text
            .iter()
            .all(|&b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

pub fn trim(text: &[u8]) -> &[u8] {
    let blank = |b: &u8| *b == b' ' || *b == b'\t';
    let start = text.iter().position(|b| !blank(b)).unwrap_or(text.len());
    let end = text
        .iter()
        .rposition(|b| !blank(b))
        .map_or(start, |at| at + 1);
    &text[start..end]
}

fn message(input: &[u8]) -> Result<Option<Facts>, HttpReject> {
    let start = if input.starts_with(b"\r\n") { 2 } else { 0 };
    match input.get(start) {
        None => return Ok(None),
        Some(b'\r') if input.len() == 1 => return Ok(None),
        Some(b'\r' | b'\n') => return Err(HttpReject::LineEnd),
        Some(&byte) if !is_token(&[byte]) => return Err(HttpReject::RequestLine),
        Some(_) => {}
    }
    let end_max = start + REQUEST_LINE_BYTES_MAX + 2;
    let Some((first, mut at)) = line(input, start, end_max, HttpReject::RequestLineTooLong)? else {
        return Ok(None);
    };
    let mut head = Head::of_line(first)?;
    let mut lines_count = 0;
    loop {
        let end_max = start + HEAD_BYTES_MAX;
        let Some((text, next)) = line(input, at, end_max, HttpReject::HeadTooLarge)? else {
            return Ok(None);
        };
        at = next;
        if text.is_empty() {
            break;
        }
        lines_count += 1;
        if lines_count > HEADER_LINES_MAX {
            return Err(HttpReject::HeadTooLarge);
        }
        head.add(text)?;
    }
    head.judge()?;
    let body = if head.chunked {
        chunked(input, at)?
    } else {
        sized(input, at, head.length.unwrap_or(0))
    };
    Ok(body.map(|(body, consumed)| head.facts(body, consumed)))
}

/// A head as text: every line that was read, and what it said about the body.
#[derive(Default)]
struct Head {
    method: String,
    minor: u8,
    authority: Option<Vec<u8>>,
    path: Vec<u8>,
    query: Option<Vec<u8>>,
    lines: Vec<(String, Vec<u8>)>,
    length: Option<usize>,
    chunked: bool,
    expects_other: bool,
}

impl Head {
    fn of_line(line: &[u8]) -> Result<Self, HttpReject> {
        let method_bytes = line
            .iter()
            .position(|&b| !is_token(&[b]))
            .unwrap_or(line.len());
        let (method, rest) = line.split_at(method_bytes);
        // One space, at least one byte of target, one space, eight bytes of version.
        if rest.first() != Some(&b' ') || rest.len() < 1 + 1 + 1 + 8 {
            return Err(HttpReject::RequestLine);
        }
        let (rest, version) = rest.split_at(rest.len() - 8);
        let minor = match version {
            b"HTTP/1.1" => 1,
            b"HTTP/1.0" => 0,
            _ => {
                let digit = |at: usize| version[at].is_ascii_digit();
                let named = version.starts_with(b"HTTP/") && version[6] == b'.';
                let known = named && digit(5) && digit(7);
                return Err(if known {
                    HttpReject::VersionUnsupported
                } else {
                    HttpReject::Version
                });
            }
        };
        let target = &rest[1..];
        let Some(target) = target.strip_suffix(b" ") else {
            return Err(HttpReject::Version);
        };
        let method = String::from_utf8_lossy(method).into_owned();
        if matches!(method.as_str(), "TRACE" | "CONNECT") {
            return Err(HttpReject::MethodRefused);
        }
        if !METHODS.contains(&method.as_str()) {
            let four_words = target.contains(&b' ');
            return Err(if four_words {
                HttpReject::RequestLine
            } else {
                HttpReject::MethodUnknown
            });
        }
        let (authority, path, query) = target_parts(target, &method).ok_or(HttpReject::Target)?;
        Ok(Self {
            method,
            minor,
            authority,
            path,
            query,
            ..Self::default()
        })
    }

    fn add(&mut self, line: &[u8]) -> Result<(), HttpReject> {
        let (name, value) = field(line)?;
        match name.as_str() {
            "host" if self.value("host").is_some() || !is_host(&value) => {
                return Err(HttpReject::Host);
            }
            "content-length" => {
                let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
                if !digits || self.length.is_some() {
                    return Err(HttpReject::ContentLength);
                }
                let text = String::from_utf8_lossy(&value).into_owned();
                self.length = Some(text.parse().unwrap_or(usize::MAX));
            }
            "transfer-encoding" => {
                if self.minor == 0 || self.chunked {
                    return Err(HttpReject::TransferEncoding);
                }
                if !value.eq_ignore_ascii_case(b"chunked") {
                    let coding = is_token(&value);
                    return Err(if coding {
                        HttpReject::CodingUnknown
                    } else {
                        HttpReject::TransferEncoding
                    });
                }
                self.chunked = true;
            }
            "expect" if self.minor == 1 => {
                self.expects_other |= !value.eq_ignore_ascii_case(b"100-continue");
            }
            other => {
                let kept = KEPT.iter().any(|(_, kept)| *kept == other);
                if kept && !LISTS.contains(&other) && self.value(other).is_some() {
                    return Err(HttpReject::FieldRepeated);
                }
            }
        }
        self.lines.push((name, value));
        Ok(())
    }

    fn value(&self, name: &str) -> Option<&Vec<u8>> {
        self.lines
            .iter()
            .find(|(line, _)| line == name)
            .map(|(_, value)| value)
    }

    fn judge(&self) -> Result<(), HttpReject> {
        let host = self.value("host");
        if host.is_none() && self.minor == 1 {
            return Err(HttpReject::Host);
        }
        if let Some(authority) = &self.authority
            && !host.is_some_and(|host| host.eq_ignore_ascii_case(authority))
        {
            return Err(HttpReject::Host);
        }
        if self.chunked && self.length.is_some() {
            return Err(HttpReject::FramingConflict);
        }
        if self.length.unwrap_or(0) > BODY_BYTES_MAX {
            return Err(HttpReject::BodyTooLarge);
        }
        if self.expects_other {
            return Err(HttpReject::Expectation);
        }
        Ok(())
    }

    fn facts(self, body: Vec<u8>, consumed: usize) -> Facts {
        facts(
            &self.method,
            self.minor,
            (self.path, self.query),
            &self.lines,
            body,
            consumed,
        )
    }
}

/// What the lines of a head mean to a handler; also used for the lines that httparse found.
pub fn facts(
    method: &str,
    minor: u8,
    (path, query): (Vec<u8>, Option<Vec<u8>>),
    lines: &[(String, Vec<u8>)],
    body: Vec<u8>,
    consumed: usize,
) -> Facts {
    let all = |name: &str| -> Vec<Vec<u8>> {
        lines
            .iter()
            .filter(|(line, _)| line == name)
            .map(|(_, value)| value.clone())
            .collect()
    };
    let options = all("connection").join(&b","[..]);
    let says = |word: &[u8]| {
        options
            .split(|&b| b == b',')
            .any(|o| trim(o).eq_ignore_ascii_case(word))
    };
    Facts {
        method: method.to_owned(),
        minor,
        path: if path.is_empty() { b"/".to_vec() } else { path },
        query,
        keep_alive: !says(b"close") && (minor == 1 || says(b"keep-alive")),
        fields: KEPT
            .iter()
            .map(|(_, name)| all(name).into_iter().next())
            .collect(),
        forwarded: all("forwarded"),
        x_forwarded_for: all("x-forwarded-for"),
        body,
        consumed,
    }
}

/// One header line: its name in lower case and its value.
fn field(line: &[u8]) -> Result<(String, Vec<u8>), HttpReject> {
    let colon = line
        .iter()
        .position(|&b| b == b':')
        .ok_or(HttpReject::FieldName)?;
    let (name, value) = (&line[..colon], trim(&line[colon + 1..]));
    if !is_token(name) {
        return Err(HttpReject::FieldName);
    }
    if value.iter().any(|&b| (b < b' ' && b != b'\t') || b == 0x7f) {
        return Err(HttpReject::FieldValue);
    }
    Ok((
        String::from_utf8_lossy(name).to_ascii_lowercase(),
        value.to_vec(),
    ))
}

type Target = (Option<Vec<u8>>, Vec<u8>, Option<Vec<u8>>);

/// Authority, path and query of a target (RFC 9112 §3.2).
pub fn target_parts(target: &[u8], method: &str) -> Option<Target> {
    if target == b"*" && method == "OPTIONS" {
        return Some((None, b"*".to_vec(), None));
    }
    let lower = target.to_ascii_lowercase();
    let scheme = ["http://", "https://"]
        .iter()
        .find(|scheme| lower.starts_with(scheme.as_bytes()));
    let (authority, rest) = match scheme {
        None if target.starts_with(b"/") => (None, target),
        None => return None,
        Some(scheme) => {
            let rest = &target[scheme.len()..];
            let end = rest
                .iter()
                .position(|b| b"/?".contains(b))
                .unwrap_or(rest.len());
            if !is_host(&rest[..end]) {
                return None;
            }
            (Some(rest[..end].to_vec()), &rest[end..])
        }
    };
    let (path, query) = match rest.iter().position(|&b| b == b'?') {
        None => (rest, None),
        Some(at) => (&rest[..at], Some(&rest[at + 1..])),
    };
    let pchars = |text: &[u8], more: &[u8]| {
        let plain = |b: &u8| {
            b.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/%".contains(b) || more.contains(b)
        };
        let escaped = |at: usize| {
            let digits = text.get(at + 1..at + 3);
            digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
        };
        text.iter().all(plain) && (0..text.len()).filter(|&at| text[at] == b'%').all(escaped)
    };
    let good = pchars(path, b"") && query.is_none_or(|query| pchars(query, b"?"));
    good.then(|| (authority, path.to_vec(), query.map(<[u8]>::to_vec)))
}

fn is_host(value: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(value) else {
        return false;
    };
    let (host_ok, port) = if let Some(rest) = text.strip_prefix('[') {
        let Some((literal, rest)) = rest.split_once(']') else {
            return false;
        };
        (literal.parse::<std::net::Ipv6Addr>().is_ok(), rest)
    } else {
        let end = text.find(':').unwrap_or(text.len());
        let name = &text[..end];
        let name = name.strip_suffix('.').unwrap_or(name);
        let label = |label: &str| {
            !label.is_empty()
                && label
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        };
        (name.split('.').all(label), &text[end..])
    };
    let port_ok = match port.strip_prefix(':') {
        None => port.is_empty(),
        Some("") => true,
        Some(digits) => {
            digits.len() <= 5
                && digits.bytes().all(|b| b.is_ascii_digit())
                && digits.parse::<u32>().is_ok_and(|port| port <= 65535)
        }
    };
    host_ok && port_ok
}

type Read = Option<(Vec<u8>, usize)>;

/// A body of known length and where it ends.
pub fn sized(input: &[u8], at: usize, length: usize) -> Read {
    let end = at + length;
    (input.len() >= end).then(|| (input[at..end].to_vec(), end))
}

/// A chunked body (RFC 9112 §7.1), decoded, and where its trailers end.
pub fn chunked(input: &[u8], start: usize) -> Result<Read, HttpReject> {
    let (mut at, mut body, mut extension_bytes) = (start, Vec::new(), 0);
    loop {
        let Some((text, next)) = line(input, at, at + CHUNK_LINE_BYTES_MAX, HttpReject::Chunk)?
        else {
            return Ok(None);
        };
        let digits = text.iter().take_while(|b| b.is_ascii_hexdigit()).count();
        let (size, extension) = text.split_at(digits);
        extension_bytes += extension.len();
        if digits == 0
            || digits > CHUNK_SIZE_DIGITS_MAX
            || extension.len() > CHUNK_EXTENSION_BYTES_MAX
            || extension_bytes > CHUNK_EXTENSION_BYTES_SUM_MAX
            || !is_extension(extension)
        {
            return Err(HttpReject::Chunk);
        }
        let size = u128::from_str_radix(&String::from_utf8_lossy(size), 16)
            .map_err(|_| HttpReject::Chunk)?;
        let wire = (next - start) as u128 + size + 2;
        if body.len() as u128 + size > BODY_BYTES_MAX as u128
            || wire > CHUNKED_WIRE_BYTES_MAX as u128
        {
            return Err(HttpReject::BodyTooLarge);
        }
        if size == 0 {
            return Ok(trailers(input, next)?.map(|end| (body, end)));
        }
        let end = next + size as usize;
        for (place, wanted) in [(end, b'\r'), (end + 1, b'\n')] {
            match input.get(place) {
                None => return Ok(None),
                Some(&byte) if byte != wanted => return Err(HttpReject::Chunk),
                Some(_) => {}
            }
        }
        body.extend_from_slice(&input[next..end]);
        at = end + 2;
    }
}

fn trailers(input: &[u8], start: usize) -> Result<Option<usize>, HttpReject> {
    let (mut at, mut count) = (start, 0);
    loop {
        let Some((text, next)) = line(
            input,
            at,
            start + TRAILER_BYTES_MAX,
            HttpReject::HeadTooLarge,
        )?
        else {
            return Ok(None);
        };
        if text.is_empty() {
            return Ok(Some(next));
        }
        count += 1;
        if count > TRAILER_LINES_MAX {
            return Err(HttpReject::HeadTooLarge);
        }
        field(text).map_err(|_| HttpReject::Chunk)?;
        at = next;
    }
}

/// RFC 9112 §7.1.1 without blanks, one character after the other.
fn is_extension(text: &[u8]) -> bool {
    #[derive(Clone, Copy, PartialEq)]
    enum At {
        End,
        NameStart,
        Name,
        ValueStart,
        Value,
        Quoted,
        Escaped,
    }
    let quotable = |b: u8| b == b'\t' || (b >= b' ' && b != 0x7f);
    let mut at = At::End;
    for &byte in text {
        let token = is_token(&[byte]);
        at = match (at, byte) {
            (At::End | At::Name | At::Value, b';') => At::NameStart,
            (At::NameStart | At::Name, _) if token => At::Name,
            (At::Name, b'=') => At::ValueStart,
            (At::ValueStart, b'"') => At::Quoted,
            (At::ValueStart | At::Value, _) if token => At::Value,
            (At::Quoted, b'"') => At::End,
            (At::Quoted, b'\\') => At::Escaped,
            (At::Quoted, _) | (At::Escaped, _) if quotable(byte) => At::Quoted,
            _ => return false,
        };
    }
    matches!(at, At::End | At::Name | At::Value)
}
