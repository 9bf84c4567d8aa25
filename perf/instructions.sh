#!/usr/bin/env bash
# Instructions per request, counted by callgrind: the same on every run, whatever else the machine does.
#
#   perf/instructions.sh                  counts ours and the peers', prints the table (ours, MAC apart, peer, ratio)
#   perf/instructions.sh --write          the same, and writes perf/instructions.txt
#   perf/instructions.sh --check          counts ours only; exit code 1 when one is more than 3 % above the file
#   perf/instructions.sh --profile NAME   where the instructions of one scenario go, function by function
#
# What is counted: one function that does the work 1,000 times (bench/micro/src/lib.rs), less the loop around it. Setup
# and warm-up are not counted. valgrind shows programs a CPU without SHA-NI and AVX-512, so a MAC is counted in its
# portable form, which no server runs: its count stands apart, and "less MAC" is what to look at.
set -u -o pipefail
cd "$(dirname "$0")/.." || exit 2

turns=1000
grown_percent_max=3      # codegen moves a count by less; a slip of one check in the decision is more
elsewhere_percent_max=15 # another compiler or libc: still finds what doubles
file=perf/instructions.txt
target="${CARGO_TARGET_DIR:-target}/release"
out="$(mktemp -d)" || exit 2
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$out"' EXIT
export CARGO_TERM_COLOR=never

say() { printf '%s\n' "$*"; }
die() {
    say "perf/instructions.sh: $*" >&2
    exit 2
}

# build BIN CARGO-FLAG...: with `-p weir`, so that every crate has the features it has in the program.
build() {
    local bin="$1"
    shift
    cargo build --quiet --release --locked -p weir -p weir-micro --bin "$bin" "$@" || die "$bin does not build"
}

# count PROGRAM NAME [slower]: instructions of the counted function, per turn, into $out/NAME.
count() {
    local to="$out/${2//\//,}"
    valgrind --tool=callgrind --callgrind-out-file="$to.callgrind" --collect-atstart=no \
        --toggle-collect='weir_micro::count_these_turns*' "$target/$1" "$2" "$turns" ${3:+"$3"} >"$to.log" 2>&1 ||
        { cat "$to.log" >&2 && return 1; }
    awk -v turns="$turns" '/^(totals|summary):/ { total = $2 } END { if (total > 0) print total / turns; else exit 1 }' \
        "$to.callgrind" >"$to.count" || { say "$2: callgrind counted nothing: was count_these_turns inlined?" >&2 && return 1; }
}

# count_all PROGRAM: every scenario whose table is of at most 100,000 keys; larger ones differ in cache misses, not here.
count_all() {
    local name running=0
    "$target/$1" list >"$out/$1.list" || die "$1 list failed"
    while read -r name _; do
        case "$name" in *-1K | *-1M | *-10M) continue ;; esac
        count "$1" "$name" || touch "$out/failed" &
        running=$((running + 1))
        [ "$running" -lt "$(nproc)" ] || { wait -n && running=$((running - 1)); }
    done <"$out/$1.list"
    wait
    [ ! -e "$out/failed" ] || die "a scenario could not be counted"
}

of() { cat "$out/${1//\//,}.count" 2>/dev/null; }

# The lines by which two counts can be compared; anything else that differs does not change them.
conditions() {
    say "# toolchain: $(rustc --version)"
    say "# profile: $(awk '/^\[/ { inside = /^\[profile.release\]/ } inside && /=/ { sub(/ *#.*/, ""); gsub(/ /, ""); printf "%s ", $0 }' Cargo.toml)"
    say "# cpu that valgrind shows: $(valgrind -q --tool=none "$target/count" cpu)"
    say "# libc: $(ldd --version | head -1)"
    say "# valgrind: $(valgrind --version)"
}

# rows: NAME OURS MAC LESS-MAC PEER PEERS PEERS-LESS-MAC RATIO, one line per scenario of ours.
rows() {
    local name per mac peer
    local nothing
    nothing="$(of nothing)"
    while read -r name per mac; do
        [ -n "$(of "$name")" ] && [ "$name" != nothing ] || continue
        peer="$(cd "$out" && ls -- *",$name.count" 2>/dev/null | head -1)"
        peer="${peer%.count}"
        awk -v name="$name" -v per="$per" -v nothing="$nothing" -v ours="$(of "$name")" \
            -v mac="$([ "$mac" = - ] || of "$mac")" -v peer="${peer/,//}" -v peers="$([ -z "$peer" ] || of "$peer")" '
            function whole(x) { return sprintf("%d", x + 0.5) }
            BEGIN {
                ours = (ours - nothing) / per; bare = mac == "" ? 0 : mac - nothing
                line = name " " whole(ours) " " (bare ? whole(bare) : "-") " " whole(ours - bare)
                if (peer == "") { print line " - - - -"; exit }
                peers = (peers - nothing) / per
                print line " " peer " " whole(peers) " " whole(peers - bare) " " sprintf("%.2f", (ours - bare) / (peers - bare))
            }'
    done <"$out/count.list"
}

