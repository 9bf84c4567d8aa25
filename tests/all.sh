#!/usr/bin/env bash
# The test command: installs what it needs, checks, tests, and ends with "N passed, N failed, N skipped".
#
#   tests/all.sh            everything
#   tests/all.sh STEP...    only these steps (names as printed), for a quick look
#
# Needs a Rust toolchain and a C compiler; on Debian and Ubuntu it fetches the rest when it is missing. Exit code 0 only
# when nothing failed; with CI=true also nothing may be skipped.
set -u -o pipefail
cd "$(dirname "$0")/.." || exit 2

export CARGO_TERM_COLOR=never CARGO_INCREMENTAL=0 # nothing is built twice here: incremental files only cost time
logs="$(mktemp -d)" || exit 2
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$logs"' EXIT
only=" $* "
passed=0 failed=0 skipped=0
broken=() # names of the steps that failed

# run SECONDS NAME COMMAND...: one step, with a header, its time, and its counts added to the sum. SECONDS are far above
# what a step takes: they end what hangs, and judge nobody.
run() {
    local limit_s="$1" name="$2" log="$logs/$2" start_s=$SECONDS code
    shift 2
    if [ "$only" != "  " ] && [[ "$only" != *" $name "* ]]; then return; fi
    printf '\n== %s: %s\n' "$name" "$*"
    timeout --kill-after=10 "$limit_s" "$@" 2>&1 | tee "$log"
    code=$?
    count "$name" "$code" "$log"
    [ "$code" = 124 ] && echo "   no end after $limit_s s: stopped"
    printf '== %s: %s after %d s\n' "$name" "$([ "$code" = 0 ] && echo ok || echo "FAILED (exit $code)")" $((SECONDS - start_s))
}

# behind SECONDS NAME COMMAND...: a step that runs beside the others, at the lowest priority; `await NAME` shows it.
behind() {
    local limit_s="$1" name="$2"
    shift 2
    if [ "$only" != "  " ] && [[ "$only" != *" $name "* ]]; then return; fi
    printf '\n== %s: %s (shown below, when it has ended)\n' "$name" "$*"
    {
        timeout --kill-after=10 "$limit_s" nice -n 19 "$@" >"$logs/$name" 2>&1
        echo $? >"$logs/$name.code"
    } &
}

# await NAME: waits for a step that runs behind, shows and counts it.
await() {
    local name="$1" code
    if [ "$only" != "  " ] && [[ "$only" != *" $name "* ]]; then return; fi
    wait
    code="$(cat "$logs/$name.code")"
    printf '\n== %s, run beside the steps above:\n' "$name"
    cat "$logs/$name"
    count "$name" "$code" "$logs/$name"
    [ "$code" = 124 ] && echo "   no end in time: stopped"
    printf '== %s: %s\n' "$name" "$([ "$code" = 0 ] && echo ok || echo "FAILED (exit $code)")"
}

# Sums the "test result:" lines of a step and its lines that say SKIPPED. A step without such lines is one test.
count() {
    local name="$1" code="$2" log="$3" sums tests=0 ok=0 bad=0 left=0
    sums="$(awk '/^test result: / { tests++; for (i = 2; i <= NF; i++) {
        if ($i ~ /^passed/) ok += $(i - 1); if ($i ~ /^failed/) bad += $(i - 1); if ($i ~ /^ignored/) left += $(i - 1) } }
        /^SKIPPED/ { left++ } END { print tests + 0, ok + 0, bad + 0, left + 0 }' "$log")"
    read -r tests ok bad left <<<"$sums"
    if [ "$tests" = 0 ] && [ "$code" = 0 ]; then ok=1; fi
    if [ "$code" != 0 ]; then
        broken+=("$name")
        [ "$bad" = 0 ] && bad=1 # it did not build, was stopped, or has no counts of its own
    fi
    passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + left))
}

# fetch COMMAND PACKAGE: makes sure that a command is there.
fetch() {
    command -v "$1" >/dev/null && return
    echo "   $1 is missing; installing $2"
    local as_root=()
    [ "$(id -u)" = 0 ] || as_root=(sudo -n)
    if command -v apt-get >/dev/null; then
        [ -e "$logs/updated" ] || { timeout 120 "${as_root[@]}" apt-get update -qq && touch "$logs/updated"; }
        DEBIAN_FRONTEND=noninteractive timeout 300 "${as_root[@]}" apt-get install -y -qq --no-install-recommends "$2" >"$logs/apt" 2>&1
    fi
    command -v "$1" >/dev/null && return
    [ -e "$logs/apt" ] && tail -3 "$logs/apt"
    echo "weir: $1 is needed and could not be installed: please install the package $2 (Debian's name) and run this again"
    exit 2
}

