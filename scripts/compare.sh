#!/usr/bin/env bash
# Compares two checkouts of the repository, for a change that is to change no behaviour:
#   scripts/compare.sh OLD NEW [ROUNDS]
# Builds both in release mode and compares, on the simulated device: the digests of all decisions, layouts and
# statistics of every recorded trace and of 200 made-up programs, under every policy that decides alike on all devices;
# and what replays of all traces and of all hostile patterns print under every policy (statistics, driver calls, the
# simulated time of the driver), with the device always done and with work in flight. Then times, on one thread: ROUNDS
# times (7 unless told) in the order old, new, new, old, as the median of the ratios new/old with the smallest and the
# largest. Exits with 1 if anything but a time differs.
set -euo pipefail

if [ "$#" -lt 2 ]; then
    sed -n '2,/^set -/{/^set -/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}" >&2
    exit 2
fi
old="$(cd "$1" && pwd)" new="$(cd "$2" && pwd)" rounds="${3:-7}"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
# Both read the same traces, in case that the recordings themselves change.
traces=("$old"/tests/corpus/traces/*.trace.gz)
status=0

for tree in "$old" "$new"; do
    (cd "$tree" && CARGO_TARGET_DIR=target cargo build --quiet --release -p millpond-cli -p millpond-benches \
        --bin millpond --bin hotpath)
done

# millpond TREE ARGUMENTS...
millpond() {
    local tree="$1"
    shift
    (cd "$tree" && target/release/millpond --format json "$@")
}

# same NAME ARGUMENTS...: both print the same.
same() {
    local name="$1" tree
    shift
    for tree in old new; do
        # The host's times and the date are in the JSON whatever is asked.
        millpond "${!tree}" "$@" | sed -E -e 's/"((cold|warm)_ns_per_event|date|version)":[^,}]*,?//g' \
            -e 's/"ns_per_event_by_pass":\[[^]]*\],?//g' >"$work/$tree"
    done
    if cmp -s "$work/old" "$work/new"; then
        printf '%-32s %5d lines equal\n' "$name" "$(wc -l <"$work/old")"
    else
        printf '%-32s DIFFERS\n' "$name"
        diff "$work/old" "$work/new" | cut -c 1-400 | head -n 8 || true
        status=1
    fi
}

same "digests of decisions" sameness --device sim --seeds 200 "${traces[@]}"
all=(--policy paged,tight,classic,expandable,direct --no-times --stats --device sim)
same "replays" replay "${all[@]}" "${traces[@]}"
same "made-up programs" replay "${all[@]}" --pattern all
same "replays with work in flight" replay "${all[@]}" --touch --scale 64 --passes 1 "${traces[@]}"

# seconds TREE ARGUMENTS...: how long the program takes.
seconds() {
    local tree="$1" before after
    shift
    before="$EPOCHREALTIME"
    "$tree/target/release/hotpath" "$@" >/dev/null
    after="$EPOCHREALTIME"
    awk -v a="$before" -v b="$after" 'BEGIN { printf "%.6f", b - a }'
}

# faster NAME ARGUMENTS...: the ratios of the times.
faster() {
    local name="$1" round a b c d
    shift
    : >"$work/ratios"
    for ((round = 0; round < rounds; round++)); do
        a="$(seconds "$old" "$@")" b="$(seconds "$new" "$@")" c="$(seconds "$new" "$@")" d="$(seconds "$old" "$@")"
        awk -v a="$a" -v b="$b" -v c="$c" -v d="$d" 'BEGIN { print (b + c) / (a + d) }' >>"$work/ratios"
    done
    sort -n "$work/ratios" | awk -v name="$name" '
        { r[NR] = $1 }
        END { printf "%-32s %.3f of the old time (%.3f to %.3f)\n", name, r[int((NR + 1) / 2)], r[1], r[NR] }'
}

faster "a hit and its free" exact 20000000
faster "the same, cut and joined" split 10000000
faster "1000 live blocks" churn/1000/64MiB 100
for trace in "${traces[@]}"; do
    name="$(basename "$trace" .trace.gz)"
    faster "$name, warm" "trace/$name" 20
done
exit "$status"
