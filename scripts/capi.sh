#!/usr/bin/env bash
# Builds the C library, shared and static, and puts it with its headers below a folder: include/millpond.h,
# include/millpond.hpp and include/millpond_core.h, lib/libmillpond.so with the name that programs look it up by,
# lib/libmillpond.a, and lib/pkgconfig/millpond.pc.
#   scripts/capi.sh [FOLDER]           puts them into FOLDER, target/capi unless it is given
# DESTDIR   a folder that stands for / meanwhile, as packagers have it
# BUILT     a folder with libmillpond_capi.so and libmillpond_capi.a: nothing is built then
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
target="${CARGO_TARGET_DIR:-$root/target}"
prefix="$(realpath -m "${1:-$target/capi}")"
to="${DESTDIR:-}$prefix"
built="${BUILT:-}"

if [ -z "$built" ]; then
    cargo build --manifest-path "$root/Cargo.toml" --release -p millpond-capi --target-dir "$target"
    built="$target/release"
fi
abi="$(sed -n 's/^#define MILLPOND_ABI //p' "$root/crates/capi/include/millpond.h")"
version="$(sed -n 's/^version = "\(.*\)"$/\1/p' "$root/Cargo.toml" | head -n 1)"
mkdir -p "$to/include" "$to/lib/pkgconfig"
install -m 644 "$root"/crates/capi/include/millpond{.h,.hpp,_core.h} "$to/include/"
install -m 755 "$built/libmillpond_capi.so" "$to/lib/libmillpond.so.$abi"
ln -sf "libmillpond.so.$abi" "$to/lib/libmillpond.so"
install -m 644 "$built/libmillpond_capi.a" "$to/lib/libmillpond.a"
cat >"$to/lib/pkgconfig/millpond.pc" <<PC
prefix=$prefix
includedir=\${prefix}/include
libdir=\${prefix}/lib

Name: millpond
Description: A caching allocator for GPU memory
Version: $version
Cflags: -I"\${includedir}"
Libs: -L"\${libdir}" -lmillpond
Libs.private: -lpthread -ldl -lm
PC
echo "capi.sh: $to has the headers and libmillpond"
