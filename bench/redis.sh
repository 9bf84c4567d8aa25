#!/usr/bin/env bash
# Reserves a second through weir's desk beside redis-benchmark with the same script and arguments, on one Redis.
#
#   bench/redis.sh                              seven rounds, lines to read at the end (five minutes on a quiet machine)
#   bench/redis.sh --json > run.jsonl           one object per candidate and scenario, last {"ratios":…}
#   bench/redis.sh --json --rounds 3 --seconds 1
#
# It builds what it runs, installs redis with apt-get when it is missing, works in target/redis, sends only to 127.0.0.1,
# and ends what it started. bench/README.md says more.
set -u -o pipefail
cd "$(dirname "$0")/.." || exit 2
exec python3 -B bench/redis/main.py "$@"
