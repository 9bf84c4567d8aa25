//! Everything that one seed decides before its world begins: the sale, the shards' configuration, load, faults' rates.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use weir_core::limit::bans::BanPolicy;
use weir_core::limit::gcra::{Policy, Rate};
use weir_core::limit::lease::ShardId;
use weir_core::limit::rule::Rule;
use weir_core::order::contract::Money;
use weir_core::rng::Rng;
use weir_core::sale::{Activity, Sale, Sku};
use weir_core::shard::config::{BanLimits, KeyedLimit, ShardConfig};
use weir_core::shard::conns::Timeouts;
use weir_core::time::{NS_PER_MS, WallMs};
use weir_proto::addr::Source;
use weir_proto::ids::{ActivityId, PathId, SkuId, SkuKey};
use weir_proto::payment::PaymentKey;
use weir_proto::ticket::{KeyRing, TicketKey};

/// The wall clock at the start of every world: inside the tickets' hour, before and after which nothing is special.
pub(super) const WALL_START_MS: u64 = 1_800_000_000_000;
/// Where all shards listen.
pub(super) const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 8080);
/// Connections of one shard, some more than its buyers need at a time.
const CONNS_MAX: usize = 256;
const ACTIVITY: ActivityId = ActivityId(10_001);
const PATH: &[u8] = b"p_7vKh2P";
const TICKET_SECRET: &[u8] = b"simulated tickets, 32 bytes or more";
const PAYMENT_SECRET: &[u8] = b"simulated payments, 32 bytes or more";

/// How often what travels meets a fault; of a thousand.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weather {
    pub mail_lost: u64,
    pub mail_doubled: u64,
    pub mail_delayed: u64,
    pub mail_delay_ms_max: u64,
    pub segment_delayed: u64,
    pub conn_reset: u64,
    pub dial_refused: u64,
    pub dial_dropped: u64,
}

/// One world, before it begins.
#[derive(Debug)]
pub(super) struct Plan {
    pub shards_count: u16,
    pub sale: Arc<Sale>,
    pub shard: ShardConfig,
    pub key: TicketKey,
    pub payment_key: PaymentKey,
    pub buyers_count: u64,
    /// Buyers arrive within this.
    pub burst_ms: u64,
    /// Load and faults end then.
    pub load_ms: u64,
    pub weather: Weather,
    /// Crashes, failures, pauses and clock steps of this world.
    pub mishaps_count: u64,
}

/// One of two bounds: the first `numerator` times in 8.
fn bound(rng: &mut Rng, numerator: u64, bounds: (u64, u64)) -> u64 {
    if rng.chance(numerator, 8) {
        bounds.0
    } else {
        bounds.1
    }
}

impl Plan {
    /// What `rng` draws.
    pub fn draw(rng: &mut Rng) -> Self {
        let load_ms = 1_500 + rng.below(4_500);
        let sale = Arc::new(draw_sale(rng, load_ms));
        let key = TicketKey::new(b"k1", TICKET_SECRET).expect("the secret is long enough");
        let payment_key = PaymentKey::new(PAYMENT_SECRET).expect("the secret is long enough");
        let shard = draw_shard(rng, &sale, &key, &payment_key);
        let stormy = rng.below(8);
        let more_buyers = bound(rng, 1, (250, 80));
        Self {
            shards_count: 1 + rng.below(3) as u16,
            sale,
            shard,
            key,
            payment_key,
            buyers_count: 50 + rng.below(more_buyers),
            burst_ms: 50 + rng.below(load_ms / 2),
            load_ms,
            weather: draw_weather(rng, stormy),
            mishaps_count: if stormy == 0 { 0 } else { rng.below(7) },
        }
    }

    pub fn activity(&self) -> &Activity {
        &self.sale.activities[0]
    }

    pub fn sku_key(&self, sku: usize) -> SkuKey {
        SkuKey {
            activity: self.activity().id,
            sku: self.activity().skus[sku].id,
        }
    }

    /// A new run of a shard.
    pub fn shard_config(&self, shard: ShardId, rng: &mut Rng) -> ShardConfig {
        ShardConfig {
            shard,
            shard_boot: rng.next_u64(),
            seed: rng.next_u64(),
            ..self.shard.clone()
        }
    }

    pub fn load_ns(&self) -> u64 {
        self.load_ms * NS_PER_MS
    }
}

fn draw_sale(rng: &mut Rng, load_ms: u64) -> Sale {
    let skus_count = 1 + rng.below(2);
    let skus = (0..skus_count).map(|at| draw_sku(rng, SkuId(90_001 + at)));
    let skus = skus.collect();
    let opens_in_ms = if rng.chance(1, 6) { 500 } else { 0 };
    let closes_in_ms = if rng.chance(1, 8) {
        load_ms * 3 / 4
    } else {
        7_200_000
    };
    Sale {
        activities: vec![Activity {
            id: ACTIVITY,
            version: 8,
            path_id: PathId::new(PATH).expect("eight plain characters"),
            opens_at: WallMs(WALL_START_MS + opens_in_ms),
            closes_at: WallMs(WALL_START_MS + opens_in_ms + closes_in_ms),
            retention_ms: 86_400_000,
            device_salt: [9; 32],
            skus,
        }],
    }
}

