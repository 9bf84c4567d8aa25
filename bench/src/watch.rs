//! What the server, the generator and the whole machine spent while a run was measured, from /proc.
//!
//! Called between the looks of a run (`run`'s second argument): the first sample once the warm-up is over, the last one
//! before the load ends, so that connecting and minting are not in the span. `weir bench --watch PID` shows it.

use crate::run::Look;
use serde::Serialize;
use std::fs;
use std::time::Instant;

/// Microseconds of one tick of /proc/stat: USER_HZ is 100 on every Linux that we run on (proc(5)).
const TICK_US: u64 = 10_000;

/// What was seen between two samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WatchReport {
    /// Length of the span, microseconds.
    pub span_us: u64,
    /// Answers in it.
    pub answered: u64,
    /// Answers per second.
    pub answered_per_s: u64,
    /// CPU time of the watched processes, all threads, microseconds.
    pub server_cpu_us: u64,
    /// The same per answer, nanoseconds.
    pub server_cpu_ns_per_request: u64,
    /// CPU time of this process, microseconds.
    pub generator_cpu_us: u64,
    /// What all cores were busy with, microseconds; other guests of the host (steal) included.
    pub busy_us: u64,
    /// Of it, what was neither server nor generator, millionths of the span.
    pub others_ppm: u64,
    /// Resident memory of the watched processes at the end, KiB.
    pub rss_kib: u64,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Instant,
    answered: u64,
    server_ns: u64,
    generator_ns: u64,
    busy_us: u64,
    rss_kib: u64,
}

/// Watches processes over a run.
#[derive(Debug)]
pub struct Watch {
    pids: Vec<u32>,
    warm_up_ms: u64,
    answers_came: Option<Instant>,
    first: Option<Sample>,
    last: Option<Sample>,
}

impl Watch {
    /// Will watch `pids`, from `warm_up_ms` after the first answers on.
    pub fn new(pids: Vec<u32>, warm_up_ms: u64) -> Self {
        Self {
            pids,
            warm_up_ms,
            answers_came: None,
            first: None,
            last: None,
        }
    }

    /// Takes a sample when it is time.
    pub fn look(&mut self, look: Look) {
        if look.answered == 0 {
            return;
        }
        let since = self.answers_came.get_or_insert_with(Instant::now);
        if (since.elapsed().as_millis() as u64) < self.warm_up_ms {
            return;
        }
        let sample = self.sample(look.answered);
        match self.first {
            None => self.first = Some(sample),
            Some(_) => self.last = Some(sample),
        }
    }

    /// What was seen; `None` when the run was too short for two samples.
    pub fn report(&self) -> Option<WatchReport> {
        Some(between(self.first.as_ref()?, self.last.as_ref()?))
    }

    fn sample(&self, answered: u64) -> Sample {
        Sample {
            answered,
            at: Instant::now(),
            server_ns: self.pids.iter().map(|pid| cpu_ns(&pid.to_string())).sum(),
            generator_ns: cpu_ns("self"),
            busy_us: busy_us(&fs::read_to_string("/proc/stat").unwrap_or_default()),
            rss_kib: self.pids.iter().map(|&pid| rss_kib(pid)).sum(),
        }
    }
}

fn between(first: &Sample, last: &Sample) -> WatchReport {
    let span_us = last.at.duration_since(first.at).as_micros().max(1) as u64;
    let answered = last.answered - first.answered;
    let server_ns = last.server_ns.saturating_sub(first.server_ns);
    let generator_ns = last.generator_ns.saturating_sub(first.generator_ns);
    let busy_us = last.busy_us.saturating_sub(first.busy_us);
    let others_us = busy_us.saturating_sub((server_ns + generator_ns) / 1_000);
    WatchReport {
        span_us,
        answered,
        answered_per_s: answered * 1_000_000 / span_us,
        server_cpu_us: server_ns / 1_000,
        server_cpu_ns_per_request: server_ns / answered.max(1),
        generator_cpu_us: generator_ns / 1_000,
        busy_us,
        others_ppm: others_us * 1_000_000 / span_us,
        rss_kib: last.rss_kib,
    }
}

/// CPU time of all threads of a process: the sum behind utime and stime, not rounded to ticks
/// (Documentation/scheduler/sched-stats); 0 when it is gone.
fn cpu_ns(pid: &str) -> u64 {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return 0;
    };
    let of = |path: std::path::PathBuf| -> Option<u64> {
        let text = fs::read_to_string(path.join("schedstat")).ok()?;
        text.split_ascii_whitespace().next()?.parse().ok()
    };
    threads
        .flatten()
        .filter_map(|thread| of(thread.path()))
        .sum()
}

/// Busy time of all cores from the text of /proc/stat: user, nice, system, irq, softirq and steal.
fn busy_us(stat: &str) -> u64 {
    let all = stat.lines().next().unwrap_or_default();
    let ticks: Vec<u64> = all
        .split_ascii_whitespace()
        .skip(1)
        .map(|word| word.parse().unwrap_or(0))
        .collect();
    // Columns of proc(5): user nice system idle iowait irq softirq steal.
    let busy = [0, 1, 2, 5, 6, 7].map(|column| ticks.get(column).copied().unwrap_or(0));
    busy.iter().sum::<u64>() * TICK_US
}

fn rss_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    line.and_then(|line| line.split_ascii_whitespace().nth(1)?.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_others_used_is_what_server_and_generator_did_not() {
        let first = Sample {
            at: Instant::now(),
            answered: 100,
            server_ns: 0,
            generator_ns: 0,
            busy_us: 50_000,
            rss_kib: 1,
        };
        let last = Sample {
            at: first.at + Duration::from_secs(1),
            answered: 1_100,
            server_ns: 500_000_000,
            generator_ns: 250_000_000,
            busy_us: 850_000,
            rss_kib: 7,
        };
        let seen = between(&first, &last);
        assert_eq!((seen.answered, seen.answered_per_s), (1_000, 1_000));
        assert_eq!(seen.server_cpu_ns_per_request, 500_000);
        assert_eq!((seen.others_ppm, seen.rss_kib), (50_000, 7));
    }

    #[test]
    fn busy_time_leaves_out_idle_and_waiting() {
        assert_eq!(busy_us("cpu  1 2 3 400 500 6 7 8 0 0\ncpu0 9\n"), 270_000);
        assert_eq!(busy_us(""), 0);
    }

    #[test]
    fn this_process_has_a_size_and_a_past_and_a_missing_one_has_none() {
        let pid = std::process::id();
        assert!(rss_kib(pid) > 100 && cpu_ns(&pid.to_string()) > 0);
        assert_eq!(cpu_ns("0"), 0);
    }

    #[test]
    fn the_span_begins_after_the_warm_up_and_needs_two_samples() {
        let look = |answered| Look {
            sent: answered,
            answered,
            failed: 0,
        };
        let mut watch = Watch::new(vec![std::process::id()], 0);
        watch.look(look(0));
        assert!(watch.first.is_none(), "nothing was answered yet");
        watch.look(look(5));
        assert_eq!(watch.report(), None);
        watch.look(look(9));
        assert_eq!(watch.report().map(|seen| seen.answered), Some(4));
        let mut warming = Watch::new(Vec::new(), 3_600_000);
        warming.look(look(5));
        assert!(warming.first.is_none());
    }
}
