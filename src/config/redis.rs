//! The sections `[ledger]`, `[redis]` and `[orders]`: where the stock is, how Redis is reached, who makes the orders.
//!
//! Called by [`super::build`]. The keys of `[redis]` are checked also while the ledger is embedded, so that a file is right
//! before it is switched over.

use super::ceilings::REDIS_IDS_MAX;
use super::document::{Reader, Section};
use super::limiter;
use super::plan::RedisPlan;
use crate::keys;
use std::path::Path;
use toml::de::DeTable;
use weir_core::ledger::LedgerConfig;
use weir_core::limits::{LINK_SENT_MAX, RESERVATIONS_MAX};
use weir_core::redis::breaker;
use weir_core::redis::desk::{DeskConfig, Wait};
use weir_core::redis::endpoint::Endpoint;
use weir_core::redis::link::Patience;
use weir_core::redis::link::greeting::{Auth, Words};
use weir_core::redis::step::StepPlan;
use weir_core::sale::Sale;
use weir_core::shard::config::Role;
use weir_core::tls::TlsId;
use weir_io::tls::TlsClient;
use weir_proto::ids::SkuKey;

/// A link that says nothing for so long asks whether the server is there.
const PING_EVERY_MS: u64 = 1_000;
/// Names the settings of TLS of the ledger's Redis.
const LEDGER_TLS: TlsId = TlsId(0);
/// What `CLIENT LIST` shows.
const CLIENT_NAME: &str = "weir";

/// With what this instance does of the sale. `None`: the ledger is embedded, or something is wrong and reported.
pub fn redis(
    reader: &Reader<'_>,
    root: &DeTable<'_>,
    dir: &Path,
    sale: &Sale,
) -> Option<(RedisPlan, Role)> {
    let ledger = reader.section(root, "ledger");
    let kind = ledger.text("kind");
    let role = role(&reader.section(root, "orders"), &kind);
    let section = reader.section(root, "redis");
    let servers = section.endpoints("servers");
    let wait_replicas = section.number("wait_replicas") as u32; // at most 10
    let freeze_ms = section.number("freeze");
    let accept_lua_holes = section.flag("accept_lua_holes");
    let desk = desk(&section, dir, servers, LEDGER_TLS);
    let leases = limiter::leases(&reader.section(root, "limiter"), dir);
    if kind != "redis" {
        return None;
    }
    let ((desk, tls), leases) = (desk?, leases?);
    let steps = steps(sale)
        .map_err(|what| ledger.wrong("kind", what))
        .ok()?;
    let plan = RedisPlan {
        desk: DeskConfig {
            hears_events: true,
            remembers: true,
            wait: (wait_replicas > 0).then_some(Wait {
                replicas: wait_replicas,
                timeout_ms: (desk.patience.reply_ms_max / 2).max(1),
            }),
            ..desk
        },
        tls,
        steps,
        freeze_ms,
        accept_lua_holes,
        leases,
    };
    Some((plan, role))
}

/// How the servers of a section are reached; `None`: something is wrong and reported.
pub(super) fn desk(
    section: &Section<'_, '_>,
    dir: &Path,
    servers: Vec<Endpoint>,
    tls_id: TlsId,
) -> Option<(DeskConfig, Option<TlsClient>)> {
    let password = section.optional_text("password_file").and_then(|path| {
        let read = keys::read_password(&dir.join(path));
        let wrong = |error: keys::KeyFileError| section.wrong("password_file", error.to_string());
        read.map_err(wrong).ok()
    });
    let user = section.optional_text("user");
    let is_cluster = section.flag("cluster");
    let database = section.number("database") as u16; // at most 15
    let greeting_ms_max = section.number("connect_timeout");
    let reply_ms_max = section.number("reply_timeout");
    let tls = super::tls::client(section, dir);
    if section.is_wrong() {
        return None;
    }
    if !is_cluster && servers.len() > 1 {
        section.wrong(
            "servers",
            "names more than one server, and cluster is false: name the master, or set cluster = true",
        );
    }
    if is_cluster && database != 0 {
        section.wrong("database", "a cluster has only database 0");
    }
    if user.is_some() && password.is_none() {
        section.wrong("user", "needs password_file, too");
    }
    let desk = DeskConfig {
        servers,
        is_cluster,
        tls: tls.as_ref().map(|_| tls_id),
        hears_events: false,
        wait: None,
        remembers: false,
        words: Words {
            client_name: CLIENT_NAME.to_owned(),
            auth: password.map(|password| Auth { user, password }),
            database,
            channels: Vec::new(),
        },
        patience: Patience {
            greeting_ms_max,
            reply_ms_max,
            ping_every_ms: PING_EVERY_MS,
        },
        under_way_max: LINK_SENT_MAX,
        breaker: breaker::Policy::default(),
        seed: 0,
    };
    (!section.is_wrong()).then_some((desk, tls))
}

/// What this instance does beside selling.
fn role(orders: &Section<'_, '_>, ledger_kind: &str) -> Role {
    if orders.text("made_by") != "worker" {
        return Role::Whole;
    }
    if ledger_kind != "redis" {
        orders.wrong(
            "made_by",
            "is \"worker\", but ledger.kind is \"embedded\": no other process can read that ledger. Write made_by = \"here\", or keep the ledger in Redis",
        );
    }
    Role::Sells
}

/// What the steps of each SKU need.
///
/// # Errors
/// Ids that do not fit.
pub(crate) fn steps(sale: &Sale) -> Result<Vec<StepPlan>, String> {
    let plans = LedgerConfig::of_sale(sale, 0).plans;
    let step = |(activity, sku): (&weir_core::sale::Activity, &weir_core::sale::Sku)| {
        let (a, s) = (activity.id.0, sku.id.0);
        if a > REDIS_IDS_MAX || s > REDIS_IDS_MAX {
            return Err(format!(
                "activity {a}, SKU {s}: with the ledger in Redis ids are at most {REDIS_IDS_MAX}; give them smaller ones"
            ));
        }
        let key = SkuKey {
            activity: activity.id,
            sku: sku.id,
        };
        let plan = plans.iter().find(|plan| plan.sku == key);
        let plan = plan.expect("the ledger plans for every SKU of the sale");
        Ok(StepPlan {
            sku: key,
            reservations_max: plan.reservations_max,
            unit_price: sku.unit_price,
            keep_until: activity.closes_at.plus_ms(activity.retention_ms),
            policy: activity.version,
            ids_above: ((a << 20) | s) * RESERVATIONS_MAX,
        })
    };
    let all = sale.activities.iter();
    all.flat_map(|activity| activity.skus.iter().map(move |sku| (activity, sku)))
        .map(step)
        .collect()
}
