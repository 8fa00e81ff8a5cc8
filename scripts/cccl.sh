#!/usr/bin/env bash
# The memory resource for C++, millpond.hpp: compiled with the headers of several versions of RMM and the CCCL that they
# bring, and run on the simulated driver of CUDA. The headers are fetched as Python wheels, once.
#   scripts/cccl.sh                       does that
#   scripts/cccl.sh build RMM GTEST FOLDER
#                                         builds into FOLDER, for a machine with a GPU, a program that uses RMM, and
#                                         RMM's own tests of memory resources, with Millpond in the place of
#                                         cudaMalloc. RMM is a checkout of its repository, and below GTEST are
#                                         gtest/gtest.h and libgtest.a.
#   scripts/cccl.sh run FOLDER            runs them there
# BUILT     a folder with libmillpond_capi.so, for `build`: the library is not built then
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
target="$(mkdir -p "${CARGO_TARGET_DIR:-target}" && cd "${CARGO_TARGET_DIR:-target}" && pwd)"
stage="$target/cccl" cxx="${CXX:-g++}" python="${PYTHON:-python3}"
versions="26.6.0 26.8.0 26.10.0"

# Unpacks a part of a wheel: package version folder part...
fetch() {
    local package="$1" version="$2" to="$stage/$1-$2"
    shift 2
    if [ ! -d "$to" ]; then
        rm -rf "$to.part"
        "$python" -m pip download --quiet --no-deps --disable-pip-version-check --only-binary :all: --retries 1 \
            --timeout 20 -d "$to.part" "$package==$version"
        "$python" - "$to.part" "$@" <<'PY'
import pathlib, sys, zipfile
folder = pathlib.Path(sys.argv[1])
for wheel in list(folder.glob("*.whl")):
    archive = zipfile.ZipFile(wheel)
    archive.extractall(folder, [name for name in archive.namelist() if name.startswith(tuple(sys.argv[2:]))])
    wheel.unlink()
PY
        mv "$to.part" "$to"
    fi
}

if [ "${1:-}" = run ] && [ "$#" -eq 2 ]; then
    folder="$(cd "$2" && pwd)"
    export LD_LIBRARY_PATH="$folder"
    status=0
    for program in "$folder"/rmm-*; do "$program" || { echo "cccl.sh: $program FAILED" >&2; status=1; }; done
    exit "$status"
fi
if ! "$python" -m pip --version >/dev/null 2>&1; then
    echo "cccl.sh: SKIPPED: $python has no pip, which fetches the headers of CCCL" >&2
    exit 0
fi
fetch nvidia-cuda-runtime 13.0.96 nvidia/cu13/include/ nvidia/cu13/lib/
fetch nvidia-cuda-crt 13.0.88 nvidia/cu13/include/
fetch rapids-logger 0.3.0 rapids_logger/
for version in $versions; do
    fetch librmm-cu13 "$version" librmm/include/ librmm/lib64/librmm.so
done
cuda="$stage/nvidia-cuda-runtime-13.0.96/nvidia/cu13" logger="$stage/rapids-logger-0.3.0/rapids_logger"
headers=(-Icrates/capi/include -isystem "$cuda/include" -isystem "$stage/nvidia-cuda-crt-13.0.88/nvidia/cu13/include"
    -isystem "$logger/include")

if [ "${1:-}" = build ] && [ "$#" -eq 4 ]; then
    rmm="$2" gtest="$3" folder="$4" newest="$stage/librmm-cu13-26.10.0/librmm"
    [ -n "${BUILT:-}" ] || cargo build --release -p millpond-capi
    rm -rf "$folder"
    mkdir -p "$folder/tests"
    cp -r "$rmm/cpp/tests/." "$folder/tests"
    # Wherever RMM's tests have a resource of cudaMalloc, alone or below another one, they get one of Millpond.
    sed -i -e 's/rmm::mr::cuda_memory_resource/millpond::basic_resource<rmm::out_of_memory>/g' \
        -e 's/^#include <rmm\/mr\/cuda_memory_resource.hpp>/#include <millpond.hpp>/' \
        "$folder"/tests/mr/mr_ref_test.hpp "$folder"/tests/mr/mr_ref_*_tests.cpp
    gtest_header="$(find "$gtest" -path '*/gtest/gtest.h' | head -n 1)"
    headers+=(-isystem "$newest/include/rapids" -isystem "$newest/include" -isystem "${gtest_header%/gtest/gtest.h}")
    abi="$(sed -n 's/^#define MILLPOND_ABI //p' crates/capi/include/millpond.h)"
    strip -o "$folder/libmillpond.so.$abi" "${BUILT:-$target/release}/libmillpond_capi.so"
    cp "$newest/lib64/librmm.so" "$logger/lib64/librapids_logger.so" "$folder"
    libraries=("$folder/libmillpond.so.$abi" "$folder/librapids_logger.so" "$folder/librmm.so"
        "$cuda/lib/libcudart_static.a" -ldl -lpthread -lrt)
    tests=("$(find "$gtest" -name libgtest.a)" "$(find "$gtest" -name libgtest_main.a)")
    for test in cuda arena binning fixed_size; do
        "$cxx" -std=c++20 -O1 -w "${headers[@]}" "$folder/tests/mr/mr_ref_${test}_tests.cpp" \
            -o "$folder/rmm-$test" "${tests[@]}" "${libraries[@]}"
    done
    "$cxx" -std=c++20 -O1 "${headers[@]}" crates/capi/tests/cpp/rmm.cpp -o "$folder/rmm-buffers" "${libraries[@]}"
    rm -rf "$folder/tests"
    du -sh "$folder"
    exit 0
fi
[ "$#" -eq 0 ] || { sed -n '2,13s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }

cargo build -p millpond-capi -p millpond-cuda-driver
mkdir -p "$stage/driver"
ln -sf "$target/debug/libmillpond_capi.so" "$stage/libmillpond.so"
ln -sf "$target/debug/libmillpond_capi.so" "$stage/libmillpond.so.1"
"${CC:-cc}" -std=c11 -O1 -fPIC -shared -Wall -Wextra -Wl,-soname,libcuda.so.1 crates/capi/tests/cpp/driver.c \
    -o "$stage/driver/libcuda.so.1" -ldl
for version in $versions; do
    include="$stage/librmm-cu13-$version/librmm/include"
    for standard in c++17 c++20; do
        "$cxx" -std="$standard" -g -O1 -Wall -Wextra -Wpedantic -Werror "${headers[@]}" -isystem "$include/rapids" \
            crates/capi/tests/cpp/resource.cpp -o "$stage/resource" -L"$stage" -lmillpond -ldl -lpthread \
            -Wl,-rpath,"$stage"
        LD_LIBRARY_PATH="$stage/driver" LD_PRELOAD="$target/debug/libmillpond_cuda_driver.so" "$stage/resource" \
            2>"$stage/errors.txt" || { cat "$stage/errors.txt" >&2; exit 1; }
        if [ "$(grep -c '^millpond: .*freed before' "$stage/errors.txt")" != 1 ]; then
            echo "cccl.sh: a block that is freed twice is to be printed once, and this was printed:" >&2
            cat "$stage/errors.txt" >&2
            exit 1
        fi
    done
    "$cxx" -std=c++20 -fsyntax-only -Wall -Wextra -Werror "${headers[@]}" -isystem "$include/rapids" \
        -isystem "$include" crates/capi/tests/cpp/rmm.cpp
    echo "cccl.sh: RMM $version and its CCCL: ok"
done
