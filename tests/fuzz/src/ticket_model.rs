//! A slow, obvious reader of tickets: base64url by bits, JSON by serde_json, fields by offset.
//!
//! Only the HMAC comes from weir (`TicketKey::hs256`, which Wycheproof's rows judge); the compact MAC is the blake3 crate's.

use super::json::Pairs;
use serde_json::Value;
use weir_proto::ticket::{KeyRing, TicketReject};

/// The claims as plain values.
#[derive(Debug, PartialEq, Eq)]
pub struct Plain {
    /// Activity, SKU, user, activity version, not before, expires.
    pub numbers: [u64; 6],
    pub path: String,
    pub nonce: String,
    pub device: Device,
}

/// What the device claim binds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    None,
    Hash([u8; 16]),
    Foreign,
}

/// RFC 4648 §5.
pub const ALPHABET: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const ID_MAX: u64 = i64::MAX as u64;
/// Names the key of the compact form (`proto/src/ticket/keys.rs`).
const CONTEXT: &str = "weir 2026-11-30 compact ticket w1 MAC";

/// RFC 4648 §5 without padding: a string of bits, cut into bytes; what is left over is zero and less than a character.
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let mut bits = Vec::new();
    for &byte in text {
        let value = ALPHABET.bytes().position(|known| known == byte)?;
        bits.extend((0..6).rev().map(|at| value >> at & 1 == 1));
    }
    let bytes = bits.chunks_exact(8);
    let rest = bytes.remainder();
    if rest.len() >= 6 || rest.contains(&true) {
        return None;
    }
    let byte = |bits: &[bool]| bits.iter().fold(0, |byte, &bit| byte << 1 | u8::from(bit));
    Some(bytes.map(byte).collect())
}

/// Reads a ticket; `secret` is that of the ring's one key.
pub fn read(token: &[u8], ring: &KeyRing, secret: &[u8]) -> Result<Plain, TicketReject> {
    match token.len() {
        0 => Err(TicketReject::Missing),
        4097.. => Err(TicketReject::Size),
        _ if token.starts_with(b"w1.") => compact(token, ring, secret),
        _ => jws(token, ring),
    }
}

/// `^[A-Za-z0-9_-]{1,max}$`
fn is_plain(text: &[u8], max: usize) -> bool {
    (1..=max).contains(&text.len())
        && text
            .iter()
            .all(|&b| b.is_ascii_alphanumeric() || b"_-".contains(&b))
}

fn jws(token: &[u8], ring: &KeyRing) -> Result<Plain, TicketReject> {
    let parts: Vec<&[u8]> = token.split(|&byte| byte == b'.').collect();
    let [header, claims, signature] = parts[..] else {
        return Err(TicketReject::Shape);
    };
    let fits = (1..=342).contains(&header.len()) && (1..=1366).contains(&claims.len());
    if !fits || signature.len() != 43 {
        return Err(TicketReject::Shape);
    }
    let signed = &token[..header.len() + 1 + claims.len()];
    let [header, claims, signature] = [header, claims, signature].map(decode);
    let (Some(header), Some(claims), Some(signature)) = (header, claims, signature) else {
        return Err(TicketReject::Base64);
    };
    let header = members(&header, &["alg", "kid", "typ"]).ok_or(TicketReject::Header)?;
    let text = |name: &str| {
        header
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    };
    if header.iter().any(|(_, value)| !value.is_string()) {
        return Err(TicketReject::Header);
    }
    if text("typ")
        .flatten()
        .is_some_and(|typ| !typ.eq_ignore_ascii_case("JWT"))
    {
        return Err(TicketReject::Header);
    }
    match text("alg").flatten() {
        None => return Err(TicketReject::Header),
        Some("HS256") => {}
        Some(_) => return Err(TicketReject::Alg),
    }
    let kid = text("kid")
        .flatten()
        .filter(|kid| is_plain(kid.as_bytes(), 36));
    let key = kid
        .and_then(|kid| ring.find(kid.as_bytes()))
        .ok_or(TicketReject::Kid)?;
    if key.hs256(signed)[..] != signature[..] {
        return Err(TicketReject::Signature);
    }
    claims_of_json(&claims).ok_or(TicketReject::Claims)
}

/// The members of an object whose names are all in `known` and none of which comes twice.
fn members(json: &[u8], known: &[&str]) -> Option<Vec<(String, Value)>> {
    let pairs = serde_json::from_slice::<Pairs>(json).ok()?.0;
    let names: Vec<&str> = pairs.iter().map(|(name, _)| name.as_str()).collect();
    let once = |name: &&str| names.iter().filter(|other| *other == name).count() == 1;
    (names.iter().all(|name| known.contains(name)) && names.iter().all(once)).then_some(pairs)
}

