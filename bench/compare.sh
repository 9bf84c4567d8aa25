#!/usr/bin/env bash
# Each candidate on one pinned core, the load generator on the other; interleaved rounds, medians, spread, goals.
#
#   bench/compare.sh                         everything, a table at the end (half an hour on a quiet machine)
#   bench/compare.sh --json > run.jsonl      one object per candidate and scenario, last {"ratios":…}
#   bench/compare.sh --only null-compact,weir-compact --scenario c64 --rounds 3 --seconds 2
#
# It builds what it runs, installs nginx, h2o, lua-cjson and redis with apt-get when they are missing (else their rows
# say SKIPPED), works in target/compare, sends only to 127.0.0.1, and ends what it started. bench/README.md says more.
set -u -o pipefail
cd "$(dirname "$0")/.." || exit 2
exec python3 bench/compare/main.py "$@"
