#!/bin/sh
# Makes a weir with the planted faults in (design §12.16), with debug assertions, and puts it where `weir sim` looks for
# it: next to the optimised program, as weir-planted.
#
#   tests/planted.sh             build it
#   tests/planted.sh --rewrite   build it, look for every fault in 1,000 seeds, and write tests/planted_seeds.txt
set -eu
cd "$(dirname "$0")/.."
target="${CARGO_TARGET_DIR:-target}"
RUSTC_WORKSPACE_WRAPPER="$PWD/tests/planted_rustc.sh" cargo build --locked --bin weir
mkdir -p "$target/release"
cp "$target/debug/weir" "$target/release/weir-planted.new"
mv "$target/release/weir-planted.new" "$target/release/weir-planted"
if [ "${1:-}" = --rewrite ]; then
    "$target/release/weir-planted" sim --hunt search >tests/planted_seeds.new
    mv tests/planted_seeds.new tests/planted_seeds.txt
fi
