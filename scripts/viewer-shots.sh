#!/usr/bin/env bash
# Opens a snapshot of Millpond in PyTorch's viewer, in a browser without a screen, and takes a picture of each view, in
# target/viewer-shots. Fails if the viewer reports an error.
#
# usage: scripts/viewer-shots.sh PATH/MemoryViz.js [SNAPSHOT]
#
# The file is torch/utils/viz/MemoryViz.js of PyTorch's repository; what it imports from that folder lies beside it. d3,
# which it takes from the network, and esbuild come from npm. Without a SNAPSHOT it is one of a recorded program under
# `paged`.
set -euo pipefail
[ $# -ge 1 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
viewer=$(realpath "$1")
snapshot=${2:+$(realpath "$2")}
cd "$(dirname "$0")/.."

browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [ -z "$browser" ] || ! command -v npm >/dev/null; then
    echo "SKIPPED: needs chromium and npm (apt-get install chromium npm)" >&2
    exit 0
fi
shots=target/viewer-shots
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$shots"
if [ -z "$snapshot" ]; then
    millpond=${MILLPOND:-}
    if [ -z "$millpond" ]; then
        cargo build -q -p millpond-cli
        millpond=${CARGO_TARGET_DIR:-target}/debug/millpond
    fi
    snapshot=$work/snapshot.pickle
    "$millpond" replay --device sim --policy paged --passes 0 --snapshot "$snapshot" tests/corpus/traces/gnn.trace.gz
fi

# The modules by their names, in the major version of d3 that the file asks for.
cp "$(dirname "$viewer")"/*.js "$work"
major=$(grep -oE '/d3@[0-9]+' "$viewer" | head -1 | tr -dc '[:digit:]' | sed 's/^3//')
sed -i -E 's#"https://[^"]*/(d3[a-z-]*)@[^"]*"#"\1"#' "$work/$(basename "$viewer")"
cat >"$work/entry.js" <<JS
import {add_local_files} from './$(basename "$viewer")';
const view = decodeURIComponent(location.hash.slice(1));
add_local_files([{name: 'snapshot.pickle', base64: window.DATA}], view);
setTimeout(() => {
    // Of the state's history, the event in the middle; it begins at the last one.
    const events = document.querySelectorAll('div > pre');
    if (events.length > 2) events[events.length >> 1].dispatchEvent(new MouseEvent('mousedown', {bubbles: true}));
    const drawn = document.querySelectorAll('svg *, pre').length;
    document.title ||= drawn + ' drawn';
}, 1500);
JS
echo '{}' >"$work/package.json"
(cd "$work" && npm install --silent --no-audit --no-fund "d3@$major" esbuild &&
    npx esbuild entry.js --bundle --format=iife --log-level=error --outfile=bundle.js)
{
    echo '<!doctype html><meta charset="utf-8"><body><script>'
    echo 'window.onerror = (message) => { document.title = "ERROR " + message; };'
    echo "window.DATA = \"$(base64 -w0 "$snapshot")\";"
    echo '</script><script src="bundle.js"></script></body>'
} >"$work/index.html"

browse() {
    timeout 180 "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$work/profile" \
        --allow-file-access-from-files --window-size=1400,900 --virtual-time-budget=20000 "$@" 2>/dev/null
}

failed=0
while read -r view; do
    address="file://$work/index.html#${view// /%20}"
    picture="$shots/$(tr -dc '[:alnum:]' <<<"$view").png"
    title=$(browse --dump-dom "$address" | grep -oE '<title>[^<]*' | head -1 | cut -c8-)
    browse --screenshot="$PWD/$picture" "$address" >/dev/null
    echo "$view: ${title:-no title}; $picture"
    case $title in "" | ERROR* | "0 drawn") failed=1 ;; esac
done < <(sed -n '/^const kinds = {/,/^};/p' "$viewer" | grep -oE "^  '[^']*'" | tr -d "'" | sed 's/^ *//')
exit $failed
