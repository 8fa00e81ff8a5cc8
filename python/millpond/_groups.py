"""Groups of private pools, which are paused and resumed together: the entries of the library's table for them.

This module knows the C interface and nothing of PyTorch. The entries follow those of ``_library`` in the table. A
library without them is refused by name.
"""

import ctypes
import dataclasses
import functools
from typing import Any

from millpond import _library
from millpond._library import Error
from millpond._pond import OUT_OF_MEMORY, OutOfMemory

# What `group_pause` keeps of the contents: nothing, or a copy in host memory.
DISCARD, HOST = 0, 1

_Pointer = ctypes.POINTER


class RawInfo(ctypes.Structure):
    """``millpond_core_group_info``."""

    _fields_ = [
        ("live_bytes", ctypes.c_uint64),
        ("paused_bytes", ctypes.c_uint64),
        ("host_bytes", ctypes.c_uint64),
        ("is_paused", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
    ]


class Entries(ctypes.Structure):
    """The entries of groups, in the order of the header. The shim calls `group_add_pool`, so it is a plain pointer
    here."""

    _fields_ = [
        ("group_create", ctypes.CFUNCTYPE(
            ctypes.c_int32, ctypes.c_int32, ctypes.c_char_p, _Pointer(ctypes.c_void_p))),
        ("group_add_pool", ctypes.c_void_p),
        ("group_pause", ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32)),
        ("group_resume", ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)),
        ("group_info", ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, _Pointer(RawInfo))),
    ]


@dataclasses.dataclass(frozen=True)
class Info:
    """What a group holds on one device, in bytes."""

    # In blocks that the program has not freed.
    live_bytes: int
    # Of pages that went back to the driver, and come again with `resume`.
    paused_bytes: int
    # Of host memory that has contents.
    host_bytes: int
    is_paused: bool


@functools.cache
def _entries() -> Any:
    begin = ctypes.sizeof(_library._Table)
    size = ctypes.c_uint32.from_address(_library.address() + ctypes.sizeof(ctypes.c_uint32)).value
    if size < begin + ctypes.sizeof(Entries):
        raise Error(
            f"millpond: the library {_library.path()} is of version {_library.version()}, which cannot pause memory: "
            "it is older than the package"
        )
    return Entries.from_address(_library.address() + begin)


@functools.cache
def _handle(device: int, name: str) -> int:
    """Returns the group of this name on a device, which is made if there is none. It lives as long as the process."""
    out = ctypes.c_void_p()
    _library._check(_entries().group_create(device, name.encode(), ctypes.byref(out)))
    return out.value or 0


def check() -> None:
    """Raises ``Error`` if the library knows no groups."""
    _entries()


def pause(device: int, name: str, keep: int) -> None:
    """Gives the pages of a group back to the driver, once the streams that use them are done. ``keep`` says what
    becomes of the contents: ``DISCARD`` or ``HOST``. A group that is paused stays as it is."""
    _library._check(_entries().group_pause(_handle(device, name), keep))


def resume(device: int, name: str) -> None:
    """Gives a group its pages again, at the same addresses. A group that is not paused stays as it is.

    Raises ``OutOfMemory`` if the device has too little memory: the group stays paused, with its contents.
    """
    status = _entries().group_resume(_handle(device, name))
    if status == OUT_OF_MEMORY:
        raise OutOfMemory(f"millpond: {_library._table().last_error().decode(errors='replace')}")
    _library._check(status)


def info(device: int, name: str) -> Info:
    """Returns what a group holds on a device."""
    raw = RawInfo()
    _library._check(_entries().group_info(_handle(device, name), ctypes.byref(raw)))
    return Info(raw.live_bytes, raw.paused_bytes, raw.host_bytes, bool(raw.is_paused))
