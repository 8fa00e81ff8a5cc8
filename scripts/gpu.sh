#!/usr/bin/env bash
# Everything that needs a real GPU, for a machine that has one and no compiler: built here, run there.
#   scripts/gpu.sh build FOLDER                     builds the release programs, stripped, into FOLDER
#   scripts/gpu.sh run FOLDER RESULTS [PART...]     runs it there, in the repository; RESULTS gets a file for each part
# Parts: devices conformance sameness traces touch threads bench; all of them unless named. DEVICES says where
# ("cuda:0 vulkan:0 wgpu:0" unless set). One more part only runs if it is named: peers, beside PyTorch's allocator and
# others on the first CUDA device; it needs them there, with a C++ compiler (scripts/gpu-peers.sh says more).
# Fails if a part does, after the others have run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() { sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
[ "$#" -ge 2 ] || usage
action="$1" folder="$2"
shift 2

if [ "$action" = build ]; then
    cargo build --release -p millpond-cli
    cargo build --release -p millpond-benches --features cuda --bin millpond-gpu-bench
    mkdir -p "$folder"
    for program in millpond millpond-gpu-bench; do
        strip -o "$folder/$program" "${CARGO_TARGET_DIR:-target}/release/$program"
        ls -l "$folder/$program"
    done
    exit 0
fi
[ "$action" = run ] && [ "$#" -ge 1 ] || usage
results="$1"
shift
millpond="$folder/millpond"
read -r -a devices <<<"${DEVICES:-cuda:0 vulkan:0 wgpu:0}"
traces=(tests/corpus/traces/*.trace.gz)
mkdir -p "$results"
# Settings are the policies' own, whatever the caller's environment says.
unset MILLPOND_CONF PYTORCH_CUDA_ALLOC_CONF PYTORCH_ALLOC_CONF

# What a device can do decides what it is asked: the policies that need virtual memory, or the others.
# A device may be named with options, which the list does not have.
policies() {
    local listed="\"device\":\"${1%%,*}\".*\"page_granularity_bytes\":[0-9]"
    if [[ ",$1," != *,pages=none,* ]] && "$millpond" devices --format json | grep -q "$listed"; then
        echo "classic paged"
    else
        echo "classic"
    fi
}

devices() { "$millpond" devices; }
conformance() { for device in "${devices[@]}"; do "$millpond" conformance --device "$device" || return 1; done; }
sameness() {
    local named=()
    for device in "${devices[@]}"; do named+=(--device "$device"); done
    "$millpond" sameness "${named[@]}" --markdown "${traces[@]}"
}
# Every trace under the policies that the device can serve.
replays() {
    local device policy
    for device in "${devices[@]}"; do
        for policy in $(policies "$device"); do
            "$millpond" replay "$@" --policy "$policy" --device "$device" --markdown "${traces[@]}" || return 1
        done
    done
}
# Reserved over live: as on the simulated device.
traces() { replays --passes 3; }
# Every block written by device work when it is granted, and checked when it is freed.
touch_all() { replays --touch --passes 1; }
threads() {
    for device in "${devices[@]}"; do
        "$millpond" replay --touch --threads 8 --passes 1 --device "$device" --pattern random --scale 8 || return 1
    done
}
bench() { for device in "${devices[@]}"; do "$millpond" bench --device "$device" || return 1; done; }
peers() {
    local program status=0
    program="$(mktemp -d)"
    scripts/gpu-peers.sh "$program" &&
        "$folder/millpond-gpu-bench" --peers "$program/peers" --csv "$results/peers.csv" || status=1
    rm -r "$program"
    return "$status"
}

parts=("$@")
[ "${#parts[@]}" -gt 0 ] || parts=(devices conformance sameness traces touch threads bench)
failed=()
for part in "${parts[@]}"; do
    run="$part"
    case "$part" in
        touch) run=touch_all ;;
        devices | conformance | sameness | traces | threads | bench | peers) ;;
        *) echo "gpu.sh: no part is called '$part'" >&2; exit 2 ;;
    esac
    echo "== $part" >&2
    began="$SECONDS"
    "$run" >"$results/$part.txt" 2>"$results/$part.err" || failed+=("$part")
    tail -n 3 "$results/$part.err" >&2
    echo "== $part: $((SECONDS - began)) s" >&2
done
[ "${#failed[@]}" -eq 0 ] || { echo "gpu.sh: failed: ${failed[*]} (see $results)" >&2; exit 1; }
