#!/usr/bin/env bash
# An engine that people use on Millpond (docs/how-to/burn.md): Burn, on a device that engines/wgpu lends it.
#   scripts/engine.sh [ARGUMENT...]   trains a model of Burn's examples with its own memory and with Millpond's, and
#                                     prints what each took; arguments go to engines/burn (--size example, --passes N,
#                                     --device N, --rows NAME,NAME). Without a Vulkan device it takes lavapipe
#   scripts/engine.sh test            tests that Burn's losses are the same, to the bit
#   scripts/engine.sh carry FOLDER    builds into FOLDER what a machine with a GPU needs; there, FOLDER/run.sh
# It builds in target/engine, with a Cargo.lock of its own: Burn is some 400 crates, and takes two cores 20 minutes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}/engine"
export XDG_RUNTIME_DIR="${XDG_RUNTIME_DIR:-/tmp}"
manifest=engines/burn/Cargo.toml

lavapipe() {
    if [ -z "${VK_DRIVER_FILES:-}" ] && [ -f target/lavapipe/newer.env ]; then
        # shellcheck disable=SC1091
        . target/lavapipe/newer.env
    fi
}

build() { cargo build --locked --release --manifest-path "$manifest" -p millpond-burn; }

case "${1:-}" in
    test)
        lavapipe
        build
        "$CARGO_TARGET_DIR/release/millpond-burn" --rows burn,counted,classic,paged,tight,both --passes 1
        ;;
    carry)
        folder="${2:?carry needs a folder}"
        build
        mkdir -p "$folder"
        cp "$CARGO_TARGET_DIR/release/millpond-burn" engines/burn/run.sh "$folder"
        du -sh "$folder"
        ;;
    -h | --help)
        sed -n '2,9s/^# \{0,1\}//p' scripts/engine.sh
        ;;
    *)
        lavapipe
        build
        exec "$CARGO_TARGET_DIR/release/millpond-burn" "$@"
        ;;
esac
