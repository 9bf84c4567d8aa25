//! One line of the admission log (requirement M2), as plain data; written as JSON by `src/log`.
//!
//! Never holds a ticket, a signature, a raw device id or a raw user id: users appear as keyed hashes.

use crate::time::WallMs;
use weir_proto::answer::Reason;
use weir_proto::ids::{KeyId, RequestId, SkuKey};

/// A decision on one submit or status request, sampled.
#[derive(Clone, Copy, Debug)]
pub struct AdmissionRecord {
    /// When it was decided.
    pub at: WallMs,
    /// The client's key; empty when the request was refused before it was read.
    pub request_id: RequestId,
    /// The SKU, when known.
    pub sku: Option<SkuKey>,
    /// Keyed hash of the user id, when known.
    pub user_hash: Option<[u8; 8]>,
    /// The ticket's key, when known.
    pub key_id: KeyId,
    /// The activity version of the path, when known.
    pub activity_version: u64,
    /// Which way it ended; names stage and decision.
    pub reason: Reason,
    /// What a 429 or 503 told the client.
    pub retry_after_ms: Option<u64>,
    /// From the first byte's event to the decision.
    pub latency_us: u64,
}
