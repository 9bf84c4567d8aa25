//! The interoperable form: JWS compact serialization with HS256 (RFC 7515 §3.1, RFC 7518 §3.2), made by any JWT library.
//!
//! Called by `ticket`. Header: `alg` exactly HS256, `kid` required, `typ` JWT if given, nothing else (so `crit`, `b64`, `jwk`,
//! `jku`, `x5u` are refused). Claims: seed 000 §8.1 without `key_id`; `iat` is read over, as common libraries add it unasked.
//! Invariant: no claim is read before the MAC fits.

use super::claims::{Claims, NonceClaim, path_id};
use super::device::{DEVICE_CLAIM_BYTES_MAX, DeviceClaim};
use super::keys::{KeyRing, MAC_BYTES, TicketKey, key_id, same_mac};
use super::reject::TicketReject;
use super::{MintError, base64url, sound};
use crate::ids::{ActivityId, KeyId, PathId, SkuId, UserId};
use crate::json::{JsonError, JsonText, Object};
use crate::limits::{
    CLAIMS_BYTES_MAX, ID_MAX, JOSE_HEADER_BYTES_MAX, KEY_ID_BYTES_MAX, NONCE_BYTES_MAX,
    PATH_ID_BYTES_MAX,
};
use alloc::vec::Vec;
use core::fmt::{self, Write};

const SIGNATURE_CHARS: usize = base64url::encoded_len(MAC_BYTES);
const HEADER_CHARS_MAX: usize = base64url::encoded_len(JOSE_HEADER_BYTES_MAX);
const CLAIMS_CHARS_MAX: usize = base64url::encoded_len(CLAIMS_BYTES_MAX);

const HEADER_MEMBERS: &[&str] = &["alg", "kid", "typ"];
const CLAIM_MEMBERS: &[&str] = &[
    "version",
    "activity_id",
    "sku_id",
    "user_id",
    "device_hash",
    "activity_version",
    "path_id",
    "nonce",
    "not_before_ms",
    "expires_at_ms",
    "iat",
];

/// Checks shape, base64, header, key id and MAC, then reads the claims.
pub(super) fn authenticate(token: &[u8], ring: &KeyRing) -> Result<(Claims, KeyId), TicketReject> {
    let parts = Parts::split(token).ok_or(TicketReject::Shape)?;
    let (mut claims, mut signature) = ([0; CLAIMS_BYTES_MAX], [0; MAC_BYTES]);
    // The header that we mint is known as it stands; others are read.
    let key = match ring.find_by_jws_header(parts.header) {
        Some(key) => Ok(key),
        None => {
            let mut header = [0; JOSE_HEADER_BYTES_MAX];
            let header =
                base64url::decode(parts.header, &mut header).ok_or(TicketReject::Base64)?;
            read_header(header).and_then(|kid| ring.find(kid.as_bytes()).ok_or(TicketReject::Kid))
        }
    };
    // All three are decoded before any is used: a ticket has one spelling, and the MAC must not depend on a lenient reading.
    let claims = base64url::decode(parts.claims, &mut claims).ok_or(TicketReject::Base64)?;
    base64url::decode(parts.signature, &mut signature).ok_or(TicketReject::Base64)?;
    let key = key?;
    if !same_mac(&key.hs256(parts.signing_input), &signature) {
        return Err(TicketReject::Signature);
    }
    let claims = read_claims(claims).ok_or(TicketReject::Claims)?;
    Ok((claims, key.kid()))
}

struct Parts<'a> {
    header: &'a [u8],
    claims: &'a [u8],
    signature: &'a [u8],
    signing_input: &'a [u8],
}

impl<'a> Parts<'a> {
    /// Cuts at exactly two dots; the signature has its one length and no part is longer than we read.
    fn split(token: &'a [u8]) -> Option<Self> {
        let header_end = memchr::memchr(b'.', token)?;
        let claims_end = memchr::memrchr(b'.', token)?;
        if header_end == claims_end {
            return None;
        }
        let parts = Self {
            header: &token[..header_end],
            claims: &token[header_end + 1..claims_end],
            signature: &token[claims_end + 1..],
            signing_input: &token[..claims_end],
        };
        let fits = (1..=HEADER_CHARS_MAX).contains(&parts.header.len())
            && (1..=CLAIMS_CHARS_MAX).contains(&parts.claims.len())
            && parts.signature.len() == SIGNATURE_CHARS
            && memchr::memchr(b'.', parts.claims).is_none();
        fits.then_some(parts)
    }
}

fn read_header(bytes: &[u8]) -> Result<KeyId, TicketReject> {
    let broken = |_: JsonError| TicketReject::Header;
    let mut object = Object::open(bytes, HEADER_MEMBERS).map_err(broken)?;
    let (mut alg, mut kid) = (None, None);
    while let Some(member) = object.next_member().map_err(broken)? {
        let text = member.text().map_err(broken)?;
        match member.name {
            "alg" => alg = Some(text),
            "kid" => kid = Some(text),
            // RFC 7519 §5.1: media types are compared without regard to case.
            _ if is_jwt(text) => {}
            _ => return Err(TicketReject::Header),
        }
    }
    if !alg.ok_or(TicketReject::Header)?.is("HS256") {
        return Err(TicketReject::Alg);
    }
    let mut scratch = [0; KEY_ID_BYTES_MAX];
    kid.and_then(|text| key_id(text.decode(&mut scratch)?))
        .ok_or(TicketReject::Kid)
}

