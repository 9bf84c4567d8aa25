# Shared by the commands of this directory; sourced, never run. See README.md.
# shellcheck shell=bash
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root="$PWD"

# The crate that draws flame graphs and folds stacks, at the version these commands were tried with.
inferno_version=0.12.3

pid="" ops="" url="" out_dir="target/perf" seconds=10 connections=64 pipeline=1 token_file=""
work="" # temporary directory of a sale of our own
started=() # processes that this command started: only these are ever ended

say() { printf '%s: %s\n' "$(basename "$0" .sh)" "$*" >&2; }
die() {
    say "$*"
    exit 2
}

# Ends what was started here, the last first, and removes the sale's directory.
tidy_up() {
    local index one
    for ((index = ${#started[@]} - 1; index >= 0; index--)); do
        one="${started[index]}"
        kill "$one" 2>/dev/null || true
        wait "$one" 2>/dev/null || true
    done
    [ -z "$work" ] || rm -rf "$work"
}
trap tidy_up EXIT
trap 'exit 130' INT TERM

# arguments USAGE "$@": the options that every command understands.
arguments() {
    local usage="$1"
    shift
    while [ $# -gt 0 ]; do
        case "$1" in
        -h | --help)
            printf '%s\n' "$usage"
            exit 0
            ;;
        --pid | --seconds | --out | --ops | --token-file | --connections | --pipeline)
            [ $# -ge 2 ] || die "$1 needs a value; see --help"
            case "$1" in
            --pid) pid="$2" ;;
            --seconds) seconds="$2" ;;
            --out) out_dir="$2" ;;
            --ops) ops="$2" ;;
            --token-file) token_file="$2" ;;
            --connections) connections="$2" ;;
            --pipeline) pipeline="$2" ;;
            esac
            shift 2
            ;;
        *) die "unknown argument $1; see --help" ;;
        esac
    done
    [[ "$seconds" =~ ^[1-9][0-9]{0,3}$ ]] || die "--seconds $seconds: must be a whole number, 1 to 9999"
    if [ -n "$pid" ]; then
        [[ "$pid" =~ ^[1-9][0-9]*$ ]] || die "--pid $pid: must be the number of a process"
        [ -r "/proc/$pid/task" ] || die "--pid $pid: no such process, or not yours (try sudo)"
    fi
    mkdir -p "$out_dir"
}

# The program: $WEIR, else the release build, which is made when it is missing.
weir_program() {
    local program="${WEIR:-$root/target/release/weir}"
    if [ ! -x "$program" ]; then
        [ -z "${WEIR:-}" ] || die "WEIR=$WEIR is no program"
        say "building weir (cargo build --release), as target/release/weir is missing"
        cargo build --release --quiet >&2
    fi
    printf '%s\n' "$program"
}

# start_sale: a small sale on free ports, sold out at once, and a closed loop of fresh tickets against it: what is
# profiled is the refusal, on the first core; the generator is on the last one. Sets pid, url, ops.
start_sale() {
    local weir last_cpu tries log
    command -v curl >/dev/null || die "curl is needed: apt install curl"
    weir="$(weir_program)"
    work="$(mktemp -d)"
    log="$work/serve.log"
    : >"$log" # it is read below, perhaps before the server has opened it
    "$weir" init "$work/shop" >/dev/null
    # Free ports; limits that one generator on one address does not meet.
    sed -i -e 's/^# listen = .*/listen = "127.0.0.1:0"/' \
        -e 's|^# \(ip_rate\|instance_rate\) = .*|\1 = "3000000/s"|' \
        -e 's/^# \(ip_burst\|instance_burst\) = .*/\1 = 1000000/' "$work/shop/weir.toml"
    "$weir" serve --config "$work/shop/weir.toml" >/dev/null 2>"$log" &
    pid=$!
    started+=("$pid")
    for ((tries = 0; tries < 300; tries++)); do
        grep -q ' serving ' "$log" && break
        kill -0 "$pid" 2>/dev/null || die "the server did not start: $(cat "$log")"
        sleep 0.1
    done
    read -r url ops < <(sed -n 's/.* serving \(http[^ ]*\) (ops \(.*\))$/\1 \2/p' "$log")
    [ -n "$ops" ] || die "the server was not ready within 30 s: $(cat "$log")"
    printf '[weights]\nsubmit = 1\n' >"$work/mix.toml"
    last_cpu="$(taskset -cp $$ | sed 's/.*[:,-] *//')"
    "$weir" bench --url "$url" --config "$work/shop/weir.toml" --mix "$work/mix.toml" --max --cpu "$last_cpu" \
        --connections "$connections" --pipeline "$pipeline" --duration "$((seconds + 60))s" >"$work/bench.log" 2>&1 &
    started+=("$!")
    # Until the stock is sold and the caches are warm: what follows is refusals.
    for ((tries = 0; tries < 300; tries++)); do
        kill -0 "${started[-1]}" 2>/dev/null || die "the load generator ended early: $(cat "$work/bench.log")"
        curl -sf --max-time 5 "$ops/metrics" | awk '/^seckill_rejected_requests_total/ { all += $2 } END { exit all < 2000 }' && break
        sleep 0.1
    done
    say "no --pid: profiling a sale of our own, pid $pid ($url), $connections connections, $pipeline deep"
}

