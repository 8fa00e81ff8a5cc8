"""Stand-ins for the library's groups, for tests: they note what is asked of them, and move no page.

``install`` is called before anything of ``millpond`` asks for the table.
"""

import ctypes
import functools
from collections.abc import Callable
from typing import Any

from millpond import _groups, _library

OUT_OF_MEMORY, BAD_ARGUMENT = 1, 2


class Pool(ctypes.Structure):
    """``millpond_core_pool``."""

    _fields_ = [("first", ctypes.c_uint64), ("second", ctypes.c_uint64)]


class Group:
    """What is known of a group on a device."""

    def __init__(self, device: int, name: str) -> None:
        self.device, self.name = device, name
        self.pools: set[tuple[int, int]] = set()
        # What is kept while the group is paused: 0 for nothing, 1 for its contents.
        self.kept: int | None = None


class Groups:
    """All groups, in the order in which they were made."""

    def __init__(self) -> None:
        self.made: list[Group] = []
        # What was asked of groups that are there, in order: what, device and name.
        self.calls: list[tuple[str, int, str]] = []
        # The names of groups whose memory does not come again.
        self.full: set[str] = set()
        self.error = ctypes.create_string_buffer(500)

    def find(self, name: str, device: int = 0) -> Group:
        return next(group for group in self.made if (group.device, group.name) == (device, name))

    def _refuse(self, status: int, text: str) -> int:
        self.error.value = text.encode()
        return status

    def _group(self, device: int, name: bytes) -> Group:
        found = [group for group in self.made if (group.device, group.name) == (device, name.decode())]
        if not found:
            found = [Group(device, name.decode())]
            self.made += found
        return found[0]

    def add_pool(self, device: int, name: bytes, pool: Pool) -> int:
        group, key = self._group(device, name), (pool.first, pool.second)
        for other in self.made:
            if other is not group and other.device == group.device and key in other.pools:
                return self._refuse(BAD_ARGUMENT, f'the pool {key} is of the group "{other.name}"')
        group.pools.add(key)
        return 0

    def pause(self, device: int, name: bytes, keep: int) -> int:
        group = self._group(device, name)
        self.calls.append((f"pause {keep}", group.device, group.name))
        group.kept = keep if group.kept is None else group.kept
        return 0

    def resume(self, device: int, name: bytes) -> int:
        group = self._group(device, name)
        self.calls.append(("resume", group.device, group.name))
        if group.name in self.full and group.kept is not None:
            return self._refuse(OUT_OF_MEMORY, f'out of memory: the group "{group.name}" stays paused')
        group.kept = None
        return 0

    def info(self, device: int, name: bytes, out: int) -> int:
        kept = self._group(device, name).kept
        info = _groups.RawInfo(7, 5 if kept is None else 0, 0 if kept is None else 5, 5 if kept == 1 else 0)
        info.is_paused = int(kept is not None)
        ctypes.memmove(out, ctypes.addressof(info), ctypes.sizeof(info))
        return 0


def install() -> Groups:
    """Makes the package read a copy of the library's table with other groups. Returns the groups."""
    groups = Groups()
    address = _library.address()
    size = ctypes.c_uint32.from_address(address + ctypes.sizeof(ctypes.c_uint32)).value
    whole = ctypes.create_string_buffer(ctypes.string_at(address, size), size)
    table = _library._Table.from_address(ctypes.addressof(whole))
    add_pool = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32, ctypes.c_char_p, Pool)(groups.add_pool)
    table.group_add_pool = ctypes.cast(add_pool, ctypes.c_void_p)
    for name in ("pause", "resume", "info"):
        entry = f"group_{name}"
        setattr(table, entry, type(getattr(table, entry))(getattr(groups, name)))
    # The text of a refusal here, or else the library's own. A function of C returns an address.
    own = ctypes.CFUNCTYPE(ctypes.c_void_p)(ctypes.cast(table.last_error, ctypes.c_void_p).value or 0)

    def last_error() -> int:
        return ctypes.addressof(groups.error) if groups.error.value else own()

    said = ctypes.CFUNCTYPE(ctypes.c_void_p)(last_error)
    at = ctypes.addressof(whole) + _library._Table.last_error.offset
    ctypes.c_void_p.from_address(at).value = ctypes.cast(said, ctypes.c_void_p).value
    # Everything lives as long as the process, as the library's table does.
    held: list[Any] = [whole, table, add_pool, said, own]
    found: Callable[[], int] = functools.cache(lambda: ctypes.addressof(held[0]))
    setattr(_library, "address", found)
    _library._table.cache_clear()
    return groups
