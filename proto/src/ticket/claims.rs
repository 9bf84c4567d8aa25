//! What a ticket says (seed 000 §8.1), the same for both forms, and the checks after the signature.
//!
//! Called by `ticket` (verify, mint) and by core. Invariants of a [`Claims`] that came out of `authenticate`: ids in range,
//! path id and nonce well formed, `not_before_ms < expires_at_ms`, window of at most one hour.

use super::base64url;
use super::device::DeviceClaim;
use super::reject::{Binding, TicketReject};
use crate::ids::{ActivityId, Nonce, PathId, SkuId, UserId};
use crate::limits::{ID_MAX, NONCE_BYTES_MAX, TICKET_LEEWAY_MS_MAX, TICKET_WINDOW_MS_MAX};

/// Bytes of a raw nonce.
pub const NONCE_RAW_BYTES: usize = 16;
const NONCE_PREFIX: &[u8] = b"n_";
const NONCE_TEXT_BYTES: usize = NONCE_PREFIX.len() + base64url::encoded_len(NONCE_RAW_BYTES);

/// The single-use part of a ticket. Its text is computed when asked for: refusing a request must not pay for it.
#[derive(Clone, Copy, Debug)]
pub enum NonceClaim {
    /// 16 random bytes; named `n_` and 22 characters of base64url.
    Raw([u8; NONCE_RAW_BYTES]),
    /// A JWS ticket's own text of 1..=32 visible ASCII bytes.
    Text(Nonce),
}

impl NonceClaim {
    /// The nonce's name, the same for both forms.
    pub fn text(&self) -> Nonce {
        match self {
            Self::Text(text) => *text,
            Self::Raw(raw) => {
                let mut text = [0; NONCE_TEXT_BYTES];
                text[..NONCE_PREFIX.len()].copy_from_slice(NONCE_PREFIX);
                base64url::encode(raw, &mut text[NONCE_PREFIX.len()..]);
                const { assert!(NONCE_TEXT_BYTES <= NONCE_BYTES_MAX) };
                Nonce::new(&text).expect("24 characters of base64url and a prefix")
            }
        }
    }

    /// The 16 bytes, when the name is that of 16 bytes.
    pub fn raw(&self) -> Option<[u8; NONCE_RAW_BYTES]> {
        match self {
            Self::Raw(raw) => Some(*raw),
            Self::Text(text) => {
                let mut raw = [0; NONCE_RAW_BYTES];
                let rest = text.as_bytes().strip_prefix(NONCE_PREFIX)?;
                let whole = base64url::decode(rest, &mut raw)?.len() == NONCE_RAW_BYTES;
                whole.then_some(raw)
            }
        }
    }
}

impl PartialEq for NonceClaim {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for NonceClaim {}

/// The claims of a ticket. `Debug` hides user and device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claims {
    /// The sale.
    pub activity: ActivityId,
    /// The SKU.
    pub sku: SkuId,
    /// The buyer.
    pub user: UserId,
    /// The version of the activity that it was minted for, 1..=2^63-1.
    pub activity_version: u64,
    /// The dynamic path.
    pub path_id: PathId,
    /// The single-use part.
    pub nonce: NonceClaim,
    /// The device that may use it.
    pub device: DeviceClaim,
    /// First wall millisecond of its validity.
    pub not_before_ms: u64,
    /// First wall millisecond after its validity.
    pub expires_at_ms: u64,
}

/// What the request and the activity say, to be held against the claims. No `Debug`: it holds a raw device id.
#[derive(Clone, Copy)]
pub struct Expect<'a> {
    /// The sale in the body.
    pub activity: ActivityId,
    /// The SKU in the body.
    pub sku: SkuId,
    /// The user in the body.
    pub user: UserId,
    /// The activity's present version.
    pub activity_version: u64,
    /// The path id of the request, which is the activity's present one.
    pub path_id: PathId,
    /// The raw `X-Weir-Device` header.
    pub device: Option<&'a [u8]>,
    /// The activity's salt for device hashes.
    pub device_salt: &'a [u8; 32],
    /// Wall clock of this turn, milliseconds since 1970.
    pub wall_ms: u64,
    /// Allowed difference of clocks, 0..=5000 ms; more counts as 5000.
    pub leeway_ms: u64,
}

