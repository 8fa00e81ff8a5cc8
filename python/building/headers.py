"""Fetches what the shim is compiled against and checked with, for releases of torch: without their wheels, which have up
to 600 MB each, and without those of CUDA. scripts/wheel.sh runs it.

    python -m building.headers FOLDER [VERSION...]      such as 2.11.0; without any, all that Millpond serves and the index has

FOLDER/VERSION then looks as site-packages do, with these parts: torch/version.py, torch/include, three libraries in
torch/lib, and the headers and the library of CUDA's runtime in nvidia/cu13. That takes about 25 MB each, once: what is
there is not fetched again. Prints the folders.

pip is asked where the wheels are, and its connection reads the parts of them that are wanted. So its own settings apply,
such as those of an index, a proxy or a certificate. An index that does not send parts is an error, which says what to do.
"""

import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from typing import Any

# What is built holds for every Python, and the headers are the same for all: so one version is as good as another.
PYTHON = "3.12"
PLATFORMS = ["manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64"]

# Members of a wheel, which are a path in FOLDER/VERSION, too.
OF_TORCH = re.compile(r"torch/(include/.*|version\.py|lib/lib(c10|c10_cuda|torch_python)\.so)")
OF_CUDA = re.compile(r"nvidia/[^/]*/(include/.*|lib/libcudart\.so\.\d+)")

# Parts that are closer than this are read as one: a question takes longer than these bytes.
NEAR = 1 << 20
# The list of a zip file's members begins at most this far from its end, in all wheels but large ones.
TAIL = 1 << 16


class Missing(Exception):
    """Something that cannot be fetched."""


