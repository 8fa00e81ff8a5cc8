#!/usr/bin/env bash
# Everything that needs a real GPU, for a machine that has one and no compiler: built here, run there.
#   scripts/gpu.sh build FOLDER                     builds the release programs, and tests and examples for CUDA,
#                                                   all stripped, into FOLDER
#   scripts/gpu.sh run FOLDER RESULTS [PART...]     runs it there, in the repository; RESULTS gets a file for each part
# Parts: devices conformance sameness traces touch threads bench growth, all of them unless named; and where named,
#   tests, sanitizer  for CUDA. They want NVRTC: NVRTC names the file if neither the loader nor python3 knows it
#   peers             PyTorch's allocator and others, turn by turn with this one, on the first CUDA device; they have to
#                     be there, with a C++ compiler (scripts/gpu-peers.sh says more)
#   scale             streams and threads on the first CUDA device: how the cost grows with their number
#   soak              every trace by 8 threads under every policy, every block checked, SOAK_SECONDS in all (600 unless
#                     set), sizes divided by SOAK_SCALE (2 unless set); RESULTS/soak has a file for each
#   two               for CUDA on two GPUs: the device tests together, ROUNDS times (3 unless set), none longer than
#                     ROUND_SECONDS (300 unless set), and then the soak on both devices at once
# DEVICES says where ("cuda:0 vulkan:0 wgpu:0" unless set). Fails if a part does, after the others have run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() { sed -n '2,15s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
[ "$#" -ge 2 ] || usage
action="$1" folder="$2"
shift 2

# Programs for CUDA, which run by themselves: under each policy, and on every device there is.
examples=(09_cuda_kernel)
everywhere=(08_one_engine_many_backends 13_prefetching_loader 14_mixed_precision)

# place WHERE ARGUMENTS...: builds test programs and examples, and puts them into that folder of FOLDER, by their names.
# They are built for tests, with less optimization: the command's release build would be made anew for them.
place() {
    local where="$folder/$1" path name
    shift
    rm -rf "$where"
    mkdir -p "$where"
    if [ "$where" = "$folder/tests" ]; then set -- test --no-run "$@"; else set -- build --profile test "$@"; fi
    cargo "$@" --message-format=json | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | while read -r path; do
        name="$(basename "$path")"
        # Tests have a number behind their name, examples have not.
        strip -o "$where/${name%-????????????????}" "$path"
    done
}

