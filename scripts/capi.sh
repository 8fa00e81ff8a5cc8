#!/usr/bin/env bash
# Builds the C library, shared and static, and puts it with its header below a folder: include/millpond.h,
# lib/libmillpond.so, lib/libmillpond.a and lib/pkgconfig/millpond.pc. The folder is target/capi unless it is given.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
target="${CARGO_TARGET_DIR:-$root/target}"
prefix="${1:-$target/capi}"

cargo build --manifest-path "$root/Cargo.toml" --release -p millpond-capi --target-dir "$target"
mkdir -p "$prefix/include" "$prefix/lib/pkgconfig"
prefix="$(cd "$prefix" && pwd)"
install -m 644 "$root/crates/capi/include/millpond.h" "$prefix/include/"
install -m 755 "$target/release/libmillpond_capi.so" "$prefix/lib/libmillpond.so"
install -m 644 "$target/release/libmillpond_capi.a" "$prefix/lib/libmillpond.a"
version="$(sed -n 's/^version = "\(.*\)"$/\1/p' "$root/Cargo.toml" | head -n 1)"
cat >"$prefix/lib/pkgconfig/millpond.pc" <<PC
Name: millpond
Description: A caching allocator for GPU memory
Version: $version
Cflags: -I$prefix/include
Libs: -L$prefix/lib -lmillpond
Libs.private: -lpthread -ldl -lm
PC
echo "capi.sh: $prefix has the header and libmillpond"
