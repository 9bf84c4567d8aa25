//! `weir tune`: the machine's settings against the guide (`tuning.md`), each with a verdict and the command that changes it.
//!
//! Called by `cli/tune.rs`. Every check is a pure function of the files under a [`Root`] and of what the server needs
//! ([`Needs`]); nothing is changed. The name of an item is the heading of its section in `tuning.md`; `tests/tune.rs`
//! holds one against the other. To add an item: a function in the file of its kind, one row in [`ITEMS`], one section.

mod cpu;
mod memory;
mod net;
mod nic;
mod process;
pub mod root;

use self::root::Root;
use crate::config::ceilings::{SHARD_DESCRIPTORS, SPARE_DESCRIPTORS};
use serde::Serialize;
use weir_io::limits::PARKED_MAX;

/// The default of `server.conns_max`.
const CONNS_DEFAULT: u64 = 4096;

/// What is said about one setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// As the guide wants it.
    Ok,
    /// The guide wants another value.
    Change,
    /// The value cannot be read here.
    CannotTell,
}

impl Verdict {
    /// As people read it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Change => "change",
            Self::CannotTell => "cannot tell",
        }
    }
}

/// What the server that shall run here takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// Threads that serve requests.
    pub shards: usize,
    /// Open files.
    pub descriptors: u64,
    /// Bytes of memory when everything is full; `None` without a configuration.
    pub memory_bytes: Option<u64>,
}

impl Needs {
    /// What a server with default settings takes on a machine with `cpus` cores.
    pub fn by_default(cpus: usize) -> Self {
        let shards = cpus.saturating_sub(1).max(1);
        Self {
            shards,
            descriptors: shards as u64 * (CONNS_DEFAULT + PARKED_MAX as u64 + SHARD_DESCRIPTORS)
                + SPARE_DESCRIPTORS,
            memory_bytes: None,
        }
    }
}

/// What a check looks at.
pub(crate) struct Machine<'a> {
    root: &'a Root,
    needs: Needs,
    /// Cores that are online, ascending; at least one.
    cpus: Vec<usize>,
}

/// What a check says.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    found: String,
    wanted: String,
    verdict: Verdict,
    command: String,
}

impl Look {
    /// It is as `wanted` says when `is_fine`, else `command` changes it.
    fn judge(
        is_fine: bool,
        found: impl Into<String>,
        wanted: impl Into<String>,
        command: impl Into<String>,
    ) -> Self {
        let (verdict, command) = match is_fine {
            true => (Verdict::Ok, String::new()),
            false => (Verdict::Change, command.into()),
        };
        Self {
            found: found.into(),
            wanted: wanted.into(),
            verdict,
            command,
        }
    }

    /// It cannot be read, because of `found`; `command` shows or changes it where it can.
    fn unknown(
        found: impl Into<String>,
        wanted: impl Into<String>,
        command: impl Into<String>,
    ) -> Self {
        Self {
            found: found.into(),
            wanted: wanted.into(),
            verdict: Verdict::CannotTell,
            command: command.into(),
        }
    }
}

/// One setting of the guide.
pub struct Item {
    /// Its name, and the heading of its section.
    pub name: &'static str,
    /// Why it matters, in half a line.
    pub why: &'static str,
    look: fn(&Machine<'_>) -> Look,
}

macro_rules! items {
    ($($name:literal $look:path, $why:literal;)*) => {
        /// Every setting that is checked, in the order of the guide.
        pub static ITEMS: &[Item] = &[$(Item { name: $name, why: $why, look: $look },)*];
    };
}

items! {
    "governor" cpu::governor, "a core that slows down when idle is slow when the sale opens";
    "idle-states" cpu::idle_states, "a deep sleep adds its exit latency to the first request after it";
    "isolation" cpu::isolation, "an isolated core that weir does not use is lost";
    "mitigations" cpu::mitigations, "each one is paid per system call; know what is on before you measure";
    "clocksource" cpu::clocksource, "every turn reads the clock; a slow source is a system call each time";
    "thp" memory::thp, "tables of hundreds of MiB miss the TLB on small pages";
    "hugepages" memory::hugepages, "reserved huge pages are memory that weir cannot use";
    "numa" memory::numa, "a shard on another node than its memory waits for each miss";
    "nic-queues" nic::queues, "one receive queue is served by one core at a time";
    "nic-steering" nic::steering, "packets should reach the core of their shard, once";
    "irq-affinity" nic::irq_affinity, "interrupts on one core make it the limit of all";
    "napi" nic::napi, "deferring interrupts needs both of its settings";
    "busy-poll" net::busy_poll, "polling sockets burns cores that shards could use";
    "gro" nic::gro, "merging segments saves work on long bodies, little on requests of one segment";
    "conntrack" net::conntrack, "each packet pays a lookup, and a full table drops new buyers";
    "accept-backlog" net::accept_backlog, "a burst of new connections waits here; the rest is dropped";
    "syn-backlog" net::syn_backlog, "half-open connections fill it; SYN cookies keep the door open";
    "port-range" net::port_range, "clients of one address need a free port for each connection";
    "time-wait" net::time_wait, "closed connections hold memory for a minute, on the side that closes";
    "tcp-buffers" net::tcp_buffers, "weir asks for 64 KiB each way; a lower cap shrinks it silently";
    "nofile" process::nofile, "each connection takes a descriptor";
    "memlock" process::memlock, "only the glommio driver locks memory for its rings";
    "io-uring" process::io_uring, "where it is refused, weir falls back to epoll";
    "cgroup-cpu" process::cgroup_cpu, "a quota stops every shard until the next period, mid-sale";
    "cgroup-memory" process::cgroup_memory, "at the limit the kernel reclaims, then kills";
}

/// One item's result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The item.
    pub name: &'static str,
    /// The value found.
    pub found: String,
    /// The value wanted.
    pub wanted: String,
    /// The judgement.
    pub verdict: Verdict,
    /// Why it matters.
    pub why: &'static str,
    /// What changes it, or shows it where it cannot be read; empty when nothing has to be done.
    pub command: String,
    /// Where the guide says more.
    pub section: String,
}

/// The cores that are online under `root`, one at least.
pub fn cpus_online(root: &Root) -> Vec<usize> {
    let online = root.cpus("sys/devices/system/cpu/online");
    online.filter(|cpus| !cpus.is_empty()).unwrap_or(vec![0])
}

/// Looks at every item, in the order of [`ITEMS`].
pub fn check(root: &Root, needs: Needs) -> Vec<Finding> {
    let machine = Machine {
        root,
        needs,
        cpus: cpus_online(root),
    };
    ITEMS
        .iter()
        .map(|item| {
            let look = (item.look)(&machine);
            Finding {
                name: item.name,
                found: look.found,
                wanted: look.wanted,
                verdict: look.verdict,
                why: item.why,
                command: look.command,
                section: format!("tuning.md#{}", item.name),
            }
        })
        .collect()
}

/// `text`, or a word for what is empty.
fn or_none(text: &str) -> &str {
    match text {
        "" => "none",
        text => text,
    }
}