fn draw_sku(rng: &mut Rng, id: SkuId) -> Sku {
    let tokens_per_s = if rng.chance(1, 4) {
        40 + rng.below(200)
    } else {
        2_000
    };
    let stock = bound(rng, 2, (50, 12));
    let unpaid_ms = bound(rng, 3, (8_000, 1_500));
    Sku {
        id,
        first_stock: 1 + rng.below(stock),
        quantity_max: 1 + rng.below(3) as u32,
        once_per_activity: rng.chance(1, 4),
        unit_price: Money {
            minor: 1_990,
            currency: *b"CNY",
        },
        unpaid_timeout_ms: 300 + rng.below(unpaid_ms),
        budget: Rate::per_second(tokens_per_s),
        sold_out_ttl_ms: 2_000 + rng.below(2_000),
    }
}

fn keyed(rate: Rate, capacity: u32, slots: usize) -> KeyedLimit {
    let policy = Policy::new(rate, capacity).expect("a small rate and capacity");
    KeyedLimit {
        rule: Rule::gcra(policy),
        shadow: None,
        overflow: policy,
        slots,
    }
}

fn draw_shard(
    rng: &mut Rng,
    sale: &Arc<Sale>,
    key: &TicketKey,
    payment_key: &PaymentKey,
) -> ShardConfig {
    let wide = |tokens| Rate::per_second(tokens);
    let inflight_max = 4 + rng.below(60) as u32;
    let sku_inflight_max = 2 + rng.below(60) as u32;
    let user_rate = Rate {
        tokens: 1,
        per_ns: (50 + rng.below(1_500)) * NS_PER_MS,
    };
    let instance = Policy::new(wide(200 + rng.below(3_000)), 20 + rng.below(400) as u32);
    ShardConfig {
        shard: ShardId(0),
        shard_boot: 0,
        seed: 0,
        sale: Arc::clone(sale),
        keys: Arc::new(KeyRing::new(key.clone(), None).expect("one key")),
        payment_key: Some(payment_key.clone()),
        signature: None,
        source: Source::Peer,
        trusted: Arc::new([]),
        origins: Arc::new([]),
        conns_max: CONNS_MAX,
        conns_per_source_max: CONNS_MAX as u32,
        connect: keyed(wide(500), 200, 64),
        timeouts: Timeouts {
            head_ms: 2_000,
            body_ms: 2_000,
            idle_ms: 5_000,
            write_ms: 2_000,
            linger_ms: 500,
        },
        instance: instance.expect("a small rate and capacity"),
        ip: keyed(wide(500), 200, 256),
        user: keyed(user_rate, 1 + rng.below(4) as u32, 256),
        device: keyed(wide(20), 10, 64),
        status: keyed(wide(2 + rng.below(20)), 4, 256),
        rate_limit_headers: inflight_max.is_multiple_of(2), // no draw of its own: the seeds keep their worlds
        deny: Arc::default(),
        bans: BanLimits {
            user: BanPolicy {
                strikes: 20,
                window_ms: 30_000,
                first_ms: 10_000,
                max_ms: 600_000,
                forget_ms: 600_000,
            },
            ip: BanPolicy {
                strikes: 0,
                window_ms: 30_000,
                first_ms: 10_000,
                max_ms: 60_000,
                forget_ms: 600_000,
            },
            slots: 256,
        },
        inflight_max,
        status_inflight_max: 2 + rng.below(14) as u32,
        sku_inflight_max: sku_inflight_max.min(inflight_max),
        sku_inflight_min: inflight_max / 4 / sale.activities[0].skus.len() as u32,
        user_inflight_max: 8,
        payments_max: 2 + rng.below(14) as u32,
        request_budget_ms: 20 + rng.below(180),
        payment_budget_ms: 200 + rng.below(1_800),
        drain_ms: 1_000,
        leeway_ms: 500,
        known_max: 16 << rng.below(6),
        log_admitted_every: 0,
        log_refused_every: 0,
        log_failed_every: 0,
        user_hash_key: [3; 32],
    }
}

fn draw_weather(rng: &mut Rng, stormy: u64) -> Weather {
    let mut often = |most: u64| {
        if stormy == 0 || rng.chance(1, 3) {
            0
        } else {
            rng.below(most)
        }
    };
    Weather {
        mail_lost: often(20),
        mail_doubled: often(30),
        mail_delayed: often(30),
        mail_delay_ms_max: 1 + often(400),
        segment_delayed: often(40),
        conn_reset: often(15),
        dial_refused: often(20),
        dial_dropped: often(20),
    }
}
