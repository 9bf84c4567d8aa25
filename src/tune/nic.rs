//! Network devices: queues, steering, interrupts, NAPI. Devices without hardware behind them (lo, bridges) are left out.

use super::{Look, Machine};
use std::collections::BTreeSet;

const NET: &str = "sys/class/net";

/// One device with hardware, or a hypervisor, behind it.
struct Nic {
    name: String,
    receive_queues: usize,
    /// Receive queues whose packets the kernel spreads over cores (RPS).
    steered_queues: usize,
}

fn nics(machine: &Machine<'_>) -> Vec<Nic> {
    let root = machine.root;
    let names = root.names(NET).unwrap_or_default();
    let is_real = |name: &String| {
        let state = root.text(&format!("{NET}/{name}/operstate"));
        root.exists(&format!("{NET}/{name}/device")) && state.as_deref() != Some("down")
    };
    let mut nics = Vec::new();
    for name in names.into_iter().filter(is_real) {
        let queues = root.names(&format!("{NET}/{name}/queues"));
        let queues: Vec<String> = queues.into_iter().flatten().collect();
        let receive: Vec<&String> = queues.iter().filter(|q| q.starts_with("rx-")).collect();
        let is_steered = |queue: &&&String| {
            let mask = root.text(&format!("{NET}/{name}/queues/{queue}/rps_cpus"));
            mask.is_some_and(|mask| mask.contains(|digit| !matches!(digit, '0' | ',')))
        };
        let steered_queues = receive.iter().filter(is_steered).count();
        let receive_queues = receive.len();
        nics.push(Nic {
            name,
            receive_queues,
            steered_queues,
        });
    }
    nics
}

/// The node to which the first device is attached.
pub(super) fn node(machine: &Machine<'_>) -> Option<usize> {
    let nics = nics(machine);
    let path = format!("{NET}/{}/device/numa_node", nics.first()?.name);
    usize::try_from(machine.root.number(&path)?).ok()
}

const NO_DEVICE: &str = "no device but loopback";

pub(super) fn queues(machine: &Machine<'_>) -> Look {
    let shards = machine.needs.shards;
    let wanted = format!("a receive queue per shard ({shards}), or fewer with steering");
    let nics = nics(machine);
    let Some(first) = nics.first() else {
        return Look::unknown(NO_DEVICE, wanted, "ethtool -l DEVICE");
    };
    let text = |nic: &Nic| format!("{} {}", nic.name, nic.receive_queues);
    let found: Vec<String> = nics.iter().map(text).collect();
    let is_fine = |nic: &Nic| {
        nic.receive_queues >= shards
            || (nic.receive_queues > 0 && nic.steered_queues == nic.receive_queues)
    };
    let worst = nics.iter().find(|nic| !is_fine(nic));
    let command = format!(
        "ethtool -L {} combined {shards}   # its maximum: ethtool -l",
        worst.unwrap_or(first).name
    );
    Look::judge(worst.is_none(), found.join(", "), wanted, command)
}

pub(super) fn steering(machine: &Machine<'_>) -> Look {
    let shards = machine.needs.shards;
    let wanted = "RPS off where there is a queue per shard, on where there are fewer";
    let nics = nics(machine);
    if nics.is_empty() {
        return Look::unknown(NO_DEVICE, wanted, "ls /sys/class/net/*/queues");
    }
    let text = |nic: &Nic| {
        format!(
            "{} RPS on {} of {}",
            nic.name, nic.steered_queues, nic.receive_queues
        )
    };
    let found: Vec<String> = nics.iter().map(text).collect();
    let is_fine = |nic: &Nic| match nic.receive_queues >= shards {
        true => nic.steered_queues == 0,
        false => nic.steered_queues == nic.receive_queues,
    };
    let Some(wrong) = nics.iter().find(|nic| !is_fine(nic)) else {
        return Look::judge(true, found.join(", "), wanted, "");
    };
    let mask = match wrong.receive_queues >= shards {
        true => "0".to_owned(),
        false => mask(&machine.cpus),
    };
    let command = format!(
        "for q in /sys/class/net/{}/queues/rx-*; do echo {mask} > $q/rps_cpus; done",
        wrong.name
    );
    Look::judge(false, found.join(", "), wanted, command)
}

/// Cores as the kernel reads them: hexadecimal words of 32 bits, the highest first, with commas between.
fn mask(cpus: &[usize]) -> String {
    let words_count = cpus.iter().max().map_or(1, |cpu| cpu / 32 + 1);
    let mut words = vec![0_u32; words_count];
    for cpu in cpus {
        words[words_count - 1 - cpu / 32] |= 1 << (cpu % 32);
    }
    let text = |(index, word): (usize, &u32)| match index {
        0 => format!("{word:x}"),
        _ => format!("{word:08x}"),
    };
    let words: Vec<String> = words.iter().enumerate().map(text).collect();
    words.join(",")
}