/// Reads a path id; `None` unless it is 1..=16 bytes of `[A-Za-z0-9_-]`.
pub fn path_id(bytes: &[u8]) -> Option<PathId> {
    PathId::of(bytes, is_name_byte).filter(|id| !id.is_empty())
}

/// A byte of a path id or key id: `[A-Za-z0-9_-]`.
pub(super) fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() | (byte == b'_') | (byte == b'-')
}

impl Claims {
    /// The nonce's name.
    pub fn nonce(&self) -> Nonce {
        self.nonce.text()
    }

    /// True when every claim is in its range; both forms and both directions hold to it.
    pub(super) fn is_sound(&self) -> bool {
        self.is_in_range() && path_id(self.path_id.as_bytes()).is_some()
    }

    /// [`Self::is_sound`] of claims whose path id came from [`path_id`].
    pub(super) fn is_in_range(&self) -> bool {
        let ids = [
            self.activity.0,
            self.sku.0,
            self.user.0,
            self.activity_version,
        ];
        ids.iter().all(|id| (1..=ID_MAX).contains(id))
            && !matches!(&self.nonce, NonceClaim::Text(text) if text.is_empty())
            && self.expires_at_ms <= ID_MAX
            && self.not_before_ms < self.expires_at_ms
            && self.expires_at_ms - self.not_before_ms <= TICKET_WINDOW_MS_MAX
    }

    /// B4's checks after the signature, in its order: times, activity / SKU / user, version / path, device.
    ///
    /// # Errors
    /// The first that fails.
    pub fn check(&self, expect: &Expect<'_>) -> Result<(), TicketReject> {
        self.check_window(expect)?;
        self.check_subject(expect)?;
        self.check_route(expect)?;
        self.check_device(expect)
    }

    /// Checks the times: valid from `not_before_ms` on and before `expires_at_ms`, both widened by the leeway.
    ///
    /// # Errors
    /// `NotYet` or `Expired`.
    pub fn check_window(&self, expect: &Expect<'_>) -> Result<(), TicketReject> {
        let leeway_ms = expect.leeway_ms.min(TICKET_LEEWAY_MS_MAX);
        if self.not_before_ms > expect.wall_ms.saturating_add(leeway_ms) {
            return Err(TicketReject::NotYet);
        }
        // RFC 7519 §4.1.4: at the instant of expiry it is no longer valid.
        if expect.wall_ms >= self.expires_at_ms.saturating_add(leeway_ms) {
            return Err(TicketReject::Expired);
        }
        Ok(())
    }

    /// Checks activity, SKU and user.
    ///
    /// # Errors
    /// `Binding` with the first that differs.
    pub fn check_subject(&self, expect: &Expect<'_>) -> Result<(), TicketReject> {
        let binding = if self.activity != expect.activity {
            Binding::Activity
        } else if self.sku != expect.sku {
            Binding::Sku
        } else if self.user != expect.user {
            Binding::User
        } else {
            return Ok(());
        };
        Err(TicketReject::Binding(binding))
    }

    /// Checks activity version and path id.
    ///
    /// # Errors
    /// `Binding` with the first that differs.
    pub fn check_route(&self, expect: &Expect<'_>) -> Result<(), TicketReject> {
        let binding = if self.activity_version != expect.activity_version {
            Binding::ActivityVersion
        } else if self.path_id != expect.path_id {
            Binding::PathId
        } else {
            return Ok(());
        };
        Err(TicketReject::Binding(binding))
    }

    /// Checks the device header against the claim.
    ///
    /// # Errors
    /// `Device` when the ticket binds a device and the header is missing or another's.
    pub fn check_device(&self, expect: &Expect<'_>) -> Result<(), TicketReject> {
        if self.device.allows(expect.device, expect.device_salt) {
            Ok(())
        } else {
            Err(TicketReject::Device)
        }
    }
}
