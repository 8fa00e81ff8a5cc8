#!/usr/bin/env bash
# PyTorch on Millpond, on a machine with a GPU: built here, run there.
#   scripts/torch.sh build FOLDER                   builds the wheel (scripts/wheel.sh, whose variables apply), and
#                                                   unpacks it into FOLDER, with the library that times pairs; and
#                                                   packs what WHEELS has there: a folder with wheels of CuPy, of RMM
#                                                   and of what they need, where the other machine lacks them
#   scripts/torch.sh run FOLDER RESULTS [PART...]   runs it there, in the repository; RESULTS gets a file for each part
#                                                   and errors.txt
# Parts: suite native classic pairs hooks joint programs precision largest, all of them unless named. Fails if a part
# does, after the others have run. `native` shows what PyTorch's own allocator does there; its failures do not count.
# `hooks` are CuPy, RMM and recordings, and `joint` is one program of PyTorch, CuPy and RMM, which fails if it reserves
# more than GOAL times what is live, where that is set; what is not installed is skipped. Of the programs, ONLY names
# some (gpt2,gnn), STEPS is the number of steps, 24 unless set, and ROUNDS how often each allocator runs them, 1 unless
# set. And where named: own, PyTorch's own tests of its allocator, if TEST_CUDA names files of its sources, such as
# test/test_cuda.py (TEST_EXTRA: a folder with expecttest and psutil; CONF and JOBS: the configuration, and how many run
# at a time), and libraries, programs on other people's libraries (benches/torch/libraries.py), whose allocators take
# steps in turn: ONLY and STEPS are as above, and PART=1/3 runs a third of them in some six minutes. It finds what
# WHEELS packed, such as diffusers and trl. And ranks: DDP, FSDP2 and more on two GPUs, natively and on Millpond. It
# takes some minutes, and fewer with TOGETHER=1, which runs several programs in a process; STEPS are 30 there, and ONLY
# names some of them. With one GPU it says that it is skipped, and does not fail.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() { sed -n '2,20s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
[ "$#" -ge 2 ] || usage
action="$1" folder="$2"
shift 2

