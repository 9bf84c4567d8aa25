#!/usr/bin/env bash
# Where the CPU time of a running weir goes, as a flame graph.
. "$(dirname "$0")/lib.sh"
arguments "perf/record.sh [--pid N] [--seconds 10] [--out target/perf] [--connections 64] [--pipeline 1]
Samples the stacks of a running weir (without --pid: of a sale of its own that refuses everybody, under full load) and
leaves record.svg, a flame graph, and record.folded, its stacks as text, in --out.
The program should be the release build: it has line tables, and stacks are unwound by them (DWARF), so nothing has to be
rebuilt. Without counters (a virtual machine) the clock is the event; without perf, /proc is sampled." "$@"

folded="$out_dir/record.folded" svg="$out_dir/record.svg"
inferno="$(inferno_dir)"
event="$(cpu_event)" kernel_share=known
choose_process
if [ -n "$event" ]; then
    data="$out_dir/record.data" # kept: perf report and perf annotate read it
    hears_kernel || kernel_share=unknown
    say "perf record, event $event, $seconds s"
    # An odd frequency, so as not to beat with the timers; 16 KiB of stack hold our deepest turn.
    perf record -q -e "$event" -F 499 --call-graph dwarf,16384 -p "$pid" -o "$data" -- sleep "$seconds" 2>"$out_dir/perf.log" ||
        die "perf record failed: $(tail -1 "$out_dir/perf.log")"
    # --no-inline: with it perf 6.1 asks addr2line for every frame, which takes minutes.
    # Without the period among the fields every sample counts 1.
    perf script -i "$data" --no-inline -F comm,pid,tid,time,event,ip,sym,dso 2>/dev/null | "$inferno/inferno-collapse-perf" >"$folded" 2>>"$out_dir/perf.log"
else
    event="/proc" kernel_share=unknown
    say "$(no_perf_reason)"
    say "sampling /proc instead for $seconds s: threads and system calls, no functions"
    proc_stacks "$seconds" >"$folded"
fi
draw "$folded" "$svg" "weir, pid $pid, by $event" samples

# The share of each thread, and of the kernel in the shards' part. From /proc: how often each was found running or ready.
awk -v event="$event" -v kernel_share="$kernel_share" '
    { count = $NF; stack = $0; sub(/ [0-9]+$/, "", stack); split(stack, frame, ";"); all += count; thread[frame[1]] += count
      if (stack ~ /;running$/) busy[frame[1]] += count
      if (frame[1] ~ /^weir-shard/) { shard += count; if (stack ~ /;(entry_|asm_|do_syscall_64|ret_from)/) kernel += count } }
    END { printf "%-18s %9s %s\n", "thread", "samples", event == "/proc" ? "running" : "share"
          for (name in thread) printf "%-18s %9d %6.1f%%\n", name, thread[name], event == "/proc" ? 100 * busy[name] / thread[name] : 100 * thread[name] / all | "sort -k3 -nr"
          close("sort -k3 -nr")
          if (shard && kernel_share == "known") printf "of the shards: kernel %.0f%%, weir %.0f%%\n", 100 * kernel / shard, 100 - 100 * kernel / shard }' "$folded"
cat <<'TEXT'

What to look for
- Under load of single requests most of a shard is kernel: tcp_sendmsg, tcp_v4_rcv, io_recv. What is left of the kernel
  can only be saved by doing less: fewer sends, fewer enters (perf/ring.sh shows them).
- On loopback the client's receive path runs inside our tcp_sendmsg (process_backlog below it): with a network card it is
  on the core of the interrupt instead.
- In weir's part, wide frames other than Parser, ticket verification and KeyedLimiter are news. malloc, memcpy of whole
  buffers or format code in a shard's stack is a bug.
- weir-owner and weir-store should be thin once the sale is sold out. If they are wide, see perf/offcpu.sh.
TEXT
[ "$event" != cpu-clock ] || say "no hardware counters here: samples by the clock cannot see code that runs with interrupts off (its time is booked where they come on again); on bare metal the same command takes cycles"
