//! weir's request parser against httparse and against a slow model, whole and in pieces.
//!
//! What weir accepts, httparse accepts and reads alike, and a body is what the chunk model decodes. What weir refuses is
//! what the model refuses, with the same breach. What weir refuses and httparse would take is in [`STRICTER`].

use super::http_model::{self, Facts, KEPT, Seen};
use super::{Checked, same, seed_of};
use weir_proto::http::{HttpReject, Parsed, RequestParser, Version};
use weir_proto::limits::BODY_BYTES_MAX;

/// Where weir refuses a head that httparse takes: the breach and the text it breaks. README's table has a row for each.
pub const STRICTER: [(HttpReject, &str); 12] = [
    (HttpReject::Target, "RFC 9112 §3.2"),
    (HttpReject::MethodUnknown, "RFC 9110 §9.1"),
    (HttpReject::MethodRefused, "RFC 9110 §9.3.6, §9.3.8"),
    (HttpReject::LineEnd, "RFC 9112 §2.2"),
    (HttpReject::FieldRepeated, "RFC 9110 §5.3"),
    (HttpReject::Host, "RFC 9112 §3.2"),
    (HttpReject::ContentLength, "RFC 9112 §6.3"),
    (HttpReject::TransferEncoding, "RFC 9112 §6.1"),
    (HttpReject::CodingUnknown, "RFC 9112 §6.1"),
    (HttpReject::FramingConflict, "RFC 9112 §6.1"),
    (HttpReject::Expectation, "RFC 9110 §10.1.1"),
    (HttpReject::RequestLineTooLong, "RFC 9112 §3"),
];

/// Limits and bodies: httparse reads heads only and has no limit of bytes.
const BEYOND_HTTPARSE: [HttpReject; 3] = [
    HttpReject::HeadTooLarge,
    HttpReject::BodyTooLarge,
    HttpReject::Chunk,
];

/// Longest input that is also fed byte by byte.
const BYTEWISE_BYTES_MAX: usize = 1024;
const CUTS: usize = 6;

/// Checks `data` as the bytes of one connection.
pub fn check(data: &[u8]) -> Checked {
    let whole = story(data, &[data.len()]);
    let mut start = 0;
    for seen in &whole {
        let rest = &data[start..];
        same("verdict", seen, &http_model::read(rest))?;
        match seen {
            Seen::Done(facts) => {
                against_httparse(facts, rest)?;
                start += facts.consumed;
            }
            Seen::Reject(reject) => refused(*reject, rest)?,
            Seen::NeedMore => waiting(rest)?,
        }
    }
    let mut seed = seed_of(data);
    for _ in 0..2 {
        let mut cuts: Vec<usize> = (0..CUTS)
            .map(|_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (seed >> 33) as usize % (data.len() + 1)
            })
            .collect();
        cuts.sort_unstable();
        cuts.push(data.len());
        same("cut", &story(data, &cuts), &whole)?;
    }
    if data.len() <= BYTEWISE_BYTES_MAX {
        let cuts: Vec<usize> = (0..=data.len()).collect();
        same("byte by byte", &story(data, &cuts), &whole)?;
    }
    Ok(())
}

/// What one parser says while `raw` arrives in pieces that end at `cuts`; ends with what it says at the end.
fn story(raw: &[u8], cuts: &[usize]) -> Vec<Seen> {
    let mut parser = RequestParser::default();
    let (mut told, mut start) = (Vec::new(), 0);
    for &cut in cuts {
        loop {
            match parser.parse(&raw[start..cut]) {
                Parsed::Done { request, consumed } => {
                    start += consumed;
                    let keep_alive = request.keep_alive;
                    told.push(Seen::Done(facts_of(&request, consumed)));
                    if !keep_alive {
                        return told;
                    }
                }
                Parsed::Continue => {} // depends on how bytes arrive, as it should
                Parsed::NeedMore => break,
                Parsed::Reject(reject) => {
                    told.push(Seen::Reject(reject));
                    return told;
                }
            }
        }
    }
    told.push(Seen::NeedMore);
    told
}

fn facts_of(request: &weir_proto::http::Request<'_>, consumed: usize) -> Facts {
    let mut scratch = [0; BODY_BYTES_MAX];
    Facts {
        method: request.method.as_str().to_owned(),
        minor: u8::from(request.version == Version::Http11),
        path: request.path.to_vec(),
        query: request.query.map(<[u8]>::to_vec),
        keep_alive: request.keep_alive,
        fields: KEPT
            .iter()
            .map(|(field, _)| request.field(*field).map(<[u8]>::to_vec))
            .collect(),
        forwarded: request.forwarded().map(<[u8]>::to_vec).collect(),
        x_forwarded_for: request.x_forwarded_for().map(<[u8]>::to_vec).collect(),
        body: request.body.in_one(&mut scratch).to_vec(),
        consumed,
    }
}

const HEADERS_MAX: usize = 128;

/// What httparse and the body model make of an accepted request.
fn against_httparse(facts: &Facts, input: &[u8]) -> Checked {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let head_bytes = match request.parse(input) {
        Ok(httparse::Status::Complete(bytes)) => bytes,
        other => return Err(format!("weir accepts, httparse says {other:?}")),
    };
    let lines: Vec<(String, Vec<u8>)> = request
        .headers
        .iter()
        .map(|header| {
            (
                header.name.to_ascii_lowercase(),
                http_model::trim(header.value).to_vec(),
            )
        })
        .collect();
    let has = |name: &str| {
        lines
            .iter()
            .find(|(line, _)| line == name)
            .map(|(_, value)| value)
    };
    let body = if has("transfer-encoding").is_some() {
        http_model::chunked(input, head_bytes)
    } else {
        let length = has("content-length").map_or(Some(0), |value| {
            String::from_utf8_lossy(value).parse::<usize>().ok()
        });
        let length = length.ok_or("httparse: Content-Length is no number")?;
        Ok(http_model::sized(input, head_bytes, length))
    };
    let Ok(Some((body, consumed))) = body else {
        return Err("weir accepts a body that the model does not".to_owned());
    };
    let (method, target) = (
        request.method.unwrap_or_default(),
        request.path.unwrap_or_default(),
    );
    let (_, path, query) = http_model::target_parts(target.as_bytes(), method)
        .ok_or_else(|| format!("weir accepts the target {target:?} of httparse"))?;
    let minor = request.version.unwrap_or(9);
    same(
        "httparse",
        facts,
        &http_model::facts(method, minor, (path, query), &lines, body, consumed),
    )
}

/// A refusal: httparse refuses too, or the breach is a known one.
fn refused(reject: HttpReject, input: &[u8]) -> Checked {
    let known = STRICTER.iter().any(|(known, _)| *known == reject);
    if httparse_would_go_on(input) && !known && !BEYOND_HTTPARSE.contains(&reject) {
        return Err(format!(
            "weir refuses with {reject:?}, httparse would go on"
        ));
    }
    Ok(())
}

fn httparse_would_go_on(input: &[u8]) -> bool {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    httparse::Request::new(&mut headers).parse(input).is_ok()
}

/// What weir refuses in the first message of `raw` although httparse would go on.
#[cfg(test)]
pub fn stricter(raw: &[u8]) -> Option<HttpReject> {
    match story(raw, &[raw.len()]).first() {
        Some(Seen::Reject(reject)) if httparse_would_go_on(raw) => Some(*reject),
        _ => None,
    }
}

/// weir waits. httparse may know better already, because weir judges a line when it is whole; then weir must refuse
/// as soon as the line ends.
fn waiting(input: &[u8]) -> Checked {
    if httparse_would_go_on(input) {
        return Ok(());
    }
    let ended = [input, b"\r\n\r\n"].concat();
    match story(&ended, &[ended.len()]).first() {
        Some(Seen::Reject(_)) => Ok(()),
        other => Err(format!("httparse refuses, weir waits, then says {other:?}")),
    }
}
