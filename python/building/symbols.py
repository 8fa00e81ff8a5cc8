"""Checks that a torch has every symbol that a shim needs of it: the shim is loaded into a process of torch, and would not
load without. scripts/wheel.sh runs it.

    python -m building.symbols SHIM FOLDER      FOLDER is as site-packages are: torch/lib, and nvidia/*/lib for CUDA's runtime

Small libraries of torch tell: libc10.so and libc10_cuda.so by what they have, and libtorch_python.so by what it takes from
others, since torch itself would not load if they did not have it. Without these libraries nothing is checked.
"""

import pathlib
import sys

from building import elf


def missing(shim: elf.Library, folder: pathlib.Path) -> list[str] | None:
    """Returns the symbols that this torch lacks; ``None`` if the folder does not have the libraries that tell."""
    torch = folder / "torch" / "lib"
    tell = [torch / name for name in ("libc10.so", "libc10_cuda.so", "libtorch_python.so")]
    runtimes = sorted(folder.glob("nvidia/*/lib/libcudart.so.*"))
    if not runtimes or not all(path.is_file() for path in tell):
        return None
    known = {symbol.name for path in [*tell[:2], *runtimes] for symbol in elf.Library(path).symbols if symbol.is_defined}
    known |= {symbol.name for symbol in elf.Library(tell[2]).symbols if not symbol.is_defined and not symbol.is_weak}
    # Those with a version are of other libraries. Weak ones may be missing.
    needed = [symbol for symbol in shim.symbols if not symbol.is_defined and not symbol.is_weak and not symbol.version]
    return sorted(symbol.name for symbol in needed if symbol.name not in known)


def main(arguments: list[str]) -> int | str | None:
    """Runs a command line. Returns the exit code, or the text of an error."""
    if len(arguments) != 2:
        return __doc__
    shim, folder = arguments
    lacking = missing(elf.Library(pathlib.Path(shim)), pathlib.Path(folder))
    if lacking is None:
        print(f"symbols.py: NOT CHECKED: {folder} lacks libraries of torch/lib, or libcudart in nvidia/*/lib", file=sys.stderr)
    elif lacking:
        return "\n".join([f"symbols.py: {shim} needs what the torch in {folder} does not have:", *lacking])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
