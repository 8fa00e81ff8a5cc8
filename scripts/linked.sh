#!/usr/bin/env bash
# The CUDA backend beside crates that have cudarc link the driver, as candle does, or load it, and beside crates that
# name a version of CUDA: cudarc builds with one of each, and refuses two. Runs the backend's tests on the simulated
# driver with the feature that links, so that what cudarc calls and what the backend looks up is the same library.
# Needs no GPU.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cargo check -p millpond-cuda --features cudarc/dynamic-loading
# The program chooses the version of CUDA: the oldest and the newest that the backend builds for.
cargo check -p millpond-cuda --features cudarc/cuda-11080
cargo check -p millpond-cuda --no-default-features --features cudarc/cuda-13040

# The simulated driver is linked by the driver's name, from a folder that no other build searches.
folder="${CARGO_TARGET_DIR:-$PWD/target}/linked"
mkdir -p "$folder"
cargo build -p millpond-cuda-driver --profile test
ln -sf ../debug/libmillpond_cuda_driver.so "$folder/libcuda.so"
export LIBRARY_PATH="$folder${LIBRARY_PATH:+:$LIBRARY_PATH}"
# Only programs that do not name the simulator, which has the driver's functions inside of the program too.
LD_LIBRARY_PATH="$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" MILLPOND_REQUIRE=cuda \
    cargo test -p millpond-cuda --features cudarc/dynamic-linking --lib --test conformance -- \
    looking_never_panics driver:: ::data ::sizes ::trim ::reuse
