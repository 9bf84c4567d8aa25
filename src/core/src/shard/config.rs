//! What a shard is made of: given by the program at start, checked by `src/config`.

use super::conns::Timeouts;
use crate::limit::bans::BanPolicy;
use crate::limit::deny::DenyList;
use crate::limit::gcra::Policy;
use crate::limit::lease::ShardId;
use crate::limit::rule::Rule;
use crate::limit::table::KeyedLimiter;
use crate::sale::Sale;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use weir_proto::addr::{Cidr, Source};
use weir_proto::payment::PaymentKey;
use weir_proto::signature::SignatureKeys;
use weir_proto::ticket::KeyRing;

/// A keyed limit of one shard: its rule, the stricter policy that newcomers share when the table is full, its size.
#[derive(Clone, Copy, Debug)]
pub struct KeyedLimit {
    /// How each key is limited.
    pub rule: Rule,
    /// Rate and burst of all keys together that found no slot.
    pub overflow: Policy,
    /// A rule that only watches, beside `rule`; it has a table of its own.
    pub shadow: Option<Rule>,
    /// Slots: 16 bytes each, and the words of the rule's kind.
    pub slots: usize,
}

impl KeyedLimit {
    /// Bytes of its table, and of its shadow's.
    pub fn bytes(&self) -> usize {
        let rules = [Some(self.rule), self.shadow].into_iter().flatten();
        rules
            .map(|rule| KeyedLimiter::bytes_for(self.slots, rule.kind(), rule.policy().capacity()))
            .sum()
    }
}

/// What a submit's signature is held against.
#[derive(Clone, Debug)]
pub struct RequestSignatures {
    /// The live keys.
    pub keys: Arc<SignatureKeys>,
    /// How far a signature's time may be from our clock, either way, in milliseconds.
    pub skew_ms: u64,
}

/// Behaviour bans of one shard.
#[derive(Clone, Copy, Debug)]
pub struct BanLimits {
    /// Of users.
    pub user: BanPolicy,
    /// Of addresses; 0 strikes: none.
    pub ip: BanPolicy,
    /// Clients that each of the two tables watches.
    pub slots: usize,
}

/// What a process does of a sale.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// It sells and makes the orders.
    #[default]
    Whole,
    /// It sells; another process makes the orders, and takes the payments.
    Sells,
    /// It makes the orders, takes the payments and tells how requests stand; it sells nothing.
    MakesOrders,
}

impl Role {
    /// True when submits are decided here.
    pub const fn sells(self) -> bool {
        !matches!(self, Self::MakesOrders)
    }

    /// True when orders are made here.
    pub const fn makes_orders(self) -> bool {
        !matches!(self, Self::Sells)
    }
}

/// Everything that a shard needs. `Debug` shows no key, salt or seed.
#[derive(Clone)]
pub struct ShardConfig {
    /// Its number.
    pub shard: ShardId,
    /// Different from every earlier run's.
    pub shard_boot: u64,
    /// Of jitter, sampling and table hashes. From the system's entropy for a real run, from the simulator's seed there.
    pub seed: u64,
    /// What is sold.
    pub sale: Arc<Sale>,
    /// Keys of tickets.
    pub keys: Arc<KeyRing>,
    /// Key of payment callbacks; `None` refuses them.
    pub payment_key: Option<PaymentKey>,
    /// Keys of signed requests and their window; `None`: submits need no signature (B8).
    pub signature: Option<RequestSignatures>,
    /// Where the client's address comes from on the public listener.
    pub source: Source,
    /// Peers whose word about the client counts.
    pub trusted: Arc<[Cidr]>,
    /// Origins of shop pages, for CORS; at most `limits::ORIGINS_MAX`.
    pub origins: Arc<[Vec<u8>]>,
    /// Connections of this shard.
    pub conns_max: usize,
    /// Connections of this shard that one source (IPv4 /32, IPv6 /64) may have open; 1 or more (A2).
    pub conns_per_source_max: u32,
    /// New connections by source (A2).
    pub connect: KeyedLimit,
    /// Deadlines of a connection.
    pub timeouts: Timeouts,
    /// Submits of this shard, all together.
    pub instance: Policy,
    /// By IPv4 /32 and IPv6 /64.
    pub ip: KeyedLimit,
    /// By user and SKU.
    pub user: KeyedLimit,
    /// By device and SKU.
    pub device: KeyedLimit,
    /// Status queries by user.
    pub status: KeyedLimit,
    /// Answers on which a keyed limit decided carry `RateLimit` and `RateLimit-Policy`.
    pub rate_limit_headers: bool,
    /// Who is denied at the start; later lists come by mail (A6).
    pub deny: Arc<DenyList>,
    /// Who is banned for ignoring 429 (A6).
    pub bans: BanLimits,
    /// Submits that wait for the ledger.
    pub inflight_max: u32,
    /// Status queries that wait for the ledger; slots of their own.
    pub status_inflight_max: u32,
    /// Submits of one SKU that wait for the ledger.
    pub sku_inflight_max: u32,
    /// Of `inflight_max`, slots that nobody but each SKU itself may take; all SKUs together at most `inflight_max`.
    pub sku_inflight_min: u32,
    /// Submits of one user, over all SKUs, that wait for the ledger.
    pub user_inflight_max: u32,
    /// Payments that wait for the worker.
    pub payments_max: u32,
    /// The ledger is reached over a network: an ask whose answer was lost may still be carried out later, so its fate is
    /// looked up with a tombstone, and it keeps its place until something is known (design §12.5).
    pub is_ledger_remote: bool,
    /// What this process does: submits or payments that belong elsewhere are refused as they are read.
    pub role: Role,
    /// A submit's or status query's whole time (J5).
    pub request_budget_ms: u64,
    /// A payment callback's whole time.
    pub payment_budget_ms: u64,
    /// From SIGTERM until connections are closed whatever they do.
    pub drain_ms: u64,
    /// Allowed difference between our clock and the ticket minter's.
    pub leeway_ms: u64,
    /// Entries of the cache of known request ids.
    pub known_max: usize,
    /// One of so many admissions goes to the log; 0: none.
    pub log_admitted_every: u32,
    /// One of so many refusals goes to the log; 0: none.
    pub log_refused_every: u32,
    /// One of so many 5xx goes to the log; 0: none. Unknown results go all.
    pub log_failed_every: u32,
    /// Keys the hash that stands for a user in the log.
    pub user_hash_key: [u8; 32],
}

impl fmt::Debug for ShardConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardConfig")
            .field("shard", &self.shard)
            .field("sale", &self.sale)
            .field("conns_max", &self.conns_max)
            .finish_non_exhaustive()
    }
}
