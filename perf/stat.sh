#!/usr/bin/env bash
# What a running weir costs the machine: counters of the process, of each thread, of the kernel's network.
. "$(dirname "$0")/lib.sh"
arguments "perf/stat.sh [--pid N] [--seconds 10] [--out target/perf] [--connections 64] [--pipeline 1]
Counts for some seconds: perf stat (hardware counters where there are some, software ones anyway), then from /proc the CPU,
the waiting and the context switches of each thread, softirqs and stolen time of each core, and what TCP dropped.
Without --pid it starts a sale of its own under full load. Without perf, the /proc parts are printed alone." "$@"

choose_process
event="$(cpu_event)"
hz="$(getconf CLK_TCK)"

# thread_counts: id, name, user ticks, system ticks, nanoseconds of waiting for a core, voluntary and other switches.
thread_counts() {
    local task
    for task in /proc/"$pid"/task/*; do
        {
            awk -v id="${task##*/}" -v name="$(cat "$task/comm")" '
                FILENAME ~ /stat$/ && !done { sub(/^.*\) /, ""); user = $12; sys = $13; done = 1; next }
                FILENAME ~ /schedstat$/ { wait = $2 }
                /^voluntary_ctxt_switches/ { own = $2 }
                /^nonvoluntary_ctxt_switches/ { forced = $2 }
                END { print id, name, user, sys, wait + 0, own, forced }' \
                "$task/stat" "$task/schedstat" "$task/status"
        } 2>/dev/null || true # it ended
    done
}
# core_counts: core, busy ticks, softirq ticks, stolen ticks, idle ticks.
core_counts() { awk '/^cpu[0-9]/ { print $1, $2 + $3 + $4 + $7 + $8, $8, $9, $5 + $6 }' /proc/stat; }
# net_counts: what the kernel dropped or had to repeat, name and number.
net_counts() {
    awk 'prefix != $1 { for (i = 2; i <= NF; i++) name[i] = $i; prefix = $1; next } { for (i = 2; i <= NF; i++) print name[i], $i; prefix = "" }' \
        /proc/net/netstat /proc/net/snmp |
        grep -E '^(ListenOverflows|ListenDrops|SyncookiesSent|TCPReqQFullDrop|RetransSegs|TCPBacklogDrop|TCPTimeouts|PruneCalled|OutRsts) '
    awk '{ print "softnet_dropped_cpu" NR - 1, "0x" $2; print "softnet_squeezed_cpu" NR - 1, "0x" $3 }' /proc/net/softnet_stat
}

counts="$(mktemp -d)"
trap 'rm -rf "$counts"; tidy_up' EXIT
for what in thread core net; do "${what}_counts" >"$counts/$what.0"; done
if [ -n "$event" ]; then
    hears_kernel || true # switches and faults are counted as 0 then
    events="task-clock,context-switches,cpu-migrations,page-faults"
    [ "$event" != cycles ] || events="$events,cycles,instructions,branch-misses,cache-misses"
    if [ -r /sys/kernel/tracing/events/raw_syscalls ]; then events="$events,raw_syscalls:sys_enter"; fi
    perf stat -e "$events" -p "$pid" -- sleep "$seconds" 2>&1 | grep -v '^$'
    [ "$event" = cycles ] || say "no hardware counters here (a virtual machine without a PMU): cycles, instructions and misses need bare metal, or a host that passes its counters on"
else
    say "$(no_perf_reason)"
    say "the parts from /proc:"
    sleep "$seconds"
fi
for what in thread core net; do "${what}_counts" >"$counts/$what.1"; done

printf '\n%-18s %8s %8s %12s %14s %10s\n' thread user system 'wait ms/s' 'own switches/s' 'forced/s'
awk -v s="$seconds" -v hz="$hz" 'NR == FNR { for (i = 3; i <= 7; i++) old[$1, i] = $i; next } ($1, 3) in old {
    printf "%-18s %7.1f%% %7.1f%% %12.2f %14.0f %10.0f\n", $2, ($3 - old[$1, 3]) * 100 / hz / s, ($4 - old[$1, 4]) * 100 / hz / s,
        ($5 - old[$1, 5]) / 1e6 / s, ($6 - old[$1, 6]) / s, ($7 - old[$1, 7]) / s }' "$counts/thread.0" "$counts/thread.1"
printf '\n%-18s %8s %8s %8s\n' core busy softirq stolen
awk 'NR == FNR { for (i = 2; i <= 5; i++) old[$1, i] = $i; next } {
    all = ($2 - old[$1, 2]) + ($4 - old[$1, 4]) + ($5 - old[$1, 5]); if (all < 1) all = 1
    printf "%-18s %7.1f%% %7.1f%% %7.1f%%\n", $1, ($2 - old[$1, 2]) * 100 / all, ($3 - old[$1, 3]) * 100 / all, ($4 - old[$1, 4]) * 100 / all }' \
    "$counts/core.0" "$counts/core.1"
printf '\nkernel, in %s s (all processes of this network namespace):' "$seconds"
quiet=1
while read -r name before <&3 && read -r _ after <&4; do
    if [ $((after)) != $((before)) ]; then
        printf ' %s +%d' "$name" $((after - before))
        quiet=0
    fi
done 3<"$counts/net.0" 4<"$counts/net.1"
[ "$quiet" = 0 ] || printf ' nothing dropped or repeated'
printf '\nresident: %s\n' "$(grep VmRSS "/proc/$pid/status" | tr -s '\t ' ' ')"
cat <<'TEXT'

What to look for
- A shard at 100 % is the limit of its core; with another shard idle the connections are unevenly spread (SO_REUSEPORT).
- wait ms/s: a shard that is ready and has no core. Above some ms/s something shares its core: pin it away (tuning.md).
- forced switches and cpu-migrations of a shard should be near 0: it is pinned, and alone. Its own switches are its sleeps.
- page-faults after the start: memory that is touched for the first time; steady ones are a leak or buffers that are given back.
- stolen: the hypervisor runs others; measure again. softirq on one core only: spread the interrupts (tuning.md#irq-affinity).
- ListenOverflows, ListenDrops, TCPReqQFullDrop, softnet_dropped: new connections or packets were lost (tuning.md#accept-backlog).
TEXT
