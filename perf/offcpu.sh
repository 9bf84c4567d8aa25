#!/usr/bin/env bash
# Where the threads of a running weir wait, and for how long, as a flame graph.
. "$(dirname "$0")/lib.sh"
arguments "perf/offcpu.sh [--pid N] [--seconds 10] [--out target/perf] [--connections 64] [--pipeline 1]
Records every context switch of a running weir (without --pid: of a sale of its own under full load) with its kernel stack,
adds up the time until the thread ran again, and leaves offcpu.svg and offcpu.folded (microseconds) in --out. Waits that
began before or end after the recording are not in it. Without perf, /proc is sampled: states and system calls." "$@"

folded="$out_dir/offcpu.folded" svg="$out_dir/offcpu.svg"
inferno_dir >/dev/null
event="$(cpu_event)"
choose_process
unit="microseconds"
recorded=""
if [ -n "$event" ]; then
    data="$out_dir/offcpu.data"
    hears_kernel || true # threads and times remain, stacks do not
    say "perf record, context switches, $seconds s"
    # Switch events need no tracefs; kernel stacks say what is waited for, thread names who waits.
    if perf record -q -e context-switches -c 1 -g --kernel-callchains --switch-events -p "$pid" -o "$data" -- sleep "$seconds" 2>"$out_dir/perf.log"; then
        recorded=1
        perf script -i "$data" --show-switch-events -F comm,tid,time,event,ip,sym 2>/dev/null | awk '
            # "weir-shard-0 25306 24607.165054: context-switches:" and its frames, innermost first; then the switch itself.
            function stamp(  i) { for (i = 2; i <= NF; i++) if ($i ~ /^[0-9]+\.[0-9]+:$/) { tid = $(i - 1); comm = $1; return $i * 1e6 } return 0 }
            /context-switches/ { stamp(); now = tid; stack[now] = ""; next }
            /PERF_RECORD_SWITCH +OUT/ { left[tid_at()] = at; forced[tid] = /preempt/; next }
            /PERF_RECORD_SWITCH +IN/ { tid_at(); if (tid in left) {
                kind = forced[tid] ? "[had to yield]" : "[waited]"
                spent[comm ";" kind stack[tid]] += at - left[tid]; delete left[tid] } next }
            NF >= 2 && $1 ~ /^[0-9a-f]+$/ { stack[now] = ";" $2 stack[now] }
            function tid_at() { at = stamp(); return tid }
            END { for (line in spent) printf "%s %.0f\n", line, spent[line] }' >"$folded"
    else
        say "perf cannot record context switches of this process: $(tail -1 "$out_dir/perf.log")"
    fi
fi
if [ -z "$recorded" ]; then
    [ -n "$event" ] || say "$(no_perf_reason)"
    say "sampling /proc instead for $seconds s: states and system calls"
    unit="samples"
    proc_stacks "$seconds" | grep -v ';running ' >"$folded" || true
fi
draw "$folded" "$svg" "weir, pid $pid: waiting" "$unit"
printf '%-18s %-18s %14s\n' thread how "$unit"
awk '{ count = $NF; split($0, frame, ";"); how = frame[2]; sub(/ [0-9]+$/, "", how); sum[frame[1] "\t" how] += count }
    END { for (key in sum) { split(key, part, "\t"); printf "%-18s %-18s %14d\n", part[1], part[2], sum[key] } }' "$folded" | sort
cat <<'TEXT'

What to look for
- A shard should wait in one place only: io_cqring_wait (or ep_poll). Any other wait of a shard is a bug: it must not block.
- [had to yield]: it was ready and was pushed off its core. Under full load of a shard this should be next to nothing;
  if not, something shares its core (perf/stat.sh shows the waiting, tuning.md#isolation the remedy).
- weir-store and weir-orderstore wait in fdatasync for the disk: that time bounds how soon a winner hears of it, and how
  many commits a second there are. weir-owner waits in a futex or eventfd when it has nothing to do.
TEXT
