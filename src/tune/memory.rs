//! Memory: transparent and reserved huge pages, nodes.

use super::{Look, Machine};

pub(super) fn thp(machine: &Machine<'_>) -> Look {
    let path = "sys/kernel/mm/transparent_hugepage/enabled";
    let wanted = "madvise or always";
    let command = format!("echo madvise > /{path}");
    let Some(text) = machine.root.text(path) else {
        return Look::unknown("not in this kernel", wanted, command);
    };
    let chosen = text
        .split_whitespace()
        .find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    let Some(chosen) = chosen else {
        return Look::unknown(text, wanted, command);
    };
    Look::judge(
        matches!(chosen, "madvise" | "always"),
        chosen,
        wanted,
        command,
    )
}

pub(super) fn hugepages(machine: &Machine<'_>) -> Look {
    let wanted = "none that nobody uses";
    let read = |key: &str| -> Option<u64> { machine.root.after("proc/meminfo", key)?.parse().ok() };
    let command = "sysctl -w vm.nr_hugepages=0";
    let (Some(all), Some(free)) = (read("HugePages_Total:"), read("HugePages_Free:")) else {
        return Look::unknown("not in this kernel", wanted, command);
    };
    let found = format!("{all} reserved, {free} of them unused");
    Look::judge(free == 0, found, wanted, command)
}

pub(super) fn numa(machine: &Machine<'_>) -> Look {
    let dir = "sys/devices/system/node";
    let wanted = "one node, or weir on the cores of one node";
    let Some(nodes) = machine.root.cpus(&format!("{dir}/online")) else {
        return Look::unknown("no list of nodes", wanted, "numactl --hardware");
    };
    if nodes.len() <= 1 {
        return Look::judge(true, "1 node", wanted, "");
    }
    let allowed = machine.root.after("proc/self/status", "Cpus_allowed_list:");
    let Some(allowed) = machine.root.cpus_of(allowed.as_deref()) else {
        return Look::unknown(format!("{} nodes", nodes.len()), wanted, "taskset -p $$");
    };
    let holds_all = |node: &&usize| {
        let cpus = machine.root.cpus(&format!("{dir}/node{node}/cpulist"));
        cpus.is_some_and(|cpus| allowed.iter().all(|cpu| cpus.contains(cpu)))
    };
    let home = nodes.iter().find(holds_all);
    let found = match home {
        Some(node) => format!("{} nodes, weir on node {node}", nodes.len()),
        None => format!("{} nodes, weir may use cores of several", nodes.len()),
    };
    let near = super::nic::node(machine).unwrap_or(nodes[0]);
    let command = format!("numactl --cpunodebind={near} --membind={near} weir serve …");
    Look::judge(home.is_some(), found, wanted, command)
}
