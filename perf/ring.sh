#!/usr/bin/env bash
# What the ring of each shard does: operations, completions, system calls, batches, and what ran out.
. "$(dirname "$0")/lib.sh"
arguments "perf/ring.sh [--ops http://127.0.0.1:9090] [--token-file FILE] [--seconds 10] [--connections 64] [--pipeline 1]
Reads the operator's /metrics twice and prints the difference per second and shard. --ops: the operator's listener of a
running weir; without it, a sale of its own under full load. --token-file: its bearer token, when it has one." "$@"

[ -n "$ops" ] || start_sale
pages="$(mktemp -d)"
trap 'rm -rf "$pages"; tidy_up' EXIT
header=()
if [ -n "$token_file" ]; then
    # By file, not by argument: arguments are seen by everybody on the machine.
    (umask 077 && printf 'Authorization: Bearer %s\n' "$(cat "$token_file")" >"$pages/header")
    header=(-H "@$pages/header")
fi
fetch_page() {
    curl -sSf --max-time 10 "${header[@]}" "$ops/metrics" >"$1" || die "$ops/metrics cannot be read: is it the operator's listener, and does it need --token-file?"
}
fetch_page "$pages/0"
began_ns="$(date +%s%N)"
sleep "$seconds"
fetch_page "$pages/1"
ended_ns="$(date +%s%N)"

awk -v s="$(((ended_ns - began_ns) / 1000))e-6" '
    /^#/ { next }
    { name = $1; sub(/\{.*/, "", name); label = ""
      if (match($1, /instance="[0-9]+"/)) label = substr($1, RSTART + 10, RLENGTH - 11)
      if (match($1, /driver="[a-z]+"/)) driver = substr($1, RSTART + 8, RLENGTH - 9) }
    NR == FNR { old[name, label] += $2; next }
    { new[name, label] += $2; if (name == "weir_shard_ring_turns_total") shards[label] = 1 }
    function rate(what, shard) { return (new["weir_shard_ring_" what, shard] - old["weir_shard_ring_" what, shard]) / s }
    function total(what, shard) { return new["weir_shard_ring_" what, shard] + 0 }
    function per(a, b) { return b > 0 ? a / b : 0 }
    END {
        printf "driver %s, %.1f s, per second and shard:\n", driver, s
        printf "%-6s %9s %9s %9s %9s %10s %10s %9s\n", "shard", "SQEs", "CQEs", "enters", "turns", "SQE/enter", "CQE/enter", "accepts"
        for (shard in shards) { count++
            printf "%-6s %9.0f %9.0f %9.0f %9.0f %10.2f %10.2f %9.0f\n", shard, rate("sqe_total", shard), rate("cqe_total", shard), rate("enters_total", shard), rate("turns_total", shard),
                per(rate("sqe_total", shard), rate("enters_total", shard)), per(rate("cqe_total", shard), rate("enters_total", shard)), rate("accepts_total", shard) | "sort -n"
            enters += rate("enters_total", shard) }
        close("sort -n")
        if (!count) { print "no weir_shard_ring_ metrics on this page: is it an older weir?" > "/dev/stderr"; exit 2 }
        printf "\nsince the start, per shard:\n%-6s %9s %10s %11s %12s %11s %13s\n", "shard", "buffers", "ENOBUFS", "recv stops", "CQ overflows", "short sends", "accept errors"
        for (shard in shards)
            printf "%-6s %9d %10d %11d %12d %11d %13d\n", shard, total("buffers", shard), total("recv_enobufs_total", shard), total("recv_stops_total", shard), total("cq_overflow_total", shard), total("sends_short_total", shard), total("accept_errors_total", shard) | "sort -n"
        close("sort -n")
        answers = (new["seckill_ingress_requests_total", ""] - old["seckill_ingress_requests_total", ""]) / s
        printf "\nanswers: %.0f/s; system calls of the shards per answer: %.3f\n", answers, per(enters, answers)
    }' "$pages/0" "$pages/1"
cat <<'TEXT'

What to look for
- CQE/enter is the batch: what one system call brings. It grows with load; 1 to 2 under load means that the shard is not
  the limit. System calls per answer fall below 0.1 where a shard is saturated by many connections.
- SQEs are mostly sends: one per answer without pipelining, one per batch of a connection with it. Receives are multishot
  and count as CQEs only; an accept is one of each, and so are the closes of direct sockets.
- ENOBUFS: more arrived in one turn than there are buffers; each costs one more operation. If it grows steadily, shards are
  too few. recv stops: a client sends ahead of its answers and is made to wait.
- CQ overflows must be 0: completions were kept by the kernel because the queue was full. It is a bug or a stall.
- accept errors: no descriptor (tuning.md#nofile), or clients that reset at once.
- The epoll and task drivers count waits as enters and ready events as CQEs; they have no buffers of a ring.
TEXT
