#!/usr/bin/env bash
# The profiling commands (perf/), for a second or two each: with perf, and with /proc alone as where perf is missing or
# forbidden; on a sale of their own and on a server that somebody else runs. Needs the release build. Exit code 1 at the first thing that is not as it should be.
set -euo pipefail
cd "$(dirname "$0")/.."

work="$(mktemp -d)"
server="" load=""
trap 'for one in $load $server; do kill "$one" 2>/dev/null || true; done; rm -rf "$work"' EXIT
export TMPDIR="$work/tmp"
mkdir "$TMPDIR"

fail() {
    printf 'tests/perf.sh: %s\n' "$*"
    cat "$work/out" 2>/dev/null || true
    exit 1
}
# try NAME COMMAND...: it ends well and says what to look for.
try() {
    local name="$1"
    shift
    printf '   %s\n' "$name"
    "$@" >"$work/out" 2>&1 || fail "$name: exit code $?"
    grep -q '^What to look for' "$work/out" || fail "$name does not say what to look for"
}
says() { grep -Eq -e "$1" "$work/out" || fail "the output has no line like: $1"; }
drew() { { grep -q '<svg' "$1" && grep -q 'weir-shard-0' "$1"; } || fail "$1 is no flame graph of a shard"; }
# refuses MESSAGE COMMAND...: exit code 2 and a message.
refuses() {
    local message="$1" code=0
    shift
    "$@" >"$work/out" 2>&1 || code=$?
    [ "$code" = 2 ] || fail "$*: exit code $code instead of 2"
    says "$message"
}

# A sale of its own, which it ends.
try "record.sh by perf" perf/record.sh --seconds 2 --out "$work/own"
says '^weir-shard-0 +[1-9]'
says '^record: no --pid: profiling a sale of our own'
drew "$work/own/record.svg"

# A server that somebody else runs, with two shards under some load; it is profiled and left alone.
weir="${WEIR:-target/release/weir}"
"$weir" init "$work/shop" >/dev/null
sed -i -e 's/^# listen = .*/listen = "127.0.0.1:0"/' -e 's/^# shards = .*/shards = 2/' "$work/shop/weir.toml"
: >"$work/serve.log" # read below, perhaps before the server has opened it
"$weir" serve --config "$work/shop/weir.toml" >/dev/null 2>"$work/serve.log" &
server=$!
for ((tries = 0; tries < 300; tries++)); do
    grep -q ' serving ' "$work/serve.log" && break
    sleep 0.1
done
read -r url ops < <(sed -n 's/.* serving \(http[^ ]*\) (ops \(.*\))$/\1 \2/p' "$work/serve.log")
"$weir" bench --url "$url/" --rate 5000 --duration 5m >/dev/null 2>&1 &
load=$!
for how in perf proc; do
    [ "$how" = perf ] || export WEIR_NO_PERF=1
    try "offcpu.sh by $how" perf/offcpu.sh --pid "$server" --seconds 2 --out "$work/$how"
    says '^weir-shard-0 +(sleeping|\[waited\]|\[had to yield\]) +[1-9]'
    drew "$work/$how/offcpu.svg"
    try "stat.sh by $how" perf/stat.sh --pid "$server" --seconds 1 --out "$work/$how"
    says '^weir-shard-1 +[0-9.]+% +[0-9.]+%'
    says '^cpu[0-9]+ +[0-9.]+%'
done
try "record.sh by proc" perf/record.sh --pid "$server" --seconds 2 --out "$work/proc"
says '^weir-shard-0 +[1-9]'
drew "$work/proc/record.svg"
try "ring.sh" perf/ring.sh --ops "$ops" --seconds 1 --out "$work"
says '^driver (uring|epoll), '
[ "$(grep -Ec '^[01] +[1-9]' "$work/out")" = 4 ] || says '^0 +0 ' # epoll has no buffers
says '^answers: [1-9][0-9]*/s; system calls of the shards per answer: [0-9.]+$'
kill -0 "$server" || fail "the server that was profiled is gone"
kill "$load"

refuses 'unknown argument --sconds' perf/stat.sh --sconds 2
refuses 'must be a whole number' perf/record.sh --seconds 0
refuses 'no such process' perf/offcpu.sh --pid 4194305
refuses 'cannot be read' perf/ring.sh --ops http://127.0.0.1:1 --seconds 1
[ -z "$(ls -A "$TMPDIR")" ] || fail "left in the temporary directory: $(ls -A "$TMPDIR")"
! pgrep -f "$TMPDIR" >/dev/null || fail "a process of a profiled sale still runs"
echo "the profiling commands do what they say"