if [ "$action" = build ]; then
    cargo build --release -p millpond-cli
    cargo build --release -p millpond-benches --features cuda --bin millpond-gpu-bench --bin scale
    mkdir -p "$folder"
    for program in millpond millpond-gpu-bench scale; do
        strip -o "$folder/$program" "${CARGO_TARGET_DIR:-target}/release/$program"
    done
    place tests -p millpond-cuda --all-features --test device --test kernels --test conformance
    place examples -p millpond-examples "${examples[@]/#/--example=}" "${everywhere[@]/#/--example=}"
    ls -l "$folder"/{millpond*,scale} "$folder"/{tests,examples}/*
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
traces() {
    local device
    replays --passes 3 || return 1
    for device in "${devices[@]}"; do
        has_pages "$device" || continue
        "$millpond" replay --passes 3 --conf policy:classic,expandable_segments:True --device "$device" --markdown \
            "${traces[@]}" || return 1
    done
}
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
# What each growth of paged costs where work is under way, beside the other policies that cache.
growth() {
    local device conf
    for device in "${devices[@]}"; do
        has_pages "$device" || { echo "growth: $device has no virtual memory: skipped" >&2; continue; }
        for conf in $(variants "$device"); do
            [ "$conf" != policy:direct ] || continue
            "$millpond" replay --touch --passes 2 --conf "$conf" --device "$device" --markdown "${traces[@]}" ||
                return 1
        done
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
scale() { "$folder/scale" --cuda 0 --seconds 10; }
bench() { for device in "${devices[@]}"; do "$millpond" bench --device "$device" || return 1; done; }
peers() {
    local program status=0
    program="$(mktemp -d)"
    scripts/gpu-peers.sh "$program" &&
        "$folder/millpond-gpu-bench" --peers "$program/peers" --csv "$results/peers.csv" || status=1
    rm -r "$program"
    return "$status"
}

# What NVRTC is called depends on its version. It is looked for by one name, so it gets that name.
find_nvrtc() {
    local found="${NVRTC:-}"
    [ -n "$found" ] || found="$(python3 -c 'import glob, sys
for folder in sys.path:
    for path in glob.glob(folder + "/nvidia/*/lib/libnvrtc.so.*"):
        print(path)' 2>/dev/null | head -n 1)"
    [ -n "$found" ] || return 0
    links="$(mktemp -d)"
    # At the end of the part, which is a shell of its own.
    trap 'rm -rf "$links"' EXIT
    ln -s "$(realpath "$found")" "$links/libnvrtc.so"
    export LD_LIBRARY_PATH="$links:$(dirname "$found")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
}
# Nothing of CUDA's may be skipped; REQUIRE names more, as cuda2 for a second device and nvml. The tests with kernels
# print what they measured.
tests() (
    export MILLPOND_REQUIRE="cuda,nvrtc${REQUIRE:+,$REQUIRE}"
    find_nvrtc
    failed=0
    for test in device kernels conformance; do "$folder/tests/$test" --show-output || failed=1; done
    for example in "${examples[@]}"; do
        for policy in direct classic paged; do "$folder/examples/$example" --policy "$policy" || failed=1; done
    done
    for example in "${everywhere[@]}"; do "$folder/examples/$example" || failed=1; done
    exit "$failed"
)
# What two devices do together. A round that hangs is ended and told from one that fails.
two() (
    export MILLPOND_REQUIRE="cuda,cuda2${REQUIRE:+,$REQUIRE}"
    failed=0
    for round in $(seq "${ROUNDS:-3}"); do
        code=0
        timeout -k 10 "${ROUND_SECONDS:-300}" "$folder/tests/device" || code=$?
        case "$code" in
            0) said="passed" ;;
            124 | 137) said="HUNG: ended after ${ROUND_SECONDS:-300} s" ;;
            *) said="FAILED with exit code $code" ;;
        esac
        echo "round $round of the device tests: $said"
        [ "$code" -eq 0 ] || failed=1
    done
    soaks=()
    for device in cuda:0 cuda:1; do
        ( devices=("$device"); soak ) &
        soaks+=("$!")
    done
    for soak in "${soaks[@]}"; do wait "$soak" || failed=1; done
    exit "$failed"
)
# NVIDIA's memory checker: finds a write that is planted, and nothing else.
sanitizer() (
    export MILLPOND_REQUIRE=cuda,nvrtc
    find_nvrtc
    # Calls that the driver refuses are not reported: tests ask for more memory than there is, and query what is not
    # ready. Allocations are padded, so that what lies behind one is not by chance another.
    check=("${COMPUTE_SANITIZER:-compute-sanitizer}" --tool memcheck --report-api-errors no --error-exitcode 9)
    example="$folder/examples/09_cuda_kernel"
    failed=0 code=0
    "${check[@]}" --padding 512 "$example" --policy direct --plant-oob >"$results/planted.txt" 2>&1 || code=$?
    if [ "$code" -ne 9 ] || ! grep -q "Invalid __global__ write" "$results/planted.txt"; then
        echo "the planted write was not found: exit code $code, see planted.txt"
        failed=1
    fi
    for policy in direct classic paged; do "${check[@]}" "$example" --policy "$policy" || failed=1; done
    # Under it each launch is waited for, so tests are left out in which work stays behind what holds it.
    local held=(
        capture::a_stream_is_left leaving::the_last_handle opening::the_drivers_pool peers::streams_of_two
        pinned::memory_that_a_copy streams::the_legacy streams::points_outlive time:: transfers::uploads_are_taken
    )
    "${check[@]}" "$folder/tests/device" "${held[@]/#/--skip=}" || failed=1
    "${check[@]}" "$folder/tests/kernels" graphs || failed=1
    "${check[@]}" "$folder/tests/conformance" with_pages::{alignment,data,sizes,trim,integrity,decisions} || failed=1
    exit "$failed"
)

parts=("$@")
[ "${#parts[@]}" -gt 0 ] || parts=(devices conformance sameness traces touch threads bench growth)
failed=()
for part in "${parts[@]}"; do
    run="$part"
    case "$part" in
        touch) run=touch_all ;;
        devices | conformance | sameness | traces | threads | bench | growth) ;;
        tests | sanitizer | peers | scale | soak | two) ;;
        *) echo "gpu.sh: no part is called '$part'" >&2; exit 2 ;;
    esac
    echo "== $part" >&2
    began="$SECONDS"
    "$run" >"$results/$part.txt" 2>"$results/$part.err" || failed+=("$part")
    tail -n 3 "$results/$part.err" >&2
    echo "== $part: $((SECONDS - began)) s" >&2
done
[ "${#failed[@]}" -eq 0 ] || { echo "gpu.sh: failed: ${failed[*]} (see $results)" >&2; exit 1; }
