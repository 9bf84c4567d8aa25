//! What a run found, for programs (JSON by serde) and for people (a table).

use crate::latency::{Latency, LatencySummary, show_us};
use crate::watch::WatchReport;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Below this share of requests sent in time the load was not the one that was asked for.
pub const ACHIEVED_PPM_MIN: u64 = 995_000;
/// Above this share of its core the generator, and not the server, shapes the latencies (open loop).
pub const GENERATOR_BUSY_PPM_MAX: u64 = 850_000;

/// One kind of request.
#[derive(Clone, Debug, Default, Serialize)]
pub struct KindReport {
    /// Requests.
    pub requests: u64,
    /// Answers.
    pub answered: u64,
    /// Answers by status.
    pub statuses: BTreeMap<String, u64>,
    /// Answers by weir's code.
    pub answers: BTreeMap<String, u64>,
    /// Requests without an answer, by cause.
    pub failures: BTreeMap<String, u64>,
    /// From the scheduled instant to the answer.
    pub latency_us: LatencySummary,
}

/// Connections of a run.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct ConnectionReport {
    /// Opened.
    pub opened: u64,
    /// Connects that failed.
    pub connect_failed: u64,
    /// Ended by an answer with `Connection: close`.
    pub closed_with_answer: u64,
    /// Ended by the server while nothing was under way.
    pub closed_idle: u64,
    /// Ended with requests under way.
    pub broken: u64,
    /// Most requests under way at one time.
    pub in_flight_max: u64,
    /// Bytes of whole answers.
    pub received_bytes: u64,
}

/// The generator's own thread.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct GeneratorReport {
    /// CPU time, microseconds.
    pub cpu_us: u64,
    /// Share of its core, millionths.
    pub busy_ppm: u64,
    /// Time for which it was ready and another thread had its core, microseconds.
    pub run_delay_us: u64,
    /// CPU time per request, nanoseconds.
    pub cpu_ns_per_request: u64,
}

/// All of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct BenchReport {
    /// `open` or `max`.
    pub mode: &'static str,
    /// The server.
    pub target: String,
    /// Connections asked for.
    pub connections: u32,
    /// Requests under way per connection, at most.
    pub pipeline: u32,
    /// The rate asked for; absent with `max`.
    pub target_per_s: Option<u64>,
    /// Share of the scheduled requests that were sent before the schedule's end, millionths; absent with `max`.
    pub achieved_ppm: Option<u64>,
    /// Answers per second from the first instant to the last answer.
    pub answered_per_s: u64,
    /// From the first instant to the last answer, milliseconds.
    pub elapsed_ms: u64,
    /// Requests scheduled (open loop) or sent.
    pub requests: u64,
    /// Requests answered.
    pub answered: u64,
    /// Requests without an answer.
    pub transport_errors: u64,
    /// Requests that were due and never sent.
    pub not_sent: u64,
    /// Answers by status.
    pub statuses: BTreeMap<String, u64>,
    /// Answers by weir's code.
    pub answers: BTreeMap<String, u64>,
    /// Requests without an answer, by cause.
    pub failures: BTreeMap<String, u64>,
    /// From the scheduled instant to the answer.
    pub latency_us: LatencySummary,
    /// From sending to the answer: hides what a stalled server kept back; for comparison only.
    pub service_us: LatencySummary,
    /// From the scheduled instant to sending.
    pub lag_us: LatencySummary,
    /// The same by kind of request.
    pub kinds: BTreeMap<&'static str, KindReport>,
    /// Connections.
    pub connections_seen: ConnectionReport,
    /// The generator itself.
    pub generator: GeneratorReport,
    /// Tickets that had to be minted while the run went on.
    pub tickets_minted_late: u64,
    /// What server and machine spent, when somebody watched.
    pub watched: Option<WatchReport>,
    /// Why the numbers do not describe the load asked for; empty when they do.
    pub void_because: Vec<String>,
    /// The latencies, for pictures.
    #[serde(skip)]
    pub latency: Latency,
}

