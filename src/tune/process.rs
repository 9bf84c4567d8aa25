//! The process and its container: descriptors, locked memory, io_uring, quotas.

use super::{Look, Machine};

/// glommio's documentation asks for at least so much locked memory per executor.
const MEMLOCK_BYTES_MIN: u64 = 512 * 1024;
/// The first kernel whose io_uring has what the driver uses (README).
const URING_KERNEL: (u32, u32) = (6, 1);

/// Soft and hard limit in the row `name` of /proc/self/limits; `u64::MAX` for unlimited.
fn limits(machine: &Machine<'_>, name: &str) -> Option<(u64, u64)> {
    let row = machine.root.after("proc/self/limits", name)?;
    let mut words = row.split_whitespace().map(|word| match word {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    });
    Some((words.next()??, words.next()??))
}

fn shown(limit: u64) -> String {
    match limit {
        u64::MAX => "unlimited".to_owned(),
        limit => limit.to_string(),
    }
}

pub(super) fn nofile(machine: &Machine<'_>) -> Look {
    let needed = machine.needs.descriptors;
    let wanted = format!("a hard limit of {needed} or more (weir raises the soft one itself)");
    let command = format!("ulimit -Hn {needed}, or LimitNOFILE={needed} in the systemd unit");
    let Some((_, hard)) = limits(machine, "Max open files") else {
        return Look::unknown("no /proc/self/limits", wanted, command);
    };
    Look::judge(hard >= needed, shown(hard), wanted, command)
}

pub(super) fn memlock(machine: &Machine<'_>) -> Look {
    let wanted = format!("{MEMLOCK_BYTES_MIN} bytes or more for each glommio shard");
    let needed = MEMLOCK_BYTES_MIN * machine.needs.shards as u64;
    let command = format!(
        "ulimit -l {}, or LimitMEMLOCK= in the systemd unit",
        needed / 1024
    );
    let Some((soft, _)) = limits(machine, "Max locked memory") else {
        return Look::unknown("no /proc/self/limits", wanted, command);
    };
    Look::judge(soft >= needed, shown(soft), wanted, command)
}

/// Major and minor number of the kernel.
fn kernel(machine: &Machine<'_>) -> Option<(u32, u32)> {
    let text = machine.root.text("proc/sys/kernel/osrelease")?;
    let mut parts = text.split(|letter: char| !letter.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

pub(super) fn io_uring(machine: &Machine<'_>) -> Look {
    let wanted = "Linux 6.1 or later, io_uring_disabled 0, no filter against it";
    let Some((major, minor)) = kernel(machine) else {
        return Look::unknown("no kernel version", wanted, "uname -r");
    };
    // The switch came with 6.6; before, io_uring is there unless a seccomp filter forbids it.
    let switch = machine.root.number("proc/sys/kernel/io_uring_disabled");
    let filter = machine.root.after("proc/self/status", "Seccomp:");
    let mut found = format!("Linux {major}.{minor}");
    if let Some(switch) = switch {
        found += &format!(", io_uring_disabled {switch}");
    }
    if (major, minor) < URING_KERNEL {
        return Look::judge(false, found, wanted, "a newer kernel; weir uses epoll here");
    }
    if switch.is_some_and(|switch| switch != 0) {
        let command = "sysctl -w kernel.io_uring_disabled=0";
        return Look::judge(false, found, wanted, command);
    }
    if filter.as_deref() == Some("2") {
        found += ", under a seccomp filter";
        let command = "weir serve --driver uring   # says whether the filter lets it; deploy/seccomp.json does";
        return Look::unknown(found, wanted, command);
    }
    Look::judge(true, found, wanted, "")
}

/// The directories of this process's cgroup and of those above it, the innermost first, under cgroup v2 or for the
/// controller `controller` of v1. `None` where there is no cgroup.
fn cgroups(machine: &Machine<'_>, controller: &str) -> Option<(bool, Vec<String>)> {
    let list = machine.root.text("proc/self/cgroup")?;
    // cgroups(7): `ID:controllers:path`; version 2 is `0::path`.
    let rows: Vec<(&str, &str)> = list
        .lines()
        .filter_map(|line| line.split_once(':')?.1.split_once(':'))
        .collect();
    let of_v1 = rows
        .iter()
        .find(|(names, _)| names.split(',').any(|name| name == controller));
    let (is_v2, base, path) = match of_v1 {
        Some((_, path)) => (false, format!("sys/fs/cgroup/{controller}"), *path),
        None => {
            let (_, path) = rows.iter().find(|(names, _)| names.is_empty())?;
            (true, "sys/fs/cgroup".to_owned(), *path)
        }
    };
    if !machine.root.exists(&base) {
        return None;
    }
    let mut path = path.trim_end_matches('/');
    let mut dirs = Vec::new();
    loop {
        dirs.push(format!("{base}{path}"));
        match path.rsplit_once('/') {
            Some((above, _)) => path = above,
            None => return Some((is_v2, dirs)),
        }
    }
}

pub(super) fn cgroup_cpu(machine: &Machine<'_>) -> Look {
    let wanted = "no quota (cores may be fixed: AllowedCPUs=, --cpuset-cpus)";
    let command = "systemctl set-property weir.service CPUQuota=   # in Docker: no --cpus";
    let Some((is_v2, dirs)) = cgroups(machine, "cpu") else {
        return Look::unknown("no cgroup", wanted, command);
    };
    let quota = |dir: &String| -> Option<String> {
        if is_v2 {
            let text = machine.root.text(&format!("{dir}/cpu.max"))?;
            return (!text.starts_with("max")).then_some(text);
        }
        let quota_us = machine.root.number(&format!("{dir}/cpu.cfs_quota_us"))?;
        (quota_us > 0).then(|| format!("{quota_us} us a period"))
    };
    match dirs.iter().find_map(quota) {
        Some(quota) => Look::judge(false, format!("quota {quota}"), wanted, command),
        None => Look::judge(true, "no quota", wanted, ""),
    }
}

pub(super) fn cgroup_memory(machine: &Machine<'_>) -> Look {
    let needed = machine.needs.memory_bytes;
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    let wanted = match needed {
        Some(bytes) => format!("no limit, or {} MiB or more", mib(bytes)),
        None => "no limit, or what `weir config check` prints".to_owned(),
    };
    let command = match needed {
        Some(bytes) => format!(
            "systemctl set-property weir.service MemoryMax={}M MemoryHigh=infinity",
            mib(bytes)
        ),
        None => "weir tune --check --config FILE   # compares it with what weir takes".to_owned(),
    };
    let Some((is_v2, dirs)) = cgroups(machine, "memory") else {
        return Look::unknown("no cgroup", wanted, command);
    };
    let files: &[&str] = match is_v2 {
        true => &["memory.max", "memory.high"],
        false => &["memory.limit_in_bytes"],
    };
    // v1 writes "no limit" as the largest whole number of pages below 2^63.
    let limit = |dir: &String| {
        let limits = files
            .iter()
            .filter_map(|file| machine.root.number(&format!("{dir}/{file}")));
        limits.filter(|limit| (0..1 << 62).contains(limit)).min()
    };
    let Some(least) = dirs.iter().filter_map(limit).min() else {
        return Look::judge(true, "no limit", wanted, "");
    };
    let least = least as u64; // within 0..2^62, checked above
    let found = format!("{} MiB", mib(least));
    match needed {
        Some(needed) => Look::judge(least >= needed, found, wanted, command),
        None => Look::unknown(found, wanted, command),
    }
}
