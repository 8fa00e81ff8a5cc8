#!/bin/sh
# Prints the table of benches/record/*/contention*.md: threads near a limit, so many seconds for each case (2 unless
# told), on the simulated device with calls of 100 us. For a table of an earlier commit, run it in that commit's tree
# with tests/tests/contention and backends/sim of this one.
set -eu
cd "$(dirname "$0")/.."
MILLPOND_CONTENTION_SECONDS="${1:-2}" exec cargo test -q -p millpond-tests --test contention the_table -- --nocapture
