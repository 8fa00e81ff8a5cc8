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

# Software Vulkan devices: what cannot be had is reported and skipped, unless MILLPOND_LAVAPIPE=both asks for both.
scripts/lavapipe.sh
newer=target/lavapipe/newer.env stock=target/lavapipe/stock.env
if [ "${MILLPOND_LAVAPIPE:-}" = both ] && ! [ -f "$newer" -a -f "$stock" ]; then
    echo "test.sh: MILLPOND_LAVAPIPE=both, and one of the two versions of lavapipe is missing (see above)" >&2
    exit 1
fi
# Mesa wants a folder for its sockets and says so for each device that is opened.
export XDG_RUNTIME_DIR="${XDG_RUNTIME_DIR:-/tmp}"

# on ENVIRONMENT REQUIRED COMMAND...: with that device, where there is one, and then what it can do must not be skipped.
on() (
    file="$1" required="$2"
    shift 2
    if [ -f "$file" ]; then
        # shellcheck source=/dev/null
        . "$file"
        export MILLPOND_REQUIRE="${MILLPOND_REQUIRE:-$required}"
    fi
    "$@"
)

all=vulkan,wgpu,sparse,budget,exports,validation
if [ -f "$newer" ]; then
    on "$newer" "$all" cargo test --workspace "$@"
else
    on "$stock" vulkan,wgpu cargo test --workspace "$@"
fi

# The rest is for a run of everything.
[ "$#" -eq 0 ] || exit 0

# The allocator in logs and metrics, which are features of the library.
cargo test -p millpond --features tracing,metrics --test telemetry
cargo test -p millpond --features tracing,metrics --doc telemetry

# The CUDA backend beside crates that link the driver.
scripts/linked.sh

# The patch of cudarc still applies, and serves candle's calls. candle itself needs nvcc, and is not built.
scripts/candle.sh test

# The Python package, in an empty environment.
scripts/python.sh

# The devices' own tests once more, where there is neither sparse binding nor a budget, and so nothing of what wgpu gets
# from the Vulkan backend. Then the modules that compare devices, and those that must not notice which ones there are.
if [ -f "$newer" ] && [ -f "$stock" ]; then
    on "$stock" vulkan,wgpu cargo test --workspace --test conformance --test device -- --skip vulkan_segments::
    on "$stock" vulkan,wgpu cargo test --workspace --test across --test commands --test library -- --skip paged:: \
        sameness:: conformance:: streams::
fi

# An address sanitizer over what has unsafe code, in a build of its own: it needs a compiler flag that is not stable.
# The library, whose threads drop the last buffers and handles; the CUDA backend on the simulated driver, which is built
# with it too; and the Vulkan backend where there is a device. Leaks are for the simulator to count and for the
# validation layer to find: loaders and drivers keep memory to themselves, and a device keeps what unsubmitted work may
# still touch. The simulator is loaded at run time and finds the sanitizer in the test that loads it, which exports
# it.
if [ "$(uname -m)" = x86_64 ]; then
    watched=(-p millpond -p millpond-cuda -p millpond-cuda-driver)
    if [ -f "$newer" ]; then watched+=(-p millpond-vulkan); fi
    RUSTC_BOOTSTRAP=1 RUSTFLAGS="${RUSTFLAGS:-} -Zsanitizer=address -Clink-arg=-rdynamic" ASAN_OPTIONS=detect_leaks=0 \
        CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/asan" \
        on "$newer" vulkan,sparse,budget \
        cargo test --target x86_64-unknown-linux-gnu "${watched[@]}" --tests
fi

# Faults that are hard to see, each planted in a copy of the core in turn: its own tests have to catch every one.
scripts/mutants.sh --must-catch --jobs 2 --packages millpond-core absorb-forgets-the-higher-tick \
    a-window-ends-although-the-device-uses-it a-slab-is-cut-out-of-memory-that-is-not-ready \
    a-hit-takes-memory-that-is-not-ready a-part-is-ready-before-its-guards takes-what-cannot-be-used-yet \
    join-forgets-the-tick-before join-forgets-the-tick-behind a-sweep-releases-unreached-memory

# Loom replaces the locks and atomics of the whole build, so these tests have a target folder of their own.
RUSTFLAGS="${RUSTFLAGS:-} --cfg loom" CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom" \
    cargo test -p millpond-loom --release
