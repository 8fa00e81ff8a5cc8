#!/usr/bin/env bash
# Measures this allocator beside its peers and prints the tables: scripts/bench.sh [OPTIONS] [PART...]
# With --record the results are kept in benches/record. Arguments go to the `ladder`; --list names the cases.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"

exec cargo bench --manifest-path "$root/Cargo.toml" -p millpond-benches --features peers --bench ladder -- "$@"
