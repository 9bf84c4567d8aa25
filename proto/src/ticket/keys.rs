//! Ticket keys and the ring of the (at most two) live ones.
//!
//! Called at start-up and by both forms. One secret serves both forms, through separate domains: HS256 uses the secret
//! itself, so that any shop can mint with an ordinary JWT library; the compact form uses a key derived by
//! `blake3::derive_key`. Invariants: every secret has 256 bits or more; `Debug` shows key ids only.

use super::claims::is_name_byte;
use super::jws;
use crate::ids::KeyId;
use crate::limits::{SECRET_BYTES_MAX, SECRET_BYTES_MIN};
use alloc::boxed::Box;
use core::fmt;
use hmac::{Hmac, Mac};
use sha2::Sha256;

/// Names the compact form to `derive_key`; a new form takes a new text.
const COMPACT_CONTEXT: &str = "weir 2026-11-30 compact ticket w1 MAC";

/// Most live keys: the one that signs and the one that goes or comes (requirement B5).
pub const LIVE_KEYS_MAX: usize = 2;

/// Bytes of the MAC of both forms.
pub const MAC_BYTES: usize = 32;

/// One live key.
#[derive(Clone)]
pub struct TicketKey {
    kid: KeyId,
    // Keyed once: a clone starts after the two compressions that absorb the key.
    hs256: Hmac<Sha256>,
    compact: [u8; 32],
    jws_header: Box<[u8]>,
}

impl fmt::Debug for TicketKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TicketKey({})", self.kid)
    }
}

/// Why a key or a ring cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// The key id is not 1..=36 bytes of `[A-Za-z0-9_-]`.
    Kid,
    /// The secret has this many bytes, and 32..=64 are needed.
    SecretBytes(usize),
    /// Both keys have the same id.
    SameKid,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kid => f.write_str("a key id must have 1 to 36 bytes of A-Z, a-z, 0-9, _ and -"),
            Self::SecretBytes(bytes) => write!(
                f,
                "the secret has {bytes} bytes; it must have {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} (make one with `weir keygen`)"
            ),
            Self::SameKid => {
                f.write_str("the two live keys have the same id; give the new key a new id")
            }
        }
    }
}

/// Refuses a secret that is too short to be safe or longer than is of use.
pub(crate) fn check_secret(secret: &[u8]) -> Result<(), KeyError> {
    if !(SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&secret.len()) {
        return Err(KeyError::SecretBytes(secret.len()));
    }
    Ok(())
}

/// Reads a key id; `None` when it is not 1..=36 bytes of `[A-Za-z0-9_-]`.
pub fn key_id(bytes: &[u8]) -> Option<KeyId> {
    KeyId::of(bytes, is_name_byte).filter(|id| !id.is_empty())
}

impl TicketKey {
    /// Makes a key from its id and 32..=64 bytes of secret.
    ///
    /// # Errors
    /// `Kid` or `SecretBytes`.
    pub fn new(kid: &[u8], secret: &[u8]) -> Result<Self, KeyError> {
        let kid = key_id(kid).ok_or(KeyError::Kid)?;
        check_secret(secret)?;
        Ok(Self {
            kid,
            hs256: Hmac::new_from_slice(secret).expect("HMAC takes a key of any length"),
            compact: blake3::derive_key(COMPACT_CONTEXT, secret),
            jws_header: jws::header_of(kid).into_boxed_slice(),
        })
    }

    /// The key's id.
    pub fn kid(&self) -> &KeyId {
        &self.kid
    }

    /// The header of the JWS tickets that we mint under this key, encoded.
    pub(super) fn jws_header(&self) -> &[u8] {
        &self.jws_header
    }

    /// HMAC-SHA256 under the secret, as a JWS signing input wants it (RFC 7515 §5.1).
    pub fn hs256(&self, signing_input: &[u8]) -> [u8; MAC_BYTES] {
        let mut mac = self.hs256.clone();
        mac.update(signing_input);
        mac.finalize().into_bytes().into()
    }

    /// Keyed BLAKE3 under the compact form's own key.
    pub(super) fn compact(&self, input: &[u8]) -> [u8; MAC_BYTES] {
        *blake3::keyed_hash(&self.compact, input).as_bytes()
    }
}

/// Compares two MACs in a time that does not depend on where they differ.
pub(crate) fn same_mac(ours: &[u8; MAC_BYTES], theirs: &[u8; MAC_BYTES]) -> bool {
    constant_time_eq::constant_time_eq_32(ours, theirs)
}

/// The live keys: `signing` mints and verifies, `other` only verifies.
#[derive(Clone, Debug)]
pub struct KeyRing {
    signing: TicketKey,
    other: Option<TicketKey>,
}

impl KeyRing {
    /// A ring of one key, or of two while one follows the other.
    ///
    /// # Errors
    /// `SameKid` when both have one id.
    pub fn new(signing: TicketKey, other: Option<TicketKey>) -> Result<Self, KeyError> {
        if other.as_ref().is_some_and(|key| key.kid == signing.kid) {
            return Err(KeyError::SameKid);
        }
        Ok(Self { signing, other })
    }

    /// The key that mints.
    pub fn signing(&self) -> &TicketKey {
        &self.signing
    }

    /// The live key of that id. Key ids are public, so the time may depend on them.
    pub fn find(&self, kid: &[u8]) -> Option<&TicketKey> {
        self.live().find(|key| key.kid.as_bytes() == kid)
    }

    /// The live key under which we mint JWS tickets with that encoded header.
    pub(super) fn find_by_jws_header(&self, header: &[u8]) -> Option<&TicketKey> {
        self.live().find(|key| key.jws_header() == header)
    }

    fn live(&self) -> impl Iterator<Item = &TicketKey> {
        core::iter::once(&self.signing).chain(&self.other)
    }
}
