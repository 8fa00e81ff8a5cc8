"""What is installed here, what ``enable()`` would use, and what stands in its way: ``python -m millpond doctor``.

Looks at facts and asks the modules that decide; it has no rules of its own for what is served. It takes no memory of a
device but that of a context, which it opens for a moment to ask how much is free.
"""

import ctypes
import dataclasses
import importlib
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import platform
import shutil
import sys
import warnings
from types import ModuleType
from typing import Any

from millpond import _library, _record, _shim
from millpond._library import Error

# Variables that decide what torch, CUDA and Millpond do here.
_PREFIXES = ("MILLPOND_", "PYTORCH_", "TORCH_", "CUDA_VISIBLE_DEVICES", "CUDA_HOME", "CUDA_PATH", "LD_PRELOAD")


@dataclasses.dataclass
class Report:
    """What was found, in the order in which it is printed."""

    facts: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    # What makes enable() fail, and what does not but should be known: each with what to do.
    problems: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)

    def fact(self, name: str, value: object) -> None:
        """Adds a line."""
        self.facts.append((name, str(value)))

    def text(self) -> str:
        """Returns the report as people read it."""
        lines = [f"{name}: {value}" for name, value in self.facts]
        lines += [f"note: {note}" for note in self.notes]
        lines += [f"PROBLEM: {problem}" for problem in self.problems]
        if self.problems:
            return "\n".join([*lines, "enable() does not work here"])
        return "\n".join([*lines, f"enable() works here{', but read the notes' if self.notes else ''}"])


def _said(error: BaseException) -> str:
    """Returns what an error says, without the name that all of ours begin with."""
    text = str(error).removeprefix("millpond: ")
    return text if isinstance(error, Error) else f"{type(error).__name__}: {text}"


def machine() -> dict[str, Any]:
    """Returns the driver and the CUDA devices of this machine, as the library's header has them. Raises ``Error`` if there
    is no driver. The first call loads it, which takes up to half a second."""
    out = ctypes.c_void_p()
    status = _library.function("millpond_devices_json", ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))(ctypes.byref(out))
    if status != 0:
        said: bytes = _library.function("millpond_last_error", ctypes.c_char_p)()
        raise Error(f"millpond: {said.decode(errors='replace')}")
    try:
        found: dict[str, Any] = json.loads(ctypes.string_at(out.value or 0))
        return found
    finally:
        _library.function("millpond_string_free", None, ctypes.c_void_p)(out)


