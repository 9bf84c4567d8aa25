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
use crate::ids::{ActivityId, KeyId, Nonce, PathId, SkuId, UserId};
use crate::json::{JsonError, JsonText, Object, Usual};
use crate::limits::{
    CLAIMS_BYTES_MAX, ID_MAX, JOSE_HEADER_BYTES_MAX, KEY_ID_BYTES_MAX, NONCE_BYTES_MAX,
    PATH_ID_BYTES_MAX,
};
use crate::text::Text;
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
pub(super) fn authenticate<'r>(
    token: &[u8],
    ring: &'r KeyRing,
) -> Result<(Claims, &'r KeyId), TicketReject> {
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
    // The order in which the seed names the claims is known as it stands; others are read member by member.
    let claims = usual_claims(claims).or_else(|| read_claims(claims));
    Ok((claims.ok_or(TicketReject::Claims)?, key.kid()))
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

/// Claims as we mint them, or a JWT library that was given them in the same order; `None` says nothing.
fn usual_claims(bytes: &[u8]) -> Option<Claims> {
    let mut object = Usual::new(bytes);
    object.literal(b"{\"version\":1,\"activity_id\":")?;
    let activity = ActivityId(object.integer()?);
    object.literal(b",\"sku_id\":")?;
    let sku = SkuId(object.integer()?);
    object.literal(b",\"user_id\":")?;
    let user = UserId(object.integer()?);
    object.literal(b",\"device_hash\":\"")?;
    let device = device_of(object.text()?)?;
    object.literal(b",\"activity_version\":")?;
    let activity_version = object.integer()?;
    object.literal(b",\"path_id\":\"")?;
    let path_id = path_id(object.text()?)?;
    object.literal(b",\"nonce\":\"")?;
    let nonce = NonceClaim::Text(Nonce::new(object.text()?)?);
    object.literal(b",\"not_before_ms\":")?;
    let not_before_ms = object.integer()?;
    object.literal(b",\"expires_at_ms\":")?;
    let expires_at_ms = object.integer()?;
    if object.takes(b",\"iat\":") && object.integer()? > ID_MAX {
        return None;
    }
    object.end()?;
    let claims = Claims {
        activity,
        sku,
        user,
        activity_version,
        path_id,
        nonce,
        device,
        not_before_ms,
        expires_at_ms,
    };
    claims.is_in_range().then_some(claims)
}

/// The device claim of that text, which has no escapes.
fn device_of(text: &[u8]) -> Option<DeviceClaim> {
    match DeviceClaim::from_text(text) {
        DeviceClaim::Foreign => {
            Text::<DEVICE_CLAIM_BYTES_MAX>::new(text).map(|_| DeviceClaim::Foreign)
        }
        device => Some(device),
    }
}

#[inline(never)]
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
    claims.is_in_range().then_some(claims)
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

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::{String, ToString};
    use proptest::prelude::*;

    fn number() -> impl Strategy<Value = String> {
        prop_oneof![
            4 => "[1-9][0-9]{0,12}",
            1 => "[0-9]{16,21}",
            1 => "0{0,2}[0-9]",
        ]
    }

    fn device() -> impl Strategy<Value = String> {
        prop_oneof![
            Just(String::new()),
            Just("none".into()),
            "b3:[A-Za-z0-9_-]{21}[AQgwB]",
            "[ -~]{70,90}",
            "[ -~\u{7f}é]{0,8}",
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

        /// Claims as they are usually written, whole or with bytes exchanged, added or taken away.
        #[test]
        fn usual_claims_are_read_alike_member_by_member(
            version in prop_oneof![9 => Just("1".into()), 1 => number()],
            ids in (number(), number(), number(), number()),
            device in device(),
            path in prop_oneof!["[A-Za-z0-9_-]{1,8}", "[A-Za-z0-9_.-]{0,18}"],
            nonce in prop_oneof!["n_[A-Za-z0-9_-]{22}", "[ -~é]{0,34}"],
            times in (prop_oneof!["17[0-9]{11}", number()], prop_oneof![3 => "00000[0-9]{2}".prop_map(Some), 1 => Just(None)], number()),
            iat in proptest::option::of(number()),
            damage in proptest::collection::vec((any::<proptest::sample::Index>(), 0_u8..3, any::<u8>()), 0..2),
        ) {
            let (activity, sku, user, activity_version) = ids;
            let (not_before, soon, other) = times;
            let expires = match soon {
                // A little later, so that the window is sound.
                Some(later) => not_before.parse::<u64>().map_or(other, |from| {
                    from.saturating_add(1 + later.parse::<u64>().unwrap_or(0)).to_string()
                }),
                None => other,
            };
            let is_short = [&version, &activity, &sku, &user, &activity_version, &not_before, &expires]
                .into_iter()
                .chain(&iat)
                .all(|number| number.len() < 16); // longer ones are left to the general reader
            let iat = iat.map_or_else(String::new, |iat| format!(",\"iat\":{iat}"));
            let mut json = format!(
                "{{\"version\":{version},\"activity_id\":{activity},\"sku_id\":{sku},\"user_id\":{user},\"device_hash\":\"{device}\",\
                 \"activity_version\":{activity_version},\"path_id\":\"{path}\",\"nonce\":\"{nonce}\",\
                 \"not_before_ms\":{not_before},\"expires_at_ms\":{expires}{iat}}}"
            )
            .into_bytes();
            let is_plain = |text: &str| !text.contains(['"', '\\']);
            let is_whole = is_short && damage.is_empty() && is_plain(&device) && is_plain(&nonce);
            for (at, kind, byte) in damage {
                let at = at.index(json.len());
                match kind {
                    0 => json[at] = byte,
                    1 => json.insert(at, byte),
                    _ => drop(json.remove(at)),
                }
            }
            let (usual, read) = (usual_claims(&json), read_claims(&json));
            if is_whole || usual.is_some() {
                prop_assert_eq!(usual, read);
            }
        }
    }
}
