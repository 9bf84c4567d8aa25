//! From the file's sections to the plan: every key read once, cross-checks where two keys must agree.
//!
//! Called by [`super::load`]. Cross-checks of a section run only when each of its keys is fine, so that no message
//! follows from another one.

use super::ceilings::{ASKS_MAX, INFLIGHT_MAX, SHARDS_MAX};
use super::document::{Reader, Section};
use super::host::Host;
use super::plan::*;
use crate::keys::{self, Secret};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use toml::de::DeTable;
use weir_core::limit::book::LeaseBook;
use weir_core::limit::gcra::Policy;
use weir_core::limit::lease::ShardId;
use weir_core::limits::{ACTIVITIES_MAX, MAILBOX_MAX, SKUS_PER_ACTIVITY_MAX};
use weir_core::sale::{Activity, Sale, Sku};
use weir_core::shard::config::{KeyedLimit, ShardConfig};
use weir_core::shard::conns::Timeouts;
use weir_core::time::Mono;
use weir_proto::addr::Source;
use weir_proto::ids::{ActivityId, SkuId};
use weir_proto::limits::ID_MAX;
use weir_proto::payment::PaymentKey;
use weir_proto::ticket::{KeyRing, TicketKey};

/// Most waiting submits of a shard that `"auto"` chooses: 20 ms of the scenario's 300,000 requests/s on two shards.
const AUTO_INFLIGHT_MAX: u64 = 4096;
/// Names the hash of users in the log to `derive_key`.
const USER_HASH_CONTEXT: &str = "weir 2026-11-30 user hash in the admission log";
/// Names the device salt of an activity to `derive_key`.
const DEVICE_SALT_CONTEXT: &str = "weir 2026-11-30 device salt of an activity";

/// Reads the whole file; `None` when a key file could not be read. The result means nothing while `reader` has problems.
pub fn plan(reader: &Reader<'_>, root: &DeTable<'_>, file: &Path, host: &Host) -> Option<Plan> {
    reader.check_sections(root);
    let dir = file.parent().unwrap_or(Path::new("")).to_owned();
    let server = reader.section(root, "server");
    let shards_count = server
        .number_or_auto("shards")
        .unwrap_or_else(|| host.cpus_count.saturating_sub(1).clamp(1, SHARDS_MAX));
    let shards_count = u16::try_from(shards_count).expect("the table allows 64 at most");
    let secrets = read_keys(&reader.section(root, "keys"), &dir);
    let first_secret = secrets.as_ref().map(|secrets| &secrets.first);
    let sale = Arc::new(sale(reader, root, first_secret, shards_count));
    let listen = server.address("listen");
    let ops = ops(&reader.section(root, "ops"), &dir, listen);
    let (limits, log) = (reader.section(root, "limits"), reader.section(root, "log"));
    let log_target = log_target(&log, &dir);
    let store = StorePlan {
        dir: dir.join(server.text("data_dir")),
    };
    let driver = match server.text("driver").as_str() {
        "uring" => Driver::Uring,
        _ => unreachable!("the table allows the drivers above only"),
    };
    let skus_count: usize = sale
        .activities
        .iter()
        .map(|activity| activity.skus.len())
        .sum();
    let asks = asks(&limits, shards_count, skus_count);
    let parts = Parts {
        server: &server,
        limits: &limits,
        log: &log,
    };
    let shard = shard(&parts, secrets, sale.clone(), shards_count, asks);
    Some(Plan {
        file: file.to_owned(),
        listen,
        shards_count,
        driver,
        sale,
        shard: shard?,
        ops,
        log: log_target,
        store,
    })
}

/// Asks of one shard that may wait, by kind.
struct Asks {
    submits_max: u32,
    sku_max: u32,
    status_max: u32,
    payments_max: u32,
}

