//! What the demo says at the end: for programs as JSON, for people as a funnel and a histogram, and which promises broke.

use super::books::Books;
use super::fleet::BudgetReport;
use super::kinds::Kind;
use super::tally::{CODES, Tally};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use weir_bench::latency::show_us;
use weir_proto::answer::Code;

/// The demo's result. Member names are those of issue 3's shows, then a few more.
#[derive(Clone, Debug, Serialize)]
pub struct DemoReport {
    /// Buyers who came.
    pub buyers: u64,
    /// Units at the opening.
    pub stock: u64,
    /// Units put on sale again by the operator.
    pub restocked: u64,
    /// Requests answered.
    pub requests: u64,
    /// Answers by code.
    pub answers: BTreeMap<&'static str, u64>,
    /// Kinds of buyers and payers.
    pub kinds: BTreeMap<&'static str, KindReport>,
    /// Order rows.
    pub orders: u64,
    /// Units sold or held beyond those that exist.
    pub oversold: u64,
    /// Second live units of one user.
    pub double_grants: u64,
    /// Buyers told to hold a unit whose order is not there.
    pub lost_orders: u64,
    /// Requests without a known end.
    pub limbo: u64,
    /// Requests that failed below HTTP.
    pub transport_errors: u64,
    /// Orders that nobody was told of.
    pub untold_orders: u64,
    /// Orders that stand elsewhere than their buyer was told.
    pub untrue_ends: u64,
    /// Differences between ledger and orders that reconcile found, by kind.
    pub differences: BTreeMap<&'static str, u64>,
    /// Wall time from the start of the program to this report.
    pub seconds: f64,
    /// Wall time of the rush.
    pub rush_seconds: f64,
    /// Requests per second of the rush.
    pub requests_per_s: u64,
    /// CPU time of the whole server process per request of the rush.
    pub server_cpu_us_per_request: f64,
    /// Time from sending a submit to its answer.
    pub latency_us: LatencyReport,
    /// The ledger's books.
    pub books: BooksReport,
    /// Shards of each server.
    pub shards: u16,
    /// Processes that sold.
    pub instances: u16,
    /// Where they share a stock: what they let pass together until the end of the rush.
    pub budget: Option<BudgetReport>,
    /// What moved bytes, for server and crowd.
    pub driver: &'static str,
    /// The seed of the crowd.
    pub seed: u64,
    /// Promises that broke, in words; empty when all held.
    pub broken: Vec<String>,
    #[serde(skip)]
    picture: String,
}

/// One kind.
#[derive(Clone, Debug, Serialize)]
pub struct KindReport {
    /// Buyers of this kind whose case came up.
    pub count: u64,
    /// Codes that they may be answered in the end, waits aside.
    pub expected: Vec<&'static str>,
    /// Buyers who were answered something else.
    pub wrong: u64,
    /// What they were answered.
    pub answers: BTreeMap<&'static str, u64>,
}

/// Microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LatencyReport {
    /// Half are at or below.
    pub p50: u64,
    /// 99 %.
    pub p99: u64,
    /// 99.9 %.
    pub p999: u64,
    /// Largest.
    pub max: u64,
}

/// Units; total = free + held + sold + quarantined.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct BooksReport {
    /// Ever put on sale.
    pub total: u64,
    /// Held by nobody.
    pub free: u64,
    /// Held unpaid.
    pub held: u64,
    /// Paid.
    pub sold: u64,
    /// Owner disputed.
    pub quarantined: u64,
}

/// What is known beside the counts.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Buyers.
    pub buyers: u64,
    /// Units at the opening.
    pub stock: u64,
    /// Units put on sale again.
    pub restocked: u64,
    /// Shards of each server.
    pub shards: u16,
    /// Processes that sold.
    pub instances: u16,
    /// What they let pass, where they share a budget.
    pub budget: Option<BudgetReport>,
    /// Driver.
    pub driver: &'static str,
    /// Seed.
    pub seed: u64,
    /// Server CPU of the rush, microseconds.
    pub server_cpu_us: u64,
    /// Requests answered while it was measured.
    pub server_requests: u64,
    /// Wall time so far.
    pub seconds: f64,
    /// What was wrong with the servers' ends.
    pub server_ends: Vec<String>,
}

impl DemoReport {
    /// Puts everything together and judges it.
    pub fn new(facts: Facts, tally: &Tally, books: &Books) -> Self {
        let latency = tally.latency.summary();
        let sku = books.report.skus.first();
        let totals = sku.map_or(BooksReport::default(), |sku| BooksReport {
            total: sku.total,
            free: sku.free,
            held: sku.held,
            sold: sku.sold,
            quarantined: sku.quarantined,
        });
        let units = facts.stock + facts.restocked;
        let rush_s = tally.rush_ns as f64 / 1e9;
        let mut report = Self {
            buyers: facts.buyers,
            stock: facts.stock,
            restocked: facts.restocked,
            requests: tally.answered,
            answers: by_code(&tally.answers),
            kinds: kinds(tally),
            orders: books.orders,
            oversold: books
                .live_units
                .saturating_sub(units)
                .max((totals.held + totals.sold).saturating_sub(units)),
            double_grants: books.double_grants,
            lost_orders: books.lost_orders,
            limbo: tally.limbo,
            transport_errors: tally.transport_errors,
            untold_orders: books.untold_orders,
            untrue_ends: books.untrue_ends,
            differences: books.report.counts.clone(),
            seconds: rounded(facts.seconds),
            rush_seconds: rounded(rush_s),
            requests_per_s: (tally.rush_requests as f64 / rush_s.max(1e-9)) as u64,
            server_cpu_us_per_request: rounded(
                facts.server_cpu_us as f64 / facts.server_requests.max(1) as f64,
            ),
            latency_us: LatencyReport {
                p50: latency.p50,
                p99: latency.p99,
                p999: latency.p999,
                max: latency.max,
            },
            books: totals,
            shards: facts.shards,
            instances: facts.instances,
            budget: facts.budget,
            driver: facts.driver,
            seed: facts.seed,
            broken: Vec::new(),
            picture: tally.latency.picture(40),
        };
        report.judge(tally, facts.server_ends);
        report
    }

