"""The shim that belongs to this version of torch: found in the package, or compiled once.

A shim is a C++ class that inherits from one of torch's, so it fits one version alone. A wrong one would not fail to load:
it would corrupt memory. So nothing of it is called before torch's version and the commit that torch was built from are
those of the shim.
"""

import ctypes
import os
import pathlib
import re
import sys
from types import ModuleType

from millpond._library import Error

# The minor versions of torch 2 that the source is known to fit.
FIRST, LAST = 11, 15

# What a shim calls with the text of a warning.
WARN = ctypes.CFUNCTYPE(None, ctypes.c_char_p)

_FOLDER = pathlib.Path(__file__).parent / "shim"


def release(torch: ModuleType) -> str:
    """Returns the version of torch without what stands behind ``+``, after checking that it can be served.

    Raises ``Error`` otherwise.
    """
    name = str(torch.__version__)
    found = re.fullmatch(r"2\.(\d+)\.(\d+)", name.split("+")[0])
    if sys.platform != "linux":
        raise Error(f"millpond: PyTorch is served on Linux, and this is {sys.platform}")
    if getattr(torch.version, "hip", None):
        raise Error(f"millpond: torch {name} is for ROCm, and Millpond serves CUDA")
    if not getattr(torch.version, "cuda", None):
        raise Error(f"millpond: torch {name} is built without CUDA, so there is nothing to serve: install one with CUDA")
    if found is None or not FIRST <= int(found.group(1)) <= LAST:
        raise Error(
            f"millpond: torch {name} is not supported: its allocator interface changes from version to version, and this "
            f"Millpond knows releases 2.{FIRST} to 2.{LAST}. Use one of them, or run without Millpond"
        )
    return name.split("+")[0]


def shims() -> list[pathlib.Path]:
    """Returns the compiled shims in the package, each named by the torch that it is for."""
    return sorted(_FOLDER.glob("*.so"))


def _prebuilt(torch: ModuleType, version: str) -> pathlib.Path | None:
    git = str(getattr(torch.version, "git_version", ""))
    path = _FOLDER / f"{version}-{git[:12]}.so"
    abi = getattr(torch, "compiled_with_cxx11_abi", lambda: True)()
    return path if abi and path.is_file() else None


def _compiled(torch: ModuleType, version: str, why: str) -> str:
    """Compiles the shim with torch's own means, which keep it for the next time."""
    try:
        from torch.utils import cpp_extension

        minor = int(version.split(".")[1])
        name = f"millpond_shim_{version.replace('.', '_')}_{str(torch.version.git_version)[:12]}"
        built: str | None = cpp_extension.load(
            name,
            [str(_FOLDER / "shim.cpp")],
            extra_cflags=["-O2", "-fvisibility=hidden", "-std=c++20" if minor >= 14 else "-std=c++17"],
            extra_include_paths=[str(_FOLDER)],
            with_cuda=True,
            is_python_module=False,
        )
        return built or str(pathlib.Path(cpp_extension._get_build_directory(name, verbose=False)) / f"{name}.so")
    except Exception as error:
        raise Error(
            f"millpond: {why}, and it cannot be compiled here, which takes a C++ compiler, ninja and CUDA's headers "
            f"(CUDA_HOME): {type(error).__name__}: {error}"
        ) from error


def found(torch: ModuleType) -> str | None:
    """Returns the path of the shim that this torch gets, if it is compiled: what MILLPOND_SHIM names, or the package's own."""
    named = os.environ.get("MILLPOND_SHIM") or _prebuilt(torch, release(torch))
    return None if named is None else str(named)


def load(torch: ModuleType) -> ctypes.CDLL:
    """Returns the shim for this torch, loaded. Raises ``Error`` if there is none."""
    version = release(torch)
    path = found(torch)
    if path is None:
        why = f"the package has no shim for torch {torch.__version__} (commit {str(torch.version.git_version)[:12]})"
        path = _compiled(torch, version, why)
    try:
        shim = ctypes.CDLL(path)
    except OSError as error:
        raise Error(f"millpond: the shim does not load into torch {torch.__version__}: {error}") from error
    shim.millpond_shim_torch.restype = ctypes.c_char_p
    compiled_for = shim.millpond_shim_torch().decode()
    if compiled_for != version:
        raise Error(f"millpond: the shim {path} is for torch {compiled_for}, and this is torch {torch.__version__}")
    shim.millpond_shim_install.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
    shim.millpond_shim_present.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    shim.millpond_shim_present.restype = None
    shim.millpond_shim_group.argtypes = [ctypes.c_char_p]
    shim.millpond_shim_group.restype = None
    shim.millpond_shim_warn.argtypes = [WARN]
    shim.millpond_shim_warn.restype = None
    return shim
