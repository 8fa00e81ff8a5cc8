#!/usr/bin/env bash
# Puts the policies side by side on the simulated device and keeps the tables in benches/record/simulated:
# patterns.md (made-up programs), traces.md (recorded ones), limit.md (those within 1.10 times their live peak, every
# byte checked). All numbers are simulated, so the tables are the same on every machine.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder=benches/record/simulated
traces=(tests/corpus/traces/*.trace.gz)
cargo build --release -p millpond-cli
# The settings are the policies' own, whatever the caller's environment says.
unset MILLPOND_CONF PYTORCH_CUDA_ALLOC_CONF PYTORCH_ALLOC_CONF
options=(--compare --device sim --passes 1 --markdown --no-times)
millpond="${CARGO_TARGET_DIR:-target}/release/millpond"

# record NAME TITLE ARGUMENT...: one table. The old one stays until the new one is whole.
record() {
    local file="$folder/$1.md" title="$2"
    shift 2
    local shown="${options[*]} $*"
    {
        printf '# %s\n\n`millpond replay %s`\n\n' "$title" "${shown//"${traces[*]}"/tests/corpus/traces/*.trace.gz}"
        "$millpond" replay "${options[@]}" --allow-oom "$@"
    } >"$file.new"
    mv "$file.new" "$file"
    echo "$file"
}

mkdir -p "$folder"
trap 'rm -f "$folder"/*.md.new' EXIT
record patterns "Made-up programs" --pattern all
record traces "Recorded programs" "${traces[@]}"
record limit "Recorded programs within 1.10 times their peak live bytes" --limit 1.10x --touch "${traces[@]}"
