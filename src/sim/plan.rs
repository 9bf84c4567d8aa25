//! Everything that one seed decides before its world begins: the sale, the shards' configuration, load, faults' rates.

use super::LedgerKind;
use super::gates;
use super::mishap::{Mishap, Part};
use super::squall::RedisPlan;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use weir_core::ledger::LedgerSizes;
use weir_core::limit::bans::BanPolicy;
use weir_core::limit::gcra::{Policy, Rate};
use weir_core::limit::lease::ShardId;
use weir_core::limit::rule::{Kind, Rule};
use weir_core::mail::Addr;
use weir_core::order::contract::Money;
use weir_core::rng::Rng;
use weir_core::sale::{Activity, Sale, Sku};
use weir_core::shard::config::{BanLimits, KeyedLimit, Role, ShardConfig};
use weir_core::shard::conns::Timeouts;
use weir_core::time::{NS_PER_MS, WallMs};
use weir_io::sim::Seat;
use weir_proto::addr::{Cidr, Source};
use weir_proto::ids::{ActivityId, PathId, ReservationId, SkuId, SkuKey, UserId};
use weir_proto::payment::PaymentKey;
use weir_proto::ticket::{KeyRing, TicketKey};

/// The wall clock at the start of every world: inside the tickets' hour, before and after which nothing is special.
pub(super) const WALL_START_MS: u64 = 1_800_000_000_000;
/// Where all shards listen.
pub(super) const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 8080);
/// Where the modelled Redis is, and where it listens.
pub(super) const REDIS: Addr = Addr::Client(1);
/// See [`REDIS`].
pub(super) const REDIS_LISTEN: SocketAddr =
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 6379);
/// Connections of one shard, some more than its buyers need at a time.
const CONNS_MAX: usize = 256;
/// The sales of a world, the first ones of these: id and path.
const ACTIVITIES: [(ActivityId, &[u8]); 2] = [
    (ActivityId(10_001), b"p_7vKh2P"),
    (ActivityId(10_002), b"p_2wLi3Q"),
];
/// Proxies connect from there where there are proxies.
const TRUSTED: &str = "127.0.0.0/8";
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

impl Weather {
    /// True when a view of the owner may come late or never.
    pub fn views_are_late(&self) -> bool {
        self.mail_lost + self.mail_delayed > 0
    }
}

/// Who the buyers are and where they come from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Crowds {
    /// Kinds of buyers that there are in this world, by bit.
    pub kinds: u32,
    /// Of eight tickets, so many are bound to a device.
    pub bound: u64,
    /// Users that share a device.
    pub users_per_device: u64,
    /// Addresses that all buyers share.
    pub addresses_count: u32,
}

