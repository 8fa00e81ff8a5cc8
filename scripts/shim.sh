#!/usr/bin/env bash
# Compiles the shim for one torch, for any Linux with glibc 2.28 or newer. Checks that it needs no more than that Linux
# and this torch have. scripts/wheel.sh and scripts/torch-simulated.sh run it.
#   scripts/shim.sh TORCH FOLDER       TORCH has torch/include and torch/version.py, as unpacked wheels and
#                                      site-packages do. FOLDER gets VERSION-COMMIT.so, whose path is printed
# CUDA      the folder with cuda_runtime_api.h; nvidia/cu*/include in TORCH or /usr/local/cuda/include otherwise
# FLOOR     the folder that `python3 -m building.floor link FOLDER` has written, run in python/
# Nothing of torch or CUDA is linked: the libraries that a process has loaded already have the symbols.
set -euo pipefail
[ "$#" = 2 ] || { sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
torch="$1" floor="${FLOOR:?names the libraries to link with}"
building() { PYTHONPATH="$root/python" python3 -B -m "building.$@"; }
if [ ! -f "$torch/torch/version.py" ] || [ ! -d "$torch/torch/include" ]; then
    echo "shim.sh: $torch lacks torch/version.py or torch/include: TORCHES names folders that have them" >&2
    exit 1
fi
version="$(sed -n "s/^__version__ = '\([0-9.]*\).*/\1/p" "$torch/torch/version.py")"
git="$(sed -n "s/^git_version = '\([0-9a-f]*\)'/\1/p" "$torch/torch/version.py")"
standard=c++17
case "$version" in 2.1[4-9].*) standard=c++20 ;; esac
cuda="${CUDA:-}"
for found in "$torch"/nvidia/cu*/include /usr/local/cuda/include; do
    # PyTorch installs the first folder without the files of nvidia-cuda-crt, which the others include.
    if [ -z "$cuda" ] && [ -f "$found/crt/host_config.h" ]; then cuda="$found"; fi
done
[ -n "$cuda" ] || { echo "shim.sh: $torch has no headers of CUDA: let CUDA name their folder" >&2; exit 1; }
shim="$2/$version-${git:0:12}.so"
# What is newer in libstdc++ than that Linux has is taken from its archive, and hidden.
"${CXX:-g++}" -std="$standard" -O2 -fPIC -shared -fvisibility=hidden -Wall -Wextra -Wno-unused-parameter \
    -I"$root/crates/capi/include" -isystem "$torch/torch/include" \
    -isystem "$torch/torch/include/torch/csrc/api/include" -isystem "$cuda" "$root/python/shim/shim.cpp" -o "$shim" \
    -nodefaultlibs "$floor/old.o" -L"$floor" -Wl,--no-as-needed -lc10 -lc10_cuda -ltorch_cuda -lstdc++ -lpthread -ldl \
    -lc -l:ld-linux-x86-64.so.2 -Wl,--as-needed -lm -Wl,--exclude-libs,libstdc++.a -l:libstdc++.a -lgcc_s -lgcc -lc -s
building floor check "$shim"
building symbols "$shim" "$torch"
echo "$shim"
