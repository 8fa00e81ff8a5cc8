#!/bin/sh
# Kills each command that writes a file at a hundred points of its writing, and fills the disk at a hundred, and writes
# the table of what was left to benches/record/simulated/outputs.md. The test that does it runs with fewer points in CI.
set -eu
cd "$(dirname "$0")/.."
table=$(mktemp)
trap 'rm -f "$table"' EXIT
MILLPOND_KILLS=${1:-100} MILLPOND_KILLS_RECORD="$table" \
    cargo test -p millpond-cli --test commands killed:: -- --nocapture
{
    cat <<'TEXT'
# Commands killed and disks filled

Each command replaces a file. It was killed once it had written a share of it, a larger one each time, in turn by
SIGINT, SIGTERM and SIGKILL. Then it ran with a limit on the size of files at as many points, which ends a write as a
full disk does. `parts` counts how often the path had neither the old file nor the new one, or a temporary file was
left, which SIGKILL alone may do. A full disk ended each command with exit code 2. `scripts/outputs.sh` makes the table.

TEXT
    cat "$table"
} >benches/record/simulated/outputs.md
