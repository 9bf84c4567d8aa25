//! The body of a submit: one strict JSON object, and the `Idempotency-Key` header that may replace its request id.
//!
//! Called by the admission pipeline's parse stage. Invariants: every number is in its wire range, the request id is
//! present once and plain; policy (how many units per user) is not here.

use crate::ids::{ActivityId, RequestId, SkuId, UserId};
use crate::json::{JsonError, Member, MemberFault, Object, Usual};
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
        let members = match Members::usual(body) {
            Some(members) => members,
            None => Members::read(body)?,
        };
        let header = match idempotency_key {
            None => None,
            Some(value) => Some(header_request_id(value).ok_or(SubmitError::IdempotencyKey)?),
        };
        let request_id = match (members.request_id, header) {
            (Some(body), Some(header)) if body != header => {
                return Err(SubmitError::RequestIdsDiffer);
            }
            (Some(id), _) | (None, Some(id)) => id,
            (None, None) => return Err(SubmitError::NoRequestId),
        };
        Ok(Self {
            request_id,
            activity: members.activity,
            sku: members.sku,
            user: members.user,
            quantity: members.quantity,
            attempt: members.attempt,
        })
    }
}

/// What a body says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Members {
    request_id: Option<RequestId>,
    activity: ActivityId,
    sku: SkuId,
    user: UserId,
    quantity: u32,
    attempt: u32,
}

impl Members {
    /// A body as `JSON.stringify` writes it, with its members in the documented order; `None` says nothing.
    #[inline(always)]
    fn usual(body: &[u8]) -> Option<Self> {
        let mut object = Usual::new(body);
        let request_id = if object.takes(b"{\"request_id\":\"") {
            let id = request_id(object.text()?)?;
            object.literal(b",\"activity_id\":")?;
            Some(id)
        } else {
            object.literal(b"{\"activity_id\":")?;
            None
        };
        let activity = object.integer()?;
        object.literal(b",\"sku_id\":")?;
        let sku = object.integer()?;
        object.literal(b",\"user_id\":")?;
        let user = object.integer()?;
        object.literal(b",\"quantity\":")?;
        let quantity = u32::try_from(object.integer()?).ok()?;
        let attempt = if object.takes(b",\"attempt\":") {
            u32::try_from(object.integer()?).ok()?
        } else {
            0
        };
        object.end()?;
        let ids = [activity, sku, user];
        let is_sound = ids.iter().all(|id| (1..=ID_MAX).contains(id));
        (is_sound && (1..=QUANTITY_MAX).contains(&quantity)).then_some(Self {
            request_id,
            activity: ActivityId(activity),
            sku: SkuId(sku),
            user: UserId(user),
            quantity,
            attempt,
        })
    }

    /// Any body.
    #[inline(never)]
    fn read(body: &[u8]) -> Result<Self, JsonError> {
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
        Ok(Self {
            request_id,
            activity: activity.ok_or_else(|| JsonError::missing("activity_id"))?,
            sku: sku.ok_or_else(|| JsonError::missing("sku_id"))?,
            user: user.ok_or_else(|| JsonError::missing("user_id"))?,
            quantity: quantity.ok_or_else(|| JsonError::missing("quantity"))?,
            attempt,
        })
    }
}

/// Reads a request id: 8..=64 bytes of `[A-Za-z0-9._:-]`; `None` for anything else. Used for paths and headers too.
pub fn request_id(bytes: &[u8]) -> Option<RequestId> {
    let id = RequestId::of(bytes, is_request_id_byte)?;
    (bytes.len() >= REQUEST_ID_BYTES_MIN).then_some(id)
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
    use alloc::format;
    use alloc::string::String;
    use proptest::prelude::*;

    fn number() -> impl Strategy<Value = String> {
        prop_oneof!["[0-9]{1,5}", "[0-9]{16,21}", "0", "[1-9][0-9]{0,12}"]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

        /// Bodies as they are usually written, whole or with bytes exchanged, added or taken away.
        #[test]
        fn what_is_usual_is_read_alike_member_by_member(
            id in prop_oneof![Just(None), "[A-Za-z0-9._:-]{7,65}".prop_map(Some), "[ -~]{8,12}".prop_map(Some)],
            numbers in (number(), number(), number(), prop_oneof!["[0-9]{1,4}", number()]),
            attempt in proptest::option::of(number()),
            damage in proptest::collection::vec((any::<proptest::sample::Index>(), 0_u8..3, any::<u8>()), 0..2),
        ) {
            let id = id.map_or_else(String::new, |id| format!("\"request_id\":\"{id}\","));
            let (activity, sku, user, quantity) = numbers;
            let attempt = attempt.map_or_else(String::new, |attempt| format!(",\"attempt\":{attempt}"));
            let mut body = format!(
                "{{{id}\"activity_id\":{activity},\"sku_id\":{sku},\"user_id\":{user},\"quantity\":{quantity}{attempt}}}"
            )
            .into_bytes();
            let is_whole = damage.is_empty();
            for (at, kind, byte) in damage {
                let at = at.index(body.len());
                match kind {
                    0 => body[at] = byte,
                    1 => body.insert(at, byte),
                    _ => drop(body.remove(at)),
                }
            }
            let (usual, read) = (Members::usual(&body), Members::read(&body));
            if is_whole {
                prop_assert_eq!(usual, read.ok());
            } else if usual.is_some() {
                prop_assert_eq!(usual, read.ok());
            }
        }
    }

    #[test]
    fn a_request_id_has_the_documented_alphabet() {
        for byte in 0..=255_u8 {
            let documented = byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
            assert_eq!(is_request_id_byte(byte), documented, "{byte}");
        }
    }
}
