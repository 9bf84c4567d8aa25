//! The compact form: `w1.<kid>.<base64url(96 bytes of claims ‖ 32 bytes of MAC)>`, 171 characters after the last dot.
//!
//! Claims, big-endian: 0 version (1), 1..8 zero, 8..16 activity_id, 16..24 sku_id, 24..32 user_id, 32..40 activity_version,
//! 40..48 not_before_ms, 48..56 expires_at_ms, 56..72 nonce, 72..88 device hash (zero: none), 88..96 path id, 1..=8 bytes of
//! `[A-Za-z0-9_-]`, padded with zeros. MAC = BLAKE3 keyed (see `keys`) over the text `w1.<kid>.` and the 96 bytes.
//! Called by `ticket`. Vectors: `proto/tests/compact-vectors.jsonl`.

use super::base64url;
use super::claims::{Claims, NonceClaim, path_id};
use super::device::DeviceClaim;
use super::keys::{KeyRing, MAC_BYTES, TicketKey, same_mac};
use super::reject::TicketReject;
use super::{MintError, sound};
use crate::ids::{ActivityId, KeyId, PathId, SkuId, UserId};
use crate::limits::KEY_ID_BYTES_MAX;
use alloc::vec::Vec;

/// What a compact ticket starts with; no JWS does, as `w1` is no beginning of a JSON object in base64url.
pub(super) const PREFIX: &[u8] = b"w1.";
const VERSION: u8 = 1;
const CLAIMS_BYTES: usize = 96;
const SEALED_BYTES: usize = CLAIMS_BYTES + MAC_BYTES;
const SEALED_CHARS: usize = base64url::encoded_len(SEALED_BYTES);
const PATH_AT: usize = 88;
/// Longest path id of this form.
pub const COMPACT_PATH_ID_BYTES_MAX: usize = CLAIMS_BYTES - PATH_AT;

/// Checks shape, base64, key id and MAC, then reads the claims.
pub(super) fn authenticate<'r>(
    token: &[u8],
    ring: &'r KeyRing,
) -> Result<(Claims, &'r KeyId), TicketReject> {
    let rest = token.strip_prefix(PREFIX).ok_or(TicketReject::Shape)?;
    let kid_bytes = rest.len().checked_sub(SEALED_CHARS + 1);
    let kid_bytes = kid_bytes.ok_or(TicketReject::Shape)?;
    if rest[kid_bytes] != b'.' {
        return Err(TicketReject::Shape);
    }
    let mut sealed = [0; SEALED_BYTES];
    base64url::decode(&rest[kid_bytes + 1..], &mut sealed).ok_or(TicketReject::Base64)?;
    let kid = &rest[..kid_bytes];
    let key = ring.find(kid).ok_or(TicketReject::Kid)?;
    let (claims, mac) = sealed.split_at(CLAIMS_BYTES);
    let claims = claims.try_into().expect("split at the length of claims");
    let mac = mac.try_into().expect("and the MAC is the rest");
    if !same_mac(&mac_of(key, claims), mac) {
        return Err(TicketReject::Signature);
    }
    let claims = read(claims).ok_or(TicketReject::Claims)?;
    Ok((claims, key.kid()))
}

fn mac_of(key: &TicketKey, claims: &[u8; CLAIMS_BYTES]) -> [u8; MAC_BYTES] {
    let mut input = [0; PREFIX.len() + KEY_ID_BYTES_MAX + 1 + CLAIMS_BYTES];
    let mut len = 0;
    for part in [PREFIX, key.kid().as_bytes(), b".", claims] {
        input[len..len + part.len()].copy_from_slice(part);
        len += part.len();
    }
    key.compact(&input[..len])
}

fn read(bytes: &[u8; CLAIMS_BYTES]) -> Option<Claims> {
    if bytes[..8] != [VERSION, 0, 0, 0, 0, 0, 0, 0] {
        return None;
    }
    // Up to its padding; a zero within it is no byte of a path id.
    let padding_bytes = u64::from_le_bytes(array(bytes, PATH_AT)).leading_zeros() as usize / 8;
    let path = &bytes[PATH_AT..CLAIMS_BYTES - padding_bytes];
    let claims = Claims {
        activity: ActivityId(number(bytes, 8)),
        sku: SkuId(number(bytes, 16)),
        user: UserId(number(bytes, 24)),
        activity_version: number(bytes, 32),
        not_before_ms: number(bytes, 40),
        expires_at_ms: number(bytes, 48),
        nonce: NonceClaim::Raw(array(bytes, 56)),
        device: DeviceClaim::from_bytes(array(bytes, 72)),
        path_id: path_id(path)?,
    };
    claims.is_in_range().then_some(claims)
}

fn array<const N: usize>(bytes: &[u8; CLAIMS_BYTES], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("the range has N bytes")
}

fn number(bytes: &[u8; CLAIMS_BYTES], at: usize) -> u64 {
    u64::from_be_bytes(array(bytes, at))
}

/// Appends a compact ticket to `out`; allocates only when `out` must grow.
///
/// # Errors
/// `PathId` when it has more than 8 bytes, `Nonce` when it is not 16 bytes, `Device` when it is foreign, `Claims` when
/// a claim is out of range.
pub fn mint_compact(claims: &Claims, key: &TicketKey, out: &mut Vec<u8>) -> Result<(), MintError> {
    sound(claims)?;
    let path: &PathId = &claims.path_id;
    if path.as_bytes().len() > COMPACT_PATH_ID_BYTES_MAX {
        return Err(MintError::PathId);
    }
    let nonce = claims.nonce.raw().ok_or(MintError::Nonce)?;
    let device = match claims.device {
        DeviceClaim::Unbound => [0; 16],
        DeviceClaim::Hash(hash) => hash,
        DeviceClaim::Foreign => return Err(MintError::Device),
    };
    let mut sealed = [0; SEALED_BYTES];
    sealed[0] = VERSION;
    let numbers = [
        claims.activity.0,
        claims.sku.0,
        claims.user.0,
        claims.activity_version,
        claims.not_before_ms,
        claims.expires_at_ms,
    ];
    for (slot, number) in sealed[8..56].chunks_exact_mut(8).zip(numbers) {
        slot.copy_from_slice(&number.to_be_bytes());
    }
    sealed[56..72].copy_from_slice(&nonce);
    sealed[72..PATH_AT].copy_from_slice(&device);
    sealed[PATH_AT..PATH_AT + path.as_bytes().len()].copy_from_slice(path.as_bytes());
    let mac = mac_of(key, &array_of_claims(&sealed));
    sealed[CLAIMS_BYTES..].copy_from_slice(&mac);
    out.extend_from_slice(PREFIX);
    out.extend_from_slice(key.kid().as_bytes());
    out.push(b'.');
    base64url::append(&sealed, out);
    Ok(())
}

fn array_of_claims(sealed: &[u8; SEALED_BYTES]) -> [u8; CLAIMS_BYTES] {
    *sealed
        .first_chunk()
        .expect("claims are shorter than the sealed whole")
}
