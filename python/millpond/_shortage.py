"""What a program does when memory is short: hooks that run before a request is refused, and forecasts of requests.

A hook is called on the thread that allocates. ctypes takes the GIL for it, whether the thread has it already or, as the
threads of PyTorch's backward pass, has not. Millpond holds no lock meanwhile, so the hook may do as any code does.
"""

import atexit
import ctypes
import dataclasses
import itertools
import threading
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any

from millpond import _library


class CShortage(ctypes.Structure):
    """``millpond_shortage`` of the header."""

    _fields_ = [
        ("size", ctypes.c_uint32),
        ("attempt", ctypes.c_uint32),
        ("device", ctypes.c_int32),
        ("rejected", ctypes.c_int32),
        *((f"{name}_bytes", ctypes.c_uint64) for name in (
            "requested", "tried", "short", "limit", "total", "allocated", "reserved",
        )),
        ("text", ctypes.c_char_p),
    ]


_Call = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.POINTER(CShortage))
_End = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class CHook(ctypes.Structure):
    """``millpond_hook`` of the header."""

    _fields_ = [("user", ctypes.c_void_p), ("call", _Call), ("end", _End)]


class CFit(ctypes.Structure):
    """``millpond_fit`` of the header."""

    _fields_ = [
        *((name, ctypes.c_int32) for name in ("served_by", "waits", "bound", "reserved")),
        *((f"{name}_bytes", ctypes.c_uint64) for name in ("reserves", "releases", "bound", "short")),
    ]


@dataclasses.dataclass(frozen=True)
class Shortage:
    """A request that is about to be refused. Sizes are in bytes."""

    device: int
    #: How often the request was refused: 1 for the first time.
    attempt: int
    #: Whether ``throw_on_cudamalloc_oom`` refuses it before anything is tried.
    rejected: bool
    requested_bytes: int
    #: What the driver was asked for: the size in PyTorch's message.
    tried_bytes: int
    #: What must come free at least.
    short_bytes: int
    #: The limit on reserved bytes; ``None`` if there is none.
    limit_bytes: int | None
    total_bytes: int
    allocated_bytes: int
    reserved_bytes: int
    #: What holds the memory, and what would help.
    text: str


@dataclasses.dataclass(frozen=True)
class Fit:
    """Whether a request would be served, and what it would take. Sizes are in bytes."""

    #: ``"cached"``, ``"gathered"`` (free memory mapped side by side), ``"new"`` (at least a part of it) or ``"nothing"``.
    served_by: str
    #: Whether the host would wait for work that is not known to be over.
    waits: bool
    reserves_bytes: int
    #: What would go back to the driver first.
    releases_bytes: int
    #: What stands in the way: ``"limit"``, ``"device"``, or ``None`` if it would be served.
    bound: str | None
    #: The limit, or what the device has left.
    bound_bytes: int
    #: What is missing there.
    short_bytes: int

    @property
    def fits(self) -> bool:
        """Whether the request would be served."""
        return self.served_by != "nothing"


_UNLIMITED = 2**64 - 1
_SERVED_BY = ("cached", "gathered", "new", "nothing")
_BOUNDS = (None, "limit", "device")

# What the library may call, by the number that it is called with, until it says that it will not. A function that C holds
# must not be collected.
_held: dict[int, Any] = {}
_numbers = itertools.count(1)
_lock = threading.Lock()
_hooks: "set[Hook]" = set()


def _forget(user: int) -> None:
    _held.pop(user, None)


# Itself kept for ever, as the library may call it at any time.
_ended = _End(_forget)


def _told(found: CShortage) -> Shortage:
    names = ("requested", "tried", "short", "total", "allocated", "reserved")
    sizes: dict[str, int] = {f"{name}_bytes": getattr(found, f"{name}_bytes") for name in names}
    limit = None if found.limit_bytes == _UNLIMITED else int(found.limit_bytes)
    text = found.text.decode(errors="replace")
    return Shortage(found.device, found.attempt, bool(found.rejected), limit_bytes=limit, text=text, **sizes)


class Hook:
    """A hook that was added. It stays until ``remove()``, or until the end of a ``with`` block."""

    def __init__(self, device: int, function: Callable[[Shortage], object]) -> None:
        def call(_user: int, shortage: Any) -> int:
            try:
                return 1 if function(_told(shortage.contents)) else 0
            except BaseException:
                # C has no exceptions, and what ctypes returns after one is any number.
                traceback.print_exc()
                return 0

        self._device, user, number = device, next(_numbers), ctypes.c_uint64()
        hook = CHook(user, _Call(call), _ended)
        _held[user] = hook
        try:
            _library.call("hook_add", device, ctypes.byref(hook), ctypes.byref(number))
        except _library.Error:
            del _held[user]
            raise
        self._number: int | None = number.value
        with _lock:
            _hooks.add(self)

    def remove(self) -> None:
        """Removes the hook. A call in progress on another thread goes on. A second call does nothing."""
        with _lock:
            number, self._number = self._number, None
            _hooks.discard(self)
        if number is not None:
            _library.call("hook_remove", self._device, number)

    def __enter__(self) -> "Hook":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()


@atexit.register
def _remove_all() -> None:
    # Afterwards there is no interpreter to call.
    for hook in list(_hooks):
        try:
            hook.remove()
        except _library.Error:
            # In the child of a fork the hooks are the parent's.
            pass


def would_fit(device: int, stream: int, size: int) -> Fit:
    """Returns what would serve a request on a stream, a driver's handle."""
    found = CFit()
    _library.call("would_fit", device, stream, size, ctypes.byref(found))
    return Fit(
        _SERVED_BY[found.served_by], bool(found.waits), found.reserves_bytes, found.releases_bytes,
        _BOUNDS[found.bound], found.bound_bytes, found.short_bytes,
    )
