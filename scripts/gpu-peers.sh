#!/usr/bin/env bash
# The other allocators of GPU memory as a program, FOLDER/peers, for millpond-gpu-bench. Built on the machine that has
# them, which needs a C++ compiler and CUDA's runtime with its headers.
#   scripts/gpu-peers.sh FOLDER
# PyTorch is found by python3 (PYTHON says which). RMM is left out unless RMM_INCLUDE and RMM_LIB name its folders of
# headers and libraries, with colons between them where there are several. CUDA_HOME says where CUDA is, unless nvcc is
# on the path; CXX is the compiler.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

[ "$#" -eq 1 ] || { sed -n '2,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
folder="$1"
fail() { echo "gpu-peers.sh: $*" >&2; exit 1; }

cxx="${CXX:-g++}"
command -v "$cxx" >/dev/null || fail "there is no $cxx; install a C++ compiler, or name it with CXX"
if [ -z "${CUDA_HOME:-}" ]; then
    nvcc="$(command -v nvcc || true)"
    CUDA_HOME=/usr/local/cuda
    [ -z "$nvcc" ] || CUDA_HOME="$(dirname "$(dirname "$(readlink -f "$nvcc")")")"
fi
cuda_include=
for place in "$CUDA_HOME/include" "$CUDA_HOME/targets/x86_64-linux/include"; do
    [ -f "$place/cuda_runtime_api.h" ] && { cuda_include="$place"; break; }
done

flags=(-std=c++17 -O2 -Wall -pthread)
includes=() libraries=() paths=()
# The folder of libraries is searched when the program is built and when it runs.
library_folder() { libraries+=("-L$1" "-Wl,-rpath,$1"); paths+=("$1"); }
# The first shared library of that name, under whatever version.
library() {
    local place file
    for place in "${paths[@]}"; do
        for file in "$place/$1.so" "$place/$1".so.*; do
            [ -e "$file" ] && { echo "$file"; return; }
        done
    done
    return 1
}

# What PyTorch says of itself, a line for each: its version, its ABI, its folders, and those of CUDA's wheels.
torch_facts() {
    "${PYTHON:-python3}" - <<'PYTHON'
import glob, os, sysconfig
import torch
root = os.path.dirname(torch.__file__)
print("version", torch.__version__)
print("abi", int(torch.compiled_with_cxx11_abi()))
for include in ("include", "include/torch/csrc/api/include"):
    print("include", os.path.join(root, include))
print("lib", os.path.join(root, "lib"))
site = os.path.dirname(root)
for header in sorted(glob.glob(os.path.join(site, "nvidia", "*", "include", "cuda_runtime_api.h"))):
    print("cuda_include", os.path.dirname(header))
for cudart in sorted(glob.glob(os.path.join(site, "nvidia", "*", "lib", "libcudart.so*"))):
    print("cuda_lib", os.path.dirname(cudart))
PYTHON
}

torch=
if facts="$(torch_facts 2>/dev/null)"; then
    while read -r key value; do
        case "$key" in
            version) torch="$value" ;;
            abi) flags+=("-D_GLIBCXX_USE_CXX11_ABI=$value") ;;
            include) includes+=(-isystem "$value") ;;
            lib | cuda_lib) library_folder "$value" ;;
            cuda_include) [ -n "$cuda_include" ] || cuda_include="$value" ;;
        esac
    done <<<"$facts"
    flags+=(-DPEERS_TORCH)
else
    echo "gpu-peers.sh: ${PYTHON:-python3} has no torch: its allocators are left out" >&2
fi
[ -n "$cuda_include" ] || fail "no cuda_runtime_api.h under $CUDA_HOME; install CUDA's toolkit, or set CUDA_HOME"
for place in "$CUDA_HOME/lib64" "$CUDA_HOME/targets/x86_64-linux/lib" "$CUDA_HOME/lib"; do
    [ -d "$place" ] && library_folder "$place"
done

if [ -n "${RMM_INCLUDE:-}" ] && [ -n "${RMM_LIB:-}" ]; then
    flags+=(-DPEERS_RMM)
    IFS=: read -r -a folders <<<"$RMM_INCLUDE"
    # Before CUDA's own: RMM brings the version of libcu++ that it was built with.
    rmm_includes=()
    for place in "${folders[@]}"; do rmm_includes+=(-isystem "$place"); done
    includes=("${rmm_includes[@]}" ${includes[@]+"${includes[@]}"})
    IFS=: read -r -a folders <<<"$RMM_LIB"
    for place in "${folders[@]}"; do library_folder "$(cd "$place" && pwd)"; done
else
    echo "gpu-peers.sh: RMM_INCLUDE and RMM_LIB are not set: RMM is left out" >&2
fi
includes+=(-isystem "$cuda_include")

cudart="$(library libcudart)" || fail "no libcudart.so in ${paths[*]:-any folder}; install CUDA, or set CUDA_HOME"
needed=("$cudart")
# The allocator is in c10 alone. What these libraries need themselves, they find by their own paths.
if [ -n "$torch" ]; then needed+=(-Wl,--allow-shlib-undefined -Wl,--no-as-needed -lc10_cuda -lc10 -Wl,--as-needed); fi
if [ -n "${RMM_LIB:-}" ] && [ -n "${RMM_INCLUDE:-}" ]; then
    rmm="$(library librmm)" || fail "no librmm.so in $RMM_LIB"
    needed+=("$rmm")
    if logger="$(library librapids_logger)"; then needed+=("$logger"); fi
fi

mkdir -p "$folder"
set -x
"$cxx" "${flags[@]}" ${includes[@]+"${includes[@]}"} -o "$folder/peers" benches/gpu/peers.cpp "${libraries[@]}" \
    "${needed[@]}" -lpthread -ldl
set +x
names="$("$folder/peers" --list | tr '\n' ' ')" || fail "$folder/peers was built and does not start: see above"
echo "gpu-peers.sh: $folder/peers serves $names${torch:+(PyTorch $torch)}" >&2
