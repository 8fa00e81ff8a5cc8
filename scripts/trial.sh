#!/usr/bin/env bash
# One program (benches/trial) on Millpond, and the same by hand on ash with gpu-allocator, on ash with vk-mem, on
# cudarc, and on wgpu: lines, crates, the time to build each from nothing, and whether it runs here. Prints a table and,
# for each program that ran, what it says of its memory.
#   scripts/trial.sh [NAME...]
# A NAME is one of the first column's, such as wgpu or millpond-sim; without one it is all of them. Needs a C++ compiler
# for vk-mem. Programs that need a device that is not here are built and not run.
#
# lines: those of the program's sources that are not empty and do not begin with `//`, tests apart (there are none).
# unsafe: how often that word is in these lines.
# crates: packages that the program is linked from, itself apart (`cargo tree -e normal`).
# wall, cpu: seconds of `cargo build` of the debug profile into an empty folder, with all sources fetched before, on the
# clock and on all cores together.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

workspace="$PWD/benches/trial"
target="${CARGO_TARGET_DIR:-$PWD/target}/trial-from-nothing"
ash="ash/engine.rs ash/stream.rs ash/future.rs ash/program.rs"
own="millpond/src/main.rs"
# name | package | features, of the program on Millpond alone | argument | sources
programs=(
    "millpond-sim|trial-millpond|sim|sim|$own"
    "millpond-vulkan|trial-millpond|vulkan|vulkan:0|$own"
    "millpond-cuda|trial-millpond|cuda|cuda:0|$own"
    "millpond-wgpu|trial-millpond|wgpu|wgpu:0|$own"
    "millpond-all|trial-millpond|sim,cuda,vulkan,wgpu|vulkan:0|$own"
    "ash + gpu-allocator|trial-gpu-allocator||0|gpu-allocator/src/main.rs gpu-allocator/src/memory.rs $ash"
    "ash + vk-mem|trial-vk-mem||0|vk-mem/src/main.rs vk-mem/src/memory.rs $ash"
    "cudarc|trial-cudarc||0|cudarc/src/main.rs cudarc/src/engine.rs"
    "wgpu|trial-wgpu||0|wgpu/src/main.rs wgpu/src/engine.rs"
)

case "${1:-}" in -h | --help) sed -n '2,14s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;; esac

# What a program printed that must be the same for all: not the device, and not the numbers of its memory.
same() { grep -v -e '^device:' -e '^statistics:' "$1" || true; }

cd "$workspace"
cargo fetch --locked --quiet
mkdir -p "$target"
folder="$(mktemp -d)"
trap 'rm -rf "$folder" "$target"' EXIT
TIMEFORMAT='%R %U %S'
printf '%-20s %5s %6s %6s %7s %6s %6s\n' program lines unsafe crates 'wall s' 'cpu s' runs
expected=
for program in "${programs[@]}"; do
    IFS='|' read -r name package features argument sources <<<"$program"
    if [ "$#" -gt 0 ] && [[ " $* " != *" $name "* ]]; then continue; fi
    options=(-p "$package" --locked --offline --quiet)
    [ -z "$features" ] || options+=(--no-default-features --features "$features")
    # shellcheck disable=SC2086 # The sources are several words.
    code="$(cat $sources | grep -v -e '^[[:space:]]*$' -e '^[[:space:]]*//')"
    lines="$(wc -l <<<"$code")"
    unsafe="$({ grep -ow unsafe <<<"$code" || true; } | wc -l)"
    crates="$(cargo tree "${options[@]}" --prefix none -e normal | sed 's/ (\*)$//' | sort -u | grep -vc '^trial-')"
    rm -rf "$target"
    { time CARGO_TARGET_DIR="$target" CARGO_INCREMENTAL=0 cargo build "${options[@]}"; } 2>"$folder/time" ||
        { cat "$folder/time" >&2; exit 1; }
    read -r wall cpu <<<"$(tail -n 1 "$folder/time" | awk '{ printf "%.1f %.1f", $1, $2 + $3 }')"
    if "$target/debug/$package" "$argument" >"$folder/out" 2>"$folder/error"; then
        [ -n "$expected" ] || expected="$(same "$folder/out")"
        [ "$(same "$folder/out")" = "$expected" ] || { echo "trial.sh: $name prints something else" >&2; exit 1; }
        runs=yes
        sed -n 's/^statistics: //p' "$folder/out" | sed "s/^/$name: /" >>"$folder/statistics"
    elif grep -q 'assertion\|was not refused' "$folder/error"; then
        cat "$folder/error" >&2
        exit 1
    else
        runs=no
        sed -n "/panicked at/d; /./{s/^/trial.sh: $name does not run here: /p;q}" "$folder/error" | cut -c 1-200 >&2
    fi
    printf '%-20s %5s %6s %6s %7s %6s %6s\n' "$name" "$lines" "$unsafe" "$crates" "$wall" "$cpu" "$runs"
done
printf '\n'
cat "$folder/statistics"
