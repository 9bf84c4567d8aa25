//! The machine: what it has, and whether the plan fits it.
//!
//! Facts are read once ([`Host::read`]) and passed in, so that tests bring their own. Checked by `serve` before it
//! listens and by `weir config check`. Not here: taking the directory's lock, binding ports (serve does).

use super::ceilings::{CONNS_MIN, SPARE_DESCRIPTORS, WALL_MS_MIN};
use super::plan::Plan;
use super::problem::Problem;
use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use weir_core::limit::bans::Bans;
use weir_core::limit::holds::Holds;
use weir_core::limits::{
    ENTRY_BYTES_MAX, HELD_REPLIES_MAX, MAILBOX_MAX, RESERVATIONS_EXTRA, RESERVATIONS_MAX,
    RESERVATIONS_PER_UNIT, STAGED_BYTES_MAX, TOMBSTONES_MAX, UNSENT_BYTES_MAX,
};
use weir_core::mail::Mail;
use weir_io::limits::{RECV_BACKLOG_BYTES_MAX, RECV_BURST_BYTES_MAX, REPLY_BACKLOG_BYTES_MAX};
use weir_proto::http::letter::Letters;
use weir_proto::limits::{REQUEST_BYTES_MAX, RESP_REPLY_BYTES_MAX};

const _: () = assert!(
    RECV_BACKLOG_BYTES_MAX > REQUEST_BYTES_MAX,
    "a request within every limit must fit in what a driver keeps unread, or it would wait for its own end"
);

const _: () = assert!(
    REPLY_BACKLOG_BYTES_MAX >= RESP_REPLY_BYTES_MAX,
    "a reply of Redis within every limit must fit in what a driver keeps unread, or it would wait for its own end"
);

/// Bytes of a connection beside what its client sent or does not read: state, its part of the buffer ring.
const CONN_EXTRA_BYTES: u64 = 8 * 1024;
/// Most bytes of a connection: what the driver keeps unread of a client that is ahead, and replies that it does not
/// take (one buffer on its way to the kernel, one that fills; a buffer grows to at most twice its content).
const CONN_BYTES_MAX: u64 = (RECV_BACKLOG_BYTES_MAX + RECV_BURST_BYTES_MAX + 4 * UNSENT_BYTES_MAX)
    as u64
    + CONN_EXTRA_BYTES;
/// Bytes of one remembered request id with its answer, hash table included.
const KNOWN_BYTES: u64 = 256;
/// Bytes of one reservation in the ledger's memory (weir-core `limits::RESERVATIONS_MAX`).
const RESERVATION_BYTES: u64 = 192;
/// Bytes of a waiting ask with its bookkeeping.
const ASK_BYTES: u64 = 512;
/// SQLite caches, batches, stacks and code, whatever the plan.
const FIXED_BYTES: u64 = 96 * 1024 * 1024;

/// What the machine has. A fact that cannot be read is `None` and is not checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    /// Cores that this process may use, 1 or more.
    pub cpus_count: u64,
    /// Bytes of memory that are available now, within this process's cgroup.
    pub memory_bytes: Option<u64>,
    /// Hard limit of open files; the server raises its own soft limit to it.
    pub descriptors_max: Option<u64>,
    /// Wall clock, Unix milliseconds.
    pub wall_ms: u64,
}

impl Host {
    /// Reads the facts of this machine.
    pub fn read() -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            cpus_count: std::thread::available_parallelism().map_or(1, |count| count.get() as u64),
            memory_bytes: memory_bytes(),
            descriptors_max: fs::read_to_string("/proc/self/limits")
                .ok()
                .and_then(|text| hard_limit_of_files(&text)),
            wall_ms: since_1970.map_or(0, |elapsed| elapsed.as_millis() as u64),
        }
    }
}