fn asks(limits: &Section<'_, '_>, shards_count: u16, skus_count: usize) -> Asks {
    let shards = u64::from(shards_count);
    let given = |name, auto: u64| limits.number_or_auto(name).unwrap_or(auto.max(1));
    let submits = given(
        "inflight_max",
        (MAILBOX_MAX as u64 / 2 / shards).min(AUTO_INFLIGHT_MAX),
    );
    let sku = given(
        "sku_inflight_max",
        if skus_count > 1 { submits / 2 } else { submits },
    );
    let status = given("status_inflight_max", submits / 4);
    let payments = given("payments_inflight_max", submits / 16);
    let all = shards * (submits + status + payments);
    if !limits.is_wrong() && all > ASKS_MAX {
        limits.wrong(
            "inflight_max",
            format!("{submits}, with {status} status queries and {payments} payments, makes {all} asks on {shards} shards; the ledger's mailbox holds {ASKS_MAX}: lower them, or write \"auto\""),
        );
    }
    let small = |number| u32::try_from(number).expect("the table's ceilings fit 32 bits");
    Asks {
        submits_max: small(submits),
        sku_max: small(sku.min(submits)),
        status_max: small(status),
        payments_max: small(payments),
    }
}

/// The sections that a shard is made from.
struct Parts<'s, 'r, 't> {
    server: &'s Section<'r, 't>,
    limits: &'s Section<'r, 't>,
    log: &'s Section<'r, 't>,
}

/// What every shard gets alike; `None` without keys, after all else was checked.
fn shard(
    parts: &Parts<'_, '_, '_>,
    secrets: Option<Secrets>,
    sale: Arc<Sale>,
    shards_count: u16,
    asks: Asks,
) -> Option<ShardConfig> {
    let (server, limits) = (parts.server, parts.limits);
    let ms = |name| server.number(name);
    let limit = Limits {
        section: limits,
        shards_count,
    };
    let source = source(server);
    let timeouts = Timeouts {
        head_ms: ms("head_timeout"),
        body_ms: ms("body_timeout"),
        idle_ms: ms("idle_timeout"),
        write_ms: ms("write_timeout"),
        linger_ms: ms("linger_timeout"),
    };
    let every = |name| parts.log.number(name) as u32; // at most SAMPLE_EVERY_MAX
    let (ip, user) = (limit.keyed("ip"), limit.keyed("user"));
    let (device, status) = (limit.keyed("device"), limit.keyed("status"));
    let instance = limit.policy("instance_rate", "instance_burst");
    let (conns_max, drain_ms) = (server.number("conns_max") as usize, ms("drain_timeout"));
    let (trusted, origins) = (
        server.networks("trusted").into(),
        server.origins("origins").into(),
    );
    let (request_budget_ms, payment_budget_ms) = (
        limits.number("request_budget"),
        limits.number("payment_budget"),
    );
    let (leeway_ms, known_max) = (
        limits.number("clock_leeway"),
        limits.number("known_requests_max") as usize,
    );
    let (log_admitted_every, log_refused_every) = (every("admitted_every"), every("refused_every"));
    let log_failed_every = every("failed_every");
    let secrets = secrets?; // last: everything above has been checked
    Some(ShardConfig {
        shard: ShardId(0),
        shard_boot: 0,
        seed: 0,
        sale,
        keys: secrets.ring,
        payment_key: secrets.payment,
        source,
        trusted,
        origins,
        conns_max,
        timeouts,
        instance,
        ip,
        user,
        device,
        status,
        inflight_max: asks.submits_max,
        status_inflight_max: asks.status_max,
        sku_inflight_max: asks.sku_max,
        payments_max: asks.payments_max,
        request_budget_ms,
        payment_budget_ms,
        drain_ms,
        leeway_ms,
        known_max,
        log_admitted_every,
        log_refused_every,
        log_failed_every,
        user_hash_key: blake3::derive_key(USER_HASH_CONTEXT, secrets.first.expose()),
    })
}

fn source(server: &Section<'_, '_>) -> Source {
    let source = Source::from_text(&server.text("client_address"));
    let source = source.expect("the table allows the names of sources only");
    if source != Source::Peer && !server.is_wrong() && server.networks("trusted").is_empty() {
        server.wrong(
            "trusted",
            format!(
                "is empty, but client_address = {:?} is believed from trusted networks only; list your proxies' networks, or use client_address = \"peer\"",
                source.as_str()
            ),
        );
    }
    source
}

struct Limits<'s, 'r, 't> {
    section: &'s Section<'r, 't>,
    shards_count: u16,
}