def device_lines(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Returns a line for each device."""
    return [
        (
            f"device {device['ordinal']}",
            f"{device['name']}, {device['total_bytes'] / 2**30:.1f} GiB, compute capability {device['compute']}, "
            f"{'virtual memory' if device['virtual_memory'] else 'no virtual memory'}",
        )
        for device in found["devices"]
    ]


def _driver() -> Any:
    """Returns the CUDA driver that the library takes. Raises ``Error`` if there is none."""
    for name in ("libcuda.so", "libcuda.so.1"):
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            said = str(error)
    raise Error(f"millpond: the driver does not load: {said}")


def memory_bytes(ordinal: int) -> tuple[int, int]:
    """Returns the bytes of a device that are free, and all of them, as its driver says.

    Opens a context for it: hundreds of milliseconds, and hundreds of MiB that do not count as free. Raises ``Error`` with
    the driver's code if the driver refuses.
    """
    driver = _driver()

    def call(name: str, *arguments: object) -> None:
        code = getattr(driver, name)(*arguments)
        if code != 0:
            known = ctypes.c_char_p()
            driver.cuGetErrorName(code, ctypes.byref(known))
            raise Error(f"millpond: {name} has failed with {(known.value or b'an unknown error').decode()} ({code})")

    context, device, free, total = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_size_t(), ctypes.c_size_t()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), ordinal)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    try:
        call("cuCtxPushCurrent_v2", context)
        try:
            call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        finally:
            driver.cuCtxPopCurrent_v2(ctypes.byref(context))
    finally:
        driver.cuDevicePrimaryCtxRelease_v2(device)
    return free.value, total.value


def memory_line(ordinal: int) -> tuple[str, str]:
    """Returns a line on the memory of a device, or on why it is not known."""
    try:
        free, total = memory_bytes(ordinal)
    except Error as error:
        return f"memory of device {ordinal}", f"not known: {_said(error)}"
    return f"memory of device {ordinal}", f"{free / 2**30:.1f} GiB free of {total / 2**30:.1f} GiB"


def _torch(report: Report) -> ModuleType | None:
    """Returns torch if it can be served."""
    if importlib.util.find_spec("torch") is None:
        report.fact("torch", "none")
        report.problems.append(
            f"there is no PyTorch for {sys.executable}: install 2.{_shim.FIRST} to 2.{_shim.LAST} with CUDA, or run the "
            "Python of the environment that has it. CuPy and RMM need none"
        )
        return None
    # It would call enable() at its end, and an error of that would hide what follows.
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    try:
        torch = importlib.import_module("torch")
    except Exception as error:
        report.fact("torch", "does not load")
        report.problems.append(f"PyTorch does not load: {_said(error)}. Install it again, or remove what replaces it")
        return None
    commit = str(getattr(torch.version, "git_version", None))[:12]
    report.fact("torch", f"{torch.__version__}, commit {commit}, in {pathlib.Path(str(torch.__file__)).parent}")
    try:
        _shim.release(torch)
    except Error as error:
        report.problems.append(_said(error))
        return None
    return torch


def _toolkit() -> str | None:
    """Returns the folder of the CUDA toolkit, where PyTorch looks for it, if the headers are there."""
    compiler = shutil.which("nvcc")
    folder = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or (
        str(pathlib.Path(compiler).parents[1]) if compiler else "/usr/local/cuda")
    return folder if pathlib.Path(folder, "include", "cuda_runtime_api.h").is_file() else None


def _compiles(report: Report, torch: ModuleType) -> None:
    """Says what the shim would be compiled with."""
    compiler = shutil.which(os.environ.get("CXX") or "c++")
    found = {
        "a C++ compiler: install g++, or let CXX name one": compiler,
        "ninja: pip install ninja": shutil.which("ninja"),
        "a CUDA toolkit: install one, and let CUDA_HOME name its folder": _toolkit(),
    }
    missing = [what for what, path in found.items() if path is None]
    release = str(torch.__version__).split("+")[0]
    if missing:
        report.fact("shim", "none for this torch, and none can be compiled")
        report.problems.append(
            f"the package has no shim for this torch. Install a wheel that has one (in a checkout: TORCHES={release} "
            f"scripts/wheel.sh). Or have it compiled here, which lacks {'; and '.join(missing)}"
        )
    else:
        report.fact("shim", f"none for this torch: the first enable() compiles one, in a minute, with {compiler}")


def _enable(report: Report, torch: ModuleType) -> None:
    """Finds the shim. Tries ``enable()`` if the shim is there, because only the truth is certain."""
    from millpond import torch as millpond_torch

    path = _shim.found(torch)
    if path is None:
        _compiles(report, torch)
    else:
        report.fact("shim", f"{path}{', as MILLPOND_SHIM names it' if os.environ.get('MILLPOND_SHIM') else ''}")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            if path is not None:
                millpond_torch.enable()
        report.notes += [_said(Error(str(warning.message))) for warning in caught if warning.category is RuntimeWarning]
    except Exception as error:
        report.problems.append(_said(error))


def _configuration(report: Report) -> None:
    from millpond import torch as millpond_torch

    try:
        if not millpond_torch.is_enabled():
            _library.configure(millpond_torch._chosen(None))
        conf = _library.text("configuration")
    except Error as error:
        report.fact("configuration", "has a mistake")
        if _said(error) not in report.problems:
            report.problems.append(_said(error))
        return
    named = next((name for name in _library.CONF_VARIABLES if os.environ.get(name) is not None), None)
    if millpond_torch._chosen(None) is not None:
        named = "PYTORCH_NO_CUDA_MEMORY_CACHING"
    source = "the default" if named is None else f"from {named}"
    # Without a policy each device gets the first that it can have.
    policy = "" if conf.startswith("policy:") else "policy:auto" + ("," if conf else "")
    report.fact("configuration", f"{policy}{conf}, {source}")
    if policy:
        report.fact("policy", "paged on devices with virtual memory, classic on others")
    else:
        report.fact("policy", conf.removeprefix("policy:").split(",")[0])


def _devices(report: Report, torch: ModuleType | None) -> None:
    try:
        found = machine()
    except Error as error:
        report.fact("driver", "no CUDA driver that can be used")
        report.notes.append(f"nothing can be allocated here: {_said(error)}")
        return
    report.fact("driver", f"CUDA {found['driver']}")
    for device, line in zip(found["devices"], device_lines(found)):
        report.fact(*line)
        report.fact(*memory_line(device["ordinal"]))
    if not found["devices"]:
        report.notes.append("the driver has no device: look at CUDA_VISIBLE_DEVICES, and at what a container is given")
    if ("policy", "paged") in report.facts and any(not device["virtual_memory"] for device in found["devices"]):
        report.notes.append("policy:paged needs virtual memory: use policy:classic on devices without it")
    built = getattr(torch.version, "cuda", None) if torch is not None else None
    if built is not None and int(str(built).split(".")[0]) > int(found["driver"].split(".")[0]):
        report.notes.append(
            f"the driver knows CUDA {found['driver']} and this torch is for {built}: update the driver, or install a torch "
            "for that CUDA"
        )


def _hooked(report: Report) -> None:
    """Names the other libraries whose memory can come from Millpond, where they are installed."""
    owners = importlib.metadata.packages_distributions()
    for module in ("cupy", "rmm"):
        for package in sorted(set(owners.get(module, ()))):
            installed = importlib.metadata.version(package)
            report.fact(module, f"{package} {installed}, on Millpond after millpond.{module}.enable()")


def examine() -> Report:
    """Looks at everything. It changes this process, whose PyTorch may be on Millpond then."""
    report = Report()
    report.fact("millpond", _library.version())
    report.fact("library", _library.path())
    system = " ".join(part for part in platform.libc_ver() if part) or "no glibc"
    python = f"Python {platform.python_version()} in {sys.executable}"
    report.fact("system", f"{platform.system()} on {platform.machine()}, {system}, {python}")
    environment = {name: value for name, value in sorted(os.environ.items()) if name.startswith(_PREFIXES)}
    wish = os.environ.get("MILLPOND_TORCH", "")
    try:
        _library.address()
    except Error as error:
        report.problems.append(_said(error))
        return report
    torch = _torch(report)
    if torch is not None:
        _enable(report, torch)
    _hooked(report)
    _configuration(report)
    _devices(report, torch)
    for name, value in environment.items():
        report.fact("environment", f"{name}={value}")
    if wish not in ("", "0", "1"):
        report.problems.append(f"MILLPOND_TORCH is {wish!r}, and must be 1 or 0: `import torch` is an error")
    try:
        report.fact("command", _record.command())
    except Error:
        how = "install the wheel again, which has it; or let MILLPOND_COMMAND name one"
        report.fact("command", f"none, and reports need it: {how}")
    return report