fn memory_bytes() -> Option<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
    let line = meminfo
        .lines()
        .find_map(|l| l.strip_prefix("MemAvailable:"))?;
    let available: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    // A container sees its own limit at the root of its cgroup file system; "max" is no number.
    let cgroup = fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let cgroup = cgroup.and_then(|text| text.trim().parse().ok());
    Some((available * 1024).min(cgroup.unwrap_or(u64::MAX)))
}

/// The hard limit in the line `Max open files  <soft>  <hard>  files` (proc(5)).
fn hard_limit_of_files(limits: &str) -> Option<u64> {
    let line = limits
        .lines()
        .find_map(|l| l.strip_prefix("Max open files"))?;
    match line.split_whitespace().nth(1)? {
        "unlimited" => None,
        hard => hard.parse().ok(),
    }
}

/// What the plan takes at most, once everything is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// Of one shard.
    pub shard_bytes: u64,
    /// Of ledger, stores and all that is there once.
    pub shared_bytes: u64,
    /// Shards.
    pub shards_count: u64,
}

impl Footprint {
    /// Sums the tables and buffers of `plan`.
    pub fn of(plan: &Plan) -> Self {
        let shard = &plan.shard;
        let limits = [
            &shard.connect,
            &shard.ip,
            &shard.user,
            &shard.device,
            &shard.status,
        ];
        let limits: u64 = limits.iter().map(|limit| limit.bytes() as u64).sum();
        let asks = u64::from(shard.inflight_max)
            + u64::from(shard.status_inflight_max)
            + u64::from(shard.payments_max);
        let mailbox_bytes = (MAILBOX_MAX * size_of::<Mail>()) as u64;
        let shard_bytes = shard.conns_max as u64 * CONN_BYTES_MAX
            + Holds::bytes_of(shard.conns_max) as u64
            + Holds::bytes_of(shard.inflight_max as usize) as u64
            + limits
            + (2 * Bans::bytes_of(shard.bans.slots)) as u64
            + shard.known_max as u64 * KNOWN_BYTES
            + asks * ASK_BYTES
            + HELD_REPLIES_MAX as u64 * ASK_BYTES
            + STAGED_BYTES_MAX as u64
            + Letters::BYTES_MAX as u64
            + mailbox_bytes;
        let skus = plan
            .sale
            .activities
            .iter()
            .flat_map(|activity| &activity.skus);
        let reservations: u64 = skus
            .map(|sku| {
                (sku.first_stock * RESERVATIONS_PER_UNIT + RESERVATIONS_EXTRA).min(RESERVATIONS_MAX)
            })
            .sum();
        let shared_bytes = reservations * RESERVATION_BYTES
            + (TOMBSTONES_MAX * 2 * ENTRY_BYTES_MAX) as u64
            + 3 * mailbox_bytes // owner, store and worker have one each
            + FIXED_BYTES;
        Self {
            shard_bytes,
            shared_bytes,
            shards_count: u64::from(plan.shards_count),
        }
    }

    /// Of everything.
    pub fn all_bytes(&self) -> u64 {
        self.shards_count * self.shard_bytes + self.shared_bytes
    }
}

