#!/bin/sh
# Prints the table of benches/record/*/contention*.md: threads near a limit, so many seconds for each case (2 unless
# told), on the simulated device with calls of 100 us. For a table of an earlier commit, run it in that commit's tree
# with backends/sim of this one and tests/tests/across, where main.rs names the contention alone.
set -eu
cd "$(dirname "$0")/.."
MILLPOND_CONTENTION_SECONDS="${1:-2}" exec cargo test -q -p millpond-tests --test across -- --nocapture \
    contention::the_table
