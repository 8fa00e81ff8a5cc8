#!/usr/bin/env bash
# Checks the crates that are published with the oldest Rust that they promise, `rust-version` in Cargo.toml. Where
# rustup cannot bring that version the check is skipped and says so.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version="$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)"
if ! command -v rustup >/dev/null; then
    echo "msrv.sh: skipped: there is no rustup to bring Rust $version"
    exit 0
fi
if ! rustup run "$version" rustc --version 2>/dev/null &&
    ! timeout 300 rustup toolchain install "$version" --profile minimal --no-self-update; then
    echo "msrv.sh: skipped: rustup cannot bring Rust $version (see above)"
    exit 0
fi

packages=()
for manifest in crates/*/Cargo.toml backends/*/Cargo.toml; do
    if ! grep -q '^publish = false' "$manifest"; then
        packages+=("--package=$(sed -n 's/^name = "\(.*\)"$/\1/p' "$manifest" | head -n 1)")
    fi
done
# A compiler of its own has a target folder of its own: in a common one, each build would undo the other.
rustup run "$version" cargo check --locked --target-dir "${CARGO_TARGET_DIR:-target}/msrv" "${packages[@]}"
