#!/usr/bin/env bash
# Prepares software Vulkan devices (Mesa's lavapipe) and the validation layers for the tests, and writes for each
# device a file to source: target/lavapipe/stock.env, and newer.env where Debian's backports have a newer Mesa.
#
# The two differ in what they can do: Mesa 22.3 has neither sparse binding nor a memory budget, Mesa 25 has both. The
# newer one is only unpacked, so the system keeps its own. Installs by apt when root; else takes what is there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder="$PWD/target/lavapipe"
packages=(mesa-vulkan-drivers libvulkan1 vulkan-validationlayers)
mkdir -p "$folder"

say() { echo "lavapipe.sh: $*" >&2; }

missing() {
    local package
    for package in "${packages[@]}"; do
        dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || return 0
    done
    return 1
}

# Where lavapipe's description lies below a root; its name depends on the version of Mesa.
description() { find "$1/usr/share/vulkan/icd.d" -name 'lvp_icd*.json' 2>/dev/null | head -n 1; }

can_install() { [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; }

# The newer Mesa with the libraries that it wants newer, from the backports of the mirror that the system uses.
unpack_newer() {
    local codename apt root="$folder/newer" mirror
    codename="$(. /etc/os-release && echo "${VERSION_CODENAME:-}")"
    mirror="$(find /etc/apt -name '*.sources' -exec sed -n 's/^URIs: *\([^ ]*\).*/\1/p' {} + | head -n 1)"
    if [ "$codename" != bookworm ] || [ -z "$mirror" ]; then
        say "no newer lavapipe is known for this system (${codename:-no Debian}); only the system's own is tested"
        return 0
    fi
    if [ -z "$(description "$root")" ]; then
        rm -rf "$root" && mkdir -p "$folder/apt/lists/partial" "$folder/apt/deb" "$root"
        echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $codename-backports main" \
            >"$folder/apt/sources.list"
        apt=(apt-get -qq -o "Dir::Etc::SourceList=$folder/apt/sources.list" -o Dir::Etc::SourceParts=-
            -o "Dir::State::Lists=$folder/apt/lists" -o APT::Sandbox::User=root)
        if ! "${apt[@]}" update ||
            ! (cd "$folder/apt/deb" && "${apt[@]}" download mesa-vulkan-drivers libdrm2 libdrm-amdgpu1); then
            say "the newer lavapipe could not be fetched; only the system's own is tested"
            return 0
        fi
        for package in "$folder"/apt/deb/*.deb; do dpkg -x "$package" "$root"; done
    fi
    local library
    library="$(find "$root" -name libvulkan_lvp.so | head -n 1)"
    printf '{"file_format_version": "1.0.0", "ICD": {"library_path": "%s", "api_version": "1.4.0"}}\n' "$library" \
        >"$folder/newer.json"
    {
        echo "export VK_DRIVER_FILES='$folder/newer.json'"
        echo "export LD_LIBRARY_PATH='$(dirname "$library")'\"\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}\""
    } >"$folder/newer.env"
}

rm -f "$folder"/*.env
if can_install && missing; then
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends "${packages[@]}" >&2
fi
stock="$(description "")"
if [ -n "$stock" ]; then
    echo "export VK_DRIVER_FILES='$stock'" >"$folder/stock.env"
else
    say "there is no lavapipe: install ${packages[*]} (Debian), or run this as root"
fi
if can_install; then unpack_newer; fi
