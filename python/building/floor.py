"""The oldest Linux that a wheel is for, manylinux_2_28: the versions of symbols that it has, libraries to link with that
have no newer ones, and whether a library keeps to them. scripts/wheel.sh and the builder of wheels use it.

    python -m building.floor link FOLDER        writes the libraries to link with, and what is linked in besides: old.o
    python -m building.floor check LIBRARY...   fails if one of them needs more than that Linux has

A library to link with is made from the one of this machine: it has the same symbols, each in the newest version that the
old Linux has. Nothing is in them, as only a linker reads them. So a library that is linked here says what it would say
had it been linked there, by the compiler of today. The libraries in question only ever add versions.
"""

import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterable

from building import elf

# The versions that manylinux_2_28 allows. That of GCC belongs to its library for exceptions.
NEWEST = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11), "GCC": (7, 0, 0)}

# The libraries whose versions these are, with the names that a linker looks for.
_LIBRARIES = {
    "libc.so.6": "libc.so", "libm.so.6": "libm.so", "libpthread.so.0": "libpthread.so", "libdl.so.2": "libdl.so",
    "ld-linux-x86-64.so.2": "ld-linux-x86-64.so.2", "libstdc++.so.6": "libstdc++.so",
}
# Libraries of torch, of which only the names are written down.
_NAMES = ("libc10.so", "libc10_cuda.so", "libtorch_cuda.so")
_HERE = pathlib.Path(__file__).resolve().parent


def _parsed(version: str) -> tuple[str, tuple[int, ...]] | None:
    """Returns the family and the numbers of a version, such as of ``GLIBC_2.28``; ``None`` if it is of another kind."""
    found = re.fullmatch(r"([A-Z]+)_([\d.]+)", version)
    if found is None or found.group(1) not in NEWEST:
        return None
    return found.group(1), tuple(int(number) for number in found.group(2).split("."))


def _is_old(version: str) -> bool:
    parsed = _parsed(version)
    return parsed is not None and parsed[1] <= NEWEST[parsed[0]]


def too_new(library: elf.Library) -> list[str]:
    """Returns what a library needs that the old Linux does not have, a line for each."""
    return [
        f"{symbol.name} of version {symbol.version}"
        for symbol in library.symbols
        if not symbol.is_defined and symbol.version and not _is_old(symbol.version)
    ]


def glibc(libraries: Iterable[elf.Library]) -> tuple[int, ...]:
    """Returns the oldest glibc on which all of these libraries load, and no older one than that of the old Linux."""
    parsed = [_parsed(symbol.version) for library in libraries for symbol in library.symbols if not symbol.is_defined]
    return max([NEWEST["GLIBC"], *(numbers for found in parsed if found is not None
                                   for family, numbers in [found] if family == "GLIBC")])


def _compiler() -> list[str]:
    return os.environ.get("CXX", "g++").split()


def _path(name: str) -> pathlib.Path:
    """Returns where this machine has a library."""
    found = subprocess.run([*_compiler(), f"-print-file-name={name}"], check=True, capture_output=True, text=True)
    path = pathlib.Path(found.stdout.strip())
    if not path.is_absolute():
        raise SystemExit(f"floor.py: {_compiler()[0]} does not find {name}")
    return path


def _library(name: str, folder: pathlib.Path, symbols: Iterable[elf.Symbol]) -> None:
    """Writes a library to link with: the symbols, and the version of each."""
    best: dict[str, elf.Symbol] = {}
    for symbol in symbols:
        # Each version is a symbol of its own name, too.
        if symbol.is_defined and _is_old(symbol.version) and symbol.name != symbol.version:
            known = best.get(symbol.name)
            if known is None or (_parsed(known.version) or ()) < (_parsed(symbol.version) or ()):
                best[symbol.name] = symbol
    lines: list[str] = []
    versions: dict[str, list[str]] = {}
    for symbol in best.values():
        kind = "object" if symbol.is_object else "function"
        lines.append(f".globl {symbol.name}\n.type {symbol.name},@{kind}\n{symbol.name}: .skip {max(symbol.size_bytes, 1)}")
        lines.append(f".size {symbol.name},{max(symbol.size_bytes, 1)}")
        versions.setdefault(symbol.version, []).append(symbol.name)
    source, script = folder / f"{name}.s", folder / f"{name}.map"
    source.write_text(".bss\n" + "\n".join(lines) + '\n.section .note.GNU-stack,"",@progbits\n')
    nodes = (f"{version} {{ global: {' '.join(f'{each};' for each in names)} }};\n" for version, names in versions.items())
    script.write_text("".join(nodes))
    options = ["-shared", "-nostdlib", f"-Wl,-soname,{name}"] + ([f"-Wl,--version-script,{script}"] if versions else [])
    subprocess.run([*_compiler(), *options, str(source), "-o", str(folder / _LIBRARIES.get(name, name))], check=True)
    source.unlink()
    script.unlink()


def link(folder: pathlib.Path) -> None:
    """Writes all that is linked with into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in _LIBRARIES:
        _library(name, folder, elf.Library(_path(name)).symbols)
    for name in _NAMES:
        _library(name, folder, ())
    options = ["-x", "c", "-std=gnu11", "-O2", "-fPIC", "-Wall", "-Wextra", "-c"]
    subprocess.run([*_compiler(), *options, str(_HERE / "old.c"), "-o", str(folder / "old.o")], check=True)


def main(arguments: list[str]) -> int | str | None:
    """Runs a command line. Returns the exit code, or the text of an error."""
    if len(arguments) == 2 and arguments[0] == "link":
        link(pathlib.Path(arguments[1]))
        return 0
    if len(arguments) >= 2 and arguments[0] == "check":
        wrong = [f"{path} needs {line}" for path in arguments[1:] for line in too_new(elf.Library(pathlib.Path(path)))]
        return "\n".join(["floor.py: this is newer than manylinux_2_28 has:", *wrong]) if wrong else 0
    return __doc__


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