    /// Names every promise that broke.
    fn judge(&mut self, tally: &Tally, server_ends: Vec<String>) {
        let mut broken = Vec::new();
        for (count, what) in [
            (self.oversold, "units oversold"),
            (
                self.double_grants,
                "second units of one user (double grants)",
            ),
            (
                self.lost_orders,
                "acknowledged buyers without their order (lost orders)",
            ),
            (self.limbo, "requests in limbo"),
            (
                self.transport_errors,
                "requests without an answer (transport errors)",
            ),
            (self.untold_orders, "orders that nobody was told of"),
            (
                self.untrue_ends,
                "orders that stand elsewhere than their buyer was told",
            ),
            (
                tally.changed_reservations,
                "reservations that changed for their buyer",
            ),
        ] {
            if count > 0 {
                broken.push(format!("{count} {what}"));
            }
        }
        let books = self.books;
        if books.total != self.stock + self.restocked
            || books.total != books.free + books.held + books.sold + books.quarantined
        {
            broken.push(format!(
                "books: stock {} + restocked {}, but total {} = free {} + held {} + sold {} + quarantined {}",
                self.stock, self.restocked, books.total, books.free, books.held, books.sold, books.quarantined
            ));
        }
        for (kind, count) in &self.differences {
            broken.push(format!("reconcile: {count} of {kind}"));
        }
        for (kind, told) in &self.kinds {
            if told.wrong > 0 {
                broken.push(format!(
                    "{} of {} buyers of kind {kind} were answered wrongly",
                    told.wrong, told.count
                ));
            }
            if told.count == 0 {
                broken.push(format!("no buyer of kind {kind} came"));
            }
        }
        if let Some(budget) = &self.budget {
            broken.extend(budget.broken());
        }
        if tally.gave_up {
            broken.push("the demo gave up waiting before every story was told".to_owned());
        }
        broken.extend(
            tally
                .complaints
                .iter()
                .map(|words| format!("heard: {words}")),
        );
        broken.extend(server_ends);
        self.broken = broken;
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut out = String::new();
        // Writing into a String cannot fail.
        let _ = self.write_text(&mut out);
        out
    }

    fn write_text(&self, out: &mut String) -> std::fmt::Result {
        writeln!(
            out,
            "\n{:<18}{:>10}{:>7}  answers",
            "kind", "buyers", "wrong"
        )?;
        for (kind, told) in &self.kinds {
            let answers: Vec<String> = told
                .answers
                .iter()
                .map(|(code, n)| format!("{code} {n}"))
                .collect();
            writeln!(
                out,
                "{kind:<18}{:>10}{:>7}  {}",
                told.count,
                told.wrong,
                if answers.is_empty() {
                    "none: they send nothing".to_owned()
                } else {
                    answers.join(", ")
                }
            )?;
        }
        writeln!(
            out,
            "\ntime from sending a submit to its answer\n{}",
            self.picture
        )?;
        let latency = self.latency_us;
        writeln!(
            out,
            "p50 {}, p99 {}, p99.9 {}, max {}",
            show_us(latency.p50),
            show_us(latency.p99),
            show_us(latency.p999),
            show_us(latency.max)
        )?;
        writeln!(
            out,
            "{} requests in {} s ({} requests/s in the rush, {} µs of server CPU each)",
            self.requests, self.seconds, self.requests_per_s, self.server_cpu_us_per_request
        )?;
        let books = self.books;
        writeln!(
            out,
            "{} buyers, {} units + {} restocked = {}: {} sold, {} held, {} free, {} quarantined; {} orders",
            self.buyers,
            self.stock,
            self.restocked,
            books.total,
            books.sold,
            books.held,
            books.free,
            books.quarantined,
            self.orders
        )?;
        self.write_promises(out)
    }

    fn write_promises(&self, out: &mut String) -> std::fmt::Result {
        if let Some(budget) = &self.budget {
            writeln!(out, "{budget}")?;
        }
        writeln!(
            out,
            "oversold {}, double grants {}, lost orders {}, limbo {}, transport errors {}",
            self.oversold, self.double_grants, self.lost_orders, self.limbo, self.transport_errors
        )?;
        if self.broken.is_empty() {
            writeln!(out, "every promise held")?;
        }
        Ok(())
    }
}

fn kinds(tally: &Tally) -> BTreeMap<&'static str, KindReport> {
    let pairs = Kind::ALL.iter().zip(&tally.kinds);
    let report = |(kind, told): (&Kind, &super::tally::KindTally)| {
        let expected = kind.expected().iter().map(|code| code.as_str()).collect();
        let answers = by_code(&told.answers);
        (
            kind.text(),
            KindReport {
                count: told.count,
                expected,
                wrong: told.wrong,
                answers,
            },
        )
    };
    pairs.map(report).collect()
}

fn by_code(counts: &[u64; CODES]) -> BTreeMap<&'static str, u64> {
    let pairs = Code::ALL.iter().zip(counts);
    pairs
        .filter(|(_, count)| **count > 0)
        .map(|(code, count)| (code.as_str(), *count))
        .collect()
}

/// Three digits after the point are enough for people and programs.
fn rounded(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}
