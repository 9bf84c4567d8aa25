//! What a shard counts, and how it shows it (requirement M1; names of seed 000 §12.1 for all that exists).
//!
//! Plain numbers of one thread: no atomics on the hot path; the ops listener asks by mail.

use super::Shard;
use crate::ask::Outcome;
use crate::mail::Mail;
use crate::stats::{Label, Sample, Stats};
use crate::time::Now;
use alloc::vec;
use alloc::vec::Vec;
use weir_proto::answer::Reason;

/// Upper bounds of the latency buckets in microseconds; the last bucket has none.
pub const LATENCY_BOUNDS_US: [u64; 12] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000,
];
/// Lines of each limiter table that a scrape looks at to estimate its entries.
const ENTRIES_LINES_MAX: usize = 4096;

/// The counters.
#[derive(Clone, Debug)]
pub struct Counters {
    /// Replies by reason.
    pub by_reason: Vec<u64>,
    /// Replies by latency from the bytes' event to the reply; one more than the bounds.
    pub latency: [u64; LATENCY_BOUNDS_US.len() + 1],
    /// Sum of those latencies.
    pub latency_us_sum: u64,
    /// Connections accepted.
    pub accepted: u64,
    /// Deadlines of connections that passed.
    pub timeouts: u64,
    /// Tickets that were accepted.
    pub ticket_ok: u64,
    /// Tickets that were refused.
    pub ticket_refused: u64,
    /// Submits refused by the local sold-out mark.
    pub soldout_hits: u64,
    /// Reserves sent to the ledger.
    pub asks: u64,
    /// Submits whose time passed without an answer.
    pub unknowns: u64,
    /// Answers to asks that were not out any more.
    pub stale_answers: u64,
    /// Results of reserves: done, failed, unknown.
    pub ask_results: [u64; 3],
    /// Mail that is not for a shard.
    pub misdirected: u64,
    /// Lines handed to the admission log.
    pub logged: u64,
}

impl Counters {
    /// All zero.
    pub fn new() -> Self {
        Self {
            by_reason: vec![0; Reason::ALL.len()],
            latency: [0; LATENCY_BOUNDS_US.len() + 1],
            latency_us_sum: 0,
            accepted: 0,
            timeouts: 0,
            ticket_ok: 0,
            ticket_refused: 0,
            soldout_hits: 0,
            asks: 0,
            unknowns: 0,
            stale_answers: 0,
            ask_results: [0; 3],
            misdirected: 0,
            logged: 0,
        }
    }

    /// Counts one reply.
    pub fn reply(&mut self, reason: Reason, latency_us: u64) {
        self.by_reason[reason as usize] += 1;
        let bucket = LATENCY_BOUNDS_US
            .iter()
            .position(|&bound| latency_us <= bound)
            .unwrap_or(LATENCY_BOUNDS_US.len());
        self.latency[bucket] += 1;
        self.latency_us_sum += latency_us;
    }

    /// Replies with that reason.
    pub fn of(&self, reason: Reason) -> u64 {
        self.by_reason[reason as usize]
    }

    /// Counts one result of a reserve.
    pub fn ask_result(&mut self, outcome: Outcome) {
        let index = match outcome {
            Outcome::Done(_) => 0,
            Outcome::Failed(_) => 1,
            Outcome::Unknown => 2,
        };
        self.ask_results[index] += 1;
    }

    /// Counts mail that no shard understands; only a wrong wiring of parts can send it.
    pub fn misdirected(&mut self, mail: &Mail) {
        debug_assert!(false, "not for a shard: {mail:?}");
        self.misdirected += 1;
    }
}

impl Default for Counters {
    fn default() -> Self {
        Self::new()
    }
}

