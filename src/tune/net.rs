//! The TCP stack: queues of new connections, ports, closed connections, buffers, tracking, polling.

use super::{Look, Machine};
use weir_io::limits::{LISTEN_BACKLOG, SOCKET_BUFFER_BYTES};

/// Above this many microseconds a poll is no poll but a loop (Documentation/admin-guide/sysctl/net.rst names 50 to 100).
const BUSY_POLL_US_MAX: i128 = 100;
/// Below so many cores there is none to burn.
const BUSY_POLL_CPUS_MIN: usize = 4;
/// Linux's own default is 32768 to 60999.
const PORTS_COUNT_MIN: i128 = 28_000;

pub(super) fn accept_backlog(machine: &Machine<'_>) -> Look {
    let wanted = format!("{LISTEN_BACKLOG} or more");
    let command = format!("sysctl -w net.core.somaxconn={LISTEN_BACKLOG}");
    let Some(found) = machine.root.number("proc/sys/net/core/somaxconn") else {
        return Look::unknown("not readable", wanted, command);
    };
    Look::judge(
        found >= i128::from(LISTEN_BACKLOG),
        found.to_string(),
        wanted,
        command,
    )
}

pub(super) fn syn_backlog(machine: &Machine<'_>) -> Look {
    let wanted = "SYN cookies 1; without them a backlog of 8192 or more";
    let read = |name: &str| machine.root.number(&format!("proc/sys/net/ipv4/{name}"));
    let command = "sysctl -w net.ipv4.tcp_syncookies=1";
    let (Some(cookies), Some(backlog)) = (read("tcp_syncookies"), read("tcp_max_syn_backlog"))
    else {
        return Look::unknown("not readable", wanted, command);
    };
    // 2 sends cookies always, which costs TCP options of good buyers; 0 drops when the queue is full.
    let is_fine = cookies == 1 || (cookies == 0 && backlog >= 8192);
    let found = format!("SYN cookies {cookies}, backlog {backlog}");
    Look::judge(is_fine, found, wanted, command)
}

pub(super) fn port_range(machine: &Machine<'_>) -> Look {
    let wanted = "28,000 ports or more; on a machine that generates load 1024 to 65535";
    let command = "sysctl -w net.ipv4.ip_local_port_range='1024 65535'";
    let range = machine
        .root
        .numbers("proc/sys/net/ipv4/ip_local_port_range");
    let Some([first, last]) = range.as_deref() else {
        return Look::unknown("not readable", wanted, command);
    };
    let count = last.saturating_sub(*first).saturating_add(1);
    Look::judge(
        count >= PORTS_COUNT_MIN,
        format!("{first} to {last} ({count})"),
        wanted,
        command,
    )
}

pub(super) fn time_wait(machine: &Machine<'_>) -> Look {
    let wanted = "at most half of tcp_max_tw_buckets in TIME_WAIT";
    let read = |name: &str| machine.root.number(&format!("proc/sys/net/ipv4/{name}"));
    let sockets = machine.root.after("proc/net/sockstat", "TCP:");
    let waiting: Option<i128> = sockets.as_deref().and_then(|line| word_after(line, "tw"));
    let reuse = read("tcp_tw_reuse");
    let (Some(waiting), Some(most)) = (waiting, read("tcp_max_tw_buckets")) else {
        return Look::unknown("not readable", wanted, "ss -s");
    };
    let found = format!(
        "{waiting} of {most}, tcp_tw_reuse {}",
        reuse.map_or("unknown".to_owned(), |reuse| reuse.to_string())
    );
    let command = format!(
        "sysctl -w net.ipv4.tcp_max_tw_buckets={}",
        waiting.saturating_mul(4)
    );
    Look::judge(waiting.saturating_mul(2) <= most, found, wanted, command)
}

/// The number after `key` in `TCP: inuse 1 orphan 0 tw 0 alloc 1 mem 467`.
fn word_after(line: &str, key: &str) -> Option<i128> {
    let mut words = line.split_whitespace();
    words.find(|word| *word == key)?;
    words.next()?.parse().ok()
}

pub(super) fn tcp_buffers(machine: &Machine<'_>) -> Look {
    let wanted = format!(
        "rmem_max and wmem_max {SOCKET_BUFFER_BYTES} or more; tcp_mem's middle value not reached"
    );
    let core = |name: &str| machine.root.number(&format!("proc/sys/net/core/{name}"));
    let least = i128::from(SOCKET_BUFFER_BYTES);
    let command = format!("sysctl -w net.core.rmem_max={least} net.core.wmem_max={least}");
    let (Some(receive), Some(send)) = (core("rmem_max"), core("wmem_max")) else {
        return Look::unknown(
            "not readable (a network namespace hides them)",
            wanted,
            command,
        );
    };
    let sockets = machine.root.after("proc/net/sockstat", "TCP:");
    let pages = sockets.as_deref().and_then(|line| word_after(line, "mem"));
    let limits = machine.root.numbers("proc/sys/net/ipv4/tcp_mem");
    let pressure = limits.as_deref().and_then(|limits| limits.get(1)).copied();
    let mut found = format!("rmem_max {receive}, wmem_max {send}");
    if let (Some(pages), Some(pressure)) = (pages, pressure) {
        found += &format!(", {pages} of {pressure} pages");
    }
    if receive < least || send < least {
        return Look::judge(false, found, wanted, command);
    }
    let is_pressed = pages
        .zip(pressure)
        .is_some_and(|(pages, most)| pages >= most);
    let command = "sysctl -w net.ipv4.tcp_mem='…'   # twice each of the three values";
    Look::judge(!is_pressed, found, wanted, command)
}

pub(super) fn conntrack(machine: &Machine<'_>) -> Look {
    let wanted = "not loaded, or nothing tracked";
    let command = "iptables -t raw -A PREROUTING -p tcp --dport PORT -j NOTRACK; iptables -t raw -A OUTPUT -p tcp --sport PORT -j NOTRACK";
    if !machine.root.exists("proc/sys/net") {
        return Look::unknown("no /proc/sys/net", wanted, command);
    }
    let read = |name: &str| {
        machine
            .root
            .number(&format!("proc/sys/net/netfilter/{name}"))
    };
    let Some(count) = read("nf_conntrack_count") else {
        return Look::judge(true, "not loaded", wanted, "");
    };
    let most = read("nf_conntrack_max").unwrap_or(0);
    Look::judge(
        count == 0,
        format!("{count} tracked of {most}"),
        wanted,
        command,
    )
}

pub(super) fn busy_poll(machine: &Machine<'_>) -> Look {
    let wanted = format!(
        "0, or at most {BUSY_POLL_US_MAX} us with {BUSY_POLL_CPUS_MIN} cores or more and a device that supports it"
    );
    let read = |name: &str| machine.root.number(&format!("proc/sys/net/core/{name}"));
    let command = "sysctl -w net.core.busy_poll=0 net.core.busy_read=0";
    let (Some(poll), Some(read)) = (read("busy_poll"), read("busy_read")) else {
        return Look::unknown("not in this kernel", wanted, command);
    };
    let most = poll.max(read);
    let is_fine =
        most == 0 || (most <= BUSY_POLL_US_MAX && machine.cpus.len() >= BUSY_POLL_CPUS_MIN);
    let found = format!("busy_poll {poll} us, busy_read {read} us");
    Look::judge(is_fine, found, wanted, command)
}
