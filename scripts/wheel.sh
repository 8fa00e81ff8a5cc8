#!/usr/bin/env bash
# Builds the Python package as one wheel, for every Python and every Linux with glibc 2.28 or newer: the library, the
# command `millpond` with the simulated device and CUDA, the sources of the shim, and the shim compiled for each release
# of torch that Millpond serves.
#   scripts/wheel.sh [FOLDER]          puts the wheel into FOLDER, target/wheel unless it is given
# TORCHES   releases of torch in place of all, such as 2.11.0, or folders with torch/include and torch/version.py, as
#           unpacked wheels and site-packages have them; separated by spaces. If it is empty the wheel has no compiled
#           shim, and compiles one where it is used
# CUDA      the folder with cuda_runtime_api.h, in place of that which scripts/shim.sh finds
# The headers of releases are fetched once, about 25 MB each, and stay in target/python-headers. Fails if something in
# the wheel needs more than that Linux or that torch has.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
target="$(mkdir -p "${CARGO_TARGET_DIR:-$root/target}" && cd "${CARGO_TARGET_DIR:-$root/target}" && pwd)"
out="${1:-$target/wheel}"
stage="$target/python" floor="$target/python-floor"
building() { PYTHONPATH="$root/python" python3 -B -m "building.$@"; }
versions=() torches=()
if [ -n "${TORCHES-every}" ]; then
    for torch in ${TORCHES:-}; do
        if [[ "$torch" =~ ^[0-9.]+$ ]]; then versions+=("$torch"); else torches+=("$torch"); fi
    done
    if [ "${#torches[@]}" = 0 ] || [ "${#versions[@]}" != 0 ]; then
        fetched="$(building headers "$target/python-headers" ${versions[@]+"${versions[@]}"})"
        mapfile -t -O "${#torches[@]}" torches <<<"$fetched"
    fi
fi

rm -rf "$stage"
mkdir -p "$stage/shims" "$out"
building floor link "$floor"
# The symbols of the oldest glibc come first, and what it lacks is linked in. The linker is not to leave out the two
# libraries that are parts of a newer glibc.
link=("$floor/old.o" "-L$floor" -Wl,--no-as-needed -lpthread -ldl -l:ld-linux-x86-64.so.2)
cargo rustc --manifest-path "$root/Cargo.toml" --release -p millpond-capi --lib --crate-type cdylib \
    --target-dir "$target" -- "${link[@]/#/-Clink-arg=}" -Clink-arg=-Wl,-z,defs
strip -o "$stage/libmillpond.so" "$target/release/libmillpond_capi.so"
# The linker would look in that old glibc for what the unwinder of this machine needs of a newer one.
cargo rustc --manifest-path "$root/Cargo.toml" --release -p millpond-cli --bin millpond --no-default-features \
    --features cuda --target-dir "$target" -- "${link[@]/#/-Clink-arg=}" -Clink-arg=-Wl,--allow-shlib-undefined
strip -o "$stage/millpond" "$target/release/millpond"

running=()
for torch in ${torches[@]+"${torches[@]}"}; do
    FLOOR="$floor" "$root/scripts/shim.sh" "$torch" "$stage/shims" &
    running+=("$!")
    if [ "${#running[@]}" -ge "$(nproc)" ]; then
        wait "${running[0]}"
        running=("${running[@]:1}")
    fi
done
for pid in ${running[@]+"${running[@]}"}; do wait "$pid"; done

building floor check "$stage/libmillpond.so" "$stage/millpond"
rm -f "$out"/millpond-*.whl
MILLPOND_STAGE="$stage" python3 -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$out" "$root/python"
ls -l "$out"/*.whl
