//! The page of `/metrics`: samples of all parts combined, what follows from them derived, Prometheus text format 0.0.4.
//!
//! Labels come from enums and configuration only ([`Label`]): nothing that a client sends can become one (M1).

use super::metrics::{Combine, Kind, METRICS, Metric, Scale};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use weir_core::ask::Mode;
use weir_core::sale::Sale;
use weir_core::stats::{Label, Sample};
use weir_core::time::NS_PER_S;
use weir_proto::answer::{Code, Decision, Reason};
use weir_proto::ids::SkuKey;

/// A label as shown: a part's own, or one that a derived metric needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Shown {
    Own(Label),
    /// `stage` and `reason`.
    StageReason(Reason),
    /// `reason`.
    ReasonOnly(Reason),
}

/// Collects samples, then writes the page.
#[derive(Debug, Default)]
pub struct Page {
    /// By name of the sample, then label, so that a family's lines stand together.
    values: BTreeMap<(&'static str, Shown), u64>,
    unknown: u64,
}

impl Page {
    /// Nothing on it.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one part's sample, and what is derived from it.
    pub fn add(&mut self, sample: &Sample) {
        // The owner's word for the mode, under the seed's name.
        let name = match sample.name {
            "weir_ledger_mode" => "seckill_admission_mode",
            name => name,
        };
        self.put(name, Shown::Own(sample.label), sample.value);
        self.derive(sample);
    }

    /// Adds the admission rates of the configuration, for SKUs of which no part has said what holds.
    pub fn add_rates(&mut self, sale: &Sale) {
        for activity in &sale.activities {
            for sku in &activity.skus {
                let key = SkuKey {
                    activity: activity.id,
                    sku: sku.id,
                };
                let nano = u128::from(sku.budget.tokens) * 1000 * u128::from(NS_PER_S);
                let per_s_thousandths = nano / u128::from(sku.budget.per_ns.max(1));
                let value = u64::try_from(per_s_thousandths).unwrap_or(u64::MAX);
                let of_sku = ("seckill_admission_rate_limit", Shown::Own(Label::Sku(key)));
                if !self.values.contains_key(&of_sku) {
                    self.put(of_sku.0, of_sku.1, value);
                }
            }
        }
    }

    fn derive(&mut self, sample: &Sample) {
        let value = sample.value;
        match (sample.name, sample.label) {
            ("seckill_ingress_requests_total", Label::Reason(reason)) => {
                let row = reason.row();
                if reason.decision() == Decision::Reject {
                    self.put(
                        "seckill_rejected_requests_total",
                        Shown::StageReason(reason),
                        value,
                    );
                }
                if row.http_status == 503 && row.code == Code::SystemOverloaded {
                    self.put("seckill_load_shed_total", Shown::ReasonOnly(reason), value);
                }
                let claim = match reason {
                    Reason::Queued => "claimed",
                    Reason::ReplayRejected => "rejected",
                    _ => return,
                };
                self.put(
                    "seckill_replay_claim_total",
                    Shown::Own(Label::Result(claim)),
                    value,
                );
            }
            ("seckill_stock_epoch", label @ Label::Sku(_)) => {
                // Epochs start at 1; each sold-out makes it even, each reopening odd (design §5).
                let reopened = value.saturating_sub(1) / 2;
                self.put("seckill_stock_reopened_total", Shown::Own(label), reopened);
            }
            _ => {}
        }
    }

    fn put(&mut self, name: &'static str, label: Shown, value: u64) {
        let Some(metric) = Metric::of(name) else {
            self.unknown += 1;
            return;
        };
        let slot = self.values.entry((name, label)).or_insert(0);
        *slot = match metric.combine {
            Combine::Sum => slot.saturating_add(value),
            Combine::Max => (*slot).max(value),
        };
    }

    /// Samples that were not shown because no row of the table has their name.
    pub fn unknown_count(&self) -> u64 {
        self.unknown
    }

