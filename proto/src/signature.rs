//! Signed requests: an optional signature of the caller's program over each submit (requirement B8).
//!
//! `X-Weir-Signature: k=<key id>,t=<unix ms>,v1=<64 lower-case hex digits>`; v1 = HMAC-SHA256(K, `<t>` LF `<method>` LF
//! `<target>` LF `<body>`), K = HMAC-SHA256(secret, `weir signed request v1`), so that no ticket or payment key can sign a
//! request. Target: path, and `?` and query if there is one, as sent, without scheme and host. Body: decoded from chunks.
//! Called by core before the ticket. It stops requests that were put together without the key or changed on the way; a
//! copy within the window is for nonce and request id to recognise. Invariants: no allocation to verify; the cheapest check
//! first.

use crate::ids::KeyId;
use crate::limits::SIGNATURE_BYTES_MAX;
use crate::stamp::{self, Stamp};
use crate::ticket::{KeyError, MAC_BYTES, check_secret, key_id, same_mac};
use alloc::vec::Vec;
use core::fmt;
use hmac::{Hmac, Mac};
use sha2::Sha256;

const DOMAIN: &[u8] = b"weir signed request v1";

/// One key of signed requests. `Debug` shows its id only.
#[derive(Clone)]
pub struct SignatureKey {
    kid: KeyId,
    mac: Hmac<Sha256>,
}

impl fmt::Debug for SignatureKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SignatureKey({})", self.kid)
    }
}

impl SignatureKey {
    /// Makes a key from its id and 32..=64 bytes of secret.
    ///
    /// # Errors
    /// `Kid` or `SecretBytes`.
    pub fn new(kid: &[u8], secret: &[u8]) -> Result<Self, KeyError> {
        let kid = key_id(kid).ok_or(KeyError::Kid)?;
        check_secret(secret)?;
        let mac = stamp::key(secret, DOMAIN);
        Ok(Self { kid, mac })
    }

    fn mac(&self, time: &[u8], signed: Signed<'_>) -> [u8; MAC_BYTES] {
        let mut mac = self.mac.clone();
        for part in [
            time,
            b"\n",
            signed.method,
            b"\n",
            signed.target,
            b"\n",
            signed.body,
        ] {
            mac.update(part);
        }
        mac.finalize().into_bytes().into()
    }
}

/// What a signature covers beside its time. No `Debug`: it holds a body.
#[derive(Clone, Copy)]
pub struct Signed<'a> {
    /// The method as sent.
    pub method: &'a [u8],
    /// The path, and `?` and query if there is one; no LF can be in it.
    pub target: &'a [u8],
    /// The decoded body.
    pub body: &'a [u8],
}

/// The live keys, at most two: one follows the other.
#[derive(Clone, Debug)]
pub struct SignatureKeys {
    first: SignatureKey,
    other: Option<SignatureKey>,
}

impl SignatureKeys {
    /// One key, or two while one follows the other; both verify.
    ///
    /// # Errors
    /// `SameKid` when both have one id.
    pub fn new(first: SignatureKey, other: Option<SignatureKey>) -> Result<Self, KeyError> {
        if other.as_ref().is_some_and(|key| key.kid == first.kid) {
            return Err(KeyError::SameKid);
        }
        Ok(Self { first, other })
    }

    /// Key ids are public, so the time may depend on them.
    fn find(&self, kid: &[u8]) -> Option<&SignatureKey> {
        let mut keys = [Some(&self.first), self.other.as_ref()]
            .into_iter()
            .flatten();
        keys.find(|key| key.kid.as_bytes() == kid)
    }
}

/// Why a signature is refused. Holds nothing of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignatureReject {
    /// There is no `X-Weir-Signature`.
    Missing,
    /// The header is not `k=<key id>,t=<unix ms>,v1=<64 hex digits>`.
    Shape,
    /// No live key has this id.
    Key,
    /// More than the allowed time from our clock, either way.
    Stale,
    /// The MAC is wrong.
    Mac,
}

/// Checks the signature of one request.
///
/// `header`: the value of `X-Weir-Signature`; `wall_ms`: the wall clock of this turn; `skew_ms`: how far the signature's
/// time may be from it, either way, both ends included.
/// # Errors
/// The first of `Missing`, `Shape`, `Key`, `Stale`, `Mac`.
pub fn verify_request(
    signed: Signed<'_>,
    header: Option<&[u8]>,
    keys: &SignatureKeys,
    wall_ms: u64,
    skew_ms: u64,
) -> Result<(), SignatureReject> {
    let header = header.ok_or(SignatureReject::Missing)?;
    let (kid, stamp) = read(header).ok_or(SignatureReject::Shape)?;
    let key = keys.find(kid).ok_or(SignatureReject::Key)?;
    if stamp.time_ms.abs_diff(wall_ms) > skew_ms {
        return Err(SignatureReject::Stale);
    }
    if !same_mac(&key.mac(stamp.time, signed), &stamp.mac) {
        return Err(SignatureReject::Mac);
    }
    Ok(())
}

fn read(header: &[u8]) -> Option<(&[u8], Stamp<'_>)> {
    if header.len() > SIGNATURE_BYTES_MAX {
        return None;
    }
    let rest = header.strip_prefix(b"k=")?;
    let comma = memchr::memchr(b',', rest)?;
    let (kid, stamp) = (&rest[..comma], &rest[comma + 1..]);
    Some((kid, Stamp::read(stamp)?))
}

/// Appends the value of `X-Weir-Signature` for a request at wall time `time_ms` to `out`.
pub fn sign_request(signed: Signed<'_>, key: &SignatureKey, time_ms: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(b"k=");
    out.extend_from_slice(key.kid.as_bytes());
    out.push(b',');
    stamp::append(time_ms, |time| key.mac(time, signed), out);
}
