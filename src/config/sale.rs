//! The sections `[[activity]]` and `[[activity.sku]]` as the core's sale.
//!
//! Called by [`super::build`]. Ids and path ids are unique, every SKU's budget can be handed out exactly.

use super::document::{Reader, Section};
use crate::keys::Secret;
use toml::de::DeTable;
use weir_core::limit::book::LeaseBook;
use weir_core::limits::{ACTIVITIES_MAX, SKUS_PER_ACTIVITY_MAX};
use weir_core::sale::{Activity, Sale, Sku};
use weir_core::time::Mono;
use weir_proto::ids::{ActivityId, SkuId};
use weir_proto::limits::ID_MAX;

/// Names the device salt of an activity to `derive_key`.
const DEVICE_SALT_CONTEXT: &str = "weir 2026-11-30 device salt of an activity";

/// All activities of the file, each checked against the ones before it. `secret`: of the first ticket key.
pub fn sale(
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