/// One world, before it begins.
#[derive(Debug)]
pub(super) struct Plan {
    pub shards_count: u16,
    pub sale: Arc<Sale>,
    pub shard: ShardConfig,
    pub key: TicketKey,
    pub payment_key: PaymentKey,
    /// Every SKU by its places in the sale: all others here name SKUs by their place in this list.
    skus: Vec<(usize, usize)>,
    pub sizes: LedgerSizes,
    pub crowds: Crowds,
    pub buyers_count: u64,
    /// Buyers arrive within this.
    pub burst_ms: u64,
    /// Load and faults end then.
    pub load_ms: u64,
    pub weather: Weather,
    /// Crashes, failures, pauses and clock steps of this world.
    pub mishaps_count: u64,
    /// Kinds of mishaps that there are in this world, by bit.
    pub mishap_kinds: u32,
    /// Only where Redis has the ledger.
    pub redis: Option<RedisPlan>,
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
    pub fn draw(rng: &mut Rng, ledger: LedgerKind) -> Self {
        let load_ms = 1_500 + rng.below(4_500);
        let sale = Arc::new(draw_sale(rng, load_ms));
        let key = TicketKey::new(b"k1", TICKET_SECRET).expect("the secret is long enough");
        let payment_key = PaymentKey::new(PAYMENT_SECRET).expect("the secret is long enough");
        let mut shard = draw_shard(rng, &sale, &key, &payment_key);
        let crowds = draw_crowds(rng);
        if crowds.addresses_count < CONNS_MAX as u32 {
            shard.conns_per_source_max = CONNS_MAX as u32; // who shares an address would keep the others out
        }
        let stormy = rng.below(8);
        let more_buyers = bound(rng, 1, (250, 80));
        let places = (0..).zip(&sale.activities);
        let skus =
            places.flat_map(|(at, activity)| (0..activity.skus.len()).map(move |sku| (at, sku)));
        let mut plan = Self {
            shards_count: 1 + rng.below(3) as u16,
            skus: skus.collect(),
            sizes: draw_sizes(rng),
            crowds,
            sale,
            shard,
            key,
            payment_key,
            buyers_count: 50 + rng.below(more_buyers),
            burst_ms: 50 + rng.below(load_ms / 2),
            load_ms,
            weather: draw_weather(rng, stormy),
            mishaps_count: if stormy == 0 { 0 } else { rng.below(7) },
            mishap_kinds: swarm(rng),
            redis: None,
        };
        gates::draw(&mut plan);
        if ledger == LedgerKind::Redis {
            plan.shard.is_ledger_remote = true;
            plan.redis = Some(RedisPlan::draw(&plan));
        }
        plan
    }

    /// SKUs of this world; they are named 0..this.
    pub fn skus_count(&self) -> usize {
        self.skus.len()
    }

    /// The sale of a SKU.
    pub fn activity(&self, sku: usize) -> &Activity {
        &self.sale.activities[self.skus[sku].0]
    }

    pub fn sku(&self, sku: usize) -> &Sku {
        &self.activity(sku).skus[self.skus[sku].1]
    }

    pub fn sku_key(&self, sku: usize) -> SkuKey {
        SkuKey {
            activity: self.activity(sku).id,
            sku: self.sku(sku).id,
        }
    }

    /// The device that this user's tickets are bound to, if they are.
    pub fn device(&self, user: UserId) -> Option<u64> {
        let device = user.0 / self.crowds.users_per_device;
        (device % 8 < self.crowds.bound).then_some(device)
    }

    /// The client address of a buyer.
    pub fn address(&self, buyer: u32) -> Ipv4Addr {
        Ipv4Addr::from(0x0A09_0000 | (buyer % self.crowds.addresses_count))
    }

    /// What a machine does.
    pub fn role(&self, machine: u16) -> Role {
        match (&self.redis, machine) {
            (Some(redis), 0) => redis.first,
            (None, 0) => Role::Whole,
            (_, _) => Role::Sells,
        }
    }

    /// A new run of a shard.
    pub fn shard_config(&self, number: u16, rng: &mut Rng) -> ShardConfig {
        ShardConfig {
            shard: ShardId(number % self.shards_count),
            role: self.role(number / self.shards_count),
            shard_boot: rng.next_u64(),
            seed: rng.next_u64(),
            ..self.shard.clone()
        }
    }

    /// Machines with shards.
    pub fn machines(&self) -> u16 {
        self.redis.as_ref().map_or(1, |redis| redis.machines)
    }

    /// Where a part is. Shards are numbered over all machines.
    pub fn seat(&self, part: Part) -> Seat {
        let (machine, addr) = match part {
            Part::Shard(number) => {
                let shard = ShardId(number % self.shards_count);
                (number / self.shards_count, Addr::Shard(shard))
            }
            Part::Owner(machine) => (machine, Addr::Owner),
            Part::Store => (0, Addr::Store),
            Part::Worker => (0, Addr::Worker),
            Part::OrderStore => (0, Addr::OrderStore),
            Part::Redis => (0, REDIS),
        };
        Seat { machine, addr }
    }

