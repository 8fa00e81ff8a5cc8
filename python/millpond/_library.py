"""The library, loaded with ctypes: its table of functions, for the shim and for what PyTorch has no names for."""

import ctypes
import functools
import os
import pathlib

ABI = 1


class Error(RuntimeError):
    """A mistake that Millpond has found, or something that it needs and that is missing."""


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
        ("record_stop", ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32, ctypes.c_char_p, ctypes.c_char_p)),
    ]


def path():
    """Returns the path of the library: the package's own, or what MILLPOND_LIBRARY names."""
    return os.environ.get("MILLPOND_LIBRARY") or str(pathlib.Path(__file__).parent / "lib" / "libmillpond.so")


@functools.cache
def library():
    """Returns the library, loaded."""
    try:
        library = ctypes.CDLL(path())
    except OSError as error:
        raise Error(f"millpond: the library does not load: {error}") from error
    library.millpond_core_get.argtypes = [ctypes.c_uint32]
    library.millpond_core_get.restype = ctypes.c_void_p
    library.millpond_version.restype = ctypes.c_char_p
    return library


def version():
    """Returns the version of the library."""
    return library().millpond_version().decode()


@functools.cache
def address():
    """Returns the address of the table, for the shim."""
    found = library().millpond_core_get(ABI)
    if not found:
        raise Error(f"millpond: {path()} has no table of version {ABI}: the package and the library do not fit")
    return found


@functools.cache
def _table():
    return _Table.from_address(address())


def _check(status):
    if status != 0:
        raise Error(f"millpond: {_table().last_error().decode()}")


def text(entry, *arguments):
    """Calls an entry that writes a text, and returns it."""
    out = ctypes.c_void_p()
    _check(getattr(_table(), entry)(*arguments, ctypes.byref(out)))
    try:
        return ctypes.string_at(out.value).decode()
    finally:
        _table().string_free(out.value)


def call(entry, *arguments):
    """Calls an entry that returns a status alone."""
    _check(getattr(_table(), entry)(*arguments))


def drop_recording(device):
    """Ends the recording of a device, if there is one, without a file."""
    _table().record_stop(device, None, None)


def configure(conf):
    """Sets the configuration of allocators that are made later; ``None`` for that of the environment."""
    _check(_table().configure(None if conf is None else conf.encode()))
