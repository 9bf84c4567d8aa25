#!/usr/bin/env bash
# The profiling commands (perf/), each on a sale of its own, for two seconds: with perf, and with /proc alone as where
# perf is missing or forbidden. Needs the release build. Exit code 1 at the first thing that is not as it should be.
set -euo pipefail
cd "$(dirname "$0")/.."

work="$(mktemp -d)"
server=""
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; rm -rf "$work"' EXIT
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

for how in perf proc; do
    [ "$how" = perf ] || export WEIR_NO_PERF=1
    try "record.sh by $how" perf/record.sh --seconds 2 --out "$work/$how"
    says '^weir-shard-0 +[1-9]'
    drew "$work/$how/record.svg"
    try "offcpu.sh by $how" perf/offcpu.sh --seconds 2 --out "$work/$how"
    says '^weir-shard-0 +(sleeping|\[waited\]|\[had to yield\]) +[1-9]'
    drew "$work/$how/offcpu.svg"
done
try "stat.sh by proc" perf/stat.sh --seconds 1 --out "$work"
says '^weir-shard-0 +[0-9.]+% +[0-9.]+%'
says '^cpu[0-9]+ +[0-9.]+%'
unset WEIR_NO_PERF
try "ring.sh" perf/ring.sh --seconds 1 --out "$work"
says '^0 +[1-9][0-9]* +[1-9][0-9]* +[1-9][0-9]* '
says '^answers: [1-9][0-9]*/s; system calls of the shards per answer: [0-9.]+$'

# A server that somebody else runs is profiled and left alone.
weir="${WEIR:-target/release/weir}"
"$weir" init "$work/shop" >/dev/null
sed -i -e 's/^# listen = .*/listen = "127.0.0.1:0"/' -e 's/^# shards = .*/shards = 2/' "$work/shop/weir.toml"
"$weir" serve --config "$work/shop/weir.toml" >/dev/null 2>"$work/serve.log" &
server=$!
for ((tries = 0; tries < 300; tries++)); do
    grep -q ' serving ' "$work/serve.log" && break
    sleep 0.1
done
ops="$(sed -n 's/.* (ops \(.*\))$/\1/p' "$work/serve.log")"
try "ring.sh --ops" perf/ring.sh --seconds 1 --ops "$ops" --out "$work"
says '^driver (uring|epoll), '
[ "$(grep -Ec '^[01] ' "$work/out")" = 4 ] || fail "ring.sh does not tell two shards apart"
try "stat.sh --pid" perf/stat.sh --seconds 1 --pid "$server" --out "$work"
says '^weir-owner '
kill -0 "$server" || fail "the server that was profiled is gone"

refuses 'unknown argument --sconds' perf/stat.sh --sconds 2
refuses 'must be a whole number' perf/record.sh --seconds 0
refuses 'no such process' perf/offcpu.sh --pid 4194305
refuses 'cannot be read' perf/ring.sh --ops http://127.0.0.1:1 --seconds 1
[ -z "$(ls -A "$TMPDIR")" ] || fail "left in the temporary directory: $(ls -A "$TMPDIR")"
! pgrep -f "$TMPDIR" >/dev/null || fail "a process of a profiled sale still runs"
echo "the profiling commands do what they say"
