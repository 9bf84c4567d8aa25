//! From the file's sections to the plan: every key read once, cross-checks where two keys must agree.
//!
//! Called by [`super::load`]. Cross-checks of a section run only when each of its keys is fine, so that no message
//! follows from another one.

use super::ceilings::{ASKS_MAX, SHARDS_MAX};
use super::document::{Reader, Section};
use super::host::Host;
use super::plan::*;
use super::sale::sale;
use super::secrets::{self, Secrets};
use crate::deny::ENTRIES_MAX;
use crate::keys;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use toml::de::DeTable;
use weir_core::limit::bans::BanPolicy;
use weir_core::limit::gcra::{Policy, Rate};
use weir_core::limit::lease::ShardId;
use weir_core::limit::rule::{Kind, Rule};
use weir_core::limits::MAILBOX_MAX;
use weir_core::sale::Sale;
use weir_core::shard::config::{BanLimits, KeyedLimit, Role, ShardConfig};
use weir_core::shard::conns::Timeouts;
use weir_io::choice::Wanted;
use weir_proto::addr::Source;

/// Most waiting submits of a shard that `"auto"` chooses: 20 ms of the scenario's 300,000 requests/s on two shards.
const AUTO_INFLIGHT_MAX: u64 = 4096;
/// Fewest connections of one source that `"auto"` allows: a small server's one proxy or office still fits.
const AUTO_CONNS_PER_SOURCE_MIN: u64 = 256;
/// Names the hash of users in the log to `derive_key`.
const USER_HASH_CONTEXT: &str = "weir 2026-11-30 user hash in the admission log";

/// Reads the whole file; `None` when a key file could not be read. The result means nothing while `reader` has problems.
pub fn plan(reader: &Reader<'_>, root: &DeTable<'_>, file: &Path, host: &Host) -> Option<Plan> {
    reader.check_sections(root);
    let dir = file.parent().unwrap_or(Path::new("")).to_owned();
    let server = reader.section(root, "server");
    let shards_count = server
        .number_or_auto("shards")
        .unwrap_or_else(|| host.cpus_count.saturating_sub(1).clamp(1, SHARDS_MAX));
    let shards_count = u16::try_from(shards_count).expect("the table allows 64 at most");
    let (limits, log) = (reader.section(root, "limits"), reader.section(root, "log"));
    let skew_ms = limits.number("signature_skew");
    let secrets = secrets::read(&reader.section(root, "keys"), &dir, skew_ms);
    let first_secret = secrets.as_ref().map(|secrets| &secrets.first);
    let sale = Arc::new(sale(reader, root, first_secret, shards_count));
    let listen = server.address("listen");
    let ops = ops(&reader.section(root, "ops"), &dir, listen);
    let log_target = log_target(&log, &dir);
    let deny = deny(&reader.section(root, "deny"), &dir);
    let store = StorePlan {
        dir: dir.join(server.text("data_dir")),
    };
    let direct = reader.section(root, "io").flag("direct");
    let (redis, role) = super::redis::redis(reader, root, &dir, &sale).unzip();
    let driver = Wanted::named(&server.text("driver")).unwrap_or(Wanted::Auto); // a wrong word is reported already
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
    let mut shard = shard?;
    shard.is_ledger_remote = redis.is_some();
    shard.role = role.unwrap_or_default();
    Some(Plan {
        file: file.to_owned(),
        listen,
        shards_count,
        driver,
        direct,
        sale,
        shard,
        ops,
        deny,
        log: log_target,
        store,
        redis,
    })
}

