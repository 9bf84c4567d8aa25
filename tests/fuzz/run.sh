#!/usr/bin/env bash
# Builds and runs the fuzz targets on the stable toolchain (no sanitizer: the code has no unsafe to watch).
#
#   tests/fuzz/run.sh smoke [SECONDS]          every target for SECONDS (60), two at a time
#   tests/fuzz/run.sh long TARGET SECONDS      one target on both cores
#   tests/fuzz/run.sh replay TARGET FILE       one input again
#   tests/fuzz/run.sh minimise                 makes tests/fuzz/corpus anew: of the vectors and itself what adds coverage
#
# All that it makes lies in target/fuzz; only `minimise` writes to the tree. cargo-fuzz is fetched when it is missing.
set -u -o pipefail
cd "$(dirname "$0")/../.." || exit 2
targets=(http json ticket forwarded config resp)
work=target/fuzz
version=0.13.2
bin() { echo "$work/build/$(rustc -vV | sed -n 's/^host: //p')/release/$1"; }

build() {
    export PATH="$PWD/target/tools/bin:$PATH"
    if ! cargo fuzz --version >/dev/null 2>&1; then
        echo "   cargo-fuzz is missing; installing it into target/tools"
        cargo install cargo-fuzz --version "$version" --locked --quiet --root target/tools || exit 2
    fi
    # The lock file of the program decides for the crates that both use.
    cargo fuzz build --fuzz-dir tests/fuzz --sanitizer none --target-dir "$work/build" || exit 2
}

# options TARGET: what every run of it gets. 10 s and 2 GiB end what hangs or grows.
options() {
    local max_len=4096
    [ "$1" = http ] && max_len=24576 # a whole request at every limit
    echo "-timeout=10 -rss_limit_mb=2048 -max_len=$max_len -print_final_stats=1 -artifact_prefix=$work/artifacts/$1/"
    [ -e "tests/fuzz/dict/$1.dict" ] && echo "-dict=tests/fuzz/dict/$1.dict"
}

# fuzz TARGET SECONDS [OPTION...]: one run; says what came of it. What it finds beside crashes stays in target/fuzz/found.
fuzz() {
    local target="$1" seconds="$2" log="$work/$1.log" code runs found
    shift 2
    mkdir -p "$work/found/$target" "$work/artifacts/$target"
    # shellcheck disable=SC2046 # options are words
    "$(bin "$target")" $(options "$target") -max_total_time="$seconds" "$@" \
        "$work/found/$target" "tests/fuzz/corpus/$target" >"$log" 2>&1
    code=$?
    runs="$(sed -n 's/^stat::number_of_executed_units: *//p' "$log" | tail -1)"
    if [ "$code" = 0 ] && [ "${runs:-0}" -gt 0 ]; then
        echo "fuzz $target: $runs executions, 0 crashes, 0 unexplained differences"
        return 0
    fi
    found="$(sed -n 's/^.*Test unit written to //p' "$log" | tail -1)"
    if grep -q '^difference: ' "$log"; then
        echo "fuzz $target: ${runs:-?} executions, 0 crashes, 1 unexplained difference"
    else
        echo "fuzz $target: ${runs:-?} executions, 1 crash, 0 unexplained differences"
    fi
    grep -m1 -A1 "panicked at\|^==.*ERROR" "$log" | cut -c1-2000
    echo "   whole output: $log"
    [ -z "$found" ] || echo "   to see it again: tests/fuzz/run.sh replay $target $found"
    return 1
}

case "${1:-}" in
smoke)
    build
    bad=0
    for target in "${targets[@]}"; do
        while [ "$(jobs -rp | wc -l)" -ge 2 ]; do wait -n || bad=1; done
        fuzz "$target" "${2:-60}" &
    done
    while [ -n "$(jobs -p)" ]; do wait -n || bad=1; done
    exit "$bad"
    ;;
long)
    build
    fuzz "${2:?name a target}" "${3:?name the seconds}" -fork=2
    ;;
replay)
    build
    "$(bin "${2:?name a target}")" -timeout=10 "${3:?name a file}"
    ;;
minimise)
    build
    tests/fuzz/seed.py "$work/seeds" || exit 2
    for target in "${targets[@]}"; do
        mkdir -p "$work/found/$target" "$work/artifacts/$target"
        rm -rf "$work/least" && mkdir -p "$work/least"
        # shellcheck disable=SC2046
        "$(bin "$target")" -set_cover_merge=1 $(options "$target") "$work/least" "$work/seeds/$target" \
            "tests/fuzz/corpus/$target" >"$work/$target.log" 2>&1 || { tail -5 "$work/$target.log"; exit 1; }
        rm -rf "tests/fuzz/corpus/$target" && mv "$work/least" "tests/fuzz/corpus/$target"
        echo "$target: $(find "tests/fuzz/corpus/$target" -type f | wc -l) files"
    done
    ;;
*)
    sed -n '2,10s/^# \{0,1\}//p' "$0"
    exit 2
    ;;
esac