impl Limits<'_, '_, '_> {
    /// One shard's part of the limit of those two keys.
    fn policy(&self, rate: &str, burst: &str) -> Policy {
        let (of_all, capacity) = (self.section.rate(rate), self.section.number(burst));
        let policy = Policy::new(of_all, capacity as u32) // at most BURST_MAX
            .and_then(|policy| policy.split(self.shards_count));
        policy.unwrap_or_else(|error| {
            let message = format!(
                "with {burst} = {capacity} and {} shards: {error}",
                self.shards_count
            );
            self.section.wrong(rate, message);
            Policy::CLOSED
        })
    }

    fn keyed(&self, dimension: &str) -> KeyedLimit {
        let name = |what: &str| format!("{dimension}_{what}");
        KeyedLimit {
            policy: self.policy(&name("rate"), &name("burst")),
            overflow: self.policy("overflow_rate", "overflow_burst"),
            slots: self.section.number(&name("slots")) as usize,
        }
    }
}

struct Secrets {
    first: Secret,
    ring: Arc<KeyRing>,
    payment: Option<PaymentKey>,
}

/// `None` when one cannot be read; each such file is reported.
fn read_keys(section: &Section<'_, '_>, dir: &Path) -> Option<Secrets> {
    let files = section.key_files("ticket");
    let payment = section.optional_text("payment");
    if section.is_wrong() {
        return None;
    }
    let read = |name: &str, path: &str| {
        let secret = keys::read_secret(&dir.join(path));
        secret
            .map_err(|error| section.wrong(name, error.to_string()))
            .ok()
    };
    // All are read before one is missed, so that all are reported.
    let secrets: Vec<_> = files
        .iter()
        .map(|file| read("ticket", &file.path))
        .collect();
    let payment = payment.map(|path| read("payment", &path));
    let secrets: Vec<Secret> = secrets.into_iter().collect::<Option<_>>()?;
    let payment = payment.map_or(Some(None), |secret| secret.map(Some))?;
    if let Some(payment) = &payment
        && secrets.contains(payment)
    {
        section.wrong(
            "payment",
            "is the same secret as a ticket key; make one of its own with `weir keygen`",
        );
    }
    let mut ticket_keys = files.iter().zip(&secrets).filter_map(|(file, secret)| {
        let key = TicketKey::new(file.kid.as_bytes(), secret.expose());
        key.map_err(|error| section.wrong("ticket", error.to_string()))
            .ok()
    });
    let signing = ticket_keys.next()?;
    let ring = KeyRing::new(signing, ticket_keys.next());
    let ring = ring
        .map_err(|error| section.wrong("ticket", error.to_string()))
        .ok()?;
    let first = secrets
        .first()
        .expect("the table wants one at least")
        .clone();
    let payment = payment.map(|secret| {
        PaymentKey::new(secret.expose()).expect("a key file holds a secret of the right length")
    });
    Some(Secrets {
        first,
        ring: Arc::new(ring),
        payment,
    })
}

fn ops(section: &Section<'_, '_>, dir: &Path, public: std::net::SocketAddr) -> OpsPlan {
    let listen = section.address("listen");
    let token_file = section.optional_text("token_file");
    let audit_log = dir.join(section.text("audit_log"));
    if !section.is_wrong() && !listen.ip().to_canonical().is_loopback() && token_file.is_none() {
        section.wrong(
            "listen",
            format!("{listen} is reachable from outside this machine; set token_file (make one with `weir keygen`), or listen on 127.0.0.1"),
        );
    }
    if !section.is_wrong() && listen.port() != 0 && listen == public {
        section.wrong(
            "listen",
            "is the public listener's address too; the two need different ports",
        );
    }
    let token = token_file.and_then(|path| {
        let token = keys::read_token(&dir.join(path));
        token
            .map_err(|error| section.wrong("token_file", error.to_string()))
            .ok()
    });
    OpsPlan {
        listen,
        token,
        audit_log,
    }
}

fn log_target(section: &Section<'_, '_>, dir: &Path) -> LogTarget {
    match section.text("path").as_str() {
        "-" => LogTarget::Stdout,
        "off" => LogTarget::Off,
        path => LogTarget::File(dir.join(PathBuf::from(path))),
    }
}