if [ "$action" = build ]; then
    target="${CARGO_TARGET_DIR:-target}"
    scripts/wheel.sh "$target/wheel"
    rm -rf "$folder"
    mkdir -p "$folder"
    python3 -m zipfile -e "$target"/wheel/millpond-*.whl "$folder"
    read -r torch _ <<<"${TORCHES:?names the torch that is there first}"
    [ -d "$torch/torch" ] || torch="$target/python-headers/$torch"
    cuda="${CUDA:-/usr/local/cuda/include}"
    for found in "$torch"/nvidia/cu*/include; do
        if [ -z "${CUDA:-}" ] && [ -f "$found/cuda_runtime.h" ]; then cuda="$found"; fi
    done
    "${CXX:-g++}" -std=c++17 -O2 -fPIC -shared -fvisibility=hidden -isystem "$torch/torch/include" \
        -isystem "$torch/torch/include/torch/csrc/api/include" -isystem "$cuda" python/tests/pairs.cpp \
        -o "$folder/pairs.so" -L"$target/python-floor" -Wl,--no-as-needed -lc10 -lc10_cuda -s
    if [ -n "${WHEELS:-}" ]; then
        # As little as can be, for it is carried: half of a wheel of CuPy are symbols.
        packages="$(mktemp -d)"
        trap 'rm -rf "$packages"' EXIT
        for wheel in "$WHEELS"/*.whl; do python3 -m zipfile -e "$wheel" "$packages"; done
        find "$packages" -type f \( -name '*.so' -o -name '*.so.*' \) -exec strip --strip-unneeded {} +
        tar -C "$packages" -cf - . | xz -6 -T0 >"$folder/packages.tar.xz"
    fi
    du -sh "$folder"
    exit 0
fi
[ "$action" = run ] && [ "$#" -ge 1 ] || usage
results="$1"
shift
mkdir -p "$results"
# The package is found by its folder, and its entry point with it.
folder="$(cd "$folder" && pwd)"
export PYTHONPATH="$folder" PYTHONUNBUFFERED=1 TOKENIZERS_PARALLELISM=false
unset MILLPOND_CONF PYTORCH_CUDA_ALLOC_CONF PYTORCH_ALLOC_CONF MILLPOND_TORCH
python="${PYTHON:-python3}"

suite() { timeout 420 "$python" python/tests/gpu_suite.py; }
native() { timeout 380 "$python" python/tests/gpu_suite.py --native || true; }
classic() {
    timeout 360 "$python" python/tests/gpu_suite.py --conf policy:classic \
        --only training,ipc,record,graph,pool,memory,checkpoints,compile,two_devices
}
pairs() { timeout 200 "$python" python/tests/pair_bench.py --rounds 2 --count 100000 --pairs "$folder/pairs.so"; }
# Runs a command that finds what the other machine lacks.
packed() {
    local code=0 packages
    packages="$(mktemp -d)"
    [ ! -f "$folder/packages.tar.xz" ] || tar -C "$packages" -xJf "$folder/packages.tar.xz"
    PYTHONPATH="$folder:$packages" "$@" || code=$?
    rm -rf "$packages"
    return "$code"
}
hooks() { packed timeout 200 "$python" python/tests/gpu_hooks.py --out "$results/traces"; }
joint() {
    local code=0
    packed timeout 300 "$python" benches/torch/joint.py --goal "${GOAL:-0}" || code=$?
    [ "$code" != 77 ] || { echo "torch.sh: SKIPPED: joint takes CuPy and RMM"; code=0; }
    return "$code"
}
libraries() {
    local options=()
    [ -z "${ONLY:-}" ] || options=(--only "$ONLY")
    [ -z "${PART:-}" ] || options+=(--part "$PART")
    [ -z "${STEPS:-}" ] || options+=(--steps "$STEPS")
    packed timeout 1800 "$python" benches/torch/libraries.py --together --by-turns --rounds "${ROUNDS:-1}" \
        --out "$results" ${options[@]+"${options[@]}"}
}
programs() {
    local only=()
    [ -z "${ONLY:-}" ] || only=(--only "$ONLY")
    timeout 600 "$python" benches/torch/programs.py --together --rounds "${ROUNDS:-1}" --steps "${STEPS:-24}" \
        --out "$results" ${only[@]+"${only[@]}"}
}
precision() { timeout 150 "$python" benches/torch/precision.py --out "$results"; }
largest() { timeout 200 "$python" benches/torch/precision.py --largest-batch --out "$results"; }
ranks() {
    local code=0 options=()
    [ -z "${ONLY:-}" ] || options=(--only "$ONLY")
    [ -z "${TOGETHER:-}" ] || options+=(--together)
    NCCL_NVLS_ENABLE=0 timeout 900 "$python" benches/torch/ranks.py --steps "${STEPS:-30}" --out "$results" \
        ${options[@]+"${options[@]}"} || code=$?
    # What it says of fewer GPUs than two is among the errors.
    [ "$code" != 77 ] || { echo "torch.sh: SKIPPED: ranks takes two GPUs"; code=0; }
    return "$code"
}
own() {
    local tests
    read -r -a tests <<<"${TEST_CUDA:?names the tests of PyTorch}"
    timeout 590 "$python" python/tests/torch_own_tests.py "${tests[@]}" --extra "${TEST_EXTRA:-}" \
        --conf "${CONF:-policy:paged}" --jobs "${JOBS:-4}" --seconds 540 --errors "$results/own"
}

status=0
[ "$#" -gt 0 ] || set -- suite native classic pairs hooks joint programs precision largest
for part in "$@"; do
    began="$SECONDS"
    echo "== $part"
    echo "== $part" >>"$results/errors.txt"
    "$part" 2>>"$results/errors.txt" | tee "$results/$part.txt" || { status=1; tail -n 5 "$results/errors.txt" >&2; }
    echo "== $part: $((SECONDS - began)) s"
done
if [ -f "$results/suite.txt" ] && [ -f "$results/native.txt" ]; then
    if diff <(grep ^hash "$results/suite.txt") <(grep ^hash "$results/native.txt") >"$results/hashes.txt"; then
        echo "== hashes: training is the same on both allocators"
    else
        echo "== hashes: training differs:" && cat "$results/hashes.txt"
        status=1
    fi
fi
exit "$status"