impl Shard {
    /// Everything that the ops listener shows of this shard.
    pub(super) fn stats(&self, now: Now) -> Stats {
        let counters = &self.counters;
        let mut samples = Vec::with_capacity(256);
        let mut put = |name, label, value| samples.push(Sample { name, label, value });
        for &reason in Reason::ALL {
            let count = counters.of(reason);
            if count > 0 {
                put(
                    "seckill_ingress_requests_total",
                    Label::Reason(reason),
                    count,
                );
            }
        }
        let mut cumulative = 0;
        for (&count, bound) in counters
            .latency
            .iter()
            .zip(LATENCY_BOUNDS_US.into_iter().chain([u64::MAX]))
        {
            cumulative += count;
            put(
                "weir_reply_latency_microseconds_bucket",
                Label::BucketUs(bound),
                cumulative,
            );
        }
        put(
            "weir_reply_latency_microseconds_sum",
            Label::None,
            counters.latency_us_sum,
        );
        put(
            "weir_reply_latency_microseconds_count",
            Label::None,
            cumulative,
        );
        put(
            "seckill_ticket_verify_total",
            Label::Result("ok"),
            counters.ticket_ok,
        );
        put(
            "seckill_ticket_verify_total",
            Label::Result("refused"),
            counters.ticket_refused,
        );
        put(
            "seckill_local_soldout_hits_total",
            Label::None,
            counters.soldout_hits,
        );
        let shard = Label::Shard(self.config.shard);
        put("weir_shard_ready", shard, u64::from(self.is_ready(now)));
        put("weir_shard_draining", shard, u64::from(self.draining));
        put(
            "weir_connections_accepted_total",
            Label::None,
            counters.accepted,
        );
        put(
            "weir_connections_open",
            Label::None,
            self.conns.open_count() as u64,
        );
        let sources = self.door.sources();
        put(
            "weir_connection_sources",
            Label::None,
            u64::from(sources.keys_count()),
        );
        put(
            "weir_connections_counted",
            Label::None,
            u64::from(sources.holds_count()),
        );
        put(
            "weir_connections_turned_away_open",
            Label::None,
            u64::from(self.door.turned_away()),
        );
        for (result, count) in [("told", self.door.told), ("untold", self.door.untold)] {
            put(
                "weir_connections_turned_away_total",
                Label::Result(result),
                count,
            );
        }
        put(
            "weir_connection_timeouts_total",
            Label::None,
            counters.timeouts,
        );
        put(
            "seckill_inflight_requests",
            Label::None,
            u64::from(self.slots.in_flight()),
        );
        put(
            "seckill_inflight_limit",
            Label::None,
            u64::from(self.config.inflight_max + self.config.status_inflight_max),
        );
        for (index, result) in ["done", "failed", "unknown"].into_iter().enumerate() {
            put(
                "weir_ledger_asks_total",
                Label::Result(result),
                counters.ask_results[index],
            );
        }
        put("weir_unknown_results_total", Label::None, counters.unknowns);
        put(
            "weir_stale_answers_total",
            Label::None,
            counters.stale_answers,
        );
        put(
            "weir_admission_log_lines_total",
            Label::None,
            counters.logged,
        );
        for state in self.skus.states() {
            let books = state.budget.books();
            put(
                "seckill_global_lease_remaining",
                Label::Shard(self.config.shard),
                u64::from(state.budget.held()),
            );
            put(
                "seckill_global_lease_wasted_total",
                Label::Sku(state.key),
                books.wasted,
            );
            put(
                "seckill_admitted_requests_total",
                Label::Sku(state.key),
                state.admitted,
            );
            if let Some(view) = &state.view {
                put(
                    "seckill_soldout_version",
                    Label::Sku(state.key),
                    view.version,
                );
            }
        }
        self.limiter_samples(now, &mut samples);
        self.gate_samples(now, &mut samples);
        Stats {
            from: self.addr(),
            samples,
            hot: self.hot_tables(now),
        }
    }

    fn limiter_samples(&self, now: Now, samples: &mut Vec<Sample>) {
        let reasons = [
            Reason::LimitedIp,
            Reason::LimitedUser,
            Reason::LimitedDevice,
            Reason::LimitedStatus,
        ];
        let connect = ("connect", self.door.by_connect(), Reason::LimitedConnects);
        let keyed = self.limits.all().zip(reasons);
        let keyed = keyed.map(|((dim, limit), reason)| (dim.word(), limit.live(), reason));
        for (dimension, limiter, reason) in core::iter::once(connect).chain(keyed) {
            let label = Label::Dimension(dimension);
            let values = [
                (
                    "seckill_local_limiter_reject_total",
                    self.counters.of(reason),
                ),
                (
                    "seckill_local_limiter_entries",
                    limiter.entries_estimate(now.mono, ENTRIES_LINES_MAX),
                ),
                (
                    "seckill_local_limiter_overflow_total",
                    limiter.overflow_total(),
                ),
            ];
            samples.extend(values.map(|(name, value)| Sample { name, label, value }));
        }
        for (dim, limit) in self.limits.all() {
            let label = Label::Dimension(dim.word());
            let mut put = |name, value| samples.push(Sample { name, label, value });
            put("weir_limiter_policy_changes_total", limit.changes());
            if let Some(shadow) = limit.shadow_counts() {
                put("weir_limiter_shadow_would_deny_total", shadow.would_deny);
                put("weir_limiter_shadow_would_pass_total", shadow.would_pass);
            }
        }
    }
}
