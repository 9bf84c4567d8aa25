//! What the kernel says of this process, for `/metrics` (names of the Prometheus client libraries).
//!
//! What cannot be read is left out, never invented.

use std::fs;
use weir_core::stats::{Label, Sample};

/// Clock ticks per second in `/proc` (proc(5), `USER_HZ`): 100 on every Linux that Rust runs on.
const TICKS_PER_S: u64 = 100;

/// Resident bytes, processor milliseconds, open descriptors.
pub fn samples() -> Vec<Sample> {
    let sample = |name, value| Sample {
        name,
        label: Label::None,
        value,
    };
    let mut samples = Vec::new();
    if let Some(kib) = fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|text| resident_kib(&text))
    {
        samples.push(sample("process_resident_memory_bytes", kib * 1024));
    }
    if let Some(us) = cpu_us(std::process::id()) {
        samples.push(sample("process_cpu_seconds_total", us / 1_000));
    }
    if let Ok(entries) = fs::read_dir("/proc/self/fd") {
        // The directory itself is open while it is read.
        samples.push(sample(
            "process_open_fds",
            entries.count().saturating_sub(1) as u64,
        ));
    }
    samples
}

/// User and system time of the whole process `pid` so far, microseconds (10 ms steps); `None` when it cannot be read.
pub fn cpu_us(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(cpu_ticks(&stat)? * (1_000_000 / TICKS_PER_S))
}

fn resident_kib(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// User and system time; the name in parentheses may hold blanks and parentheses, so count from the last one (proc(5)).
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ').skip(11); // state is field 3; utime is 14, stime 15
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_kernels_texts() {
        let stat = "12 (a) b) S 1 2 3 4 5 6 7 8 9 10 700 55 0 0 20 0 1";
        assert_eq!(cpu_ticks(stat), Some(755));
        assert_eq!(resident_kib("Name:\tx\nVmRSS:\t  123 kB\n"), Some(123));
        assert_eq!(cpu_ticks("nonsense"), None);
        assert_eq!(resident_kib(""), None);
    }

    #[test]
    fn this_process_has_all_three() {
        let names: Vec<_> = samples().iter().map(|sample| sample.name).collect();
        assert_eq!(
            names,
            [
                "process_resident_memory_bytes",
                "process_cpu_seconds_total",
                "process_open_fds"
            ]
        );
        assert!(
            samples()
                .iter()
                .all(|sample| sample.value > 0 || sample.name.ends_with("total"))
        );
    }
}