fn claims_of_json(json: &[u8]) -> Option<Plain> {
    const NUMBERS: [&str; 6] = [
        "activity_id",
        "sku_id",
        "user_id",
        "activity_version",
        "not_before_ms",
        "expires_at_ms",
    ];
    let known = [
        &NUMBERS[..],
        &["version", "device_hash", "path_id", "nonce", "iat"],
    ]
    .concat();
    let pairs = members(json, &known)?;
    let value = |name: &str| {
        pairs
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value)
    };
    if value("version")?.as_u64() != Some(1) {
        return None;
    }
    if let Some(iat) = value("iat") {
        iat.as_u64().filter(|at| *at <= ID_MAX)?;
    }
    let mut numbers = [0; 6];
    for (number, name) in numbers.iter_mut().zip(NUMBERS) {
        *number = value(name)?.as_u64()?;
    }
    let text = |name: &str, max: usize| {
        let text = value(name)?.as_str()?;
        (text.len() <= max && text.bytes().all(|b| b.is_ascii_graphic())).then(|| text.to_owned())
    };
    let device = text("device_hash", 80)?;
    sound(Plain {
        numbers,
        path: text("path_id", 16)?,
        nonce: text("nonce", 32)?,
        device: match device.as_str() {
            "" | "none" => Device::None,
            hash => match hash
                .strip_prefix("b3:")
                .and_then(|rest| decode(rest.as_bytes()))
            {
                Some(bytes) => bytes.try_into().map_or(Device::Foreign, device_of),
                None => Device::Foreign,
            },
        },
    })
}

fn device_of(bytes: [u8; 16]) -> Device {
    if bytes == [0; 16] {
        Device::None
    } else {
        Device::Hash(bytes)
    }
}

/// What holds for the claims of both forms.
pub fn sound(plain: Plain) -> Option<Plain> {
    let [activity, sku, user, version, from, until] = plain.numbers;
    let ids = [activity, sku, user, version]
        .iter()
        .all(|id| (1..=ID_MAX).contains(id));
    let window = until <= ID_MAX && from < until && until - from <= 3_600_000;
    (ids && window && is_plain(plain.path.as_bytes(), 16) && !plain.nonce.is_empty())
        .then_some(plain)
}

fn compact(token: &[u8], ring: &KeyRing, secret: &[u8]) -> Result<Plain, TicketReject> {
    if token.len() < 3 + 1 + 171 || token[token.len() - 172] != b'.' {
        return Err(TicketReject::Shape);
    }
    let (start, sealed) = token.split_at(token.len() - 171);
    let sealed = decode(sealed).ok_or(TicketReject::Base64)?;
    let kid = &start[3..start.len() - 1];
    ring.find(kid).ok_or(TicketReject::Kid)?;
    let (claims, mac) = sealed.split_at(96);
    if compact_mac(kid, claims, secret)[..] != *mac {
        return Err(TicketReject::Signature);
    }
    claims_of_bytes(claims).ok_or(TicketReject::Claims)
}

/// The MAC that the form's document asks for.
pub fn compact_mac(kid: &[u8], claims: &[u8], secret: &[u8]) -> [u8; 32] {
    let input = [b"w1.", kid, b".", claims].concat();
    *blake3::keyed_hash(&blake3::derive_key(CONTEXT, secret), &input).as_bytes()
}

fn claims_of_bytes(bytes: &[u8]) -> Option<Plain> {
    if bytes[..8] != *b"\x01\0\0\0\0\0\0\0" {
        return None;
    }
    let number = |at: usize| {
        bytes[at..at + 8]
            .iter()
            .fold(0, |number, &byte| number << 8 | u64::from(byte))
    };
    let path = String::from_utf8(bytes[88..96].to_vec()).ok()?;
    let path = path.trim_end_matches('\0'); // a zero inside is no letter of a path and is refused below
    let nonce = &bytes[56..72];
    sound(Plain {
        numbers: [8, 16, 24, 32, 40, 48].map(number),
        path: path.to_owned(),
        nonce: format!("n_{}", encode(nonce)),
        device: device_of(bytes[72..88].try_into().ok()?),
    })
}

/// The one spelling of `bytes`.
pub fn encode(bytes: &[u8]) -> String {
    let bits: Vec<u8> = bytes
        .iter()
        .flat_map(|byte| (0..8).rev().map(move |at| byte >> at & 1))
        .collect();
    let letter = |bits: &[u8]| {
        let value = (0..6).fold(0, |value, at| {
            value << 1 | usize::from(bits.get(at).copied().unwrap_or(0))
        });
        ALPHABET.as_bytes()[value] as char
    };
    bits.chunks(6).map(letter).collect()
}
