#!/usr/bin/env bash
# Writes cudarc with the hook of cudarc.patch into a folder: patch.sh [FOLDER]
# The folder, target/cudarc beside this script by default, is what `[patch.crates-io]` of a program names. The sources
# come from where cargo keeps them, or from the registry. Needs cargo and patch.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
folder="${1:-$here/target/cudarc}"
# The version that the patch is for.
version=0.19.10

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
mkdir "$work/src"
printf '[package]\nname = "fetch"\nversion = "0.0.0"\nedition = "2021"\n[workspace]\n[dependencies]\ncudarc = "=%s"\n' \
    "$version" >"$work/Cargo.toml"
: >"$work/src/lib.rs"
metadata() { (cd "$work" && cargo metadata --format-version 1 "$@"); }
metadata="$(metadata --offline 2>/dev/null || metadata --quiet)"
manifest="$(grep -o "\"[^\"]*/cudarc-$version/Cargo.toml\"" <<<"$metadata" | head -n 1 | tr -d '"')"
cp -R "$(dirname "$manifest")" "$work/cudarc"
patch --quiet --strip=1 --directory="$work/cudarc" --input="$here/cudarc.patch"
# The folder is replaced only by a whole one, and stays as it is, with its times, if nothing is new.
if ! diff -rq "$work/cudarc" "$folder" >/dev/null 2>&1; then
    rm -rf "$folder"
    mkdir -p "$(dirname "$folder")"
    cp -R "$work/cudarc" "$folder"
fi
echo "cudarc $version with the hook is in $folder"
