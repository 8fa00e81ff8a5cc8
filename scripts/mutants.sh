#!/usr/bin/env bash
# Plants the faults of tests/mutants in a copy of the tree and finds which tests catch each: --help says more.
# The faults of the Vulkan and wgpu backends and of the lent device want a device: source target/lavapipe/newer.env
# first, and name the packages.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec cargo run --quiet -p millpond-tests --bin mutants -- "$@"
