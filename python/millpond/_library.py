"""The library, loaded with ctypes: its table of functions, for the shim and for what PyTorch has no names for."""

import ctypes
import functools
import os
import pathlib
from typing import Any

ABI = 1

# The variables that may have the configuration: the first that is set counts.
CONF_VARIABLES = ("MILLPOND_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")


class Error(RuntimeError):
    """A mistake that Millpond has found, or something that it needs and that is missing."""


class BadValue(Error, ValueError):
    """An argument that has the right type and may not be what it is."""


class BadType(Error, TypeError):
    """An argument of a type that is not taken."""


# The entries of millpond_core_v1 up to the last one that Python calls, in the order of the header. Entries that Python does
# not call are plain pointers.
class _Table(ctypes.Structure):
    _fields_ = [
        ("abi", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("last_error", ctypes.CFUNCTYPE(ctypes.c_char_p)),
        ("string_free", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
        ("configure", ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_char_p)),
        ("configuration", ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))),
        *((name, ctypes.c_void_p) for name in (
            "lend", "alloc", "free", "record_stream", "find", "at", "base_of", "empty_cache", "set_fraction", "get_fraction",
            "limits", "largest_free", "oom", "stats", "usage", "reset_peaks", "reset_totals",
        )),
        ("stats_json", ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))),
        ("summary", ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))),
        *((name, ctypes.c_void_p) for name in (
            "layout", "trace", "pool_ref", "pool_unref", "pool_uses", "pool_flags", "capture_begin", "capture_end",
        )),
        ("record_start", ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32)),
        *((name, ctypes.c_void_p) for name in (
            "record_stop", "checkpoint_take", "checkpoint_set", "checkpoint_drop", "open_to", "share", "open_shared",
            "close_shared", "alloc_at",
        )),
        ("record_take", ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))),
        ("recording_write", ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)),
        ("recording_drop", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
        ("header_check", ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_char_p)),
        # The shim calls this one, with a pool as PyTorch names it.
        ("group_add_pool", ctypes.c_void_p),
        ("group_pause", ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32, ctypes.c_char_p, ctypes.c_int32)),
        ("group_resume", ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32, ctypes.c_char_p)),
        ("group_info", ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32, ctypes.c_char_p, ctypes.c_void_p)),
        ("peak_open", ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_uint64))),
        ("peak_json", ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32, ctypes.c_uint64, ctypes.POINTER(ctypes.c_void_p))),
        ("peak_close", ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32, ctypes.c_uint64)),
        ("poll", ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_uint64))),
        ("hook_add", ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)),
        ("hook_remove", ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32, ctypes.c_uint64)),
        ("would_fit", ctypes.CFUNCTYPE(
            ctypes.c_int32, ctypes.c_int32, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p)),
        ("export_pages", ctypes.CFUNCTYPE(
            ctypes.c_int32, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_void_p)),
        ("export_dma_buf", ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p)),
        ("keys", ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))),
        ("unserved", ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))),
        # The shim calls this one.
        ("reconfigure", ctypes.c_void_p),
    ]


def path() -> str:
    """Returns the path of the library: the package's own, or what MILLPOND_LIBRARY names."""
    return os.environ.get("MILLPOND_LIBRARY") or str(pathlib.Path(__file__).parent / "lib" / "libmillpond.so")


@functools.cache
def library() -> ctypes.CDLL:
    """Returns the library, loaded."""
    try:
        return ctypes.CDLL(path())
    except OSError as error:
        raise Error(f"millpond: the library does not load: {error}") from error


def function(name: str, result: Any, *arguments: Any) -> Any:
    """Returns a function of the library. Raises ``Error`` if the library does not have it."""
    try:
        found = library()[name]
    except AttributeError as error:
        raise Error(f"{_unfit()} has no function {name}") from error
    found.restype, found.argtypes = result, arguments
    return found


def _unfit() -> str:
    return f"millpond: the package and the library {path()} do not fit (MILLPOND_LIBRARY may name one): the library"


@functools.cache
def version() -> str:
    """Returns the version of the library."""
    said: bytes = function("millpond_version", ctypes.c_char_p)()
    return said.decode()


@functools.cache
def address() -> int:
    """Returns the address of the table, for the shim. Raises ``Error`` if the table is not what Python reads."""
    found = function("millpond_core_get", ctypes.c_void_p, ctypes.c_uint32)(ABI)
    if not found:
        raise Error(f"{_unfit()}, of version {version()}, has no table of version {ABI}")
    # Every table begins with these two numbers. Nothing else is read before they are known.
    abi, size = (ctypes.c_uint32 * 2).from_address(found)
    if abi != ABI or size < ctypes.sizeof(_Table):
        raise Error(
            f"{_unfit()}, of version {version()}, has a table of version {abi} and {size} bytes, and version {ABI} with "
            f"{ctypes.sizeof(_Table)} are needed: it is older than the package"
        )
    return int(found)


@functools.cache
def _table() -> Any:
    return _Table.from_address(address())


def _check(status: int) -> None:
    if status != 0:
        raise Error(f"millpond: {_table().last_error().decode(errors='replace')}")


def text(entry: str, *arguments: object) -> str:
    """Calls an entry that writes a text, and returns it."""
    out = ctypes.c_void_p()
    _check(getattr(_table(), entry)(*arguments, ctypes.byref(out)))
    try:
        return ctypes.string_at(out.value or 0).decode()
    finally:
        _table().string_free(out.value)


def number(entry: str, *arguments: object) -> int:
    """Calls an entry that writes a number, and returns it."""
    out = ctypes.c_uint64()
    _check(getattr(_table(), entry)(*arguments, ctypes.byref(out)))
    return out.value


def call(entry: str, *arguments: object) -> None:
    """Calls an entry that returns a status alone."""
    _check(getattr(_table(), entry)(*arguments))


def take_recording(device: int) -> int:
    """Ends the recording of a device. Returns what is written with ``recording_write`` until ``drop_recording``."""
    out = ctypes.c_void_p()
    _check(_table().record_take(device, ctypes.byref(out)))
    return out.value or 0


def drop_recording(recording: int) -> None:
    """Drops a recording that was taken."""
    _table().recording_drop(recording)


def encoded(conf: str | None) -> bytes | None:
    """Returns a configuration as C takes it; ``None`` stays what it is. Raises ``BadValue`` for a text that C would cut."""
    if conf is not None and "\0" in conf:
        raise BadValue(f"millpond: the configuration {conf!r} has an embedded null character")
    return None if conf is None else conf.encode()


# The configuration that the program has asked for, of whatever it has enabled first.
_asked: str | None = None


def configure(conf: str | None) -> None:
    """Sets the configuration of this process. ``None`` takes the one that was set before, or that of the environment.

    Raises ``Error`` for a mistake in it, and for another one than was asked for before or is in use.
    """
    global _asked
    if conf is None:
        text("configuration")
        return
    if _asked is not None and conf != _asked:
        raise Error(f"millpond: enabled already, with another configuration: {_asked!r}")
    call("configure", encoded(conf))
    _asked = conf