# choose_process: the one that was named, or a sale of our own.
choose_process() { [ -n "$pid" ] || start_sale; }

# Where inferno's programs are; installs them into target/tools once.
inferno_dir() {
    local dir="$root/target/tools/bin"
    if [ ! -x "$dir/inferno-flamegraph" ]; then
        say "installing inferno $inferno_version into target/tools (once)"
        # Two of its programs, lightly optimised: they work for a second, but the first time everybody waits for the build.
        CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_TARGET_DIR="$root/target/tools/build" \
            cargo install inferno --version "$inferno_version" --locked --quiet --no-default-features --features cli \
            --bin inferno-collapse-perf --bin inferno-flamegraph --root "$root/target/tools" >&2 ||
            die "inferno could not be installed; with a network: cargo install inferno --version $inferno_version --root target/tools"
        rm -rf "$root/target/tools/build"
    fi
    printf '%s\n' "$dir"
}

# cpu_event: the best event that counts here: cycles where the machine has counters, else the clock; nothing without perf.
cpu_event() {
    [ "${WEIR_NO_PERF:-}" = "" ] || return 0
    perf record -q -e cpu-clock -o /dev/null -- true >/dev/null 2>&1 || return 0
    # perf record would fall back from cycles without a word; perf stat tells.
    if perf stat -x, -e cycles -- true 2>&1 | grep -q '^[0-9]'; then echo cycles; else echo cpu-clock; fi
}

# hears_kernel: whether this user may profile the kernel. If not, perf leaves its part out without a word: so say it.
hears_kernel() {
    perf stat -x, -e cpu-clock:k -- true >/dev/null 2>&1 && return 0
    say "this user may not look into the kernel (kernel.perf_event_paranoid = $(cat /proc/sys/kernel/perf_event_paranoid)), so its part, most of a shard's time, is missing below: sysctl -w kernel.perf_event_paranoid=1, or run as root"
    return 1
}

# Why perf cannot be used, and what to do.
no_perf_reason() {
    local level
    if [ "${WEIR_NO_PERF:-}" != "" ]; then
        printf 'WEIR_NO_PERF is set'
    elif ! command -v perf >/dev/null; then
        printf 'perf is missing: apt install linux-perf (Debian), linux-tools-%s (Ubuntu)' "$(uname -r)"
    else
        level="$(cat /proc/sys/kernel/perf_event_paranoid 2>/dev/null || echo unknown)"
        printf 'this user may not profile (kernel.perf_event_paranoid = %s; in a container also seccomp): sysctl -w kernel.perf_event_paranoid=1, or run as root, or docker run --cap-add PERFMON --security-opt seccomp=unconfined' "$level"
    fi
}

# proc_stacks SECONDS: samples every thread of $pid in /proc, 100 times a second, and prints folded stacks
# "thread;state[;where] count". A poor profile, but one that needs no privilege: shares of time per thread, and in which
# system call it waits. No process is started inside the loop, or it would measure itself.
proc_stacks() {
    local task name state call where until_s tick line
    declare -A seen=()
    exec {tick}<> <(:)
    until_s=$((SECONDS + $1))
    while [ "$SECONDS" -lt "$until_s" ]; do
        for task in /proc/"$pid"/task/*; do
            { read -r name <"$task/comm" && read -r line <"$task/stat"; } 2>/dev/null || continue
            line="${line##*) }"
            state="${line%% *}"
            case "$state" in
            R) where="running" ;;
            D) where="waiting_for_disk" ;;
            S) where="sleeping" ;;
            *) where="state_$state" ;;
            esac
            call=""
            if [ "$state" != R ]; then read -r call _ <"$task/syscall" || true; fi 2>/dev/null
            case "$call" in
            "" | running) ;;
            426) where="$where;io_uring_enter" ;;
            202) where="$where;futex" ;;
            74 | 75) where="$where;fsync" ;;
            232 | 281) where="$where;epoll_wait" ;;
            0) where="$where;read" ;;
            7 | 271) where="$where;poll" ;;
            128) where="$where;sigtimedwait" ;;
            *) where="$where;system_call_$call" ;;
            esac
            seen["$name;$where"]=$((${seen["$name;$where"]:-0} + 1))
        done
        read -r -t 0.01 -u "$tick" || true
    done
    exec {tick}<&-
    for line in "${!seen[@]}"; do printf '%s %s\n' "$line" "${seen[$line]}"; done
}

# draw FOLDED SVG TITLE UNIT: the flame graph.
draw() {
    [ -s "$1" ] || die "nothing was sampled: was the process busy? Try --seconds 30"
    "$(inferno_dir)/inferno-flamegraph" --title "$3" --countname "$4" "$1" >"$2"
    say "wrote $2 ($(wc -l <"$1") stacks); open it in a browser"
}
