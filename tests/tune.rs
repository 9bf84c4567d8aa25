//! `weir tune` on made-up machines: what a good one, each wrong value, an empty one and garbage are told; and that guide
//! and checks name the same settings.
#![allow(clippy::unwrap_used)] // a test that meets one has failed

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use weir::tune::root::Root;
use weir::tune::{Finding, ITEMS, Needs, Verdict, check, cpus_online};

/// A directory that stands for a machine; removed at the end.
struct MadeUp(PathBuf);

impl MadeUp {
    fn empty() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("weir-tune-{}-{number}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    /// Eight cores, a card with a queue for each, settings as the guide wants them.
    fn good() -> Self {
        let made = Self::empty();
        for (path, text) in GOOD {
            made.write(path, text.as_bytes());
        }
        for queue in 0..8 {
            let path = format!("sys/class/net/eth0/queues/rx-{queue}/rps_cpus");
            made.write(&path, b"00\n");
            let irq = 40 + queue;
            made.write(
                &format!("proc/irq/{irq}/effective_affinity_list"),
                format!("{queue}\n").as_bytes(),
            );
        }
        let interrupts: String = (0..8)
            .map(|queue| {
                format!(
                    " {}:  0  1  PCI-MSI {queue}-edge  eth0-TxRx-{queue}\n",
                    40 + queue
                )
            })
            .collect();
        made.write("proc/interrupts", interrupts.as_bytes());
        for cpu in 0..8 {
            let path = format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor");
            made.write(&path, b"performance\n");
        }
        made
    }

    fn write(&self, path: &str, bytes: &[u8]) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    fn check(&self) -> Vec<Finding> {
        let root = Root::new(&self.0);
        check(&root, Needs::by_default(cpus_online(&root).len()))
    }
}

impl Drop for MadeUp {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const GOOD: &[(&str, &str)] = &[
    ("sys/devices/system/cpu/online", "0-7\n"),
    ("sys/devices/system/cpu/isolated", "\n"),
    ("sys/devices/system/cpu/nohz_full", "(null)\n"),
    ("sys/devices/system/cpu/cpu0/cpuidle/state0/latency", "0\n"),
    ("sys/devices/system/cpu/cpu0/cpuidle/state1/latency", "2\n"),
    (
        "sys/devices/system/cpu/cpu0/cpuidle/state2/latency",
        "170\n",
    ),
    ("sys/devices/system/cpu/cpu0/cpuidle/state2/disable", "1\n"),
    (
        "sys/devices/system/cpu/vulnerabilities/meltdown",
        "Not affected\n",
    ),
    (
        "sys/devices/system/cpu/vulnerabilities/spectre_v2",
        "Mitigation: Enhanced IBRS\n",
    ),
    (
        "sys/devices/system/clocksource/clocksource0/current_clocksource",
        "tsc\n",
    ),
    (
        "sys/kernel/mm/transparent_hugepage/enabled",
        "always [madvise] never\n",
    ),
    ("sys/devices/system/node/online", "0\n"),
    ("sys/class/net/eth0/operstate", "up\n"),
    ("sys/class/net/eth0/device/numa_node", "1\n"),
    ("sys/class/net/eth0/napi_defer_hard_irqs", "0\n"),
    ("sys/class/net/eth0/gro_flush_timeout", "0\n"),
    ("sys/class/net/lo/queues/rx-0/rps_cpus", "0\n"),
    (
        "proc/meminfo",
        "MemTotal: 1 kB\nHugePages_Total:       0\nHugePages_Free:        0\n",
    ),
    ("proc/cmdline", "quiet\n"),
    ("proc/1/comm", "systemd\n"),
    (
        "proc/net/sockstat",
        "sockets: used 24\nTCP: inuse 1 orphan 0 tw 7 alloc 1 mem 467\n",
    ),
    (
        "proc/self/status",
        "Name:\tweir\nCpus_allowed_list:\t0-7\nSeccomp:\t0\n",
    ),
    (
        "proc/self/limits",
        "Max open files            1024                 1048576              files\nMax locked memory         8388608              8388608              bytes\n",
    ),
    ("proc/self/cgroup", "0::/system.slice/weir.service\n"),
    ("sys/fs/cgroup/system.slice/cpu.max", "max 100000\n"),
    (
        "sys/fs/cgroup/system.slice/weir.service/cpu.max",
        "max 100000\n",
    ),
    (
        "sys/fs/cgroup/system.slice/weir.service/memory.max",
        "max\n",
    ),
    ("proc/sys/kernel/osrelease", "6.12.9-amd64\n"),
    ("proc/sys/kernel/io_uring_disabled", "0\n"),
    ("proc/sys/net/core/somaxconn", "4096\n"),
    ("proc/sys/net/core/rmem_max", "212992\n"),
    ("proc/sys/net/core/wmem_max", "212992\n"),
    ("proc/sys/net/core/busy_poll", "0\n"),
    ("proc/sys/net/core/busy_read", "0\n"),
    ("proc/sys/net/ipv4/tcp_syncookies", "1\n"),
    ("proc/sys/net/ipv4/tcp_max_syn_backlog", "2048\n"),
    ("proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n"),
    ("proc/sys/net/ipv4/tcp_tw_reuse", "2\n"),
    ("proc/sys/net/ipv4/tcp_max_tw_buckets", "131072\n"),
    ("proc/sys/net/ipv4/tcp_mem", "287898\t383867\t575796\n"),
];

/// A file of the good machine, what it says instead, and the one item that must be changed for it.
const WRONG: &[(&str, &str, &str)] = &[
    (
        "sys/devices/system/cpu/cpu3/cpufreq/scaling_governor",
        "powersave\n",
        "governor",
    ),
    (
        "sys/devices/system/cpu/cpu0/cpuidle/state2/disable",
        "0\n",
        "idle-states",
    ),
    ("sys/devices/system/cpu/nohz_full", "2-7\n", "isolation"),
    (
        "sys/devices/system/cpu/vulnerabilities/meltdown",
        "Vulnerable\n",
        "mitigations",
    ),
    (
        "sys/devices/system/clocksource/clocksource0/current_clocksource",
        "hpet\n",
        "clocksource",
    ),
    (
        "sys/kernel/mm/transparent_hugepage/enabled",
        "always madvise [never]\n",
        "thp",
    ),
    (
        "proc/meminfo",
        "HugePages_Total:    1024\nHugePages_Free:     1000\n",
        "hugepages",
    ),
    (
        "sys/class/net/eth0/queues/rx-3/rps_cpus",
        "ff\n",
        "nic-steering",
    ),
    (
        "proc/irq/43/effective_affinity_list",
        "0-7\n",
        "irq-affinity",
    ),
    ("proc/irq/43/effective_affinity_list", "2\n", "irq-affinity"),
    ("proc/77/comm", "irqbalance\n", "irq-affinity"),
    ("sys/class/net/eth0/napi_defer_hard_irqs", "10\n", "napi"),
    ("proc/sys/net/core/busy_read", "5000\n", "busy-poll"),
    (
        "proc/sys/net/netfilter/nf_conntrack_count",
        "12\n",
        "conntrack",
    ),
    ("proc/sys/net/core/somaxconn", "128\n", "accept-backlog"),
    ("proc/sys/net/ipv4/tcp_syncookies", "0\n", "syn-backlog"),
    (
        "proc/sys/net/ipv4/ip_local_port_range",
        "50000\t60999\n",
        "port-range",
    ),
    (
        "proc/net/sockstat",
        "TCP: inuse 1 orphan 0 tw 100000 alloc 1 mem 467\n",
        "time-wait",
    ),
    ("proc/sys/net/core/wmem_max", "32768\n", "tcp-buffers"),
    (
        "proc/sys/net/ipv4/tcp_mem",
        "100\t200\t300\n",
        "tcp-buffers",
    ),
    (
        "proc/self/limits",
        "Max open files 1024 4096 files\nMax locked memory unlimited unlimited bytes\n",
        "nofile",
    ),
    (
        "proc/self/limits",
        "Max open files unlimited unlimited files\nMax locked memory 65536 65536 bytes\n",
        "memlock",
    ),
    ("proc/sys/kernel/io_uring_disabled", "2\n", "io-uring"),
    (
        "proc/sys/kernel/osrelease",
        "5.15.0-91-generic\n",
        "io-uring",
    ),
    (
        "sys/fs/cgroup/system.slice/cpu.max",
        "150000 100000\n",
        "cgroup-cpu",
    ),
];

fn verdict_of(findings: &[Finding], name: &str) -> Verdict {
    findings.iter().find(|f| f.name == name).unwrap().verdict
}

#[test]
fn a_good_machine_has_nothing_to_change() {
    for finding in MadeUp::good().check() {
        let expected = match finding.name {
            "gro" => Verdict::CannotTell, // ethtool alone knows it
            _ => Verdict::Ok,
        };
        assert_eq!(finding.verdict, expected, "{finding:?}");
        assert_eq!(finding.command.is_empty(), expected == Verdict::Ok);
        assert!(!finding.found.is_empty() && !finding.wanted.is_empty());
    }
}

#[test]
fn each_wrong_value_is_found_alone_and_comes_with_its_command() {
    let mut seen = BTreeSet::new();
    for (path, text, name) in WRONG {
        let made = MadeUp::good();
        let before = made.check();
        made.write(path, text.as_bytes());
        for (after, before) in made.check().into_iter().zip(before) {
            let expected = match after.name == *name {
                true => Verdict::Change,
                false => before.verdict,
            };
            assert_eq!(after.verdict, expected, "{path} says {text:?}: {after:?}");
            assert_eq!(
                after.command.is_empty(),
                expected == Verdict::Ok,
                "{after:?}"
            );
        }
        seen.insert(*name);
    }
    // The others are wrong in more than one file; the tests below have them.
    let others = BTreeSet::from(["numa", "nic-queues", "gro", "cgroup-memory"]);
    let all: BTreeSet<&str> = ITEMS.iter().map(|item| item.name).collect();
    assert_eq!(&seen | &others, all);
}

#[test]
fn two_nodes_want_weir_on_the_cards_node() {
    let made = MadeUp::good();
    made.write("sys/devices/system/node/online", b"0-1\n");
    made.write("sys/devices/system/node/node0/cpulist", b"0-3\n");
    made.write("sys/devices/system/node/node1/cpulist", b"4-7\n");
    let findings = made.check();
    let numa = findings.iter().find(|f| f.name == "numa").unwrap();
    assert_eq!(numa.verdict, Verdict::Change);
    assert!(numa.command.contains("--cpunodebind=1"), "{numa:?}");
    made.write("proc/self/status", b"Cpus_allowed_list:\t4-6\n");
    assert_eq!(verdict_of(&made.check(), "numa"), Verdict::Ok);
}

#[test]
fn few_queues_want_steering_and_a_device_that_is_down_wants_nothing() {
    let made = MadeUp::good();
    for queue in 2..8 {
        let dir = made.0.join(format!("sys/class/net/eth0/queues/rx-{queue}"));
        fs::remove_dir_all(dir).unwrap();
    }
    let findings = made.check();
    assert_eq!(verdict_of(&findings, "nic-queues"), Verdict::Change);
    let steering = findings.iter().find(|f| f.name == "nic-steering").unwrap();
    assert!(steering.command.contains("echo ff >"), "{steering:?}");
    for queue in 0..2 {
        let path = format!("sys/class/net/eth0/queues/rx-{queue}/rps_cpus");
        made.write(&path, b"00000000,000000ff\n");
    }
    assert_eq!(verdict_of(&made.check(), "nic-queues"), Verdict::Ok);
    assert_eq!(verdict_of(&made.check(), "nic-steering"), Verdict::Ok);
    made.write("sys/class/net/eth0/operstate", b"down\n");
    assert_eq!(verdict_of(&made.check(), "nic-queues"), Verdict::CannotTell);
}

#[test]
fn interrupts_are_found_by_the_names_that_drivers_give() {
    for (device, action, is_receive) in [
        ("virtio2", "virtio2-input.0", true),
        ("virtio2", "virtio2-output.0", false),
        ("virtio2", "virtio21-input.0", false),
        ("0000:3b:00.0", "mlx5_comp3@pci:0000:3b:00.0", true),
        ("0000:3b:00.0", "mlx5_async@pci:0000:3b:00.0", false),
        ("0000:3b:00.0", "mlx5_comp3@pci:0000:3c:00.0", false),
        ("0000:3b:00.0", "eth0-TxRx-3", true),
        ("0000:3b:00.0", "i40e-eth0-TxRx-3", true),
        ("0000:3b:00.0", "eth0-tx-3", false),
        ("0000:3b:00.0", "eth01-rx-3", false),
    ] {
        let made = MadeUp::good();
        let link = made.0.join("sys/class/net/eth0/device");
        fs::remove_dir_all(&link).unwrap();
        fs::create_dir_all(made.0.join(format!("devices/{device}"))).unwrap();
        let target = format!("../../../../devices/{device}");
        std::os::unix::fs::symlink(target, link).unwrap();
        let line = format!(" 43:  7  0  PCI-MSIX 1-edge  {action}\n");
        made.write("proc/interrupts", line.as_bytes());
        let expected = match is_receive {
            true => Verdict::Ok,
            false => Verdict::CannotTell,
        };
        assert_eq!(
            verdict_of(&made.check(), "irq-affinity"),
            expected,
            "{device} {action}"
        );
    }
}

#[test]
fn isolated_cores_must_be_weirs() {
    let made = MadeUp::good();
    made.write("sys/devices/system/cpu/isolated", b"4-7\n");
    made.write("sys/devices/system/cpu/nohz_full", b"4-7\n");
    assert_eq!(verdict_of(&made.check(), "isolation"), Verdict::Ok);
    made.write("proc/self/status", b"Cpus_allowed_list:\t0-3\n");
    assert_eq!(verdict_of(&made.check(), "isolation"), Verdict::Change);
    made.write("sys/devices/system/cpu/online", b"0-1\n");
    assert_eq!(verdict_of(&made.check(), "isolation"), Verdict::Change);
}

#[test]
fn limits_of_a_cgroup_are_compared_with_what_the_server_takes() {
    let made = MadeUp::good();
    let root = Root::new(&made.0);
    let needs = Needs {
        memory_bytes: Some(1 << 30),
        ..Needs::by_default(8)
    };
    made.write("sys/fs/cgroup/memory.max", b"536870912\n"); // above weir.service, and it counts
    assert_eq!(
        verdict_of(&made.check(), "cgroup-memory"),
        Verdict::CannotTell
    );
    assert_eq!(
        verdict_of(&check(&root, needs), "cgroup-memory"),
        Verdict::Change
    );
    made.write("sys/fs/cgroup/memory.max", b"2147483648\n");
    assert_eq!(
        verdict_of(&check(&root, needs), "cgroup-memory"),
        Verdict::Ok
    );
    // Version 1: a quota in microseconds, and no limit written as nearly 2^63.
    made.write("proc/self/cgroup", b"4:memory:/a\n1:cpu,cpuacct:/b\n0::/\n");
    made.write(
        "sys/fs/cgroup/memory/a/memory.limit_in_bytes",
        b"9223372036854771712\n",
    );
    made.write("sys/fs/cgroup/cpu/b/cpu.cfs_quota_us", b"-1\n");
    assert_eq!(
        verdict_of(&check(&root, needs), "cgroup-memory"),
        Verdict::Ok
    );
    assert_eq!(verdict_of(&made.check(), "cgroup-cpu"), Verdict::Ok);
    made.write("sys/fs/cgroup/cpu/b/cpu.cfs_quota_us", b"50000\n");
    assert_eq!(verdict_of(&made.check(), "cgroup-cpu"), Verdict::Change);
}

#[test]
fn a_filter_or_an_old_kernel_is_told_apart() {
    let made = MadeUp::good();
    made.write(
        "proc/self/status",
        b"Cpus_allowed_list:\t0-7\nSeccomp:\t2\n",
    );
    assert_eq!(verdict_of(&made.check(), "io-uring"), Verdict::CannotTell);
    let switch = made.0.join("proc/sys/kernel/io_uring_disabled");
    fs::remove_file(switch).unwrap(); // it came with 6.6
    made.write(
        "proc/self/status",
        b"Cpus_allowed_list:\t0-7\nSeccomp:\t0\n",
    );
    assert_eq!(verdict_of(&made.check(), "io-uring"), Verdict::Ok);
}

#[test]
fn a_machine_without_files_is_cannot_tell_throughout() {
    for finding in MadeUp::empty().check() {
        assert_eq!(finding.verdict, Verdict::CannotTell, "{finding:?}");
        assert!(!finding.command.is_empty(), "{finding:?}");
    }
}

/// Every regular file below `dir`.
fn files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => files(&entry.path(), found),
            false => found.push(entry.path()),
        }
    }
}

