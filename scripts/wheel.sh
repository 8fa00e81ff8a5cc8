#!/usr/bin/env bash
# Builds the Python package as one wheel: the library, the sources of the shim, and the shim compiled for each version
# of torch whose headers are there.
#   scripts/wheel.sh [FOLDER]          puts the wheel into FOLDER, target/wheel unless it is given
# TORCHES   folders that have torch/include and torch/version.py, as unpacked wheels and site-packages do, separated by
#           spaces; without any the wheel has no compiled shim, and compiles it where it is used
# CUDA      the folder with cuda_runtime_api.h; /usr/local/cuda/include unless it is given
# Nothing of torch or CUDA is linked: the libraries that a process has loaded already have the symbols.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
target="${CARGO_TARGET_DIR:-$root/target}"
out="${1:-$target/wheel}"
stage="$target/python"
cuda="${CUDA:-/usr/local/cuda/include}"
read -r -a torches <<<"${TORCHES:-}"

cargo build --manifest-path "$root/Cargo.toml" --release -p millpond-capi --target-dir "$target"
rm -rf "$stage"
mkdir -p "$stage/stubs" "$stage/shims" "$out"
strip -o "$stage/libmillpond.so" "$target/release/libmillpond_capi.so"

# Libraries with the names of torch's and nothing in them: they make the linker write down the names.
for name in libc10 libc10_cuda libtorch_cuda; do
    echo | "${CXX:-g++}" -x c++ -shared -fPIC -Wl,-soname,"$name.so" -o "$stage/stubs/$name.so" -
done

for torch in ${torches[@]+"${torches[@]}"}; do
    version="$(sed -n "s/^__version__ = '\([0-9.]*\).*/\1/p" "$torch/torch/version.py")"
    git="$(sed -n "s/^git_version = '\([0-9a-f]*\)'/\1/p" "$torch/torch/version.py")"
    standard=c++17
    case "$version" in 2.1[4-9].*) standard=c++20 ;; esac
    shim="$stage/shims/$version-${git:0:12}.so"
    "${CXX:-g++}" -std="$standard" -O2 -fPIC -shared -fvisibility=hidden -Wall -Wextra -Wno-unused-parameter \
        -I"$root/crates/capi/include" -isystem "$torch/torch/include" \
        -isystem "$torch/torch/include/torch/csrc/api/include" -isystem "$cuda" "$root/python/shim/shim.cpp" \
        -o "$shim" -L"$stage/stubs" -Wl,--no-as-needed -lc10 -lc10_cuda -ltorch_cuda -s
    echo "wheel.sh: $shim"
done

MILLPOND_STAGE="$stage" python3 -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$out" "$root/python"
ls -l "$out"/*.whl