/// Numbers of the receive interrupts of `nic`, by the names that drivers give them in /proc/interrupts.
fn receive_irqs(machine: &Machine<'_>, nic: &str) -> Vec<u32> {
    let device = machine.root.link_name(&format!("{NET}/{nic}/device"));
    let interrupts = machine.root.text("proc/interrupts").unwrap_or_default();
    let device = device.as_deref().unwrap_or_default();
    let number = |line: &str| {
        let (irq, rest) = line.trim().split_once(':')?;
        let action = rest.split_whitespace().next_back()?;
        let mut parts = action.split(['-', '.', ':', '@']);
        // By the interface (eth0-TxRx-3), the virtio device (virtio2-input.0), or the PCI address (mlx5_comp3@pci:0000:3b:00.0).
        let is_ours = parts.clone().any(|part| part == nic || part == device)
            || (device.contains(':') && action.ends_with(device));
        let receives = !parts.any(|part| {
            let part = part.trim_end_matches(|digit: char| digit.is_ascii_digit());
            ["tx", "output", "config", "async", "event", "mgmnt"]
                .iter()
                .any(|word| part == *word || part.ends_with(&format!("_{word}")))
        });
        (is_ours && receives).then(|| irq.parse().ok())?
    };
    interrupts.lines().filter_map(number).collect()
}

pub(super) fn irq_affinity(machine: &Machine<'_>) -> Look {
    let wanted = "each receive interrupt on one core, spread, and no irqbalance";
    let nics = nics(machine);
    if nics.is_empty() {
        return Look::unknown(NO_DEVICE, wanted, "cat /proc/interrupts");
    }
    let is_balanced = balancer_runs(machine);
    let mut cores = BTreeSet::new();
    let (mut irqs_count, mut loose) = (0, None);
    for nic in &nics {
        for irq in receive_irqs(machine, &nic.name) {
            irqs_count += 1;
            let read = |file: &str| machine.root.cpus(&format!("proc/irq/{irq}/{file}"));
            let cpus = read("effective_affinity_list").or_else(|| read("smp_affinity_list"));
            match cpus.as_deref() {
                Some([cpu]) => drop(cores.insert(*cpu)),
                _ => loose = loose.or(Some(irq)),
            }
        }
    }
    if irqs_count == 0 {
        let found = "the device's interrupts have no name that tells";
        return Look::unknown(found, wanted, "cat /proc/interrupts");
    }
    let spread = irqs_count.min(machine.cpus.len());
    let found = format!(
        "{irqs_count} interrupts on {} cores{}",
        cores.len(),
        if is_balanced { ", irqbalance runs" } else { "" }
    );
    let command = match (is_balanced, loose) {
        (true, _) => "systemctl disable --now irqbalance".to_owned(),
        (false, Some(irq)) => format!("echo CORE > /proc/irq/{irq}/smp_affinity_list"),
        (false, None) => "echo CORE > /proc/irq/N/smp_affinity_list   # one core each".to_owned(),
    };
    let is_fine = !is_balanced && loose.is_none() && cores.len() >= spread;
    Look::judge(is_fine, found, wanted, command)
}

fn balancer_runs(machine: &Machine<'_>) -> bool {
    let pids = machine.root.names("proc").unwrap_or_default();
    pids.iter()
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        .any(|pid| machine.root.text(&format!("proc/{pid}/comm")).as_deref() == Some("irqbalance"))
}

pub(super) fn napi(machine: &Machine<'_>) -> Look {
    let wanted = "napi_defer_hard_irqs and gro_flush_timeout both 0, or both set";
    let nics = nics(machine);
    let read = |nic: &Nic| {
        let at = |file: &str| machine.root.number(&format!("{NET}/{}/{file}", nic.name));
        Some((
            nic.name.clone(),
            at("napi_defer_hard_irqs")?,
            at("gro_flush_timeout")?,
        ))
    };
    let values: Vec<(String, i128, i128)> = nics.iter().filter_map(read).collect();
    if values.is_empty() {
        return Look::unknown(
            NO_DEVICE,
            wanted,
            "ls /sys/class/net/*/napi_defer_hard_irqs",
        );
    }
    let found: Vec<String> = values
        .iter()
        .map(|(name, defer, flush_ns)| format!("{name} {defer} and {flush_ns} ns"))
        .collect();
    let wrong = values
        .iter()
        .find(|(_, defer, flush_ns)| *defer > 0 && *flush_ns == 0);
    let command = wrong.map_or(String::new(), |(name, ..)| {
        format!(
            "echo 20000 > /sys/class/net/{name}/gro_flush_timeout   # or 0 to napi_defer_hard_irqs"
        )
    });
    Look::judge(wrong.is_none(), found.join(", "), wanted, command)
}

pub(super) fn gro(machine: &Machine<'_>) -> Look {
    let device = nics(machine).into_iter().next();
    let name = device.map_or("DEVICE".to_owned(), |nic| nic.name);
    let command =
        format!("ethtool -k {name} | grep generic-receive-offload   # ethtool -K {name} gro on");
    Look::unknown("not in /proc or /sys", "on", command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_written_as_the_kernel_reads_them() {
        assert_eq!(mask(&[0, 1]), "3");
        assert_eq!(mask(&[0, 33]), "2,00000001");
        assert_eq!(mask(&[]), "0");
    }
}
