#!/usr/bin/env bash
# Everything that needs a real GPU, for a machine that has one and no compiler: built here, run there.
#   scripts/gpu.sh build FOLDER                     builds the release command, stripped, into FOLDER
#   scripts/gpu.sh run FOLDER RESULTS [PART...]     runs it there, in the repository; RESULTS gets a file for each part
# Parts: devices conformance sameness traces touch threads bench growth; all of them unless named. DEVICES says where
# ("cuda:0 vulkan:0 wgpu:0" unless set). Fails if a part does, after the others have run.
# `soak` runs only where it is named: every trace by 8 threads under every policy, every block checked, SOAK_SECONDS in
# all (600 unless set), sizes divided by SOAK_SCALE (2 unless set). RESULTS/soak gets a file for each trace and policy.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() { sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
[ "$#" -ge 2 ] || usage
action="$1" folder="$2"
shift 2

if [ "$action" = build ]; then
    cargo build --release -p millpond-cli
    mkdir -p "$folder"
    strip -o "$folder/millpond" "${CARGO_TARGET_DIR:-target}/release/millpond"
    ls -l "$folder/millpond"
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
has_pages() {
    local listed="\"device\":\"${1%%,*}\".*\"page_granularity_bytes\":[0-9]"
    [[ ",$1," != *,pages=none,* ]] && "$millpond" devices --format json | grep -q "$listed"
}
policies() { if has_pages "$1"; then echo "classic paged"; else echo "classic"; fi; }
# The same with every variant of theirs, as configurations.
variants() {
    echo "policy:direct policy:classic"
    if has_pages "$1"; then
        echo "policy:classic,expandable_segments:True policy:paged policy:paged,growth:tight"
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
touch_all() {
    local device conf
    for device in "${devices[@]}"; do
        for conf in $(variants "$device"); do
            "$millpond" replay --touch --passes 1 --conf "$conf" --device "$device" --markdown "${traces[@]}" ||
                return 1
        done
    done
}
# What each growth of paged costs where work is under way, beside the other policies.
growth() {
    local device
    for device in "${devices[@]}"; do
        has_pages "$device" || { echo "growth: $device has no virtual memory: skipped" >&2; continue; }
        "$millpond" replay --compare --tight --touch --passes 2 --device "$device" --markdown "${traces[@]}" || return 1
    done
}
# What is left of the time is divided evenly over the cells to come. One that fails does not stop the others.
soak() {
    local device trace conf cell cells=() bad=0 done=0 end=$((SECONDS + ${SOAK_SECONDS:-600})) each
    for device in "${devices[@]}"; do
        for trace in "${traces[@]}"; do
            for conf in $(variants "$device"); do cells+=("$device $conf $trace"); done
        done
    done
    mkdir -p "$results/soak"
    for cell in "${cells[@]}"; do
        read -r device conf trace <<<"$cell"
        each=$(((end - SECONDS) * 1000 / (${#cells[@]} - done++)))
        local file="$results/soak/${device//:/-}-$(basename "$trace" .trace.gz)-${conf//[:,]/-}"
        "$millpond" replay --touch --threads 8 --scale "${SOAK_SCALE:-2}" --for "$((each > 0 ? each : 1))ms" \
            --conf "$conf" --device "$device" --format json "$trace" >"$file.json" 2>"$file.err" ||
            { echo "FAILED: $cell" >&2; bad=1; }
        cat "$file.json"
        cat "$file.err" >&2
    done
    echo "soak: ${#cells[@]} cells" >&2
    return "$bad"
}
threads() {
    for device in "${devices[@]}"; do
        "$millpond" replay --touch --threads 8 --passes 1 --device "$device" --pattern random --scale 8 || return 1
    done
}
bench() { for device in "${devices[@]}"; do "$millpond" bench --device "$device" || return 1; done; }

parts=("$@")
[ "${#parts[@]}" -gt 0 ] || parts=(devices conformance sameness traces touch threads bench growth)
failed=()
for part in "${parts[@]}"; do
    run="$part"
    case "$part" in
        touch) run=touch_all ;;
        devices | conformance | sameness | traces | threads | bench | growth | soak) ;;
        *) echo "gpu.sh: no part is called '$part'" >&2; exit 2 ;;
    esac
    echo "== $part" >&2
    began="$SECONDS"
    "$run" >"$results/$part.txt" 2>"$results/$part.err" || failed+=("$part")
    tail -n 3 "$results/$part.err" >&2
    echo "== $part: $((SECONDS - began)) s" >&2
done
[ "${#failed[@]}" -eq 0 ] || { echo "gpu.sh: failed: ${failed[*]} (see $results)" >&2; exit 1; }