def served() -> list[str]:
    """Returns the releases of torch that Millpond serves and the index has, oldest first."""
    said = subprocess.run(
        [sys.executable, "-m", "pip", "index", "versions", "torch"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    found = re.search(r"^Available versions: (.*)$", said.stdout, re.MULTILINE)
    source = (pathlib.Path(__file__).parents[1] / "millpond" / "_shim.py").read_text(encoding="utf-8")
    limits = re.search(r"^FIRST, LAST = (\d+), (\d+)$", source, re.MULTILINE)
    if found is None or limits is None:
        raise Missing(f"pip does not say which releases of torch there are: name them in TORCHES\n{said.stderr}")
    releases = [match for name in found.group(1).split(", ") if (match := re.fullmatch(r"2\.(\d+)\.(\d+)", name))]
    kept = [match for match in releases if int(limits.group(1)) <= int(match.group(1)) <= int(limits.group(2))]
    return [match.group() for match in sorted(kept, key=lambda match: (int(match.group(1)), int(match.group(2))))]


def report(*requirements: str) -> list[dict[str, Any]]:
    """Returns what pip says of the packages that it would install."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "report.json")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", str(path),
                   "--target", folder, "--only-binary", ":all:", "--python-version", PYTHON,
                   *(part for name in PLATFORMS for part in ("--platform", name)), *requirements]
        if subprocess.run(command, stdin=subprocess.DEVNULL).returncode != 0:
            raise Missing(f"pip does not find {' '.join(requirements)}")
        found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["install"]
        return found


def session() -> Any:
    """Returns a connection as pip makes it, after its settings."""
    try:
        from pip._internal.commands import create_command

        command: Any = create_command("download")
        return command._build_session(command.parse_args(["--no-cache-dir", "-"])[0])
    except (ImportError, AttributeError) as error:
        raise Missing(f"this pip has another inside than is known ({error}): update pip, or this script") from error


class Parts(io.RawIOBase):
    """A file behind an address, of which only the parts that are read are fetched."""

    def __init__(self, asked: Any, url: str) -> None:
        self._asked, self._url, self._at = asked, url, 0
        # Parts that have come: where they begin, and their bytes.
        self._parts: list[tuple[int, bytes]] = []
        answer = asked.head(url, headers={"Accept-Encoding": "identity"})
        answer.raise_for_status()
        self.size = int(answer.headers["Content-Length"])
        self.fetched = 0

    def fetch(self, start: int, stop: int) -> None:
        """Fetches the bytes from ``start`` to ``stop``."""
        headers = {"Accept-Encoding": "identity", "Range": f"bytes={start}-{stop - 1}"}
        answer = self._asked.get(self._url, headers=headers, stream=True)
        answer.raise_for_status()
        if answer.status_code != 206:
            answer.close()
            raise Missing("the index does not send parts of a file")
        data = answer.raw.read(stop - start + 1)
        if len(data) != stop - start:
            raise Missing(f"the index sent {len(data)} bytes in place of {stop - start}")
        self._parts.append((start, data))
        self.fetched += len(data)

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        stop = self.size if size < 0 else min(self._at + size, self.size)
        for start, data in self._parts:
            if start <= self._at and stop <= start + len(data):
                found = data[self._at - start:stop - start]
                break
        else:
            self.fetch(self._at, max(stop, min(self._at + TAIL, self.size)))
            return self.read(size)
        self._at = stop
        return found


def members(file: Parts, wanted: re.Pattern[str], folder: pathlib.Path) -> None:
    """Writes the members of a zip file whose names match into a folder. Their checksums are compared."""
    file.fetch(max(0, file.size - TAIL), file.size)
    with zipfile.ZipFile(file) as wheel:
        order = sorted(wheel.infolist(), key=lambda info: info.header_offset)
        ends = [info.header_offset for info in order[1:]] + [wheel.start_dir]
        spans: list[list[int]] = []
        for info, end in zip(order, ends):
            if wanted.fullmatch(info.filename) is None:
                continue
            if spans and info.header_offset - spans[-1][1] <= NEAR:
                spans[-1][1] = end
            else:
                spans.append([info.header_offset, end])
        for start, end in spans:
            file.fetch(start, end)
        for info in order:
            if wanted.fullmatch(info.filename) is not None:
                wheel.extract(info, folder)


def package(found: dict[str, Any], wanted: re.Pattern[str], folder: pathlib.Path) -> None:
    """Writes what is wanted of a package that pip has found."""
    url = found["download_info"]["url"]
    name = f"{found['metadata']['name']} {found['metadata']['version']}"
    with session() as asked:
        file = Parts(asked, url)
        members(file, wanted, folder)
    print(f"headers.py: {name}: {file.fetched / 1e6:.1f} of {file.size / 1e6:.1f} MB", file=sys.stderr)


def release(folder: pathlib.Path, version: str) -> None:
    """Fetches what belongs to a release of torch, all or nothing."""
    done = folder / version
    if done.is_dir():
        return
    [torch] = report("--no-deps", f"torch=={version}")
    needs = torch["metadata"].get("requires_dist", [])
    cuda = [match.group(1) for need in needs if (match := re.match(r"cuda-toolkit\[.*?\]==([\d.]+)", need))]
    if len(cuda) != 1:
        raise Missing(f"torch {version} does not say which CUDA it is for")
    folder.mkdir(parents=True, exist_ok=True)
    stage = pathlib.Path(tempfile.mkdtemp(prefix=f".{version}-", dir=folder))
    try:
        package(torch, OF_TORCH, stage)
        for found in report(f"cuda-toolkit[cudart,crt]=={cuda[0]}"):
            if found["metadata"]["name"] != "cuda-toolkit":
                package(found, OF_CUDA, stage)
        stage.chmod(0o755)
        stage.rename(done)
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def main(arguments: list[str]) -> int | str | None:
    """Runs a command line. Returns the exit code, or the text of an error."""
    if not arguments or not all(re.fullmatch(r"\d+(\.\d+)+", version) for version in arguments[1:]):
        return __doc__
    folder = pathlib.Path(arguments[0])
    try:
        versions = arguments[1:] or served()
    except Missing as error:
        return f"headers.py: {error}"
    for version in versions:
        try:
            release(folder, version)
            print(folder / version)
        except Exception as error:
            return (
                f"headers.py: the headers of torch {version} cannot be fetched: {type(error).__name__}: {error}\n"
                f"Unpack what is needed by hand, and name the folder in TORCHES. The last two packages are to be of the CUDA\n"
                f"that this torch is for:\n"
                f"  pip download --no-deps --dest wheels torch=={version}\n"
                f"  unzip -q wheels/torch-{version}-*.whl 'torch/include/*' torch/version.py 'torch/lib/libc10*' \\\n"
                f"      torch/lib/libtorch_python.so -d {version}\n"
                f"  pip install --no-deps --target {version} nvidia-cuda-runtime nvidia-cuda-crt\n"
                f"  TORCHES={version} scripts/wheel.sh"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
