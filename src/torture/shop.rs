//! The configuration of a small sale: what differs between sales, and everything else wide open.

use super::{Result, TortureError};
use crate::config::{self, Host, Setting};
use weir_core::time::WallMs;

/// Sales open so long before they begin: a clock may jump back by less than that.
const OPEN_BEFORE_MS: u64 = 2 * 60 * 60 * 1000;
/// What differs between sales.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// Threads of the server.
    pub shards: u16,
    /// Units.
    pub stock: u64,
    /// For one request.
    pub budget_ms: u64,
    /// To pay.
    pub unpaid_ms: u64,
    /// Submits per second that may ask the ledger.
    pub ask_rate: u64,
}

/// `weir init`'s file with a small sale.
///
/// # Errors
/// The system gives no random bytes.
pub fn toml_text(host: &Host, how: How) -> Result<String> {
    Ok(config::starter(&settings(host, how)?))
}

/// What that file sets. One address and few users send all of the load: only the ledger shall refuse.
///
/// # Errors
/// The system gives no random bytes.
pub fn settings(host: &Host, how: How) -> Result<Vec<Setting<'static>>> {
    let mut settings = config::fresh_sale(WallMs(host.wall_ms)).map_err(TortureError::of)?;
    settings.retain(|(section, name, _)| (*section, *name) != ("activity", "opens_at"));
    let text = |text: &str| format!("\"{text}\"");
    let (many, plenty) = (text("1000000/s"), "1000000".to_owned());
    settings.extend([
        ("server", "listen", text("127.0.0.1:0")),
        ("server", "shards", how.shards.to_string()),
        ("server", "conns_max", "256".to_owned()),
        ("ops", "listen", text("127.0.0.1:0")),
        ("limits", "instance_rate", many.clone()),
        ("limits", "instance_burst", plenty.clone()),
        ("limits", "connect_rate", many.clone()),
        ("limits", "connect_burst", plenty.clone()),
        ("limits", "ip_rate", many.clone()),
        ("limits", "ip_burst", plenty.clone()),
        ("limits", "ip_slots", "64".to_owned()),
        ("limits", "user_rate", many.clone()),
        ("limits", "user_burst", plenty.clone()),
        ("limits", "user_slots", "16384".to_owned()),
        ("limits", "device_slots", "64".to_owned()),
        ("limits", "status_rate", many.clone()),
        ("limits", "status_burst", plenty.clone()),
        ("limits", "status_slots", "16384".to_owned()),
        ("limits", "overflow_rate", many),
        ("limits", "overflow_burst", plenty),
        (
            "limits",
            "request_budget",
            text(&format!("{}ms", how.budget_ms)),
        ),
        ("log", "path", text("off")),
        (
            "activity",
            "opens_at",
            config::instant_text(WallMs((host.wall_ms - OPEN_BEFORE_MS) / 1000 * 1000)),
        ),
        ("activity", "id", "1".to_owned()),
        ("activity.sku", "id", "1".to_owned()),
        ("activity.sku", "stock", how.stock.to_string()),
        ("activity.sku", "price", text("19.90 CNY")),
        (
            "activity.sku",
            "unpaid_timeout",
            text(&format!("{}ms", how.unpaid_ms)),
        ),
        (
            "activity.sku",
            "budget",
            text(&format!("{}/s", how.ask_rate)),
        ),
    ]);
    Ok(settings)
}