    /// The `number`th reservation of some SKU, as the ledger numbers them.
    pub fn reservation(&self, number: u64) -> ReservationId {
        let above = self.redis.as_ref().map_or(0, |redis| {
            redis.steps[number as usize % redis.steps.len()].ids_above
        });
        ReservationId(above + number)
    }

    /// True when what a shard knows of a SKU may be old.
    pub fn views_are_late(&self) -> bool {
        self.redis.is_some() || self.weather.views_are_late()
    }

    /// True when the clock that stamps grants may step back.
    pub fn steps_back(&self) -> bool {
        let is_remote = self.redis.is_some();
        self.mishaps_count > 0 && Mishap::steps_back(self.mishap_kinds, is_remote)
    }

    pub fn load_ns(&self) -> u64 {
        self.load_ms * NS_PER_MS
    }
}

/// A random half of all kinds: a world without some of them shows what the others hide (swarm testing).
fn swarm(rng: &mut Rng) -> u32 {
    rng.next_u64() as u32
}

fn draw_sizes(rng: &mut Rng) -> LedgerSizes {
    let usual = LedgerSizes::default();
    LedgerSizes {
        reservations_per_unit: if rng.chance(1, 6) {
            1
        } else {
            usual.reservations_per_unit
        },
        reservations_extra: if rng.chance(1, 2) {
            rng.below(6)
        } else {
            usual.reservations_extra
        },
        batch_bytes_max: if rng.chance(1, 6) {
            1_024 + rng.below(3_072) as usize
        } else {
            64 * 1_024
        },
    }
}

fn draw_crowds(rng: &mut Rng) -> Crowds {
    Crowds {
        kinds: swarm(rng) | swarm(rng),
        bound: bound(rng, 3, (8, 1)).min(rng.below(9)),
        users_per_device: 1 + rng.below(4),
        addresses_count: if rng.chance(1, 4) {
            4 + rng.below(12) as u32
        } else {
            1 << 16
        },
    }
}

fn draw_sale(rng: &mut Rng, load_ms: u64) -> Sale {
    let activities_count = 1 + usize::from(rng.chance(1, 4));
    let activities = ACTIVITIES.iter().take(activities_count);
    Sale {
        activities: activities
            .map(|(id, path)| draw_activity(rng, load_ms, *id, path))
            .collect(),
    }
}

fn draw_activity(rng: &mut Rng, load_ms: u64, id: ActivityId, path: &[u8]) -> Activity {
    let skus_count = 1 + rng.below(2);
    let skus = (0..skus_count).map(|at| draw_sku(rng, SkuId(90_001 + at)));
    let skus = skus.collect();
    let opens_in_ms = if rng.chance(1, 6) { 500 } else { 0 };
    let closes_in_ms = if rng.chance(1, 8) {
        load_ms * 3 / 4
    } else {
        7_200_000
    };
    Activity {
        id,
        version: 8,
        path_id: PathId::new(path).expect("eight plain characters"),
        opens_at: WallMs(WALL_START_MS + opens_in_ms),
        closes_at: WallMs(WALL_START_MS + opens_in_ms + closes_in_ms),
        retention_ms: 86_400_000,
        device_salt: [9; 32],
        skus,
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

/// A limit of any kind, half of the times a token bucket.
fn keyed(rng: &mut Rng, rate: Rate, capacity: u32, slots: usize) -> KeyedLimit {
    let policy = Policy::new(rate, capacity).expect("a small rate and capacity");
    let drawn = rng.below(2 * Kind::ALL.len() as u64) as usize;
    let kind = Kind::ALL.get(drawn).copied().unwrap_or(Kind::Gcra);
    KeyedLimit {
        rule: Rule::new(kind, policy).unwrap_or(Rule::gcra(policy)), // a long burst is too much for a log
        shadow: None,
        overflow: policy,
        slots,
    }
}

fn bans() -> BanLimits {
    BanLimits {
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
    }
}

fn timeouts(idle_ms: u64) -> Timeouts {
    Timeouts {
        head_ms: 2_000,
        body_ms: 2_000,
        idle_ms,
        write_ms: 2_000,
        linger_ms: 500,
    }
}

/// Where the client's address comes from.
fn draw_source(rng: &mut Rng) -> Source {
    match rng.below(8) {
        0 => Source::XForwardedFor,
        1 => Source::Forwarded,
        2 => Source::ProxyProtocol,
        _ => Source::Peer,
    }
}

/// The limit of a shard as a whole: sometimes below what its buyers send.
fn draw_instance(rng: &mut Rng) -> Policy {
    let (tokens, capacity) = if rng.chance(1, 6) {
        (20 + rng.below(80), 4 + rng.below(16))
    } else {
        (200 + rng.below(3_000), 20 + rng.below(400))
    };
    Policy::new(Rate::per_second(tokens), capacity as u32).expect("a small rate and capacity")
}

/// How fast a user may submit. A limit without a rate is an allowance: what is above it never passes.
fn draw_user_rate(rng: &mut Rng) -> Rate {
    let rate = Rate {
        tokens: 1,
        per_ns: (50 + rng.below(1_500)) * NS_PER_MS,
    };
    if rng.chance(1, 12) { Rate::ZERO } else { rate }
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
    let user_rate = draw_user_rate(rng);
    let instance = draw_instance(rng);
    let ip = if rng.chance(1, 4) {
        (60, 6)
    } else {
        (500, 200)
    };
    let device = if rng.chance(1, 3) {
        (1 + rng.below(3), 2)
    } else {
        (20, 10)
    };
    let idle_ms = bound(rng, 6, (5_000, 800));
    let (user_burst, status_per_s) = (1 + rng.below(4) as u32, 2 + rng.below(20));
    let connect = if rng.chance(1, 4) {
        (20, 4)
    } else {
        (500, 200)
    };
    let skus_count: usize = sale.activities.iter().map(|found| found.skus.len()).sum();
    let source = draw_source(rng);
    ShardConfig {
        shard: ShardId(0),
        shard_boot: 0,
        seed: 0,
        sale: Arc::clone(sale),
        keys: Arc::new(KeyRing::new(key.clone(), None).expect("one key")),
        payment_key: Some(payment_key.clone()),
        signature: None,
        source,
        trusted: Arc::new([Cidr::parse(TRUSTED).expect("a plain network")]),
        origins: Arc::new([]),
        conns_max: CONNS_MAX,
        conns_per_source_max: bound(rng, 1, (3, CONNS_MAX as u64)) as u32,
        connect: keyed(rng, wide(connect.0), connect.1, 64),
        timeouts: timeouts(idle_ms),
        instance,
        ip: keyed(rng, wide(ip.0), ip.1, 256),
        user: keyed(rng, user_rate, user_burst, 256),
        device: keyed(rng, wide(device.0), device.1, 64),
        status: keyed(rng, wide(status_per_s), 4, 256),
        rate_limit_headers: inflight_max.is_multiple_of(2), // no draw of its own: the seeds keep their worlds
        deny: Arc::default(),
        bans: bans(),
        inflight_max,
        status_inflight_max: 2 + rng.below(14) as u32,
        sku_inflight_max: sku_inflight_max.min(inflight_max),
        sku_inflight_min: inflight_max / 4 / skus_count as u32,
        user_inflight_max: 1 + rng.below(8) as u32,
        payments_max: 2 + rng.below(14) as u32,
        request_budget_ms: 20 + rng.below(180),
        payment_budget_ms: 200 + rng.below(1_800),
        drain_ms: 1_000,
        leeway_ms: 500,
        known_max: 16 << rng.below(6),
        log_admitted_every: 0,
        log_refused_every: 0,
        log_failed_every: 0,
        is_ledger_remote: false,
        role: Role::Whole,
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
