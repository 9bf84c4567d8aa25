//! The payment provider's callback: its signature header and its body.
//!
//! `X-Weir-Signature: t=<unix ms>,v1=<64 lower-case hex digits>`; v1 = HMAC-SHA256(K, `<t>.<body>`), K = HMAC-SHA256(secret,
//! `weir payment callback v1`), so that no ticket key can sign a payment. Called by core for `POST /v1/payments/callback`.
//! Invariants: the body is read only after the MAC fits and the time is near; no allocation to verify. Idempotency by
//! payment id is the order store's.

use crate::ids::{ActivityId, ReservationId, SkuId};
use crate::json::{JsonError, JsonText, Member, MemberFault, Object};
use crate::limits::{ID_MAX, PAYMENT_ID_BYTES_MAX, PAYMENT_SKEW_MS_MAX};
use crate::text::Text;
use crate::ticket::{KeyError, MAC_BYTES, check_secret, same_mac};
use alloc::vec::Vec;
use core::fmt;
use hmac::{Hmac, Mac};
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
        let mut outer: Hmac<Sha256> =
            Hmac::new_from_slice(secret).expect("HMAC takes a key of any length");
        outer.update(DOMAIN);
        let key = outer.finalize().into_bytes();
        Ok(Self(
            Hmac::new_from_slice(&key).expect("HMAC takes a key of any length"),
        ))
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
    let signed = Signed::read(header.ok_or(PaymentReject::Missing)?).ok_or(PaymentReject::Shape)?;
    if !same_mac(&key.mac(signed.time, body), &signed.mac) {
        return Err(PaymentReject::Signature);
    }
    if signed.time_ms.abs_diff(wall_ms) > PAYMENT_SKEW_MS_MAX {
        return Err(PaymentReject::Stale);
    }
    read_body(body).map_err(PaymentReject::Body)
}

/// Appends the value of `X-Weir-Signature` for `body` at wall time `time_ms` to `out`.
pub fn sign_callback(body: &[u8], key: &PaymentKey, time_ms: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(b"t=");
    let start = out.len();
    push_decimal(time_ms, out);
    let mac = key.mac(&out[start..], body);
    out.extend_from_slice(b",v1=");
    for byte in mac {
        out.extend([byte >> 4, byte & 15].map(|digit| b"0123456789abcdef"[usize::from(digit)]));
    }
}

fn push_decimal(number: u64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut rest = number;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

struct Signed<'a> {
    time: &'a [u8],
    time_ms: u64,
    mac: [u8; MAC_BYTES],
}

impl<'a> Signed<'a> {
    fn read(header: &'a [u8]) -> Option<Self> {
        let rest = header.strip_prefix(b"t=")?;
        let comma = memchr::memchr(b',', rest)?;
        let (time, rest) = rest.split_at(comma);
        let hex = rest.strip_prefix(b",v1=")?;
        if time.is_empty() || hex.len() != 2 * MAC_BYTES {
            return None;
        }
        let mut time_ms = 0u64;
        for &digit in time {
            let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
            time_ms = time_ms.checked_mul(10)?.checked_add(digit)?;
        }
        let mut mac = [0; MAC_BYTES];
        for (slot, pair) in mac.iter_mut().zip(hex.chunks_exact(2)) {
            *slot = hex_digit(pair[0])? << 4 | hex_digit(pair[1])?;
        }
        Some(Self { time, time_ms, mac })
    }
}

fn hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
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
