//! Cores: frequency, sleep, isolation, mitigations, clock.

use super::{Look, Machine, or_none};

const CPU: &str = "sys/devices/system/cpu";
/// A sleep whose exit takes longer than this is felt in p99: a refusal takes about 4 µs of a core (issue 5's table).
const EXIT_LATENCY_US_MAX: i128 = 10;
/// From so many cores on, giving one to the system and keeping it off the others can pay.
const ISOLATION_CPUS_MIN: usize = 4;

pub(super) fn governor(machine: &Machine<'_>) -> Look {
    let wanted = "performance";
    let read = |cpu: &usize| {
        machine
            .root
            .text(&format!("{CPU}/cpu{cpu}/cpufreq/scaling_governor"))
    };
    let mut found: Vec<String> = machine.cpus.iter().filter_map(read).collect();
    found.sort();
    found.dedup();
    let command = "cpupower frequency-set -g performance";
    if found.is_empty() {
        return Look::unknown("no cpufreq (a guest: its host decides)", wanted, command);
    }
    Look::judge(found == [wanted], found.join(", "), wanted, command)
}

pub(super) fn idle_states(machine: &Machine<'_>) -> Look {
    let wanted = format!("no state with more than {EXIT_LATENCY_US_MAX} us to leave");
    let command = format!("cpupower idle-set -D {EXIT_LATENCY_US_MAX}");
    let Some(states) = machine.root.names(&format!("{CPU}/cpu0/cpuidle")) else {
        return Look::unknown("no cpuidle (a guest: its host decides)", wanted, command);
    };
    let mut deep = Vec::new();
    for state in &states {
        let at = |file: &str| format!("{CPU}/cpu0/cpuidle/{state}/{file}");
        let latency_us = machine.root.number(&at("latency")).unwrap_or(0);
        let is_off = machine.root.number(&at("disable")) == Some(1);
        if latency_us > EXIT_LATENCY_US_MAX && !is_off {
            let name = machine.root.text(&at("name")).unwrap_or(state.clone());
            deep.push(format!("{name} {latency_us} us"));
        }
    }
    let found = match deep.is_empty() {
        true => format!("{} states, none deeper", states.len()),
        false => deep.join(", "),
    };
    Look::judge(deep.is_empty(), found, wanted, command)
}

pub(super) fn isolation(machine: &Machine<'_>) -> Look {
    let list = |file: &str| machine.root.cpus(&format!("{CPU}/{file}"));
    let allowed = machine.root.after("proc/self/status", "Cpus_allowed_list:");
    let wanted = "isolated cores are weir's, and nohz_full among them; none below 4 cores";
    let Some(isolated) = list("isolated") else {
        return Look::unknown("no list of isolated cores", wanted, "cat /proc/cmdline");
    };
    let tickless = list("nohz_full").unwrap_or_default();
    let text = |file: &str| {
        machine
            .root
            .text(&format!("{CPU}/{file}"))
            .unwrap_or_default()
    };
    let found = format!(
        "isolcpus {}, nohz_full {}, weir may use {}",
        or_none(&text("isolated")),
        or_none(text("nohz_full").trim_matches(['(', ')', ' '])),
        or_none(allowed.as_deref().unwrap_or_default()),
    );
    let none = isolated.is_empty() && tickless.is_empty();
    if machine.cpus.len() < ISOLATION_CPUS_MIN {
        let command = "remove isolcpus= and nohz_full= from the kernel's command line";
        return Look::judge(none, found, wanted, command);
    }
    let Some(allowed) = machine.root.cpus_of(allowed.as_deref()) else {
        return Look::unknown(found, wanted, "taskset -p $$");
    };
    let is_used = isolated.iter().all(|cpu| allowed.contains(cpu));
    let is_within = tickless.iter().all(|cpu| isolated.contains(cpu));
    // One core above that is not isolated, for the threads that weir does not pin.
    let spare = machine
        .cpus
        .iter()
        .rev()
        .find(|cpu| !isolated.contains(cpu));
    let spare = spare.map_or(String::new(), |cpu| format!(",{cpu}"));
    let command = match is_used {
        false => format!("taskset -c {}{spare} weir serve …", text("isolated")),
        true => {
            "give isolcpus= and nohz_full= the same cores on the kernel's command line".to_owned()
        }
    };
    Look::judge(is_used && is_within, found, wanted, command)
}

pub(super) fn mitigations(machine: &Machine<'_>) -> Look {
    let dir = format!("{CPU}/vulnerabilities");
    let wanted = "none `Vulnerable`";
    let names = machine.root.names(&dir).unwrap_or_default();
    if names.is_empty() {
        return Look::unknown("no list of vulnerabilities", wanted, "lscpu");
    }
    let state = |name: &String| machine.root.text(&format!("{dir}/{name}"));
    let count = |start: &str| {
        let starts = |name: &&String| state(name).is_some_and(|text| text.starts_with(start));
        names.iter().filter(starts).count()
    };
    let open: Vec<&str> = names
        .iter()
        .filter(|name| state(name).is_some_and(|text| text.starts_with("Vulnerable")))
        .map(String::as_str)
        .collect();
    let mut found = format!(
        "{} not affected, {} mitigated",
        count("Not affected"),
        count("Mitigation")
    );
    if !open.is_empty() {
        found += &format!(", vulnerable: {}", open.join(", "));
    }
    let cmdline = machine.root.text("proc/cmdline").unwrap_or_default();
    let command = match cmdline.contains("mitigations=off") {
        true => "remove mitigations=off from the kernel's command line, unless you chose it",
        false => "update the microcode (in a guest: the host's)",
    };
    Look::judge(open.is_empty(), found, wanted, command)
}

pub(super) fn clocksource(machine: &Machine<'_>) -> Look {
    let dir = "sys/devices/system/clocksource/clocksource0";
    let wanted = "one that is read without a system call: tsc";
    let Some(found) = machine.root.text(&format!("{dir}/current_clocksource")) else {
        return Look::unknown("no clocksource", wanted, "dmesg | grep clocksource");
    };
    // Those with a vDSO reader (arch/*/include/asm/vdso/clocksource.h in Linux).
    let is_fast = [
        "tsc",
        "kvm-clock",
        "hyperv_clocksource_tsc_page",
        "arch_sys_counter",
    ]
    .contains(&found.as_str());
    let command = format!("echo tsc > /{dir}/current_clocksource");
    Look::judge(is_fast, found, wanted, command)
}