#[test]
fn garbage_in_any_file_harms_nothing() {
    let garbage: [&[u8]; 7] = [
        b"",
        b"\xff\xfe\x00",
        b"-1",
        b"170141183460469231731687303715884105727",
        b"0-4294967295",
        b"9223372036854775807 9223372036854775807",
        b":::,,,- 1: 2: 99999999999: x\n\n[",
    ];
    let made = MadeUp::good();
    let mut paths = Vec::new();
    files(&made.0, &mut paths);
    assert!(paths.len() > 60);
    for (index, bytes) in garbage.into_iter().enumerate() {
        // Each file alone with some of them; all files at once with every one.
        for path in paths.iter().skip(index % 3).step_by(3) {
            let before = fs::read(path).unwrap();
            fs::write(path, bytes).unwrap();
            assert_eq!(made.check().len(), ITEMS.len(), "{}", path.display());
            fs::write(path, before).unwrap();
        }
        let all = MadeUp::good();
        let mut paths = Vec::new();
        files(&all.0, &mut paths);
        for path in paths {
            fs::write(path, bytes).unwrap();
        }
        assert_eq!(all.check().len(), ITEMS.len());
    }
}

/// The settings that have a section: headings of the third level.
fn sections(guide: &str) -> Vec<&str> {
    guide
        .lines()
        .filter_map(|line| line.strip_prefix("### "))
        .collect()
}