need() {
    command -v cargo >/dev/null || {
        echo "weir: cargo is needed: please install Rust from https://rustup.rs and run this again"
        exit 2
    }
    if ! { cargo fmt --version && cargo clippy --version; } >/dev/null 2>&1 && ! rustup component add rustfmt clippy; then
        echo "weir: the Rust components rustfmt and clippy are needed: please run 'rustup component add rustfmt clippy'"
        exit 2
    fi
    fetch cc gcc
    fetch c++ g++
    fetch python3 python3
    fetch curl curl
    fetch sqlite3 sqlite3
    fetch openssl openssl
    fetch valgrind valgrind
    fetch redis-server redis-server # brings redis-cli
    fetch redis-cli redis-tools
    fetch redis-benchmark redis-tools
    (fetch perf linux-perf) || echo "   perf is missing: the profiling commands are tried with what /proc tells"
    (fetch systemd-analyze systemd) || echo "   the systemd unit cannot be checked here: its test will say SKIPPED"
}

echo "weir's tests on $(nproc) cores, $(uname -sr), $(rustc --version)"
need

run 60 fmt cargo fmt --all --check
run 60 fmt-fuzz cargo fmt --manifest-path tests/fuzz/Cargo.toml --check
run 900 clippy cargo clippy --workspace --all-targets --locked --features glommio,weir-micro/bench -- -D warnings
# weir's readers of foreign bytes against other readers and models, for 60 s each (tests/fuzz/README.md). Beside the
# tests, which mostly wait for sockets and disks.
behind 1500 fuzz tests/fuzz/run.sh smoke
# Unit tests, vectors, properties, stories on every driver, the stores against SQLite, the program's own commands.
run 3600 tests cargo test --workspace --locked --no-fail-fast
# The driver behind a cargo feature: the same stories. It builds liburing with the C compiler.
run 900 glommio cargo test --locked --features glommio --test conformance
# The faults that are put in on purpose: each must be found by the check that is there for it.
planted=(--test ledger_owner)
for file in src/core/tests/*_planted.rs tests/*_planted.rs; do
    [ -e "$file" ] && planted+=(--test "$(basename "$file" .rs)")
done
RUSTC_WORKSPACE_WRAPPER="$PWD/tests/planted_rustc.sh" run 900 planted \
    cargo test --locked --no-fail-fast -p weir-core -p weir "${planted[@]}"
run 1200 release cargo build --release --locked
# No request takes more than 3 % more instructions than perf/instructions.txt says; and a slowdown of 5 % would be found.
run 300 instructions perf/instructions.sh --check
# The program with the planted faults, where `weir sim` finds it: its report counts those that were found.
run 900 planted_program tests/planted.sh
# What the comparison of servers concludes from its figures.
run 60 compare_goals python3 -B bench/compare/test_stats.py
# The comparison with other servers, as short as it can be: it must run; its figures are not looked at.
run 120 compare bench/compare.sh --json --rounds 1 --seconds 1 --tries 1 --only null-compact,weir-compact --scenario c64
# Reserves on a Redis of its own, ours and redis-benchmark's: all must be grants; the rates are not looked at.
run 180 redis_bench bench/redis.sh --json --rounds 1 --seconds 1 --tries 1 --commands-seconds 5
# What an idle connection costs, with few of them; the figure is not looked at.
run 120 idle bench/idle.sh 2000
# A thousand sales on a virtual clock with faults from their seeds; the full 5,000 are for whoever changes core.
run 300 sim target/release/weir sim --seeds 0..1000 --json
# The same sales with the ledger in a modelled Redis, for one or two machines.
run 300 sim_redis target/release/weir sim --seeds 0..400 --ledger redis --json
# The optimised program is killed 200 times under load, and its disks, clocks and journals fail.
run 400 torture target/release/weir torture --kills 200 --seed 1 --json
# Masters of a private Redis Cluster fail under two instances and their worker.
run 200 redis_torture target/release/weir torture --redis auto --failovers 5 --seed 2 --json
# The optimised program sells to a crowd; it exits with 1 when a promise breaks.
run 180 demo target/release/weir demo --buyers 200000 --stock 2000 --json
# Two instances and their worker sell one stock in a private Redis: the same promises, one budget.
run 120 demo_instances target/release/weir demo --redis auto --instances 2 --buyers 50000 --stock 1000 --json
# The profiling commands, each for two seconds, with perf and with /proc alone. The first time it builds inferno.
run 600 perf tests/perf.sh
await fuzz

printf '\ntook %d min %d s\n' $((SECONDS / 60)) $((SECONDS % 60))
[ "$((passed + failed))" != 0 ] || echo "weir: no step is named $*"
[ "${#broken[@]}" = 0 ] || echo "failed steps: ${broken[*]}"
[ "$skipped" = 0 ] || [ "${CI:-}" != true ] || echo "skipped tests count as a failure because CI=true"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" != 0 ] && { [ "$skipped" = 0 ] || [ "${CI:-}" != true ]; }