impl BenchReport {
    /// Says in `void_because` whatever makes the numbers something else than what was asked for.
    pub(crate) fn judge(&mut self) {
        let mut void = Vec::new();
        if self.answered == 0 {
            void.push("no request was answered".to_owned());
        }
        if let Some(ppm) = self.achieved_ppm {
            if ppm < ACHIEVED_PPM_MIN {
                void.push(format!(
                    "only {} of the scheduled requests were sent in time (needed: {}): more --connections or \
                     --pipeline, or a lower --rate",
                    percent(ppm),
                    percent(ACHIEVED_PPM_MIN)
                ));
            }
            if self.generator.busy_ppm > GENERATOR_BUSY_PPM_MAX {
                void.push(format!(
                    "the generator used {} of its core (allowed: {}): its own queue is in the latencies",
                    percent(self.generator.busy_ppm),
                    percent(GENERATOR_BUSY_PPM_MAX)
                ));
            }
        }
        if self.not_sent > 0 {
            void.push(format!(
                "{} requests were due and never sent",
                self.not_sent
            ));
        }
        self.void_because = void;
    }

    /// The report for a terminal.
    pub fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = self.write_text(&mut out);
        out
    }

    fn write_text(&self, out: &mut String) -> std::fmt::Result {
        let rate = match (self.target_per_s, self.achieved_ppm) {
            (Some(rate), Some(ppm)) => format!("{rate}/s asked for, {} sent in time", percent(ppm)),
            _ => "as fast as answers come".to_owned(),
        };
        writeln!(
            out,
            "{}: {rate}; {} connections, {} requests under way on each at most",
            self.target, self.connections, self.pipeline
        )?;
        writeln!(
            out,
            "{} requests in {}.{:03} s: {} answers/s, {} without an answer, {} not sent",
            self.requests,
            self.elapsed_ms / 1_000,
            self.elapsed_ms % 1_000,
            self.answered_per_s,
            self.transport_errors,
            self.not_sent
        )?;
        writeln!(out, "\n  {:<24}{:>12}", "answer", "count")?;
        let coded: u64 = self.answers.values().sum();
        let rows = match coded {
            0 => &self.statuses,
            _ => &self.answers,
        };
        for (name, count) in rows.iter().chain(&self.failures) {
            writeln!(out, "  {name:<24}{count:>12}")?;
        }
        writeln!(
            out,
            "\n  {:<12}{:>10}{:>10}{:>10}{:>10}{:>10}",
            "", "p50", "p99", "p99.9", "p99.99", "max"
        )?;
        for (name, row) in [
            ("latency", &self.latency_us),
            ("service", &self.service_us),
            ("sent late", &self.lag_us),
        ] {
            write!(out, "  {name:<12}")?;
            for us in [row.p50, row.p99, row.p999, row.p9999, row.max] {
                write!(out, "{:>10}", show_us(us))?;
            }
            writeln!(out)?;
        }
        writeln!(out, "\n{}", self.latency.picture(40))?;
        writeln!(
            out,
            "Latency counts from the instant at which a request was due. Generator: {} of its core, {} ns per request.",
            percent(self.generator.busy_ppm),
            self.generator.cpu_ns_per_request
        )?;
        if let Some(seen) = &self.watched {
            writeln!(
                out,
                "Server: {} ns of CPU per request, {} KiB resident; others used {} of a core.",
                seen.server_cpu_ns_per_request,
                seen.rss_kib,
                percent(seen.others_ppm)
            )?;
        }
        for reason in &self.void_because {
            writeln!(out, "NOT VALID: {reason}.")?;
        }
        Ok(())
    }
}

/// `ppm` millionths as percent with one place.
fn percent(ppm: u64) -> String {
    format!("{}.{} %", ppm / 10_000, ppm % 10_000 / 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_says_what_makes_it_void_and_shows_every_answer() {
        let mut report = BenchReport {
            target_per_s: Some(1_000),
            achieved_ppm: Some(994_999),
            answered: 10,
            not_sent: 3,
            answers: [("SECKILL_SOLD_OUT".to_owned(), 10)].into(),
            failures: [("reset".to_owned(), 2)].into(),
            ..BenchReport::default()
        };
        report.generator.busy_ppm = 900_000;
        report.latency.record_ns(1_500_000);
        report.judge();
        assert_eq!(report.void_because.len(), 3);
        let text = report.text();
        for part in [
            "SECKILL_SOLD_OUT",
            "reset",
            "99.4 %",
            "NOT VALID: 3 requests",
            "≤",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        report.achieved_ppm = Some(1_000_000);
        report.generator.busy_ppm = 100;
        report.not_sent = 0;
        report.judge();
        assert_eq!(report.void_because, Vec::<String>::new());
    }
}
