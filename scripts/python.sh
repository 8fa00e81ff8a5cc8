#!/usr/bin/env bash
# Installs the Python package into an empty virtual environment, and runs its tests there; checks its types with mypy.
# Needs neither a GPU nor PyTorch, nor the network for anything but mypy, which is fetched once. Without a Python 3.10
# that has venv it says so and does nothing.
# MYPY           the command mypy, in place of the one that is fetched
# TORCH_PYTHON   a Python that has PyTorch (a virtual environment's): the programs of benches/torch run with it on the
#                processor, in the sizes of a test, with those on other people's libraries that it has
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python="${PYTHON:-python3}"
if ! "$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
    echo "python.sh: SKIPPED: $python is missing, older than 3.10, or has no venv: the Python package is not tested" >&2
    exit 0
fi
target="$(mkdir -p "${CARGO_TARGET_DIR:-target}" && cd "${CARGO_TARGET_DIR:-target}" && pwd)"
stage="$target/python-test"
rm -rf "$stage"
mkdir -p "$stage"
# As the tests of the C interface and of the command are built: behind those of the workspace, nothing is built anew.
cargo test --workspace --no-run --test interface --test commands
built="$target/debug/deps"
# Symbols for debugging would be most of the package.
small() { if command -v strip >/dev/null; then strip -o "$2" "$1"; else cp "$1" "$2"; fi; }
small "$built/libmillpond_capi.so" "$stage/libmillpond.so"
small "$target/debug/millpond" "$stage/millpond"
"$python" -m venv "$stage/venv"
MILLPOND_STAGE="$(cd "$stage" && pwd)" "$stage/venv/bin/python" -m pip install --quiet --no-index --no-deps \
    --disable-pip-version-check ./python
export MILLPOND_TEST_DRIVER="$built/libmillpond_cuda_driver.so"
"$stage/venv/bin/python" benches/torch/tests.py
for name in test_building test_package test_doctor test_hooks test_record test_settings test_shortage test_processes \
    test_sleep; do
    "$stage/venv/bin/python" "python/tests/$name.py"
done
# The package and its tests as they lie here, and a program that uses the installed package.
mypy="${MYPY:-$target/python-mypy/bin/mypy}"
if [ -z "${MYPY:-}" ] && ! "$mypy" --version >/dev/null 2>&1; then
    "$python" -m venv --clear "$target/python-mypy"
    "$target/python-mypy/bin/python" -m pip install --quiet --disable-pip-version-check --retries 1 --timeout 10 \
        mypy==2.4.1 || true
fi
if "$mypy" --version >/dev/null 2>&1; then
    (cd python && "$mypy" --config-file pyproject.toml --cache-dir "$stage/mypy")
    "$mypy" --strict --python-executable "$stage/venv/bin/python" --cache-dir "$stage/mypy" python/tests/typed.py
else
    echo "python.sh: SKIPPED: mypy is not here and cannot be fetched: the package's types are not checked" >&2
fi
if [ -n "${TORCH_PYTHON:-}" ]; then
    export OMP_NUM_THREADS=1
    "$TORCH_PYTHON" benches/torch/programs.py --device cpu --tiny --together --rounds 1 --steps 4
    "$TORCH_PYTHON" benches/torch/programs.py --device cpu --tiny --by-turns --rounds 1 --steps 4 --only gpt2,bert
    "$TORCH_PYTHON" benches/torch/precision.py --device cpu --tiny
    "$TORCH_PYTHON" benches/torch/record_meta.py "$stage/meta" --only bert,moe,detect,segment --steps 1
    "$TORCH_PYTHON" benches/torch/record_meta.py "$stage/meta" --only video,audio,points,diffusion --steps 1 --seed 1
    # A program whose library is not there says that it is skipped.
    "$TORCH_PYTHON" benches/torch/libraries.py --device cpu --tiny --together --rounds 1 --steps 2
    if "$TORCH_PYTHON" -c 'import transformers' 2>/dev/null; then
        "$TORCH_PYTHON" benches/torch/record_meta.py "$stage/meta" --libraries --steps 1 --only dynamic_cache,clip
    else
        echo "python.sh: SKIPPED: TORCH_PYTHON has no transformers: its programs are not recorded" >&2
    fi
    "$TORCH_PYTHON" benches/torch/ranks.py --device cpu --tiny --together --steps 4
else
    echo "python.sh: SKIPPED: TORCH_PYTHON names no Python with PyTorch: benches/torch is not tested" >&2
fi