/// Asks of one shard that may wait, by kind.
struct Asks {
    submits_max: u32,
    sku_max: u32,
    sku_min: u32,
    user_max: u32,
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
    let skus = skus_count.max(1) as u64;
    let sku_min = limits
        .number_or_auto("sku_inflight_min")
        .unwrap_or(submits / 4 / skus);
    if !limits.is_wrong() && sku_min * skus > submits {
        limits.wrong(
            "sku_inflight_min",
            format!("{sku_min} for each of {skus} SKUs is more than the {submits} of inflight_max: lower it, or write \"auto\""),
        );
    }
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
        sku_max: small(sku.min(submits).max(sku_min)),
        sku_min: small(sku_min),
        user_max: small(limits.number("user_inflight_max")),
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
    let limit = Limits {
        section: limits,
        shards_count,
    };
    let (source, timeouts) = (source(server), timeouts(server));
    let every = |name| parts.log.number(name) as u32; // at most SAMPLE_EVERY_MAX
    let [ip, user, device, status] = ["ip", "user", "device", "status"].map(|d| limit.shadowed(d));
    let instance = limit.policy("instance_rate", "instance_burst");
    let connect = limit.keyed("connect");
    let bans = bans(limits);
    let (conns_max, drain_ms) = (
        server.number("conns_max") as usize,
        server.number("drain_timeout"),
    );
    let conns_per_source_max = conns_per_source_max(server, conns_max);
    let (trusted, origins) = (
        server.networks("trusted").into(),
        server.origins("origins").into(),
    );
    let [request_budget_ms, payment_budget_ms, leeway_ms] =
        ["request_budget", "payment_budget", "clock_leeway"].map(|name| limits.number(name));
    let known_max = limits.number("known_requests_max") as usize;
    let [log_admitted_every, log_refused_every, log_failed_every] =
        ["admitted_every", "refused_every", "failed_every"].map(every);
    let secrets = secrets?; // last: everything above has been checked
    Some(ShardConfig {
        shard: ShardId(0),
        shard_boot: 0,
        seed: 0,
        sale,
        keys: secrets.ring,
        payment_key: secrets.payment,
        signature: secrets.request,
        source,
        trusted,
        origins,
        conns_max,
        conns_per_source_max,
        connect,
        timeouts,
        instance,
        ip,
        user,
        device,
        status,
        rate_limit_headers: limits.flag("rate_limit_headers"),
        inflight_max: asks.submits_max,
        status_inflight_max: asks.status_max,
        sku_inflight_max: asks.sku_max,
        sku_inflight_min: asks.sku_min,
        user_inflight_max: asks.user_max,
        deny: Arc::default(),
        bans,
        payments_max: asks.payments_max,
        is_ledger_remote: false,
        role: Role::Whole,
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

/// `conns_max` is handed in: a key that is read twice would report its problem twice.
fn conns_per_source_max(server: &Section<'_, '_>, conns_max: usize) -> u32 {
    let given = server.number_or_auto("conns_per_source_max");
    let auto = || (conns_max as u64 / 4).max(AUTO_CONNS_PER_SOURCE_MIN);
    given.unwrap_or_else(auto) as u32 // at most CONNS_MAX
}

fn timeouts(server: &Section<'_, '_>) -> Timeouts {
    let ms = |name| server.number(name);
    Timeouts {
        head_ms: ms("head_timeout"),
        body_ms: ms("body_timeout"),
        idle_ms: ms("idle_timeout"),
        write_ms: ms("write_timeout"),
        linger_ms: ms("linger_timeout"),
    }
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
        self.part(rate, burst, of_all, capacity)
    }

    /// One shard's part of `of_all` and `capacity`, which the keys `rate` and `burst` name.
    fn part(&self, rate: &str, burst: &str, of_all: Rate, capacity: u64) -> Policy {
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

    /// The kind that `word` names, when it can enforce `policy`; `key` is where the word stands.
    fn rule(&self, key: &str, word: &str, policy: Policy) -> Rule {
        let named = Kind::ALL.into_iter().find(|kind| kind.word() == word);
        let kind = named.unwrap_or(Kind::Gcra); // a wrong word is reported where it is read
        Rule::new(kind, policy).unwrap_or_else(|error| {
            self.section.wrong(key, error.to_string());
            Rule::gcra(policy)
        })
    }

    /// The shadow of a dimension, if one of its keys is there; what is not said is as in the live limit.
    fn shadow(&self, dimension: &str) -> Option<Rule> {
        let section = self.section;
        let name = |what: &str| format!("{dimension}_shadow_{what}");
        let word = section.optional_text(&name("policy"));
        let rate = section.optional_rate(&name("rate"));
        let burst = section.optional_number(&name("burst"));
        if word.is_none() && rate.is_none() && burst.is_none() {
            return None;
        }
        let word = word.unwrap_or_else(|| section.text(&format!("{dimension}_policy")));
        let rate = rate.unwrap_or_else(|| section.rate(&format!("{dimension}_rate")));
        let burst = burst.unwrap_or_else(|| section.number(&format!("{dimension}_burst")));
        let policy = self.part(&name("rate"), &name("burst"), rate, burst);
        Some(self.rule(&name("policy"), &word, policy))
    }

    fn keyed(&self, dimension: &str) -> KeyedLimit {
        let name = |what: &str| format!("{dimension}_{what}");
        let policy = self.policy(&name("rate"), &name("burst"));
        let word = self.section.text(&name("policy"));
        KeyedLimit {
            rule: self.rule(&name("policy"), &word, policy),
            shadow: None,
            overflow: self.policy("overflow_rate", "overflow_burst"),
            slots: self.section.number(&name("slots")) as usize,
        }
    }

    /// A keyed limit that may have a shadow.
    fn shadowed(&self, dimension: &str) -> KeyedLimit {
        KeyedLimit {
            shadow: self.shadow(dimension),
            ..self.keyed(dimension)
        }
    }
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
    let token_file = token_file.map(|path| dir.join(path));
    let token = token_file.as_ref().and_then(|path| {
        let token = keys::read_token(path);
        token
            .map_err(|error| section.wrong("token_file", error.to_string()))
            .ok()
    });
    OpsPlan {
        listen,
        token,
        token_file,
        audit_log,
    }
}

fn deny(section: &Section<'_, '_>, dir: &Path) -> DenyPlan {
    let mut subjects = Vec::new();
    for name in ["networks", "users", "devices"] {
        subjects.extend(section.denied(name));
    }
    if !section.is_wrong() && subjects.len() > ENTRIES_MAX {
        let message = format!("with users and devices more than {ENTRIES_MAX} entries");
        section.wrong("networks", message);
    }
    DenyPlan {
        subjects,
        file: dir.join(section.text("file")),
    }
}

/// When clients who ignore 429 are banned; what users and addresses share is read once.
fn bans(limits: &Section<'_, '_>) -> BanLimits {
    let ms = |name| limits.number(name);
    let (window_ms, first_ms, forget_ms) = (ms("ban_window"), ms("ban_first"), ms("ban_forget"));
    let policy = |strikes: &str, max: &str| {
        let (strikes, max_ms) = (limits.number(strikes), limits.number(max));
        if !limits.is_wrong() && strikes > 0 && max_ms < first_ms {
            let message = "is shorter than ban_first: raise it, or lower ban_first";
            limits.wrong(max, message);
        }
        BanPolicy {
            strikes: strikes as u16, // at most STRIKES_MAX
            window_ms,
            first_ms,
            max_ms,
            forget_ms,
        }
    };
    BanLimits {
        user: policy("ban_strikes", "ban_max"),
        ip: policy("ip_ban_strikes", "ip_ban_max"),
        slots: limits.number("ban_slots") as usize,
    }
}

fn log_target(section: &Section<'_, '_>, dir: &Path) -> LogTarget {
    match section.text("path").as_str() {
        "-" => LogTarget::Stdout,
        "off" => LogTarget::Off,
        path => LogTarget::File(dir.join(PathBuf::from(path))),
    }
}
