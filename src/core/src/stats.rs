//! Counters that parts hand to the ops listener on demand. Names are seed 000 §12.1's for all that exists.
//!
//! Labels are enums, never texts of a client: high cardinality cannot be written (requirement M1).

use crate::ask::Mode;
use crate::limit::deny::UserHash;
use crate::limit::lease::ShardId;
use crate::mail::Addr;
use alloc::vec::Vec;
use weir_proto::addr::IpKey;
use weir_proto::answer::Reason;
use weir_proto::ids::SkuKey;

/// The counters of one part at one instant.
#[derive(Clone, Debug)]
pub struct Stats {
    /// Whose.
    pub from: Addr,
    /// The values; the listener sums equal (name, label) pairs over parts unless the metric says otherwise.
    pub samples: Vec<Sample>,
    /// Hot keys, of shards only; empty tables are left out.
    pub hot: Vec<HotTable>,
}

/// The hot keys of one dimension on one shard, in its last whole window (`limits::HOT_WINDOW_MS`).
#[derive(Clone, Debug)]
pub struct HotTable {
    /// `ip`, `user` or `sku`.
    pub dimension: &'static str,
    /// Requests counted.
    pub seen: u64,
    /// A key that is not shown came at most so often.
    pub absent_max: u64,
    /// The keys, in no order.
    pub keys: Vec<Hot>,
}

/// One hot key.
#[derive(Clone, Copy, Debug)]
pub struct Hot {
    /// Its name.
    pub name: HotName,
    /// Not below how often it came.
    pub count: u64,
    /// The count exceeds the truth by this at most.
    pub error: u64,
}

/// A hot key as an operator may see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HotName {
    /// An IPv4 address or an IPv6 /64.
    Ip(IpKey),
    /// A user, by the hash of the admission log.
    User(UserHash),
    /// A SKU.
    Sku(SkuKey),
}

/// One value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Prometheus name, one of the table in `src/ops/metrics.rs`.
    pub name: &'static str,
    /// Its label.
    pub label: Label,
    /// Its value.
    pub value: u64,
}

/// The label of a sample; every variant has few values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Label {
    /// No label.
    None,
    /// `stage`, `decision` and `reason` of a request's end.
    Reason(Reason),
    /// `dimension` of a limiter.
    Dimension(&'static str),
    /// `activity_id` and `sku_id`.
    Sku(SkuKey),
    /// `activity_id`, `sku_id` and `mode`.
    SkuMode(SkuKey, Mode),
    /// `instance`: the shard.
    Shard(ShardId),
    /// `result`.
    Result(&'static str),
    /// `driver`: one of four words.
    Driver(&'static str),
    /// Upper bound of a histogram bucket in microseconds (`le`); `u64::MAX` is +Inf.
    BucketUs(u64),
}
