//! Prepaid budget: the plain data between shards and the owner of the budget (requirement D3).

use weir_proto::ids::SkuKey;

/// A shard's number, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShardId(pub u16);

/// Shard to owner: a batch of admission tokens, please.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseDraw {
    /// Who asks.
    pub shard: ShardId,
    /// For which SKU.
    pub sku: SkuKey,
    /// The shard's run: random at its start. A new run starts `seq` again.
    pub shard_boot: u64,
    /// Grows by one per draw of this shard, SKU and run; the same number gets the same grant again.
    pub seq: u64,
    /// Tokens wanted.
    pub want: u32,
    /// Share of demand against other shards, 1..=1000.
    pub weight: u32,
}

/// Owner to shard: tokens, deducted before they are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseGrant {
    /// For which SKU.
    pub sku: SkuKey,
    /// The owner's run.
    pub owner_boot: u64,
    /// The run of the shard that asked.
    pub shard_boot: u64,
    /// The draw's number.
    pub seq: u64,
    /// Tokens granted, 0..=want.
    pub tokens: u32,
    /// Milliseconds after which they are void, counted by the shard from its last sending of the draw: never later than the owner counts.
    pub ttl_ms: u64,
    /// With fewer tokens than wanted: ask again no sooner than this.
    pub retry_ms: u64,
}

/// Shard to owner: unused tokens back (shutdown, or the mode changed).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseReturn {
    /// Who returns.
    pub shard: ShardId,
    /// Of which SKU.
    pub sku: SkuKey,
    /// The run of the owner that granted them; an older run's tokens are void.
    pub owner_boot: u64,
    /// The shard's run.
    pub shard_boot: u64,
    /// The last grant's number.
    pub seq: u64,
    /// Tokens.
    pub tokens: u32,
}
