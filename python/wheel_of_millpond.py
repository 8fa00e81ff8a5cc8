"""Builds the wheel of the package, as PEP 517 asks: a zip file with the modules, the library and the shims.

The library and the shims lie in the folder that MILLPOND_STAGE names, where scripts/wheel.sh has put them. Without that
variable the library is built here, with Cargo, and the wheel has no compiled shim.
"""

import base64
import hashlib
import os
import pathlib
import platform
import re
import shutil
import subprocess
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent


def _version():
    text = (ROOT / "Cargo.toml").read_text(encoding="utf-8")
    return re.search(r'^version = "(.*)"$', text, re.MULTILINE).group(1)


def _tag():
    libc, version = platform.libc_ver()
    if libc != "glibc":
        raise SystemExit(f"millpond: the wheel is for Linux with glibc, and this is {libc or platform.system()}")
    return f"py3-none-manylinux_{version.replace('.', '_')}_{platform.machine()}"


def _stage():
    named = os.environ.get("MILLPOND_STAGE")
    if named:
        return pathlib.Path(named)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
    manifest = str(ROOT / "Cargo.toml")
    command = ["cargo", "build", "--manifest-path", manifest, "--release", "-p", "millpond-capi"]
    subprocess.run([*command, "--target-dir", str(target)], check=True)
    stage = target / "python"
    stage.mkdir(exist_ok=True)
    shutil.copy(target / "release" / "libmillpond_capi.so", stage / "libmillpond.so")
    return stage


def _contents():
    """Returns the files of the package: names in the wheel, and paths."""
    stage = _stage()
    files = {f"millpond/{path.name}": path for path in sorted((HERE / "millpond").glob("*.py"))}
    files["millpond/py.typed"] = HERE / "millpond" / "py.typed"
    files["millpond/lib/libmillpond.so"] = stage / "libmillpond.so"
    for source in sorted((HERE / "shim").iterdir()):
        files[f"millpond/shim/{source.name}"] = source
    for header in ("millpond.h", "millpond_core.h"):
        files[f"millpond/shim/{header}"] = ROOT / "crates" / "capi" / "include" / header
    for shim in sorted((stage / "shims").glob("*.so")):
        files[f"millpond/shim/{shim.name}"] = shim
    return files


def _metadata(version):
    readme = (HERE / "README.md").read_text(encoding="utf-8")
    lines = [
        "Metadata-Version: 2.1",
        "Name: millpond",
        f"Version: {version}",
        "Summary: Millpond for PyTorch: every CUDA tensor of a program in a caching allocator written in Rust",
        "License: MIT OR Apache-2.0",
        "Requires-Python: >=3.10",
        "Description-Content-Type: text/markdown",
    ]
    return "\n".join(lines) + "\n\n" + readme


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    version, tag = _version(), _tag()
    info = f"millpond-{version}.dist-info"
    texts = {
        f"{info}/METADATA": _metadata(version),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: millpond\nRoot-Is-Purelib: false\nTag: {tag}\n",
        f"{info}/entry_points.txt": "[torch.backends]\nmillpond = millpond._autoload:autoload\n",
    }
    name = f"millpond-{version}-{tag}.whl"
    records = []
    with zipfile.ZipFile(pathlib.Path(wheel_directory) / name, "w", zipfile.ZIP_DEFLATED) as wheel:

        def put(path, data):
            wheel.writestr(path, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            records.append(f"{path},sha256={digest},{len(data)}")

        for path, source in _contents().items():
            put(path, source.read_bytes())
        for path, text in texts.items():
            put(path, text.encode())
        records.append(f"{info}/RECORD,,")
        wheel.writestr(f"{info}/RECORD", "\n".join(records) + "\n")
    return name


def build_sdist(sdist_directory, config_settings=None):
    raise SystemExit("millpond: the package is built from the repository, with scripts/wheel.sh")