/// Whether `plan` fits `host`: memory, file descriptors, clock, directories. An empty list: it fits.
pub fn check(plan: &Plan, host: &Host) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut report = |key: &str, message: String| {
        problems.push(Problem {
            line: None,
            key: key.to_owned(),
            message,
        });
    };
    let mib = |bytes: u64| bytes.div_ceil(1024 * 1024);
    let footprint = Footprint::of(plan);
    if let Some(memory_bytes) = host.memory_bytes
        && footprint.all_bytes() > memory_bytes
    {
        report(
            "server.conns_max",
            format!(
                "{} shards of {} MiB and {} MiB for ledger and stores need {} MiB when full; {} MiB are available: lower server.conns_max, limits.*_slots or activity.sku.stock",
                plan.shards_count,
                mib(footprint.shard_bytes),
                mib(footprint.shared_bytes),
                mib(footprint.all_bytes()),
                memory_bytes / (1024 * 1024),
            ),
        );
    }
    if let Some(descriptors_max) = host.descriptors_max
        && let Some(message) = check_descriptors(plan, descriptors_max)
    {
        report("server.conns_max", message);
    }
    if host.wall_ms < WALL_MS_MIN {
        report(
            "",
            "this machine's clock is before 2025: set it (NTP), or every ticket is refused"
                .to_owned(),
        );
    }
    let mut directories = vec![("server.data_dir", plan.store.dir.as_path())];
    directories.extend(
        plan.ops
            .audit_log
            .parent()
            .map(|dir| ("ops.audit_log", dir)),
    );
    directories.extend(plan.deny.file.parent().map(|dir| ("deny.file", dir)));
    if let super::plan::LogTarget::File(path) = &plan.log {
        directories.extend(path.parent().map(|dir| ("log.path", dir)));
    }
    for (key, dir) in directories {
        if let Err(message) = check_directory(dir) {
            report(key, message);
        }
    }
    problems
}

/// What is wrong when at most `descriptors_max` descriptors may be open.
fn check_descriptors(plan: &Plan, descriptors_max: u64) -> Option<String> {
    let (conns_max, shards) = (plan.shard.conns_max, plan.shards_count);
    let needed = plan.descriptors_max().max(plan.direct_places());
    if needed <= descriptors_max {
        return None;
    }
    let what = if plan.direct {
        format!("{conns_max} connections in a table of each of {shards} shards need a limit of")
    } else {
        format!(
            "{conns_max} connections on each of {shards} shards, those in their door and {SPARE_DESCRIPTORS} other files need"
        )
    };
    let lower = match plan.conns_within(descriptors_max) {
        room if room >= CONNS_MIN => format!(", or lower conns_max to {room}"),
        _ => String::new(),
    };
    Some(format!(
        "{what} {needed} descriptors; the limit is {descriptors_max}: raise it (`ulimit -Hn {needed}`, LimitNOFILE= in systemd){lower}"
    ))
}

/// Whether files can be made in `dir`, or `dir` itself in the nearest directory above that exists. Leaves nothing behind.
fn check_directory(dir: &Path) -> Result<(), String> {
    let shown = dir.display();
    let above = dir.ancestors().map(|dir| {
        if dir.as_os_str().is_empty() {
            Path::new(".")
        } else {
            dir
        }
    });
    let existing = above.clone().find(|dir| dir.symlink_metadata().is_ok());
    let Some(existing) = existing else {
        return Err(format!("{shown} does not exist; make it"));
    };
    if !existing.is_dir() {
        return Err(format!(
            "{shown} cannot be used: {} is not a directory; choose another path",
            existing.display()
        ));
    }
    let probe = existing.join(format!(".weir-probe-{}", std::process::id()));
    let made = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&probe);
    match made {
        Ok(_) => fs::remove_file(&probe)
            .map_err(|error| format!("{}: {}", probe.display(), error.kind())),
        Err(error) => Err(format!(
            "{shown} cannot be written ({} in {}); give this user the right to write there, or choose another path",
            error.kind(),
            existing.display()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hard_limit_is_the_second_number() {
        let text = "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024                 4096                 files\n";
        assert_eq!(hard_limit_of_files(text), Some(4096));
        assert_eq!(
            hard_limit_of_files("Max open files 1 unlimited files"),
            None
        );
        assert_eq!(hard_limit_of_files(""), None);
    }

    #[test]
    fn directories_that_cannot_be_written_are_named() {
        assert!(
            check_directory(Path::new("/proc/weir/data"))
                .unwrap_err()
                .contains("/proc")
        );
        assert!(
            check_directory(Path::new("/dev/null/data"))
                .unwrap_err()
                .contains("not a directory")
        );
        assert_eq!(
            check_directory(&std::env::temp_dir().join("weir-none/none")),
            Ok(())
        );
    }
}