fn sale(
    reader: &Reader<'_>,
    root: &DeTable<'_>,
    secret: Option<&Secret>,
    shards_count: u16,
) -> Sale {
    let sections = reader.sections(root, "activity", "activity");
    if sections.is_empty() && !root.contains_key("activity") {
        reader.report(
            None,
            "activity",
            "nothing is on sale; add a section [[activity]] with one [[activity.sku]] at least",
        );
    }
    if sections.len() > ACTIVITIES_MAX {
        reader.report(
            None,
            "activity",
            format!(
                "{} activities; one server holds {ACTIVITIES_MAX} at most",
                sections.len()
            ),
        );
    }
    let mut sale = Sale::default();
    for section in &sections {
        let activity = activity(reader, section, secret, shards_count);
        if !section.is_wrong() {
            check_unique(section, &activity, &sale);
        }
        sale.activities.push(activity);
    }
    sale
}

fn check_unique(section: &Section<'_, '_>, activity: &Activity, before: &Sale) {
    let mut others = before.activities.iter();
    if others.clone().any(|other| other.id == activity.id) {
        section.wrong(
            "id",
            format!(
                "{} is an earlier activity's id too; each needs its own",
                activity.id
            ),
        );
    }
    if others.any(|other| other.path_id == activity.path_id) {
        section.wrong(
            "path_id",
            "is an earlier activity's path_id too; each needs its own",
        );
    }
}

fn activity(
    reader: &Reader<'_>,
    section: &Section<'_, '_>,
    secret: Option<&Secret>,
    shards_count: u16,
) -> Activity {
    let id = section.number("id");
    let (opens_at, closes_at) = (section.instant("opens_at"), section.instant("closes_at"));
    let version = section.number("version");
    let path_id = section.path_id("path_id");
    let retention_ms = section.number("retention");
    let device_salt = section.optional_hex32("device_salt").unwrap_or_else(|| {
        let secret = secret.map(Secret::expose).unwrap_or_default(); // without keys the plan is refused anyway
        blake3::derive_key(DEVICE_SALT_CONTEXT, &[secret, &id.to_be_bytes()].concat())
    });
    if !section.is_wrong() && opens_at >= closes_at {
        section.wrong("closes_at", "must be later than opens_at");
    }
    let parts = match section.table {
        Some(table) => reader.sections(table, "activity.sku", &format!("{}.sku", section.at())),
        None => Vec::new(),
    };
    if !(1..=SKUS_PER_ACTIVITY_MAX).contains(&parts.len()) {
        section.wrong("sku", format!("{} SKUs; an activity holds 1 to {SKUS_PER_ACTIVITY_MAX}, each a section [[activity.sku]]", parts.len()));
    }
    let mut skus: Vec<Sku> = Vec::new();
    for part in &parts {
        let sku = sku(part, shards_count);
        if !part.is_wrong() && skus.iter().any(|other| other.id == sku.id) {
            part.wrong(
                "id",
                format!(
                    "{} is an earlier SKU's id of this activity too; each needs its own",
                    sku.id
                ),
            );
        }
        skus.push(sku);
    }
    Activity {
        id: ActivityId(id),
        version,
        path_id,
        opens_at,
        closes_at,
        retention_ms,
        device_salt,
        skus,
    }
}

fn sku(section: &Section<'_, '_>, shards_count: u16) -> Sku {
    let sku = Sku {
        id: SkuId(section.number("id")),
        first_stock: section.number("stock"),
        quantity_max: section.number("quantity_max") as u32, // at most UNITS_PER_REQUEST_MAX
        once_per_activity: section.flag("once_per_activity"),
        unit_price: section.price("price"),
        unpaid_timeout_ms: section.number("unpaid_timeout"),
        budget: section.rate("budget"),
        inflight_max: INFLIGHT_MAX as u32, // the shard's own cap, limits.sku_inflight_max, is lower
        sold_out_ttl_ms: section.number("sold_out_ttl"),
    };
    let most = sku
        .unit_price
        .minor
        .checked_mul(u64::from(sku.quantity_max));
    if !section.is_wrong() && most.is_none_or(|most| most > ID_MAX) {
        section.wrong("price", "times quantity_max is above 2^63-1 minor units");
    }
    // What the ledger's owner could not hand out exactly is refused here, by name.
    if let Err(error) = LeaseBook::new(Mono(0), 0, sku.budget, shards_count) {
        section.wrong("budget", error.to_string());
    }
    sku
}
