#!/usr/bin/env bash
# Runs engines that use cudarc on Millpond's memory: candle (docs/how-to/candle.md) and Burn (docs/how-to/burn.md).
#   scripts/candle.sh [ARGUMENT...]    answers prompts with candle's own memory and with Millpond's, and prints what
#                                      each took; arguments go to engines/candle (--size 8b, --rounds N, --rows NAME)
#   scripts/candle.sh test             tests the hook in cudarc and the adapter on the simulated driver; needs no nvcc
#   scripts/candle.sh cost             what an allocation costs the host, on the simulated driver; needs no nvcc
#   scripts/candle.sh burn [ARGUMENT...]   trains a model of Burn's examples with Burn's own memory and with Millpond's;
#                                      arguments go to millpond-burn-cuda (--size small, --steps N, --rows NAME)
#   scripts/candle.sh toolkit FOLDER   what of CUDA's toolkit the build needs, from Python's wheels, for CUDA_HOME
#   scripts/candle.sh carry FOLDER     builds into FOLDER what a machine with a GPU needs; there, FOLDER/run.sh
#   scripts/candle.sh carry-burn FOLDER     the same for Burn
# `carry` and the first need nvcc, in CUDA_HOME/bin; `toolkit` fetches one with pip, and needs cc and patch.
# CUDA_COMPUTE_CAP is the GPU's, such as 90 for an H200.
# It builds in target/candle, with a Cargo.lock of its own: candle and Burn take two cores 20 minutes each.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}/candle"
manifest=engines/candle/Cargo.toml

build() {
    : "${CUDA_HOME:?set it to a folder with bin/nvcc; scripts/candle.sh toolkit FOLDER makes one}"
    export PATH="$CUDA_HOME/bin:$PATH" LIBRARY_PATH="$CUDA_HOME/lib64${LIBRARY_PATH:+:$LIBRARY_PATH}"
    engines/candle/patch.sh
    cargo build --locked --release --manifest-path "$manifest" --features candle --bin millpond-candle --example cost \
        --example scratch
}

# Burn's kernels are compiled where it runs, by the toolkit there. Its version decides what CubeCL asks of it.
build_burn() {
    engines/candle/patch.sh
    CUDARC_CUDA_VERSION="${CUDARC_CUDA_VERSION:-13000}" \
        cargo build --locked --release --manifest-path engines/burn-cuda/Cargo.toml
}

# The names of CUDA's functions that cudarc knows in a library, as a library without code: enough to link with.
stub() {
    local part="$1" start="$2" file="$3" name="$4"
    grep -rhoE "\b$start[A-Za-z0-9_]+ *\(" "engines/candle/target/cudarc/src/$part" --include='*.rs' |
        tr -d ' (' | sort -u |
        sed 's/.*/void &(void) {}/' | cc -x c -shared -fPIC -w "-Wl,-soname,$name" -o "$file" -
}

toolkit() {
    local folder="$1" wheels wheel
    wheels="$(mktemp -d)"
    python3 -m pip download --quiet --no-deps --only-binary :all: --dest "$wheels" \
        'nvidia-cuda-nvcc==13.0.*' 'nvidia-cuda-crt==13.0.*' 'nvidia-nvvm==13.0.*' 'nvidia-cuda-runtime==13.0.*' \
        'nvidia-cuda-cccl==13.0.*'
    mkdir -p "$folder"
    for wheel in "$wheels"/*.whl; do python3 -m zipfile -e "$wheel" "$wheels/all"; done
    cp -R "$wheels"/all/nvidia/cu13/. "$folder"
    rm -rf "$wheels"
    chmod +x "$folder"/bin/* "$folder"/nvvm/bin/*
    ln -sfn lib "$folder/lib64"
    ln -sf libcudart.so.13 "$folder/lib/libcudart.so"
    engines/candle/patch.sh
    stub driver 'cu[A-Z]' "$folder/lib/libcuda.so" libcuda.so.1
    stub nvrtc nvrtc "$folder/lib/libnvrtc.so" libnvrtc.so.13
    stub curand curand "$folder/lib/libcurand.so" libcurand.so.10
    stub cublas cublas "$folder/lib/libcublas.so" libcublas.so.13
    stub cublaslt cublasLt "$folder/lib/libcublasLt.so" libcublasLt.so.13
}

case "${1:-}" in
    test)
        engines/candle/patch.sh
        cargo test --locked --manifest-path "$manifest" --test hook
        ;;
    cost)
        engines/candle/patch.sh
        cargo build --locked --release --manifest-path "$manifest" --example cost
        # The simulator is built beside it for the tests, and has the driver's name inside.
        LD_PRELOAD="$CARGO_TARGET_DIR/release/deps/libmillpond_cuda_driver.so" \
            "$CARGO_TARGET_DIR/release/examples/cost"
        ;;
    toolkit)
        toolkit "${2:?toolkit needs a folder}"
        echo "export CUDA_HOME=$(cd "$2" && pwd)"
        ;;
    carry)
        folder="${2:?carry needs a folder}"
        build
        mkdir -p "$folder"
        cp "$CARGO_TARGET_DIR/release/examples/cost" engines/candle/run.sh "$folder"
        # The kernels compress to a fifth.
        gzip -9 -c "$CARGO_TARGET_DIR/release/millpond-candle" >"$folder/millpond-candle.gz"
        gzip -9 -c "$CARGO_TARGET_DIR/release/examples/scratch" >"$folder/scratch.gz"
        du -sh "$folder"
        ;;
    burn)
        build_burn
        MILLPOND_ENGINE=millpond-burn-cuda exec engines/candle/run.sh "${@:2}"
        ;;
    carry-burn)
        folder="${2:?carry-burn needs a folder}"
        build_burn
        mkdir -p "$folder"
        cp engines/candle/run.sh "$folder"
        gzip -9 -c "$CARGO_TARGET_DIR/release/millpond-burn-cuda" >"$folder/millpond-burn-cuda.gz"
        du -sh "$folder"
        ;;
    -h | --help)
        sed -n '2,15s/^# \{0,1\}//p' scripts/candle.sh
        ;;
    *)
        build
        exec engines/candle/run.sh "$@"
        ;;
esac