fn is_jwt(text: JsonText<'_>) -> bool {
    text.chars()
        .map(|c| c.to_ascii_uppercase())
        .eq("JWT".chars())
}

fn read_claims(bytes: &[u8]) -> Option<Claims> {
    let mut object = Object::open(bytes, CLAIM_MEMBERS).ok()?;
    let mut version = None;
    let (mut activity, mut sku, mut user, mut activity_version) = (None, None, None, None);
    let (mut path, mut nonce, mut device) = (None, None, None);
    let (mut not_before_ms, mut expires_at_ms) = (None, None);
    while let Some(member) = object.next_member().ok()? {
        match member.name {
            "version" => version = Some(member.integer(1..=1).ok()?),
            "activity_id" => activity = Some(member.integer(1..=ID_MAX).ok()?),
            "sku_id" => sku = Some(member.integer(1..=ID_MAX).ok()?),
            "user_id" => user = Some(member.integer(1..=ID_MAX).ok()?),
            "activity_version" => activity_version = Some(member.integer(1..=ID_MAX).ok()?),
            "not_before_ms" => not_before_ms = Some(member.integer(0..=ID_MAX).ok()?),
            "expires_at_ms" => expires_at_ms = Some(member.integer(0..=ID_MAX).ok()?),
            "path_id" => path = Some(read_path(member.text().ok()?)?),
            "nonce" => nonce = Some(member.text().ok()?.visible::<NONCE_BYTES_MAX>()?),
            "device_hash" => device = Some(read_device(member.text().ok()?)?),
            _ => drop(member.integer(0..=ID_MAX).ok()?), // iat
        }
    }
    version?;
    let claims = Claims {
        activity: ActivityId(activity?),
        sku: SkuId(sku?),
        user: UserId(user?),
        activity_version: activity_version?,
        path_id: path?,
        nonce: NonceClaim::Text(nonce?),
        device: device?,
        not_before_ms: not_before_ms?,
        expires_at_ms: expires_at_ms?,
    };
    claims.is_sound().then_some(claims)
}

fn read_path(text: JsonText<'_>) -> Option<PathId> {
    path_id(text.visible::<PATH_ID_BYTES_MAX>()?.as_bytes())
}

fn read_device(text: JsonText<'_>) -> Option<DeviceClaim> {
    let text = text.visible::<DEVICE_CLAIM_BYTES_MAX>()?;
    Some(DeviceClaim::from_text(text.as_bytes()))
}

/// Appends a JWS ticket to `out`; allocates only when `out` must grow.
///
/// # Errors
/// `Device` when it is foreign, `Claims` when a claim is out of range.
pub fn mint_jws(claims: &Claims, key: &TicketKey, out: &mut Vec<u8>) -> Result<(), MintError> {
    sound(claims)?;
    let mut json = Line::new();
    write_claims(claims, &mut json)?;
    let start = out.len();
    out.extend_from_slice(key.jws_header());
    out.push(b'.');
    base64url::append(json.as_bytes(), out);
    let mac = key.hs256(&out[start..]);
    out.push(b'.');
    base64url::append(&mac, out);
    Ok(())
}

/// The header of the tickets that we mint under the key `kid`, encoded.
pub(super) fn header_of(kid: KeyId) -> Vec<u8> {
    let mut encoded = Vec::new();
    let header = alloc::format!(r#"{{"alg":"HS256","kid":"{kid}"}}"#);
    base64url::append(header.as_bytes(), &mut encoded);
    encoded
}

fn write_claims(claims: &Claims, json: &mut Line) -> Result<(), MintError> {
    let device = match &claims.device {
        DeviceClaim::Unbound => None,
        DeviceClaim::Hash(hash) => Some(DeviceClaim::text(hash)),
        DeviceClaim::Foreign => return Err(MintError::Device),
    };
    let device = device.as_ref().map_or(&b"none"[..], |text| &text[..]);
    let written = (|| {
        write!(
            json,
            r#"{{"version":1,"activity_id":{},"sku_id":{},"user_id":{},"device_hash":""#,
            claims.activity, claims.sku, claims.user.0
        )?;
        json.push_escaped(device)?;
        write!(
            json,
            r#"","activity_version":{},"path_id":"{}","nonce":""#,
            claims.activity_version, claims.path_id
        )?;
        json.push_escaped(claims.nonce().as_bytes())?;
        write!(
            json,
            r#"","not_before_ms":{},"expires_at_ms":{}}}"#,
            claims.not_before_ms, claims.expires_at_ms
        )
    })();
    written.map_err(|_: fmt::Error| MintError::Claims)
}

/// JSON being written on the stack; the longest claims fit with room to spare.
struct Line {
    bytes: [u8; 512],
    len: usize,
}

impl Line {
    fn new() -> Self {
        Self {
            bytes: [0; 512],
            len: 0,
        }
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn push(&mut self, bytes: &[u8]) -> fmt::Result {
        let end = self.len + bytes.len();
        let slot = self.bytes.get_mut(self.len..end).ok_or(fmt::Error)?;
        slot.copy_from_slice(bytes);
        self.len = end;
        Ok(())
    }

    /// Visible ASCII inside a JSON string: only quote and backslash need an escape.
    fn push_escaped(&mut self, text: &[u8]) -> fmt::Result {
        for &byte in text {
            if matches!(byte, b'"' | b'\\') {
                self.push(b"\\")?;
            }
            self.push(&[byte])?;
        }
        Ok(())
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes())
    }
}
