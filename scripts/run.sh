#!/usr/bin/env bash
# The main job: replays recorded traces and prints what was reserved, what was live and what it cost.
# Arguments go to `millpond replay`; `scripts/run.sh --help` lists them.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"

# Paths among the arguments are the caller's, so the caller's folder stays the current one.
exec cargo run --release --manifest-path "$root/Cargo.toml" -p millpond-cli -- replay "$@"
