//! From a path to what it names.

use weir_core::limit::dimension::Dim;
use weir_proto::http::Method;
use weir_proto::ids::{ActivityId, SkuId, SkuKey};
use weir_proto::limits::ID_MAX;

/// What an operator can do with a SKU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Open,
    Close,
    Mode,
    Restock,
    Freeze,
    Thaw,
    Rebuild,
}

impl Action {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Close => "close",
            Self::Mode => "mode",
            Self::Restock => "restock",
            Self::Freeze => "freeze",
            Self::Thaw => "thaw",
            Self::Rebuild => "rebuild",
        }
    }
}

/// What an operator can do at the gates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GateAct {
    DenyAdd,
    DenyRemove,
    BansLift,
}

impl GateAct {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::DenyAdd => "deny_add",
            Self::DenyRemove => "deny_remove",
            Self::BansLift => "bans_lift",
        }
    }
}

/// A resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    Healthz,
    Readyz,
    Metrics,
    Tickets,
    Limit(Dim),
    Sku(SkuKey),
    Deny,
    Hot,
    Gate(GateAct),
    Step(SkuKey, Action),
    Budget(SkuKey),
}

impl Route {
    pub(super) fn of(path: &[u8]) -> Option<Self> {
        let path = std::str::from_utf8(path).ok()?;
        let mut parts = path.strip_prefix('/')?.split('/');
        let route = match (parts.next()?, parts.next()) {
            ("healthz", None) => return Some(Self::Healthz),
            ("readyz", None) => return Some(Self::Readyz),
            ("metrics", None) => return Some(Self::Metrics),
            ("ops", Some("v1")) => match parts.next()? {
                "tickets" => Self::Tickets,
                "limits" => {
                    let word = parts.next()?;
                    Self::Limit(Dim::ALL.into_iter().find(|dim| dim.word() == word)?)
                }
                "hot" => Self::Hot,
                "deny" => match parts.next() {
                    None => return Some(Self::Deny),
                    Some("add") => Self::Gate(GateAct::DenyAdd),
                    Some("remove") => Self::Gate(GateAct::DenyRemove),
                    Some(_) => return None,
                },
                "bans" => match parts.next()? {
                    "lift" => Self::Gate(GateAct::BansLift),
                    _ => return None,
                },
                "activities" => {
                    let activity = ActivityId(number(parts.next()?)?);
                    if parts.next()? != "skus" {
                        return None;
                    }
                    let sku = SkuId(number(parts.next()?)?);
                    let key = SkuKey { activity, sku };
                    match parts.next() {
                        None => Self::Sku(key),
                        Some("open") => Self::Step(key, Action::Open),
                        Some("close") => Self::Step(key, Action::Close),
                        Some("mode") => Self::Step(key, Action::Mode),
                        Some("restock") => Self::Step(key, Action::Restock),
                        Some("freeze") => Self::Step(key, Action::Freeze),
                        Some("thaw") => Self::Step(key, Action::Thaw),
                        Some("rebuild") => Self::Step(key, Action::Rebuild),
                        Some("budget") => Self::Budget(key),
                        Some(_) => return None,
                    }
                }
                _ => return None,
            },
            _ => return None,
        };
        parts.next().is_none().then_some(route)
    }

    pub(super) const fn allow(self) -> &'static str {
        match self {
            Self::Healthz
            | Self::Readyz
            | Self::Metrics
            | Self::Sku(_)
            | Self::Deny
            | Self::Hot => "GET, HEAD",
            Self::Tickets | Self::Limit(_) | Self::Step(..) | Self::Budget(_) | Self::Gate(_) => {
                "POST"
            }
        }
    }

    pub(super) fn allows(self, method: Method) -> bool {
        self.allow().split(", ").any(|name| name == method.as_str())
    }
}

/// One spelling per number: digits, no sign, no leading zero.
fn number(text: &str) -> Option<u64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    let number = text.parse().ok().filter(|_| plain)?;
    (1..=ID_MAX).contains(&number).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_names_one_thing_and_others_nothing() {
        let key = SkuKey {
            activity: ActivityId(7),
            sku: SkuId(8),
        };
        for (path, route) in [
            ("/healthz", Some(Route::Healthz)),
            ("/readyz", Some(Route::Readyz)),
            ("/metrics", Some(Route::Metrics)),
            ("/ops/v1/tickets", Some(Route::Tickets)),
            ("/ops/v1/limits/user", Some(Route::Limit(Dim::User))),
            ("/ops/v1/deny", Some(Route::Deny)),
            ("/ops/v1/deny/add", Some(Route::Gate(GateAct::DenyAdd))),
            (
                "/ops/v1/deny/remove",
                Some(Route::Gate(GateAct::DenyRemove)),
            ),
            ("/ops/v1/bans/lift", Some(Route::Gate(GateAct::BansLift))),
            ("/ops/v1/hot", Some(Route::Hot)),
            ("/ops/v1/activities/7/skus/8", Some(Route::Sku(key))),
            (
                "/ops/v1/activities/7/skus/8/open",
                Some(Route::Step(key, Action::Open)),
            ),
            (
                "/ops/v1/activities/7/skus/8/close",
                Some(Route::Step(key, Action::Close)),
            ),
            (
                "/ops/v1/activities/7/skus/8/mode",
                Some(Route::Step(key, Action::Mode)),
            ),
            (
                "/ops/v1/activities/7/skus/8/restock",
                Some(Route::Step(key, Action::Restock)),
            ),
            (
                "/ops/v1/activities/7/skus/8/rebuild",
                Some(Route::Step(key, Action::Rebuild)),
            ),
            (
                "/ops/v1/activities/7/skus/8/budget",
                Some(Route::Budget(key)),
            ),
        ] {
            assert_eq!(Route::of(path.as_bytes()), route, "{path}");
            assert_eq!(Route::of(format!("{path}/").as_bytes()), None, "{path}/");
        }
        for path in [
            "*",
            "/",
            "",
            "/health",
            "/ops/v1",
            "/ops/v2/tickets",
            "/ops/v1/limits",
            "/ops/v1/limits/connect",
            "/ops/v1/bans",
            "/ops/v1/deny/burn",
            "/ops/v1/activities/07/skus/8",
            "/ops/v1/activities/0/skus/8",
            "/ops/v1/activities/+7/skus/8",
            "/ops/v1/activities/7/sku/8",
            "/ops/v1/activities/9223372036854775808/skus/8",
            "/ops/v1/activities/7/skus/8/burn",
            "/ops/v1/activities/7/skus/8/open/x",
            "//healthz",
        ] {
            assert_eq!(Route::of(path.as_bytes()), None, "{path}");
        }
    }
}
