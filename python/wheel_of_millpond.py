"""Builds the wheel of the package, as PEP 517 asks: a zip file with the modules, the library, the command and the shims.

The library, the command and the shims lie in the folder that MILLPOND_STAGE names, where scripts/wheel.sh has put them.
Without that variable the library and the command are built here, with Cargo, and the wheel has no compiled shim. Cargo
says which crates the two are linked with, too: their licences go with them.
"""

import base64
import hashlib
import json
import os
import pathlib
import platform
import re
import shutil
import stat
import subprocess
import time
import zipfile

from building import elf, floor

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
# The command in the wheel has the devices that PyTorch's users have, and the simulated one.
COMMAND = ["-p", "millpond-cli", "--no-default-features", "--features", "millpond-cli/cuda"]


def _version():
    text = (ROOT / "Cargo.toml").read_text(encoding="utf-8")
    return re.search(r'^version = "(.*)"$', text, re.MULTILINE).group(1)


def _tag(contents):
    """Returns the tag for the oldest glibc that what is in the wheel needs, as the files themselves say."""
    libc, _ = platform.libc_ver()
    if libc != "glibc" or platform.machine() != "x86_64":
        raise SystemExit(f"millpond: the wheel is for Linux with glibc on x86-64, and this is {platform.platform()}")
    compiled = [path for name, path in contents.items() if name.endswith(".so") or _is_program(name)]
    version = floor.glibc(elf.Library(path) for path in compiled)
    return f"py3-none-manylinux_{'_'.join(str(number) for number in version)}_x86_64"


def _stage():
    named = os.environ.get("MILLPOND_STAGE")
    if named:
        return pathlib.Path(named)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
    manifest = str(ROOT / "Cargo.toml")
    for what in (["-p", "millpond-capi"], [*COMMAND, "--bin", "millpond"]):
        command = ["cargo", "build", "--manifest-path", manifest, "--release", *what]
        subprocess.run([*command, "--target-dir", str(target)], check=True)
    stage = target / "python"
    stage.mkdir(exist_ok=True)
    shutil.copy(target / "release" / "libmillpond_capi.so", stage / "libmillpond.so")
    shutil.copy(target / "release" / "millpond", stage / "millpond")
    return stage


def _is_program(name):
    return ".data/scripts/" in name


def _contents(version):
    """Returns the files of the package: names in the wheel, and paths."""
    stage = _stage()
    files = {f"millpond/{path.name}": path for path in sorted((HERE / "millpond").glob("*.py"))}
    files["millpond/py.typed"] = HERE / "millpond" / "py.typed"
    files["millpond/lib/libmillpond.so"] = stage / "libmillpond.so"
    # An installer puts it where the environment has its commands.
    files[f"millpond-{version}.data/scripts/millpond"] = stage / "millpond"
    for source in sorted((HERE / "shim").iterdir()):
        files[f"millpond/shim/{source.name}"] = source
    for header in ("millpond.h", "millpond_core.h"):
        files[f"millpond/shim/{header}"] = ROOT / "crates" / "capi" / "include" / header
    for shim in sorted((stage / "shims").glob("*.so")):
        files[f"millpond/shim/{shim.name}"] = shim
    return files


def _linked():
    """Returns the packages of others that the library and the command are linked with, as Cargo describes them."""
    where = ["--locked", "--manifest-path", str(ROOT / "Cargo.toml")]
    target = f"{platform.machine()}-unknown-linux-gnu"

    def said(*command):
        return subprocess.run(["cargo", *command, *where], check=True, capture_output=True, text=True).stdout

    # A line has a package's name and its version, such as `zstd v0.13.3`.
    tree = said("tree", "-p", "millpond-capi", *COMMAND, "--target", target, "--edges", "normal,no-proc-macro",
                "--prefix", "none", "--format", "{p}")
    linked = {(words[0], words[1].removeprefix("v")) for words in map(str.split, tree.splitlines()) if words}
    packages = json.loads(said("metadata", "--format-version", "1", "--filter-platform", target))["packages"]
    others = (package for package in packages
              if package["source"] is not None and (package["name"], package["version"]) in linked)
    return sorted(others, key=lambda package: (package["name"], package["version"]))


def _licences():
    """Returns the texts of all licences, by their names in the wheel."""
    texts = {name: (ROOT / name).read_bytes() for name in ("LICENSE-APACHE", "LICENSE-MIT")}
    for package in _linked():
        folder = pathlib.Path(package["manifest_path"]).parent
        place = f"third-party/{package['name']}-{package['version']}"
        # What a crate compiles of others, such as zstd, lies in folders of its own.
        kinds = re.compile("(licen[cs]e|copying|copyright|notice|unlicense)", re.IGNORECASE)
        paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and kinds.match(path.name)]
        texts.update({f"{place}/{path.relative_to(folder).as_posix()}": path.read_bytes() for path in paths})
        if not paths:
            texts[f"{place}/LICENSE"] = f"{package['license']}, {package['repository'] or package['name']}\n".encode()
    return texts


def _metadata(version, licences):
    readme = (HERE / "README.md").read_text(encoding="utf-8")
    lines = [
        "Metadata-Version: 2.4",
        "Name: millpond",
        f"Version: {version}",
        "Summary: Millpond for PyTorch: every CUDA tensor of a program in a caching allocator written in Rust",
        "License-Expression: MIT OR Apache-2.0",
        *(f"License-File: {name}" for name in licences),
        "Requires-Python: >=3.10",
        "Description-Content-Type: text/markdown",
    ]
    return "\n".join(lines) + "\n\n" + readme


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    version = _version()
    contents = _contents(version)
    tag = _tag(contents)
    info = f"millpond-{version}.dist-info"
    licences = _licences()
    texts = {
        f"{info}/METADATA": _metadata(version, licences),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: millpond\nRoot-Is-Purelib: false\nTag: {tag}\n",
        f"{info}/entry_points.txt": "[torch.backends]\nmillpond = millpond._autoload:autoload\n"
                                    "[vllm.general_plugins]\nmillpond = millpond.vllm:install\n",
    }
    name = f"millpond-{version}-{tag}.whl"
    records = []
    with zipfile.ZipFile(pathlib.Path(wheel_directory) / name, "w", zipfile.ZIP_DEFLATED) as wheel:

        def put(path, data):
            # Installers make a program of what is one in the zip file.
            entry = zipfile.ZipInfo(path, time.localtime()[:6])
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (stat.S_IFREG | (0o755 if _is_program(path) else 0o644)) << 16
            wheel.writestr(entry, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            records.append(f"{path},sha256={digest},{len(data)}")

        for path, source in contents.items():
            put(path, source.read_bytes())
        for path, text in texts.items():
            put(path, text.encode())
        for path, text in licences.items():
            put(f"{info}/licenses/{path}", text)
        records.append(f"{info}/RECORD,,")
        wheel.writestr(f"{info}/RECORD", "\n".join(records) + "\n")
    return name


def build_sdist(sdist_directory, config_settings=None):
    raise SystemExit("millpond: the package is built from the repository, with scripts/wheel.sh")
