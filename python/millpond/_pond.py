"""Allocators for libraries that ask for memory by size and stream: the plain C interface, ``millpond.h``.

There is one allocator for each device, made at its first use, which all of these libraries share, and PyTorch with
them. It lives as long as the process, because their arrays may live until its end.
"""

import ctypes
import json
import os
import threading
from collections.abc import Callable
from typing import Any, NoReturn

from millpond import _library
from millpond._library import Error

# MILLPOND_ABI, and one of the statuses.
ABI = 1
OUT_OF_MEMORY = 1

_Pointer = ctypes.POINTER

# The functions of millpond.h that are called here, with their arguments. All of them return a status.
FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "shared": (ctypes.c_int, ctypes.c_char_p, _Pointer(ctypes.c_void_p)),
    "stream_release": (ctypes.c_void_p, ctypes.c_void_p),
    "alloc_async": (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p, _Pointer(ctypes.c_void_p)),
    "free_async": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p),
    "record_stream": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p),
    "set_limit": (ctypes.c_void_p, ctypes.c_uint64),
    "trim": (ctypes.c_void_p, ctypes.c_uint64, _Pointer(ctypes.c_uint64)),
    "empty_cache": (ctypes.c_void_p,),
    "stats_json": (ctypes.c_void_p, _Pointer(ctypes.c_void_p)),
    "summary": (ctypes.c_void_p, ctypes.c_int, _Pointer(ctypes.c_void_p)),
}


class OutOfMemory(Error, MemoryError):
    """The device, or the limit, has no memory left for a request."""


def _functions() -> dict[str, Callable[..., int]]:
    abi = _library.function("millpond_abi", ctypes.c_uint32)()
    if abi != ABI:
        raise Error(f"millpond: the library {_library.path()} has the interface {abi}, and the package needs {ABI}")
    return {
        name: _library.function(f"millpond_{name}", ctypes.c_int32, *arguments) for name, arguments in FUNCTIONS.items()
    }


class Pond:
    """The allocator of one device."""

    # Whether a parent process made it. Its blocks are dropped here without a call.
    is_inherited = False

    def __init__(self, device: int) -> None:
        self._functions = _functions()
        self._last_error = _library.function("millpond_last_error", ctypes.c_char_p)
        self._string_free = _library.function("millpond_string_free", None, ctypes.c_void_p)
        self._alloc, self._free = self._functions["alloc_async"], self._functions["free_async"]
        self.handle = ctypes.c_void_p()
        self._call("shared", device, None, ctypes.byref(self.handle))

    def disown(self) -> None:
        """Takes the allocator for a parent's, in the child of a ``fork``."""
        self.is_inherited = True
        self._free = lambda handle, address, stream: 0

    def _raise(self, status: int) -> NoReturn:
        text = f"millpond: {self._last_error().decode(errors='replace')}"
        raise OutOfMemory(text) if status == OUT_OF_MEMORY else Error(text)

    def _call(self, name: str, *arguments: object) -> None:
        status = self._functions[name](*arguments)
        if status != 0:
            self._raise(status)

    def _text(self, name: str, *arguments: object) -> str:
        out = ctypes.c_void_p()
        self._call(name, self.handle, *arguments, ctypes.byref(out))
        try:
            return ctypes.string_at(out.value or 0).decode()
        finally:
            self._string_free(out)

    def alloc(self, size: int, stream: int) -> int:
        """Returns the address of a block for use on a stream, a driver's handle; 0 for 0 bytes. The stream may be
        destroyed after any call with it, without a release, unless it was recorded."""
        out = ctypes.c_void_p()
        status = self._alloc(self.handle, size, stream, ctypes.byref(out))
        if status != 0:
            self._raise(status)
        return out.value or 0

    def free(self, address: int, stream: int) -> None:
        """Frees a block on a stream that is alive. Work that uses it there, on a stream that this one waits for, or on
        one that was recorded, need not be over."""
        status = self._free(self.handle, address, stream)
        if status != 0:
            self._raise(status)

    def record_stream(self, address: int, stream: int) -> None:
        """Records that a block is used on another stream until it is freed."""
        self._call("record_stream", self.handle, address, stream)

    def release_stream(self, stream: int) -> None:
        """Forgets a stream, before the program destroys it."""
        self._call("stream_release", self.handle, stream)

    def set_limit(self, size: int | None) -> None:
        """Limits the reserved bytes; ``None`` lifts the limit."""
        self._call("set_limit", self.handle, 2**64 - 1 if size is None else size)

    def trim(self, size: int) -> int:
        """Gives cached memory back until at most this is reserved. Returns the bytes that are reserved then."""
        out = ctypes.c_uint64()
        self._call("trim", self.handle, size, ctypes.byref(out))
        return out.value

    def empty_cache(self) -> None:
        """Gives all cached memory back to the driver."""
        self._call("empty_cache", self.handle)

    def stats(self) -> dict[str, int]:
        """Returns all statistics."""
        found: dict[str, int] = json.loads(self._text("stats_json"))
        return found

    def summary(self, abbreviated: bool) -> str:
        """Returns the statistics as a table."""
        return self._text("summary", int(abbreviated))


_lock = threading.Lock()
_ponds: dict[int, Pond] = {}


def _disown() -> None:
    """Runs in the child of a ``fork``: the allocators are the parent's, and so may be the thread that holds the lock."""
    global _lock
    _lock = threading.Lock()
    for pond in _ponds.values():
        pond.disown()


os.register_at_fork(after_in_child=_disown)


def of(device: int) -> Pond:
    """Returns the allocator of a device, which is made at its first use."""
    pond = _ponds.get(device)
    if pond is None:
        with _lock:
            pond = _ponds.get(device)
            if pond is None:
                pond = _ponds[device] = Pond(device)
    return pond
