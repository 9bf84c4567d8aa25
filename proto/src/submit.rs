//! The body of a submit: one strict JSON object, and the `Idempotency-Key` header that may replace its request id.
//!
//! Called by the admission pipeline's parse stage. Invariants: every number is in its wire range, the request id is
//! present once and plain; policy (how many units per user) is not here.

use crate::ids::{ActivityId, RequestId, SkuId, UserId};
use crate::json::{JsonError, Member, MemberFault, Object};
use crate::limits::{ID_MAX, QUANTITY_MAX, REQUEST_ID_BYTES_MAX, REQUEST_ID_BYTES_MIN};
use core::fmt;

/// One press of the button.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Submit {
    /// The client's idempotency key.
    pub request_id: RequestId,
    /// The sale.
    pub activity: ActivityId,
    /// The SKU.
    pub sku: SkuId,
    /// The buyer that the client says it is; the ticket decides.
    pub user: UserId,
    /// Units wanted, 1..=1000.
    pub quantity: u32,
    /// How often the client has tried before, 0 when it does not say.
    pub attempt: u32,
}

/// Why a submit is refused as INVALID_ARGUMENT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubmitError {
    /// The body is not the object; names the member.
    Json(JsonError),
    /// Neither the body nor the header names the request.
    NoRequestId,
    /// `Idempotency-Key` is not a request id.
    IdempotencyKey,
    /// The header and the body name different requests.
    RequestIdsDiffer,
}

impl From<JsonError> for SubmitError {
    fn from(error: JsonError) -> Self {
        Self::Json(error)
    }
}

impl fmt::Display for SubmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(error) => error.fmt(f),
            Self::NoRequestId => {
                f.write_str("`request_id` is missing; put it in the body or in Idempotency-Key")
            }
            Self::IdempotencyKey => write!(
                f,
                "Idempotency-Key must have {REQUEST_ID_BYTES_MIN} to {REQUEST_ID_BYTES_MAX} bytes of {REQUEST_ID_ALPHABET}"
            ),
            Self::RequestIdsDiffer => f.write_str(
                "`request_id` and Idempotency-Key differ; send one of them or both alike",
            ),
        }
    }
}

const REQUEST_ID_ALPHABET: &str = "A-Z, a-z, 0-9, dot, underscore, colon and hyphen";

const MEMBERS: &[&str] = &[
    "request_id",
    "activity_id",
    "sku_id",
    "user_id",
    "quantity",
    "attempt",
];

impl Submit {
    /// Reads a body and the `Idempotency-Key` header's value, if there is one.
    ///
    /// The header may be bare (`abc-1234`) or a quoted string (`"abc-1234"`), as its draft standard writes it.
    /// # Errors
    /// The first fault in the order of the bytes; missing members after that, then the request id.
    pub fn parse(body: &[u8], idempotency_key: Option<&[u8]>) -> Result<Self, SubmitError> {
        let mut object = Object::open(body, MEMBERS)?;
        let mut request_id = None;
        let (mut activity, mut sku, mut user, mut quantity) = (None, None, None, None);
        let mut attempt = 0;
        while let Some(member) = object.next_member()? {
            match member.name {
                "request_id" => request_id = Some(body_request_id(&member)?),
                "activity_id" => activity = Some(ActivityId(member.integer(1..=ID_MAX)?)),
                "sku_id" => sku = Some(SkuId(member.integer(1..=ID_MAX)?)),
                "user_id" => user = Some(UserId(member.integer(1..=ID_MAX)?)),
                "quantity" => quantity = Some(member.integer(1..=u64::from(QUANTITY_MAX))? as u32),
                _ => attempt = member.integer(0..=u64::from(u32::MAX))? as u32,
            }
        }
        let activity = activity.ok_or_else(|| JsonError::missing("activity_id"))?;
        let sku = sku.ok_or_else(|| JsonError::missing("sku_id"))?;
        let user = user.ok_or_else(|| JsonError::missing("user_id"))?;
        let quantity = quantity.ok_or_else(|| JsonError::missing("quantity"))?;
        let header = match idempotency_key {
            None => None,
            Some(value) => Some(header_request_id(value).ok_or(SubmitError::IdempotencyKey)?),
        };
        let request_id = match (request_id, header) {
            (Some(body), Some(header)) if body != header => {
                return Err(SubmitError::RequestIdsDiffer);
            }
            (Some(id), _) | (None, Some(id)) => id,
            (None, None) => return Err(SubmitError::NoRequestId),
        };
        Ok(Self {
            request_id,
            activity,
            sku,
            user,
            quantity,
            attempt,
        })
    }
}

/// Reads a request id: 8..=64 bytes of `[A-Za-z0-9._:-]`; `None` for anything else. Used for paths and headers too.
pub fn request_id(bytes: &[u8]) -> Option<RequestId> {
    let id = RequestId::new(bytes)?;
    (bytes.len() >= REQUEST_ID_BYTES_MIN && id.all(is_request_id_byte)).then_some(id)
}

fn is_request_id_byte(byte: u8) -> bool {
    let letter = (byte | 0x20).wrapping_sub(b'a') < 26;
    let digit_or_colon = byte.wrapping_sub(b'0') < 11;
    let hyphen_or_dot = byte.wrapping_sub(b'-') < 2;
    letter | digit_or_colon | hyphen_or_dot | (byte == b'_')
}

fn body_request_id(member: &Member<'_>) -> Result<RequestId, JsonError> {
    let text = member.text()?;
    let mut scratch = [0; REQUEST_ID_BYTES_MAX];
    match text.decode(&mut scratch) {
        Some(decoded) if decoded.len() >= REQUEST_ID_BYTES_MIN => request_id(decoded)
            .ok_or_else(|| member.fault(MemberFault::Alphabet(REQUEST_ID_ALPHABET))),
        _ => Err(member.fault(LENGTH)),
    }
}

const LENGTH: MemberFault = MemberFault::Length {
    bytes_min: REQUEST_ID_BYTES_MIN,
    bytes_max: REQUEST_ID_BYTES_MAX,
};

// draft-ietf-httpapi-idempotency-key-header §2.1 wants a quoted string; most clients send it bare.
fn header_request_id(value: &[u8]) -> Option<RequestId> {
    let bare = value
        .strip_prefix(b"\"")
        .and_then(|rest| rest.strip_suffix(b"\""));
    request_id(bare.unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_id_has_the_documented_alphabet() {
        for byte in 0..=255_u8 {
            let documented = byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
            assert_eq!(is_request_id_byte(byte), documented, "{byte}");
        }
    }
}
