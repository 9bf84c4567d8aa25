//! The body of a submit: one strict JSON object, and the `Idempotency-Key` header that may replace its request id.
//!
//! Called by the admission pipeline's parse stage. Invariants: every number is in its wire range, the request id is
//! present once and plain; policy (how many units per user) is not here.

use crate::ids::{ActivityId, RequestId, SkuId, UserId};
use crate::json::{JsonError, Member, MemberFault, Object, Usual};
use crate::limits::{ID_MAX, QUANTITY_MAX, REQUEST_ID_BYTES_MAX, REQUEST_ID_BYTES_MIN};
use core::fmt;
use wide::u8x16;

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
        match Self::usual(body, idempotency_key) {
            Some(submit) => Ok(submit),
            None => Self::read(body, idempotency_key),
        }
    }

    /// A body as `JSON.stringify` writes it, with its members in the documented order; `None` says nothing.
    #[inline(always)]
    fn usual(body: &[u8], idempotency_key: Option<&[u8]>) -> Option<Self> {
        let mut object = Usual::new(body);
        let id = if object.takes(b"{\"request_id\":\"") {
            let id = object.text()?;
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
        let quantity = object.integer()?;
        let attempt = if object.takes(b",\"attempt\":") {
            u32::try_from(object.integer()?).ok()?
        } else {
            0
        };
        object.end()?;
        let ids = [activity, sku, user];
        let is_in_range = ids.iter().all(|id| (1..=ID_MAX).contains(id))
            && (1..=u64::from(QUANTITY_MAX)).contains(&quantity);
        if !is_in_range {
            return None;
        }
        let id = match (id, idempotency_key) {
            (Some(id), None) => id,
            (None, Some(key)) => bare(key),
            (Some(id), Some(key)) if bare(key) == id => id,
            _ => return None,
        };
        Some(Self {
            request_id: request_id(id)?,
            activity: ActivityId(activity),
            sku: SkuId(sku),
            user: UserId(user),
            quantity: quantity as u32, // at most QUANTITY_MAX
            attempt,
        })
    }

    /// Any body.
    #[inline(never)]
    fn read(body: &[u8], idempotency_key: Option<&[u8]>) -> Result<Self, SubmitError> {
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
    if !has_request_id_bytes(bytes) {
        return None;
    }
    RequestId::of_visible(bytes)
}

/// Bytes looked at together; no request id is shorter than half of them.
const BLOCK_BYTES: usize = 16;
const _: () = assert!(REQUEST_ID_BYTES_MIN * 2 == BLOCK_BYTES);

/// True for 8 bytes or more that a request id may have. The last block lies over the one before it.
#[inline(always)]
fn has_request_id_bytes(bytes: &[u8]) -> bool {
    let Some(last) = bytes.last_chunk::<BLOCK_BYTES>() else {
        return match (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
            (Some(first), Some(last)) => {
                let mut block = [0; BLOCK_BYTES];
                block[..8].copy_from_slice(first);
                block[8..].copy_from_slice(last);
                request_id_bytes_of(block).all()
            }
            _ => false,
        };
    };
    let (blocks, _) = bytes.as_chunks::<BLOCK_BYTES>();
    let of_blocks = blocks.iter().map(|block| request_id_bytes_of(*block));
    of_blocks
        .fold(request_id_bytes_of(*last), |all, block| all & block)
        .all()
}

/// All bits of each byte that a request id may have.
#[inline(always)]
fn request_id_bytes_of(block: [u8; BLOCK_BYTES]) -> u8x16 {
    let block = u8x16::from(block);
    let run =
        |first: u8, last: u8| (block - u8x16::splat(first)).simd_lt(u8x16::splat(last - first + 1));
    let lower = block | u8x16::splat(0x20);
    let letters = (lower - u8x16::splat(b'a')).simd_lt(u8x16::splat(26));
    let underscores = block.simd_eq(u8x16::splat(b'_'));
    letters | run(b'0', b':') | run(b'-', b'.') | underscores
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

fn header_request_id(value: &[u8]) -> Option<RequestId> {
    request_id(bare(value))
}

// draft-ietf-httpapi-idempotency-key-header §2.1 wants a quoted string; most clients send it bare.
fn bare(value: &[u8]) -> &[u8] {
    let unquoted = value
        .strip_prefix(b"\"")
        .and_then(|rest| rest.strip_suffix(b"\""));
    unquoted.unwrap_or(value)
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
            key in prop_oneof![6 => Just(None), 1 => "\"?[A-Za-z0-9._:-]{7,65}\"?".prop_map(Some), 1 => Just(Some(String::new()))],
            damage in proptest::collection::vec((any::<proptest::sample::Index>(), 0_u8..3, any::<u8>()), 0..2),
        ) {
            // An empty one stands for the body's own.
            let key = key.map(|key| if key.is_empty() { id.clone().unwrap_or(key) } else { key });
            let key = key.as_deref().map(str::as_bytes);
            let id = id.map_or_else(String::new, |id| format!("\"request_id\":\"{id}\","));
            let (activity, sku, user, quantity) = numbers;
            let is_short = [&activity, &sku, &user, &quantity]
                .into_iter()
                .chain(&attempt)
                .all(|number| number.len() < 16); // longer ones are left to the general reader
            let attempt = attempt.map_or_else(String::new, |attempt| format!(",\"attempt\":{attempt}"));
            let mut body = format!(
                "{{{id}\"activity_id\":{activity},\"sku_id\":{sku},\"user_id\":{user},\"quantity\":{quantity}{attempt}}}"
            )
            .into_bytes();
            let is_whole = damage.is_empty() && is_short;
            for (at, kind, byte) in damage {
                let at = at.index(body.len());
                match kind {
                    0 => body[at] = byte,
                    1 => body.insert(at, byte),
                    _ => drop(body.remove(at)),
                }
            }
            let (usual, read) = (Submit::usual(&body, key), Submit::read(&body, key));
            if is_whole || usual.is_some() {
                prop_assert_eq!(usual, read.ok());
            }
        }
    }

    /// Every byte at every place of ids of every length.
    #[test]
    fn a_request_id_has_the_documented_lengths_and_alphabet() {
        for len in 0..=REQUEST_ID_BYTES_MAX + 2 {
            let mut id = [b'a'; REQUEST_ID_BYTES_MAX + 2];
            let is_long_enough = (REQUEST_ID_BYTES_MIN..=REQUEST_ID_BYTES_MAX).contains(&len);
            let whole = request_id(&id[..len]);
            assert_eq!(whole.is_some(), is_long_enough, "{len}");
            for at in 0..len {
                for byte in 0..=255_u8 {
                    id[at] = byte;
                    let documented = byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
                    let read = request_id(&id[..len]);
                    let expected =
                        RequestId::new(&id[..len]).filter(|_| is_long_enough && documented);
                    assert_eq!(read, expected, "{byte} at {at} of {len}");
                }
                id[at] = b'a';
            }
        }
    }
}
