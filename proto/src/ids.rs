//! The names of things: activity, SKU, user, reservation, and the short texts that name a request.
//!
//! Used by every crate. Numbers travel as JSON integers in 1..=2^63-1 (seed 000 §8.1 uses int64).

use crate::limits::{KEY_ID_BYTES_MAX, NONCE_BYTES_MAX, PATH_ID_BYTES_MAX, REQUEST_ID_BYTES_MAX};
use crate::text::Text;
use core::fmt;

macro_rules! number_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

number_id! {
    /// A sale, 1..=2^63-1.
    ActivityId
}
number_id! {
    /// What is sold, 1..=2^63-1; unique within its activity.
    SkuId
}

/// A buyer, 1..=2^63-1. `Debug` hides the number: user ids never reach a log.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UserId(pub u64);

impl fmt::Debug for UserId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UserId(hidden)")
    }
}

/// A unit held for a user; numbered by the ledger, never used twice in one ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReservationId(pub u64);

impl fmt::Display for ReservationId {
    /// `rsv_` and 16 hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rsv_{:016x}", self.0)
    }
}

/// The client's idempotency key, 8..=64 visible ASCII bytes; unique per activity, SKU and user (design §12.1).
pub type RequestId = Text<REQUEST_ID_BYTES_MAX>;
/// The ticket's single-use part, 1..=32 visible ASCII bytes.
pub type Nonce = Text<NONCE_BYTES_MAX>;
/// The dynamic path of one activity version, 1..=16 bytes of `[A-Za-z0-9_-]` (8 at most in a compact ticket).
pub type PathId = Text<PATH_ID_BYTES_MAX>;
/// The name of a ticket key, 1..=36 bytes of `[A-Za-z0-9_-]`.
pub type KeyId = Text<KEY_ID_BYTES_MAX>;

/// What is sold, fully named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SkuKey {
    /// The sale.
    pub activity: ActivityId,
    /// The SKU within the sale.
    pub sku: SkuId,
}
