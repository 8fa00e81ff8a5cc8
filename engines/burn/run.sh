#!/usr/bin/env bash
# Prints the table of docs/how-to/burn.md on this machine's GPU, without cargo: run.sh [ARGUMENT...]
# It needs a driver with Vulkan and its loader, libvulkan.so.1; packages in debs/ beside it are unpacked first.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
if ! ldconfig -p | grep -q 'libvulkan\.so\.1' && compgen -G "$here/debs/*.deb" >/dev/null; then
    for package in "$here"/debs/*.deb; do dpkg -x "$package" /; done
    ldconfig
fi
own=/usr/local/nvidia/share/vulkan/icd.d/nvidia_icd.json
if [ -z "${VK_DRIVER_FILES:-}" ] && [ ! -f /etc/vulkan/icd.d/nvidia_icd.json ] && [ -f "$own" ]; then
    export VK_DRIVER_FILES="$own"
    export __EGL_VENDOR_LIBRARY_FILENAMES=/usr/local/nvidia/share/glvnd/egl_vendor.d/10_nvidia.json
fi
export XDG_RUNTIME_DIR="${XDG_RUNTIME_DIR:-/tmp}"
exec "$here/millpond-burn" --size example --passes 3 "$@"
