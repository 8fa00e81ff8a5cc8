#!/usr/bin/env bash
# PyTorch on Millpond where there is no GPU: a real torch, with a runtime of CUDA in which nothing runs, on Millpond's
# simulated device. For what torch does with memory alone.
#   scripts/torch-simulated.sh PYTHON [TEST...]      the interpreter of an environment that has torch
# CUDA      the folder with cuda_runtime_api.h; /usr/local/cuda/include unless it is given
# The tests are scripts of python/tests that take --conf: those below unless named. Each runs under every policy, and
# contexts.py, recorded.py, functions.py and captured.py also on PyTorch's own allocator. Those from recorded.py on need
# streams, captures or bytes, and run on the simulated driver of CUDA. processes.py runs under policies with pages, and
# against processes with PyTorch's own allocator.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[ "$#" -ge 1 ] || { sed -n '2,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
python="$1"
shift
tests="checkpoints.py contexts.py devices.py groups.py settings.py sources.py
    recorded.py joint.py exports.py functions.py captured.py processes.py"
# shellcheck disable=SC2086
[ "$#" -gt 0 ] || set -- $tests
target="$(mkdir -p "${CARGO_TARGET_DIR:-target}" && cd "${CARGO_TARGET_DIR:-target}" && pwd)"
stage="$target/torch-simulated" cuda="${CUDA:-/usr/local/cuda/include}" cxx="${CXX:-g++}"
mkdir -p "$stage/driver"
site="$("$python" -c 'import importlib.util, pathlib
print(pathlib.Path(importlib.util.find_spec("torch").origin).parents[1])')"

cargo build -p millpond-capi -p millpond-cuda-driver
PYTHONPATH=python python3 -B -m building.floor link "$stage/floor"
shim="$(FLOOR="$stage/floor" scripts/shim.sh "$site" "$stage")"
"$cxx" -std=c++17 -O1 -fPIC -shared -Wall -Wextra -isystem "$cuda" python/tests/simulated/runtime.cpp \
    python/tests/simulated/work.cpp -o "$stage/runtime.so"
"$cxx" -std=c++17 -O1 -fPIC -shared -Wall -Wextra -isystem "$cuda" python/tests/simulated/memory.cpp \
    python/tests/simulated/captures.cpp -o "$stage/memory.so" -ldl
"${CC:-cc}" -std=c11 -O1 -fPIC -shared -Wall -Wextra -Wl,-soname,libcuda.so.1 python/tests/simulated/driver.c \
    -o "$stage/driver/libcuda.so.1"

"$cxx" -std=c++20 -O1 -fPIC -shared -fvisibility=hidden -Wall -Wextra -Wno-unused-parameter \
    -isystem "$site/torch/include" -isystem "$cuda" python/tests/simulated/calls.cpp -o "$stage/calls.so" \
    -L"$site/torch/lib" -Wl,--no-as-needed,--allow-shlib-undefined -lc10 -lc10_cuda

export PYTHONPATH="$PWD/python" MILLPOND_SHIM="$shim" MILLPOND_LIBRARY="$target/debug/libmillpond_capi.so"
export MILLPOND_TEST_CALLS="$stage/calls.so" LD_LIBRARY_PATH="$stage/driver" PYTHONDONTWRITEBYTECODE=1
preload="$stage/memory.so:$stage/runtime.so:$target/debug/libmillpond_cuda_driver.so"
for test in "$@"; do
    if [ "$test" = processes.py ]; then
        # shellcheck disable=SC2086
        while read -r conf sides; do
            LD_PRELOAD="$preload" MILLPOND_TORCH_DEVICE=cuda \
                "$python" "python/tests/$test" --conf "policy:$conf" $sides < /dev/null
        done <<< "paged
            paged --sender native
            paged --receiver native
            paged,growth:tight
            classic,expandable_segments:True"
        continue
    fi
    case "$test" in contexts.py | recorded.py | functions.py | captured.py)
        LD_PRELOAD="$preload" MILLPOND_TORCH_DEVICE=sim "$python" "python/tests/$test" --native ;;
    esac
    device=sim loads="$stage/runtime.so"
    case "$test" in recorded.py | joint.py | exports.py | functions.py | captured.py)
        device=cuda loads="$preload" ;;
    esac
    for conf in paged paged,growth:tight paged,record_stream:hold classic classic,expandable_segments:True direct; do
        LD_PRELOAD="$loads" MILLPOND_TORCH_DEVICE="$device" "$python" "python/tests/$test" --conf "policy:$conf"
    done
done
