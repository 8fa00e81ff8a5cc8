#!/usr/bin/env bash
# Tunes the recorded programs on the simulated device and keeps the table in benches/record/simulated/tune.md. All
# numbers are simulated, and the settings that are tried depend on the seed alone: the table is the same on every
# machine.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

file=benches/record/simulated/tune.md
traces=(tests/corpus/traces/*.trace.gz)
cargo build --release -p millpond-cli --no-default-features
unset MILLPOND_CONF PYTORCH_CUDA_ALLOC_CONF PYTORCH_ALLOC_CONF
millpond="${CARGO_TARGET_DIR:-target}/release/millpond"
trap 'rm -f "$file.new"' EXIT
{
    echo "# Recorded programs, tuned"
    options=(tune --markdown --no-times)
    printf '\n`millpond %s tests/corpus/traces/*.trace.gz`\n\n' "${options[*]}"
    "$millpond" "${options[@]}" "${traces[@]}"
    # Work in flight makes a difference to the programs of several streams.
    options+=(--in-flight 200)
    several=(tests/corpus/traces/{bert_multistream,prefetch}.trace.gz)
    printf '\n`millpond %s %s`\n\n' "${options[*]}" "${several[*]}"
    "$millpond" "${options[@]}" "${several[@]}"
} >"$file.new"
mv "$file.new" "$file"
echo "$file"
