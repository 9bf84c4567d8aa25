#!/bin/sh
# Builds our own crates with the planted faults in (design §12.16). Cargo calls it as RUSTC_WORKSPACE_WRAPPER with the
# compiler as first argument; foreign crates are not built again, as they would be with RUSTFLAGS.
rustc="$1"
shift
exec "$rustc" --cfg weir_planted "$@"