table() { awk 'BEGIN { print "scenario ours MAC less-MAC peer peer\x27s less-MAC ratio" } { print }' | column -t; }

# check_rows FILE: compares `rows` on stdin with the file; says what grew, shrank or is missing.
check_rows() {
    local percent=$grown_percent_max
    [ -e "$1" ] || { say "no file $1: write it with perf/instructions.sh --write" && return 1; }
    if ! diff <(grep '^# [a-z ]*: ' "$1") <(conditions) >"$out/differs"; then
        percent=$elsewhere_percent_max
        say "These counts were made under other conditions than those of $1:"
        sed -n 's/^[<] # /   there: /p; s/^[>] # /   here:  /p' "$out/differs"
        say "A count may be $percent % above it here instead of $grown_percent_max %. To hold it closer: --write, on this machine."
    fi
    awk -v percent="$percent" -v file="$1" '
        NR == FNR { if ($1 !~ /^#/ && $2 ~ /^[0-9]+$/) was[$1] = $2; next }
        !($1 in was) { print "   " $1 " is not in " file ": write it with perf/instructions.sh --write"; bad++; next }
        {
            change = was[$1] ? 100 * ($2 - was[$1]) / was[$1] : 0; seen[$1] = 1; compared++
            if (change > percent) { printf "   %s: %d instructions, %d in the file: %.1f %% more, %s %% are allowed\n", $1, $2, was[$1], change, percent; bad++ }
            else if (change < -percent) printf "   %s: %d instructions, %d in the file: %.1f %% less; write it down with --write, or it may creep back\n", $1, $2, was[$1], -change
        }
        END {
            for (name in was) if (!(name in seen)) { print "   " name " is in " file " and was not counted: write the file anew"; bad++ }
            if (!compared) { print "   nothing was compared"; bad++ }
            if (bad) print "What grew on purpose is written down with it: perf/instructions.sh --write, in the same commit, which says why."
            else print compared " counts, none more than " percent " % above " file
            exit bad > 0
        }' "$1" -
}

# A guard that cannot fail guards nothing: work that is 5 % slower on purpose must be found.
check_the_check() {
    local name=decide-sold-out-compact was
    was="$(rows | grep "^$name ")"
    # Against this machine's own count, so that it is found under other conditions than the file's, too.
    { conditions && say "$was"; } >"$out/one.txt"
    count count "$name" slower || return 1
    if rows | grep "^$name " | grep -v "$was" | check_rows "$out/one.txt" >"$out/planted" ||
        ! grep -q "^   $name: " "$out/planted"; then
        say "   a slowdown of 5 %, put in on purpose, was not found:" && cat "$out/planted"
        return 1
    fi
    say "a slowdown of 5 %, put in on purpose, is found:" && grep "^   $name" "$out/planted"
}

command -v valgrind >/dev/null || die "valgrind is needed: please install it (Debian's package valgrind)"
case "${1:-}" in
--profile)
    [ $# = 2 ] || die "usage: perf/instructions.sh --profile NAME"
    case "$2" in */*) program=count_peers && build count_peers --features weir-micro/peers ;; *) program=count && build count ;; esac
    count "$program" "$2" || exit 1
    say "$2: $(of "$2") instructions per turn, the loop around it included"
    # Inlined code counts where it was inlined; a function's own instructions, then those with what it calls.
    for inclusive in no yes; do
        callgrind_annotate --threshold=100 --auto=no --inclusive=$inclusive "$out/${2//\//,}.callgrind" 2>/dev/null
    done | awk -v turns="$turns" '
        /^Ir .*file:function/ { part++ }
        /^ *[0-9,]+ \([ 0-9.]+%\)/ && !/PROGRAM TOTALS/ {
            n = $1; gsub(/,/, "", n); n += 0; sub(/^ *[0-9,]+ \([ 0-9.]+%\) */, ""); sub(/ \[[^]]*\]$/, ""); sub(/^[^:]*:/, ""); sub(/ \([0-9,]+x\)$/, "")
            if (part == 1) { own[$0] += n; sum += n } else if (n > with[$0]) with[$0] = n
        }
        END { for (name in own) printf "%9.1f %5.1f%% %9.1f  %s\n", own[name] / turns, 100 * own[name] / sum, with[name] / turns, name }' |
        sort -rn | sed '1i\      own  share with-callees  function' | head -40
    ;;
--check)
    build count
    count_all count
    rows | tee "$out/rows" | awk '{ print $1, $2, $3, $4 }' | column -t
    check_rows "$file" <"$out/rows" || exit 1
    check_the_check || exit 1
    ;;
"" | --write)
    build count
    count_all count
    build count_peers --features weir-micro/peers
    count_all count_peers
    rows >"$out/rows"
    {
        say "# Instructions per request, ticket or key, by callgrind. Made by perf/instructions.sh --write; held by --check."
        conditions
        say "# One limiter key: $("$target/count" key-bytes)."
        table <"$out/rows"
    } >"$out/table"
    cat "$out/table"
    [ -z "${1:-}" ] || cp "$out/table" "$file"
    ;;
*) die "usage: perf/instructions.sh [--write | --check | --profile NAME]" ;;
esac
