#!/usr/bin/env bash
# What an idle connection costs weir: three shards with direct descriptors, resident memory before and after.
#
#   bench/idle.sh [CONNECTIONS]        50,000 unless told otherwise; prints one JSON object
#
# It builds what it runs, works in target/idle, sends only to 127.0.0.1, and ends what it started, within two minutes.
# `tables_kib` is what weir prints at start: all that its tables may take, touched or not. bench/README.md says more.
set -u -o pipefail
cd "$(dirname "$0")/.." || exit 2
die() { echo "idle: $*" >&2; exit "${code:-2}"; }

connections="${1:-50000}"
shards=3
[[ $# -le 1 && "$connections" =~ ^[1-9][0-9]{0,5}$ ]] || die "usage: bench/idle.sh [CONNECTIONS]"
# The kernel spreads them by hash: a shard gets its share and somewhat more.
conns_max=$((connections / shards + connections / 50 + 256))
cargo build --release --locked -q -p weir -p weir-bench --bins >&2 || die "the build failed: see above"
release="${CARGO_TARGET_DIR:-target}/release"
home="${CARGO_TARGET_DIR:-target}/idle"
server=""
trap '[ -z "$server" ] || { kill "$server"; wait "$server"; } 2>/dev/null; rm -rf "$home"' EXIT
rm -rf "$home" && mkdir -p "$home" && "$release/weir" init "$home/shop" >/dev/null || die "$home cannot be made"

wide='"3000000/s"'
# What is on sale stays as `weir init` wrote it.
sale="$(sed -n '/^\[\[activity\]\]/,$p' "$home/shop/weir.toml")"
cat >"$home/shop/weir.toml" <<TOML || die "$home/shop/weir.toml cannot be written"
[server]
listen = "127.0.0.1:0"
shards = $shards
driver = "uring"
conns_max = $conns_max
conns_per_source_max = $conns_max
idle_timeout = "1h"
[io]
direct = true
[ops]
listen = "127.0.0.1:0"
[limits]
instance_rate = $wide
instance_burst = 3000000
connect_rate = $wide
connect_burst = 3000000
ip_rate = $wide
ip_burst = 3000000
[log]
path = "data/admission.jsonl"
[keys]
ticket = ["keys/ticket-1.key"]
payment = "keys/payment.key"
$sale
TOML
"$release/weir" serve --config "$home/shop/weir.toml" >"$home/log" 2>&1 &
server=$!
for _ in {1..300}; do
    grep -q 'weir: serving' "$home/log" && break
    kill -0 "$server" 2>/dev/null || die "weir did not start: $(cat "$home/log")"
    sleep 0.1
done
! grep -qE 'runs without direct descriptors|io.direct has no effect' "$home/log" || die "weir runs without direct descriptors: $(cat "$home/log")"
url="$(sed -nE 's#^weir: serving (http://[^ ]+).*#\1#p' "$home/log")"
[ -n "$url" ] || die "weir told no address: $(cat "$home/log")"
tables_kib="$(sed -nE 's/.*: ([0-9]+) shard\(s\) of at most ([0-9]+) MiB each, ([0-9]+) MiB shared.*/\1 \2 \3/p' "$home/log" |
    awk 'NR == 1 { print ($1 * $2 + $3) * 1024 }')"
[ -n "$tables_kib" ] || die "weir's start line has no sizes: $(cat "$home/log")"
told="$("$release/weir-idle" --url "$url/idle" --pid "$server" --connections "$connections")" ||
    code=1 die "no figure; weir said: $(tail -5 "$home/log")"
echo "${told%\}},\"tables_kib\":$tables_kib}"
