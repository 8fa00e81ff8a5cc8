"""Modules in the place of torch, CuPy and RMM, for tests in processes of their own, where there is no GPU.

They have what Millpond calls, under the names and with the arguments that torch 2.11, CuPy 14 and RMM 26 have.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import unittest

TORCH = """
__version__ = "2.11.0+cu130"
class version:
    cuda, hip, git_version = "13.0", None, "0" * 40
class cuda:
    chosen = 0
    init = staticmethod(lambda: None)
    current_device = staticmethod(lambda: cuda.chosen)
    device_count = staticmethod(lambda: 3)
    get_device_name = staticmethod(lambda device: f"stand-in {device}")
    class stream: cuda_stream = None
    current_stream = staticmethod(lambda device: cuda.stream)
    class device:
        def __init__(self, idx): self.idx = idx
class _C:
    told = []
    @staticmethod
    def _accelerator_setAllocatorSettings(text):
        _C.told.append(text)
        if "catch_all" in text: raise ValueError("Unrecognized key")
class device:
    def __init__(self, text):
        self.type, _, number = text.partition(":")
        if self.type not in ("cpu", "cuda", "meta"):
            raise RuntimeError(f"Expected one of cpu, cuda, meta device type at start of device string: {text}")
        self.index = int(number) if number else None
    def __repr__(self): return self.type if self.index is None else f"{self.type}:{self.index}"
"""

CUPY = """
class _Stream:
    def __init__(self, ptr): self.ptr = ptr
class cuda:
    current, allocator = _Stream(0), staticmethod(lambda size: None)
    class device:
        get_device_id = staticmethod(lambda: 0)
    class memory:
        class OutOfMemoryError(MemoryError):
            def __init__(self, size, total, limit=0): super().__init__(f"Out of memory allocating {size} ({total})")
    class UnownedMemory:
        def __init__(self, ptr, size, owner, device_id=-1):
            assert device_id >= 0
            self.ptr, self.size, self._owner, self.device_id = ptr, size, owner, device_id
    class MemoryPointer:
        def __init__(self, mem, offset): self.mem, self.ptr = mem, mem.ptr + offset
    get_current_stream = staticmethod(lambda: cuda.current)
    get_allocator = staticmethod(lambda: cuda.allocator)
    @staticmethod
    def set_allocator(allocator): cuda.allocator = allocator
class array:
    def __init__(self, size): self.data = cuda.allocator(size)
"""

RMM = """
class Stream:
    def __init__(self, handle): self.handle = handle
    def __cuda_stream__(self): return (0, self.handle)
"""

RMM_MR = """
class CallbackMemoryResource:
    def __init__(self, allocate_func, deallocate_func):
        self.allocate, self.deallocate = allocate_func, deallocate_func
_resources = {0: "the first one", 1: "another one"}
def get_per_device_resource(device): return _resources[device]
def set_per_device_resource(device, mr): _resources[device] = mr
"""

# The driver that a test runs on: streams, and what is queued on them.
DRIVER = """
import ctypes
driver = ctypes.CDLL("libcuda.so")
def check(status): assert status == 0, status
check(driver.cuInit(0))
context = ctypes.c_void_p()
check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
check(driver.cuCtxSetCurrent(context))
def new_stream():
    stream = ctypes.c_void_p()
    check(driver.cuStreamCreate(ctypes.byref(stream), 1))
    return stream.value
"""

SHIM = """
#include <stdlib.h>
#include <string.h>
const char *millpond_shim_torch(void) { return "2.11.0"; }
int millpond_shim_in_use(void) { return 0; }
void millpond_shim_present(char *out, size_t room) { strncpy(out, "native", room); }
int millpond_shim_install(const void *table, char *out, size_t room) { return 0; }
void millpond_shim_warn(void (*told)(const char *)) { if (getenv("SHIM_WARNS")) told(getenv("SHIM_WARNS")); }
static _Thread_local char group[100];
void millpond_shim_group(const char *name) { strncpy(group, name, sizeof group - 1); }
const char *group_of_this_thread(void) { return group; }
"""


def own_command() -> str:
    """Returns the path of the command that was installed with the package: where the environment has its programs."""
    return os.path.join(os.path.realpath(sysconfig.get_path("scripts")), "millpond")


def driver() -> str | None:
    """Returns the path of the simulated driver, which scripts/python.sh builds, or ``None``."""
    path = os.environ.get("MILLPOND_TEST_DRIVER", "")
    return path if pathlib.Path(path).is_file() else None


def run(
    code: str,
    modules: dict[str, str],
    environment: dict[str, str] | None = None,
    needs_shim: bool = False,
    is_quiet: bool = False,
    code_at_end: int = 0,
) -> str:
    """Runs code in a process of its own that finds these modules, texts by file name. Returns its output.

    With ``needs_shim`` it finds a shim that does nothing, too; without a C compiler the test is skipped then. With
    ``is_quiet`` it may print no errors. It must end with ``code_at_end``.
    """
    with tempfile.TemporaryDirectory() as folder:
        for name, text in modules.items():
            path = pathlib.Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        clean = {key: value for key, value in os.environ.items() if not re.match("(MILLPOND|PYTORCH)_", key)}
        clean["PYTHONPATH"] = folder
        if needs_shim:
            compiler, source, shim = shutil.which("cc"), pathlib.Path(folder, "shim.c"), pathlib.Path(folder, "shim.so")
            if compiler is None:
                raise unittest.SkipTest("there is no C compiler")
            source.write_text(SHIM)
            subprocess.run([compiler, "-w", "-shared", "-fPIC", source, "-o", shim], check=True)
            clean["MILLPOND_SHIM"] = str(shim)
        command = [sys.executable, "-c", code]
        clean.update(environment or {})
        done = subprocess.run(command, capture_output=True, text=True, env=clean, timeout=100)
    if done.returncode != code_at_end or (is_quiet and done.stderr):
        raise AssertionError(f"exit code {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout
