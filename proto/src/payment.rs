//! The payment provider's callback: its signature header and its body.
//!
//! `X-Weir-Signature: t=<unix ms>,v1=<64 lower-case hex digits>`; v1 = HMAC-SHA256(K, `<t>.<body>`), K = HMAC-SHA256(secret,
//! `weir payment callback v1`), so that no ticket key can sign a payment. Called by core for `POST /v1/payments/callback`.
//! Invariants: the body is read only after the MAC fits and the time is near; no allocation to verify. Idempotency by
//! payment id is the order store's.

use crate::ids::{ActivityId, ReservationId, SkuId};
use crate::json::{JsonError, JsonText, Member, MemberFault, Object};
use crate::limits::{ID_MAX, PAYMENT_ID_BYTES_MAX, PAYMENT_SKEW_MS_MAX};
use crate::stamp::{self, Stamp, hex_digit};
use crate::text::Text;
use crate::ticket::{KeyError, MAC_BYTES, check_secret, same_mac};
use alloc::vec::Vec;
use core::fmt;
use hmac::{Hmac, Mac as _};
use sha2::Sha256;

/// The payment provider's name of one payment, 1..=64 visible ASCII bytes.
pub type PaymentId = Text<PAYMENT_ID_BYTES_MAX>;

const DOMAIN: &[u8] = b"weir payment callback v1";

/// The key of payment callbacks. `Debug` shows nothing.
#[derive(Clone)]
pub struct PaymentKey(Hmac<Sha256>);

impl fmt::Debug for PaymentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PaymentKey(hidden)")
    }
}

impl PaymentKey {
    /// Makes the key from 32..=64 bytes of secret.
    ///
    /// # Errors
    /// `SecretBytes`.
    pub fn new(secret: &[u8]) -> Result<Self, KeyError> {
        check_secret(secret)?;
        Ok(Self(stamp::key(secret, DOMAIN)))
    }

    fn mac(&self, time: &[u8], body: &[u8]) -> [u8; MAC_BYTES] {
        let mut mac = self.0.clone();
        mac.update(time);
        mac.update(b".");
        mac.update(body);
        mac.finalize().into_bytes().into()
    }
}

/// One payment as the provider reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaymentCallback {
    /// The provider's name of the payment; the same one twice is the same payment.
    pub payment_id: PaymentId,
    /// What was paid for.
    pub reservation: ReservationId,
    /// Its sale.
    pub activity: ActivityId,
    /// Its SKU.
    pub sku: SkuId,
    /// The amount in the currency's smallest unit, 0..=2^63-1.
    pub amount_minor: u64,
    /// ISO 4217, three capital letters.
    pub currency: [u8; 3],
    /// When it was paid, wall milliseconds.
    pub paid_at_ms: u64,
}

/// Why a callback is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PaymentReject {
    /// There is no `X-Weir-Signature`.
    Missing,
    /// The header is not `t=<unix ms>,v1=<64 hex digits>`.
    Shape,
    /// The MAC is wrong.
    Signature,
    /// Signed, but more than 5 minutes from our clock.
    Stale,
    /// Signed, but the body is not a callback.
    Body(JsonError),
}

impl fmt::Display for PaymentReject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("the header X-Weir-Signature is missing"),
            Self::Shape => f.write_str(
                "X-Weir-Signature must be t=<unix milliseconds>,v1=<64 lower-case hex digits>",
            ),
            Self::Signature => f.write_str("the signature does not fit this body and time"),
            Self::Stale => f.write_str(
                "the signature's time is more than 5 minutes from this server's clock; sign again",
            ),
            Self::Body(error) => error.fmt(f),
        }
    }
}

/// Checks a callback's signature and time and reads its body.
///
/// `header`: the value of `X-Weir-Signature`; `wall_ms`: the wall clock of this turn.
/// # Errors
/// The first of `Missing`, `Shape`, `Signature`, `Stale`, `Body`.
pub fn verify_callback(
    body: &[u8],
    header: Option<&[u8]>,
    key: &PaymentKey,
    wall_ms: u64,
) -> Result<PaymentCallback, PaymentReject> {
    let stamp = Stamp::read(header.ok_or(PaymentReject::Missing)?).ok_or(PaymentReject::Shape)?;
    if !same_mac(&key.mac(stamp.time, body), &stamp.mac) {
        return Err(PaymentReject::Signature);
    }
    if stamp.time_ms.abs_diff(wall_ms) > PAYMENT_SKEW_MS_MAX {
        return Err(PaymentReject::Stale);
    }
    read_body(body).map_err(PaymentReject::Body)
}

/// Appends the value of `X-Weir-Signature` for `body` at wall time `time_ms` to `out`.
pub fn sign_callback(body: &[u8], key: &PaymentKey, time_ms: u64, out: &mut Vec<u8>) {
    stamp::append(time_ms, |time| key.mac(time, body), out);
}

const MEMBERS: &[&str] = &[
    "payment_id",
    "reservation_id",
    "activity_id",
    "sku_id",
    "amount_minor",
    "currency",
    "paid_at_ms",
];

fn read_body(body: &[u8]) -> Result<PaymentCallback, JsonError> {
    let mut object = Object::open(body, MEMBERS)?;
    let (mut payment_id, mut reservation, mut currency) = (None, None, None);
    let (mut activity, mut sku, mut amount_minor, mut paid_at_ms) = (None, None, None, None);
    while let Some(member) = object.next_member()? {
        match member.name {
            "payment_id" => payment_id = Some(read_payment_id(&member)?),
            "reservation_id" => reservation = Some(read_reservation(&member)?),
            "activity_id" => activity = Some(member.integer(1..=ID_MAX)?),
            "sku_id" => sku = Some(member.integer(1..=ID_MAX)?),
            "amount_minor" => amount_minor = Some(member.integer(0..=ID_MAX)?),
            "currency" => currency = Some(read_currency(&member)?),
            _ => paid_at_ms = Some(member.integer(0..=ID_MAX)?),
        }
    }
    let missing = JsonError::missing;
    Ok(PaymentCallback {
        payment_id: payment_id.ok_or_else(|| missing("payment_id"))?,
        reservation: reservation.ok_or_else(|| missing("reservation_id"))?,
        activity: ActivityId(activity.ok_or_else(|| missing("activity_id"))?),
        sku: SkuId(sku.ok_or_else(|| missing("sku_id"))?),
        amount_minor: amount_minor.ok_or_else(|| missing("amount_minor"))?,
        currency: currency.ok_or_else(|| missing("currency"))?,
        paid_at_ms: paid_at_ms.ok_or_else(|| missing("paid_at_ms"))?,
    })
}

fn read_payment_id(member: &Member<'_>) -> Result<PaymentId, JsonError> {
    let text: JsonText<'_> = member.text()?;
    if text.is("") || text.is_longer_than(PAYMENT_ID_BYTES_MAX) {
        return Err(member.fault(MemberFault::Length {
            bytes_min: 1,
            bytes_max: PAYMENT_ID_BYTES_MAX,
        }));
    }
    text.visible()
        .ok_or_else(|| member.fault(MemberFault::Alphabet("visible ASCII")))
}

fn read_reservation(member: &Member<'_>) -> Result<ReservationId, JsonError> {
    let text = member.text()?.visible::<RESERVATION_BYTES>();
    text.and_then(|text| reservation_id(text.as_bytes()))
        .ok_or_else(|| member.fault(MemberFault::Form("rsv_ and 16 lower-case hex digits")))
}

const RESERVATION_BYTES: usize = 4 + 16;

/// Reads `rsv_` and 16 lower-case hexadecimal digits, as [`ReservationId`] writes them; `None` for anything else.
pub fn reservation_id(bytes: &[u8]) -> Option<ReservationId> {
    let hex = bytes.strip_prefix(b"rsv_")?;
    if hex.len() != 16 {
        return None;
    }
    let number = hex.iter().try_fold(0, |number, &byte| {
        Some(number << 4 | u64::from(hex_digit(byte)?))
    })?;
    Some(ReservationId(number))
}

fn read_currency(member: &Member<'_>) -> Result<[u8; 3], JsonError> {
    member
        .text()?
        .visible::<3>()
        .and_then(|text| <[u8; 3]>::try_from(text.as_bytes()).ok())
        .filter(|letters| letters.iter().all(u8::is_ascii_uppercase))
        .ok_or_else(|| member.fault(MemberFault::Form("three letters A to Z (ISO 4217)")))
}
