//! Which device a ticket binds: a salted hash of the `X-Weir-Device` header (design §12.12).
//!
//! Called by both forms and by the device limit. The salt is one per activity, so hashes of one device in two sales cannot be
//! joined. A ticket whose claim is 16 zero bytes, the empty text or `none` binds no device. Text form: `b3:` and 22 characters.

use super::base64url;
use crate::limits::DEVICE_BYTES_MAX;
use core::fmt;

/// Bytes of a device hash.
pub const DEVICE_HASH_BYTES: usize = 16;
/// Longest `device_hash` claim of a JWS ticket: room for `sha256:` and 64 hexadecimal digits of other systems.
pub const DEVICE_CLAIM_BYTES_MAX: usize = 80;
/// Characters of the text form of a hash.
pub const DEVICE_TEXT_BYTES: usize = PREFIX.len() + base64url::encoded_len(DEVICE_HASH_BYTES);

const PREFIX: &[u8] = b"b3:";

/// The device claim of a ticket. `Debug` hides the hash.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum DeviceClaim {
    /// Any device may use the ticket.
    Unbound,
    /// Only the device with this hash.
    Hash([u8; DEVICE_HASH_BYTES]),
    /// A text that is no hash of ours; it matches no device, so such a ticket is refused when devices are checked.
    Foreign,
}

impl fmt::Debug for DeviceClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unbound => "Unbound",
            Self::Hash(_) => "Hash(hidden)",
            Self::Foreign => "Foreign",
        })
    }
}

impl DeviceClaim {
    /// The claim from its 16 bytes; all zero binds no device.
    pub fn from_bytes(bytes: [u8; DEVICE_HASH_BYTES]) -> Self {
        if bytes == [0; DEVICE_HASH_BYTES] {
            Self::Unbound
        } else {
            Self::Hash(bytes)
        }
    }

    /// The claim that binds `device`, the raw header of 1..=128 bytes; `None` when it has another length.
    pub fn of_device(salt: &[u8; 32], device: &[u8]) -> Option<Self> {
        Some(Self::from_bytes(device_hash(salt, device)?))
    }

    /// The claim from its text: empty or `none` binds no device, what is no hash of ours is foreign.
    pub fn from_text(text: &[u8]) -> Self {
        if text.is_empty() || text == b"none" {
            return Self::Unbound;
        }
        let mut hash = [0; DEVICE_HASH_BYTES];
        let decoded = text
            .strip_prefix(PREFIX)
            .filter(|rest| rest.len() == DEVICE_TEXT_BYTES - PREFIX.len())
            .and_then(|rest| base64url::decode(rest, &mut hash));
        match decoded {
            Some(_) => Self::from_bytes(hash),
            None => Self::Foreign,
        }
    }

    /// The text form of a hash.
    pub fn text(hash: &[u8; DEVICE_HASH_BYTES]) -> [u8; DEVICE_TEXT_BYTES] {
        let mut text = [0; DEVICE_TEXT_BYTES];
        text[..PREFIX.len()].copy_from_slice(PREFIX);
        base64url::encode(hash, &mut text[PREFIX.len()..]);
        text
    }

    /// The hash that the claim binds.
    pub fn hash(&self) -> Option<[u8; DEVICE_HASH_BYTES]> {
        match self {
            Self::Hash(hash) => Some(*hash),
            Self::Unbound | Self::Foreign => None,
        }
    }

    /// True when a request with this raw header (or none) may use the ticket.
    pub fn allows(&self, device: Option<&[u8]>, salt: &[u8; 32]) -> bool {
        match self {
            Self::Unbound => true,
            Self::Foreign => false,
            Self::Hash(claim) => device
                .and_then(|raw| device_hash(salt, raw))
                .is_some_and(|hash| constant_time_eq::constant_time_eq_16(&hash, claim)),
        }
    }
}

/// The hash of a raw `X-Weir-Device` header: the first 16 bytes of BLAKE3 keyed with the activity's salt.
/// `None` unless it has 1..=128 bytes.
pub fn device_hash(salt: &[u8; 32], device: &[u8]) -> Option<[u8; DEVICE_HASH_BYTES]> {
    if device.is_empty() || device.len() > DEVICE_BYTES_MAX {
        return None;
    }
    let digest = blake3::keyed_hash(salt, device);
    let mut hash = [0; DEVICE_HASH_BYTES];
    hash.copy_from_slice(&digest.as_bytes()[..DEVICE_HASH_BYTES]);
    Some(hash)
}
