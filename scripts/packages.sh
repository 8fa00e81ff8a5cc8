#!/usr/bin/env bash
# Packages every crate that is published, unpacks the packages outside of the workspace, and uses them as users do: a
# small project with `millpond`, `millpond-sim` and `millpond-conformance`, whose sources are those of the pages, the
# package of a backend to copy, and the command, installed and started. Publishes nothing. Cargo needs the public index,
# and the packages of others that the lock file names, for which the network is used where they are not there yet.
#
# scripts/packages.sh          the command with the simulated device alone
# scripts/packages.sh --all    the command with every device, and each package built by itself (cargo publish --dry-run)
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$root"

features=(--no-default-features)
case "${1:-}" in
    '') ;;
    --all) features=() ;;
    *)
        echo "packages.sh: '$1' is unknown; usage: scripts/packages.sh [--all]" >&2
        exit 2
        ;;
esac

target="${CARGO_TARGET_DIR:-$root/target}"
version="$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)"
export CARGO_INCREMENTAL=0

# What a manifest does not keep to itself is published.
names=()
for manifest in crates/*/Cargo.toml backends/*/Cargo.toml; do
    if ! grep -q '^publish = false' "$manifest"; then
        names+=("$(sed -n 's/^name = "\(.*\)"$/\1/p' "$manifest" | head -n 1)")
    fi
done

# Says what the index would refuse. Without --all nothing is built here: what follows builds most of it.
if [ "${#features[@]}" -eq 0 ]; then
    cargo publish --dry-run --workspace --allow-dirty --target-dir "$target"
fi
cargo package --no-verify --allow-dirty --target-dir "$target" "${names[@]/#/--package=}"

# A package that lies below the workspace would be taken for a part of it.
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/.cargo" "$folder/user/src" "$folder/user/tests"
{
    echo "[patch.crates-io]"
    for name in "${names[@]}"; do
        tar -xzf "$target/package/$name-$version.crate" -C "$folder"
        for file in README.md LICENSE-MIT LICENSE-APACHE; do
            if ! [ -s "$folder/$name-$version/$file" ]; then
                echo "packages.sh: the package $name has no $file" >&2
                exit 1
            fi
        done
        echo "$name = { path = \"$folder/$name-$version\" }"
    done
} >"$folder/.cargo/config.toml"

# first_program PAGE: the first program in Rust on that page.
first_program() {
    awk '/^```rust$/ { on = 1; next } on && /^```$/ { exit } on' "$1"
}

first_program README.md >"$folder/user/src/main.rs"
first_program crates/conformance/README.md >"$folder/user/tests/conformance.rs"
cat >"$folder/user/Cargo.toml" <<TOML
[package]
name = "user"
edition = "2024"

[dependencies]
millpond = "$version"
millpond-sim = "$version"

[dev-dependencies]
millpond-conformance = "$version"
TOML

# The versions of the lock file, so that this is the same on every day.
cp Cargo.lock "$folder/user/"
cp Cargo.lock "$folder/millpond-cli-$version/"
export CARGO_TARGET_DIR="$target/packages"

cd "$folder/user"
echo "== a user's project: the program of the front page"
cargo run
echo "== a user's project: certifying a backend"
cargo test

echo "== a backend's project: the package to copy, certified"
cp -r "$root/examples/own_backend" "$folder/own_backend"
# What a project of its own has in place of the workspace's settings.
sed -i -e 's/, path = "[^"]*"//' -e '/workspace/d' -e '/^\[lints\]/d' "$folder/own_backend/Cargo.toml"
cp "$root/Cargo.lock" "$folder/own_backend/"
cd "$folder/own_backend"
cargo test

cd "$folder"
echo "== the command: cargo install"
# Takes out of the lock file what is of the workspace alone.
host="$(rustc -vV | sed -n 's/^host: //p')"
cargo metadata --format-version 1 --filter-platform "$host" --manifest-path "millpond-cli-$version/Cargo.toml" \
    >metadata.json
cargo install --locked --path "millpond-cli-$version" --root "$folder/installed" "${features[@]}"
installed/bin/millpond devices
installed/bin/millpond replay --device sim
echo "packages.sh: ${#names[@]} packages of version $version work outside of the workspace"