#[test]
fn every_setting_has_its_section_in_the_guide_and_every_section_its_setting() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tuning.md");
    let guide = fs::read_to_string(path).unwrap();
    let items: Vec<&str> = ITEMS.iter().map(|item| item.name).collect();
    assert_eq!(
        sections(&guide),
        items,
        "the guide's order is the checks' order"
    );
    for section in guide.split("\n### ").skip(1) {
        let name = section.lines().next().unwrap();
        for part in [
            "**What it does.**",
            "**Check.**",
            "**Hurts when.**",
            "**Measured.**",
        ] {
            assert!(section.contains(part), "tuning.md, {name}: no {part}");
        }
    }
    assert_eq!(sections("# a\n### b\n#### c\n"), ["b"]);
}

fn weir(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(args)
        .output()
        .unwrap()
}

#[test]
fn the_command_says_it_and_its_exit_code_is_strict_only_when_asked() {
    let made = MadeUp::good();
    let root = made.0.to_str().unwrap();
    let strict = ["tune", "--check", "--strict", "--root", root];
    assert_eq!(weir(&strict).status.code(), Some(0));
    made.write("proc/sys/net/core/somaxconn", b"128\n");
    let output = weir(&strict);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("[change]      accept-backlog: 128\n"),
        "{text}"
    );
    assert!(
        text.contains("$ sysctl -w net.core.somaxconn=4096\n"),
        "{text}"
    );
    assert!(text.contains("tuning.md#accept-backlog"), "{text}");
    assert!(
        text.ends_with(" 1 to change, 1 that cannot be told here\n"),
        "{text}"
    );

    let output = weir(&["tune", "--check", "--json", "--root", root]);
    assert_eq!(output.status.code(), Some(0));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&report["change"], &report["cannot_tell"]),
        (&1.into(), &1.into())
    );
    let findings = report["findings"].as_array().unwrap();
    assert_eq!(findings.len(), ITEMS.len());
    for key in [
        "name", "found", "wanted", "verdict", "why", "command", "section",
    ] {
        assert!(findings.iter().all(|f| f[key].is_string()), "{key}");
    }
}

#[test]
fn this_machine_can_be_looked_at_and_bad_arguments_are_refused() {
    let output = weir(&["tune", "--check"]);
    assert_eq!(output.status.code(), Some(0));
    for args in [
        &["tune"][..],
        &["tune", "--check", "--root", "/nowhere/at/all"],
    ] {
        let output = weir(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(
            message.contains("--check") || message.contains("must be a directory"),
            "{message}"
        );
    }
}

#[test]
fn the_default_needs_are_those_of_a_default_configuration() {
    let output = weir(&["config", "explain", "server.conns_max"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("default 4096"), "{text}");
    // Of each shard: connections, clients accepted too early, its own; and what is spare.
    assert_eq!(Needs::by_default(8).descriptors, 7 * (4096 + 128 + 6) + 128);
    assert_eq!(Needs::by_default(1).shards, 1);
}
