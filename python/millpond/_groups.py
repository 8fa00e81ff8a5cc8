"""Groups of private pools, which are paused and resumed together: the entries of the library's table for them.

This module knows the C interface and nothing of PyTorch.
"""

import ctypes
import dataclasses

from millpond import _library
from millpond._pond import OUT_OF_MEMORY, OutOfMemory

# What `group_pause` keeps of the contents: nothing, or a copy in host memory.
DISCARD, HOST = 0, 1


class RawInfo(ctypes.Structure):
    """``millpond_group``."""

    _fields_ = [
        ("allocated_bytes", ctypes.c_uint64),
        ("reserved_bytes", ctypes.c_uint64),
        ("paused_bytes", ctypes.c_uint64),
        ("host_bytes", ctypes.c_uint64),
        ("is_paused", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
    ]


@dataclasses.dataclass(frozen=True)
class Info:
    """What a group holds on one device, in bytes."""

    # In blocks that the program has not freed.
    allocated_bytes: int
    # Of pages that are taken from the driver now.
    reserved_bytes: int
    # Of pages that went back to the driver, and come again with `resume`.
    paused_bytes: int
    # Of host memory that has contents.
    host_bytes: int
    is_paused: bool


def pause(device: int, name: str, keep: int) -> None:
    """Gives the pages of a group back to the driver, once the streams that use them are done. ``keep`` says what
    becomes of the contents: ``DISCARD`` or ``HOST``. A group that is paused stays as it is."""
    _library.call("group_pause", device, name.encode(), keep)


def resume(device: int, name: str) -> None:
    """Gives a group its pages again, at the same addresses. A group that is not paused stays as it is.

    Raises ``OutOfMemory`` if the device has too little memory: the group stays paused, with its contents.
    """
    status = _library._table().group_resume(device, name.encode())
    if status == OUT_OF_MEMORY:
        raise OutOfMemory(f"millpond: {_library._table().last_error().decode(errors='replace')}")
    _library._check(status)


def info(device: int, name: str) -> Info:
    """Returns what a group holds on a device."""
    raw = RawInfo()
    _library.call("group_info", device, name.encode(), ctypes.byref(raw))
    return Info(raw.allocated_bytes, raw.reserved_bytes, raw.paused_bytes, raw.host_bytes, bool(raw.is_paused))
