"""Groups under PyTorch: which requests belong to one, and by which private pools it has them.

PyTorch routes the requests of a thread to a private pool, by device and number. A pool that a thread opens within the
scope of a group becomes part of the group; the shim sees to that. So the pool of a graph that is captured there belongs
to the group, too.
"""

import contextlib
import ctypes
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple

from millpond import _groups
from millpond._groups import Info
from millpond._library import BadType, BadValue, Error

_Pool = tuple[int, int]


class _Scope(NamedTuple):
    """One that is open in this thread. Without a name it is outside of all groups, and without a pool it routes
    nothing."""

    name: str
    device: int
    pool: _Pool | None


class _Open(threading.local):
    """The scopes of this thread, the innermost last."""

    def __init__(self) -> None:
        self.scopes: list[_Scope] = []


_open = _Open()


def _announce(shim: ctypes.CDLL) -> None:
    """Tells the shim in which group this thread is now."""
    shim.millpond_shim_group(_open.scopes[-1].name.encode() if _open.scopes else b"")


def _settle_workspaces(torch: ModuleType) -> None:
    """Makes PyTorch take the workspaces of cuBLAS now, for this thread on the current stream and on that of captures.
    It takes them at the first product of matrices on a stream and keeps them, so in a group they would be gone while it
    is paused, for programs and graphs that do not belong to it."""
    graph = torch.cuda.graph
    if graph.default_capture_stream is None:
        # As `torch.cuda.graph` makes it.
        graph.default_capture_stream = torch.cuda.Stream()
    try:
        torch.cuda.current_blas_handle()
        with torch.cuda.stream(graph.default_capture_stream):
            torch.cuda.current_blas_handle()
    except RuntimeError:
        # Without cuBLAS there is no workspace. A program that needs one has the error at its first product.
        pass


class Group:
    """Memory that is paused and resumed together. ``with group:`` puts what this thread allocates into it, on all
    streams of the current device. Scopes nest: the innermost counts. ``millpond.torch.group`` makes groups."""

    def __init__(self, name: str, shim: ctypes.CDLL, device: Callable[[Any], int]) -> None:
        self.name = name
        self._shim, self._device = shim, device
        # Pools that no scope has open, by device. PyTorch opens a pool once at a time, so a second scope at the same
        # time takes another one: there are as many as were ever open at once. The list's methods need no lock.
        self._idle: defaultdict[int, list[_Pool]] = defaultdict(list)

    def __repr__(self) -> str:
        return f"millpond.torch.group({self.name!r})"

    def __enter__(self) -> "Group":
        import torch

        device = self._device(None)
        if torch.cuda.is_current_stream_capturing():
            raise Error(
                f"millpond: the group {self.name!r} cannot be entered while a graph is being captured: open the scope "
                "around the capture, so that the graph's pool becomes part of the group"
            )
        if not _open.scopes:
            _settle_workspaces(torch)
        idle = self._idle[device]
        try:
            pool = idle.pop()
        except IndexError:
            pool = torch.cuda.graph_pool_handle()
        _open.scopes.append(_Scope(self.name, device, pool))
        _announce(self._shim)
        try:
            # This takes a reference to the pool. Between scopes it has none: what is free of it may go back.
            torch._C._cuda_beginAllocateCurrentThreadToPool(device, pool)
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        import torch

        scope = _open.scopes[-1]
        try:
            torch._C._cuda_endAllocateToPool(scope.device, scope.pool)
            torch._C._cuda_releasePool(scope.device, scope.pool)
        finally:
            self._leave()

    def _leave(self) -> None:
        scope = _open.scopes.pop()
        assert scope.pool is not None, "scopes end in the order in which they nest"
        self._idle[scope.device].append(scope.pool)
        _announce(self._shim)

    def was_open_on(self, device: int) -> bool:
        """Returns whether a scope of the group was ever open on a device."""
        return device in self._idle

    def info(self, device: Any = None) -> Info:
        """Returns the group's memory on a device, by default the current one: ``allocated_bytes``, ``reserved_bytes``,
        ``paused_bytes``, ``host_bytes`` and ``is_paused``."""
        return _groups.info(self._device(device), self.name)


@contextlib.contextmanager
def joining(name: str, shim: ctypes.CDLL) -> Iterator[None]:
    """Makes the private pools that this thread opens part of a group, or with an empty name of none. Requests go where
    they went before."""
    if not _open.scopes:
        import torch

        _settle_workspaces(torch)
    _open.scopes.append(_Scope(name, -1, None))
    _announce(shim)
    try:
        yield
    finally:
        _open.scopes.pop()
        _announce(shim)


@contextlib.contextmanager
def outside(shim: ctypes.CDLL) -> Iterator[None]:
    """Puts what this thread allocates outside of all groups, in a pool of its own that goes back to the driver at the
    end. Where the thread is in no group, it does nothing."""
    if not _open.scopes or not _open.scopes[-1].name:
        yield
        return
    import torch

    with joining("", shim):
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            yield
        del pool


_by_name: dict[str, Group] = {}


def group(name: str, shim: ctypes.CDLL, device: Callable[[Any], int]) -> Group:
    """Returns the group of this name, the same one each time."""
    if not isinstance(name, str):
        raise BadType(f"millpond: {name!r} is no name of a group: it is a text")
    if not name or "\0" in name:
        raise BadValue(f"millpond: {name!r} is no name of a group: it has characters, and none of them is null")
    return _by_name.setdefault(name, Group(name, shim, device))


def named(group: Group | str) -> Group:
    """Returns a group by itself or by its name. Raises ``BadValue``, with the names that there are, for another
    name."""
    if isinstance(group, Group):
        return group
    found = _by_name.get(group)
    if found is None:
        known = ", ".join(repr(name) for name in sorted(_by_name)) or "none yet"
        raise BadValue(f"millpond: there is no group {group!r}, so nothing was done. The groups are: {known}")
    return found
