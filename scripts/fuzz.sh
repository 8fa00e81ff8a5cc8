#!/usr/bin/env bash
# Fuzzes every parser: scripts/fuzz.sh [SECONDS], 60 for each target unless told. Installs cargo-fuzz if it is missing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

seconds="${1:-60}"
case "$seconds" in
    '' | *[!0-9]*)
        echo "fuzz.sh: '$seconds' is not a number of seconds; usage: scripts/fuzz.sh [SECONDS]" >&2
        exit 2
        ;;
esac
if [ ! -f tests/fuzz/Cargo.toml ]; then
    echo "fuzz.sh: there are no fuzz targets (tests/fuzz/Cargo.toml is missing)" >&2
    exit 1
fi
if ! command -v cargo-fuzz >/dev/null; then
    cargo install --locked cargo-fuzz
fi

# Coverage needs compiler flags that are not stable; this opens them on the stable compiler.
export RUSTC_BOOTSTRAP=1
# cargo-fuzz finds the folder `fuzz` below the package it is started in.
cd tests
targets="$(cargo fuzz list)"
for target in $targets; do
    echo "== fuzz $target: $seconds s"
    # The parsers have no unsafe code, so an address sanitizer would find nothing and only slow them down.
    cargo fuzz run --sanitizer none "$target" -- -max_total_time="$seconds"
done
