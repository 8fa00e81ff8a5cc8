#!/usr/bin/env bash
# Imports a snapshot that PyTorch has recorded from its first allocation on, replays it under `classic`, and compares
# what is reserved with what PyTorch said. Fails unless the peaks of reserved bytes are equal to the byte.
#
#   python benches/torch/record_snapshot.py DIR      on a machine with a GPU and PyTorch: snapshot.pickle, stats.json
#   scripts/torch-snapshot.sh DIR                    anywhere
set -euo pipefail
cd "$(dirname "$0")/.."

[ $# = 1 ] || { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
folder=$1
for file in "$folder/snapshot.pickle" "$folder/stats.json"; do
    [ -f "$file" ] || { echo "$file is missing: python benches/torch/record_snapshot.py $folder" >&2; exit 2; }
done
millpond=${MILLPOND:-}
if [ -z "$millpond" ]; then
    cargo build -q -p millpond-cli
    millpond=${CARGO_TARGET_DIR:-target}/debug/millpond
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Of free blocks of one size, PyTorch takes the one at the lowest address until 2.12, which only `--as-recorded` does.
as_recorded=$(python3 - "$folder/stats.json" <<'PYTHON'
import json
import sys

version = json.load(open(sys.argv[1])).get("torch", "2.11").split(".")
print("--as-recorded" if (int(version[0]), int(version[1])) < (2, 13) else "")
PYTHON
)
# Call stacks have many values.
"$millpond" import "$folder/snapshot.pickle" -o "$work/torch.trace.zst" --limits none
"$millpond" replay --device sim --policy classic --conf '' --passes 0 --stats --json --no-times --allow-oom \
    ${as_recorded:+"$as_recorded"} "$work/torch.trace.zst" >"$work/row.json"
python3 - "$folder/stats.json" "$work/row.json" <<'PYTHON'
import json
import sys

told, row = (json.load(open(path)) for path in sys.argv[1:])
ours = row["stats"]
print(f"\n{'':28}{'PyTorch':>16}{'replayed':>16}")
for key in ("reserved_bytes.all.peak", "allocated_bytes.all.peak", "requested_bytes.all.peak", "segment.all.peak",
            "num_device_alloc", "num_alloc_retries", "num_ooms"):
    if key in told and key in ours:
        print(f"{key:28}{told[key]:>16}{ours[key]:>16}{'' if told[key] == ours[key] else '  differs'}")
if told["reserved_bytes.all.peak"] != ours["reserved_bytes.all.peak"]:
    sys.exit("error: what is reserved differs; a lost beginning, a limit, or empty_cache would explain it")
PYTHON
