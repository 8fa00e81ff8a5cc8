#!/usr/bin/env bash
# Makes reports of recorded programs, opens them in a browser without a screen, and checks that no script failed and how
# long each took until it was drawn. Pictures go to target/shots: light and dark, at 1280 and 390 pixels of width.
#
# usage: scripts/report-shots.sh [TRACE...]
set -euo pipefail
cd "$(dirname "$0")/.."

browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [ -z "$browser" ]; then
    echo "SKIPPED: no chromium; the page was not looked at (apt-get install chromium)" >&2
    exit 0
fi
traces=("$@")
if [ ${#traces[@]} = 0 ]; then
    traces=(tests/corpus/traces/gnn.trace.gz)
fi
millpond=${MILLPOND:-}
if [ -z "$millpond" ]; then
    cargo build -q -p millpond-cli
    millpond=${CARGO_TARGET_DIR:-target}/debug/millpond
fi
shots=target/shots
profile=$(mktemp -d)
trap 'rm -rf "$profile"' EXIT
mkdir -p "$shots"

# Starts the browser; what it says about the machine is left out.
browse() {
    timeout 120 "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$profile" \
        --allow-file-access-from-files "$@" 2>/dev/null
}

# Takes a picture of a page at a width. The window of a browser is at least 500 pixels wide, so that a narrow page is
# looked at in a frame.
picture() { # PAGE WIDTH HEIGHT COLOURS
    local file="$shots/$(basename "$1" .html)-$4-$2.png"
    if [ "$2" -ge 500 ]; then
        browse --window-size="$2,$3" --virtual-time-budget=4000 --screenshot="$file" "file://$1#$4" >/dev/null
    else
        local frame="$profile/frame.html"
        echo "<!doctype html><body style='margin:0'>" \
            "<iframe src='file://$1#$4' style='border:0;width:$2px;height:$3px'>" >"$frame"
        browse --window-size="500,$3" --virtual-time-budget=4000 --screenshot="$file" "file://$frame" >/dev/null
    fi
    echo "$file"
}

failed=0
for trace in "${traces[@]}"; do
    name=$(basename "$trace" .gz)
    name=${name%.trace}
    page="$PWD/$shots/$name.html"
    # shellcheck disable=SC2086 # The variable is a list of arguments.
    "$millpond" report "$trace" -o "$page" ${REPORT_ARGS:-} >/dev/null
    top=$(browse --window-size=1280,2000 --dump-dom "file://$page" | sed -n '1,3s/.*<html\([^>]*\)>.*/\1/p')
    errors=$(sed -n 's/.*data-errors="\([0-9]*\)".*/\1/p' <<<"$top")
    drawn=$(sed -n 's/.*data-drawn="\([0-9]*\)".*/\1/p' <<<"$top")
    echo "$name: $(stat -c %s "$page") bytes, drawn after ${drawn:-?} ms, script errors: ${errors:-?}"
    if [ "$errors" != 0 ] || [ -z "$drawn" ] || [ "$drawn" -gt "${DRAWN_MAX_MS:-2000}" ]; then
        failed=1
    fi
    for colours in light dark; do
        picture "$page" 1280 "${HEIGHT:-4200}" "$colours"
        picture "$page" 390 "${HEIGHT_NARROW:-7200}" "$colours"
    done
done
exit $failed
