//! Tickets: the signed, short-lived right to submit (requirements B2-B5, design §12.12), in two forms with the same claims.
//!
//! Called by core (verify), by the ops listener, `weir ticket` and the load generator (mint). Order of checks: length, form,
//! base64, key id, MAC in constant time, claims; then times, activity / SKU / user, version / path, device. The nonce is the
//! ledger's. `authenticate` and [`Claims::check`] are apart because a status query may use an expired ticket.
//! Invariants: nothing in the payload is trusted before the MAC; no allocation; one spelling per ticket.

pub mod base64url;
mod claims;
mod compact;
mod device;
mod jws;
mod keys;
mod reject;

pub use claims::{Claims, Expect, NONCE_RAW_BYTES, NonceClaim, path_id};
pub use compact::{COMPACT_PATH_ID_BYTES_MAX, mint_compact};
pub use device::{
    DEVICE_CLAIM_BYTES_MAX, DEVICE_HASH_BYTES, DEVICE_TEXT_BYTES, DeviceClaim, device_hash,
};
pub use jws::mint_jws;
pub use keys::{KeyError, KeyRing, LIVE_KEYS_MAX, MAC_BYTES, TicketKey, key_id};
pub(crate) use keys::{check_secret, same_mac};
pub use reject::{Binding, TicketReject, TicketStage};

use crate::ids::KeyId;
use crate::limits::TICKET_BYTES_MAX;
use core::fmt;

/// Checks that a live key of ours made `token`, in either form, and reads it. Says nothing about times and bindings.
///
/// # Errors
/// The first stage from `Size` to `Claims` that refuses it; `Missing` for the empty token.
pub fn authenticate(token: &[u8], ring: &KeyRing) -> Result<Claims, TicketReject> {
    authenticate_with_kid(token, ring).map(|(claims, _)| claims)
}

/// [`authenticate`], and the id of the key that verified it: ours, so it may be logged.
///
/// # Errors
/// As [`authenticate`].
pub fn authenticate_with_kid<'r>(
    token: &[u8],
    ring: &'r KeyRing,
) -> Result<(Claims, &'r KeyId), TicketReject> {
    if token.is_empty() {
        return Err(TicketReject::Missing);
    }
    if token.len() > TICKET_BYTES_MAX {
        return Err(TicketReject::Size);
    }
    if token.starts_with(compact::PREFIX) {
        compact::authenticate(token, ring)
    } else {
        jws::authenticate(token, ring)
    }
}

/// [`authenticate`], then [`Claims::check`]: all that a submit needs except the nonce.
///
/// # Errors
/// The first stage that refuses it.
pub fn verify(token: &[u8], ring: &KeyRing, expect: &Expect<'_>) -> Result<Claims, TicketReject> {
    let claims = authenticate(token, ring)?;
    claims.check(expect)?;
    Ok(claims)
}

/// Why a ticket cannot be minted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MintError {
    /// A claim is out of range: ids 1..=2^63-1, path id, `not_before_ms` < `expires_at_ms`, at most one hour apart.
    Claims,
    /// The compact form holds path ids of at most 8 bytes.
    PathId,
    /// The compact form holds nonces of 16 bytes.
    Nonce,
    /// A foreign device text binds nothing.
    Device,
}

impl fmt::Display for MintError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Claims => {
                "a claim is out of range: ids from 1 to 2^63-1, path id of A-Z a-z 0-9 _ -, not_before_ms before expires_at_ms, at most 1 hour apart"
            }
            Self::PathId => "a compact ticket holds a path id of at most 8 bytes; shorten it or mint a JWS",
            Self::Nonce => "a compact ticket holds a nonce of 16 bytes (n_ and 22 characters); mint a JWS for others",
            Self::Device => "the device claim is not a hash of ours; bind the raw device id or none",
        })
    }
}

/// Refuses to mint what `authenticate` would refuse.
fn sound(claims: &Claims) -> Result<(), MintError> {
    if claims.is_sound() {
        Ok(())
    } else {
        Err(MintError::Claims)
    }
}
