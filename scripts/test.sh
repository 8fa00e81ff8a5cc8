#!/usr/bin/env bash
# The one test command: installs what the tests need, then runs all of them.
# Arguments go to the first `cargo test`, such as a part of a test's name.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Recorded traces are compressed with zstd, whose sources are C.
if ! command -v cc >/dev/null; then
    if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -qq
        apt-get install -y -qq --no-install-recommends gcc libc6-dev
    else
        echo "test.sh: there is no C compiler (cc); install one, for example Debian's gcc and libc6-dev" >&2
        exit 1
    fi
fi

cargo test --workspace "$@"

# Loom replaces the locks and atomics of the whole build, so these tests have a target folder of their own.
if [ -f tests/tests/loom.rs ] && [ "$#" -eq 0 ]; then
    RUSTFLAGS="${RUSTFLAGS:-} --cfg loom" CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom" \
        cargo test -p millpond-tests --release --test loom
fi