    /// Writes the page: families in the order of the table, those without a value left out.
    pub fn write(&mut self) -> String {
        let unknown = self.unknown;
        self.put("weir_ops_samples_unknown", Shown::Own(Label::None), unknown);
        let mut out = String::with_capacity(16 * 1024);
        for metric in METRICS {
            let suffixes: &[&str] = match metric.kind {
                Kind::Histogram => &["_bucket", "_sum", "_count"],
                Kind::Counter | Kind::Gauge => &[""],
            };
            let mut is_headed = false;
            for suffix in suffixes {
                let name = [metric.name, suffix].concat();
                let lines = self.values.iter().filter(|((known, _), _)| *known == name);
                for ((_, label), value) in lines {
                    if !is_headed {
                        let _ = writeln!(out, "# HELP {} {}", metric.name, metric.help);
                        let _ = writeln!(out, "# TYPE {} {}", metric.name, metric.kind.as_str());
                        is_headed = true;
                    }
                    out.push_str(&name);
                    put_labels(&mut out, *label);
                    put_value(&mut out, *value, metric.scale);
                }
            }
        }
        out
    }
}

fn put_value(out: &mut String, value: u64, scale: Scale) {
    let _ = match scale {
        Scale::One => writeln!(out, " {value}"),
        Scale::Thousandths => writeln!(out, " {}.{:03}", value / 1000, value % 1000),
    };
}

fn put_labels(out: &mut String, label: Shown) {
    let text = |text: &str| text.to_owned();
    let sku = |key: SkuKey| {
        [
            ("activity_id", key.activity.to_string()),
            ("sku_id", key.sku.to_string()),
        ]
    };
    let stage = |reason: Reason| ("stage", text(reason.row().stage.label()));
    let label_of = |reason: Reason| ("reason", text(reason.row().label));
    match label {
        Shown::Own(Label::None) => {}
        Shown::Own(Label::Reason(reason)) => {
            let decision = ("decision", text(reason.decision().as_str()));
            put_pairs(out, &[stage(reason), decision, label_of(reason)]);
        }
        Shown::StageReason(reason) => put_pairs(out, &[stage(reason), label_of(reason)]),
        Shown::ReasonOnly(reason) => put_pairs(out, &[label_of(reason)]),
        Shown::Own(Label::Dimension(name)) => put_pairs(out, &[("dimension", text(name))]),
        Shown::Own(Label::Sku(key)) => put_pairs(out, &sku(key)),
        Shown::Own(Label::SkuMode(key, mode)) => {
            let [activity, sku] = sku(key);
            put_pairs(out, &[activity, sku, ("mode", text(mode_text(mode)))]);
        }
        Shown::Own(Label::Shard(shard)) => put_pairs(out, &[("instance", shard.0.to_string())]),
        Shown::Own(Label::Result(result)) => put_pairs(out, &[("result", text(result))]),
        Shown::Own(Label::Driver(driver)) => put_pairs(out, &[("driver", text(driver))]),
        Shown::Own(Label::BucketUs(u64::MAX)) => put_pairs(out, &[("le", text("+Inf"))]),
        Shown::Own(Label::BucketUs(bound)) => put_pairs(out, &[("le", bound.to_string())]),
    }
}

fn put_pairs(out: &mut String, pairs: &[(&str, String)]) {
    for (index, (name, value)) in pairs.iter().enumerate() {
        out.push(if index == 0 { '{' } else { ',' });
        out.push_str(name);
        out.push_str("=\"");
        // Text format 0.0.4: backslash, quote and line feed are escaped in label values.
        for character in value.chars() {
            match character {
                '\\' => out.push_str("\\\\"),
                '"' => out.push_str("\\\""),
                '\n' => out.push_str("\\n"),
                other => out.push(other),
            }
        }
        out.push('"');
    }
    out.push('}');
}

/// The mode's word in metrics, bodies and the audit log.
pub(super) const fn mode_text(mode: Mode) -> &'static str {
    match mode {
        Mode::Normal => "NORMAL",
        Mode::Degraded => "DEGRADED",
        Mode::QueueOnly => "QUEUE_ONLY",
        Mode::Closed => "CLOSED",
    }
}
