#!/usr/bin/env bash
# Measures how the allocator's cost grows with streams, threads, pools and age, on the simulated device, and prints a
# page of tables: scripts/scale.sh [OPTIONS] [PART...]. --help says more. About two minutes after the build; the full
# run is --operations 10000000 --churn 10000 --seconds 60.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

unset MILLPOND_CONF PYTORCH_CUDA_ALLOC_CONF PYTORCH_ALLOC_CONF
cargo build --release -p millpond-benches --bin scale
exec "${CARGO_TARGET_DIR:-target}/release/scale" "$@"
