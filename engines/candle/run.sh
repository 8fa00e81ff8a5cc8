#!/usr/bin/env bash
# Prints the tables of docs/how-to/candle.md or burn.md on this machine's GPU, without cargo: run.sh [ARGUMENT...]
# It needs the driver, and CUDA's libraries: those of a toolkit, or those that PyTorch brings, which are found.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
target="${CARGO_TARGET_DIR:-$here/../../target/candle}/release"
name="${MILLPOND_ENGINE:-millpond-candle}"
[ -f "$here/millpond-burn-cuda.gz" ] && name=millpond-burn-cuda
program="$here/$name" cost="$here/cost"
if [ -f "$program.gz" ]; then
    program="$(mktemp -d)/$name"
    gunzip -c "$here/$name.gz" >"$program"
    chmod +x "$program"
elif [ ! -x "$program" ]; then
    program="$target/$name" cost="$target/examples/cost"
fi

# The folders of the wheels that PyTorch depends on, in all Pythons on the path.
for python in python3 python; do
    command -v "$python" >/dev/null || continue
    for site in $("$python" -c 'import sys; print("\n".join(p for p in sys.path if p.endswith("-packages")))'); do
        for folder in "$site"/nvidia/cu13/lib "$site"/nvidia/*/lib; do
            [ -d "$folder" ] && LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder"
            # CubeCL compiles with the headers of a toolkit.
            [ -f "$folder/../include/cuda_fp16.h" ] && headers="${headers:-$folder/..}"
        done
    done
done
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}"
[ -f /usr/local/cuda/include/cuda_fp16.h ] || [ -z "${headers:-}" ] || export CUDA_PATH="${CUDA_PATH:-$headers}"

[ -x "$program" ] || { echo "run.sh: build it first, with scripts/candle.sh" >&2; exit 2; }
missing="$(ldd "$program" | awk '/not found/ { print $1 }' | tr '\n' ' ')"
if [ -n "$missing" ]; then
    echo "######## SKIPPED: NOTHING WAS RUN OR MEASURED: this machine has no $missing########"
    exit 0
fi
[ "$name" != millpond-candle ] || "$cost"
exec "$program" "$@"
