"""CuPy on Millpond: every array of a program that is made from now on lives there.

    import millpond.cupy
    millpond.cupy.enable()

Each allocation is for the stream that is current then, and memory is granted again in the order of that stream. An
array that is used on another one is told with ``record_stream``.

An array keeps the stream on which it was allocated alive, but not what lies behind a ``cupy.cuda.ExternalStream``: that
must live as long as the arrays, because they are freed in its order.
"""

from types import ModuleType
from typing import TYPE_CHECKING, Any

from millpond import _library, _pond
from millpond._library import Error

if TYPE_CHECKING:
    import cupy

__all__ = [
    "Error", "disable", "empty_cache", "enable", "is_enabled", "memory_summary", "record_stream", "release_stream",
    "set_limit", "stats", "trim",
]

_module: ModuleType | None = None
_before: Any = None


class _Block:
    """Owns a block, which is freed once the last array in it is gone. It keeps the stream alive until then, as the free
    is queued there."""

    __slots__ = ("address", "pond", "stream")

    def __init__(self, pond: _pond.Pond, address: int, stream: Any) -> None:
        self.pond, self.address, self.stream = pond, address, stream

    def __del__(self) -> None:
        if self.address:
            self.pond.free(self.address, self.stream.ptr)


def _allocate(size: int) -> "cupy.cuda.MemoryPointer":
    assert _module is not None, "CuPy calls this once it is enabled"
    cuda = _module.cuda
    device = cuda.device.get_device_id()
    pond = _pond.of(device)
    try:
        stream = cuda.get_current_stream()
        address = pond.alloc(size, stream.ptr)
    except _pond.OutOfMemory as error:
        raise cuda.memory.OutOfMemoryError(size, pond.stats()["reserved_bytes.all.current"]) from error
    return cuda.MemoryPointer(cuda.UnownedMemory(address, size, _Block(pond, address, stream), device), 0)


def enable(conf: str | None = None) -> None:
    """Makes Millpond CuPy's allocator. Arrays that there are already stay where they are.

    ``conf`` has the configuration, such as ``"policy:classic"``; without it that of the environment applies, as for
    ``millpond.torch.enable``. PyTorch and RMM, if they are enabled, too, before or afterwards, share the allocator of
    each device and its configuration.

    Raises ``Error`` if CuPy is missing, for a mistake in the configuration, and for another one than the process has.
    """
    global _module, _before
    try:
        import cupy
    except ImportError as error:
        raise Error(f"millpond: there is no CuPy to serve: {error}") from error
    _library.configure(conf)
    if _module is None:
        _before = cupy.cuda.get_allocator()
    _module = cupy
    cupy.cuda.set_allocator(_allocate)


def disable() -> None:
    """Gives CuPy back the allocator that it had. Arrays that live in Millpond stay there until they are gone."""
    global _module
    if _module is not None:
        _module.cuda.set_allocator(_before)
        _module = None


def is_enabled() -> bool:
    """Returns whether Millpond serves CuPy."""
    return _module is not None


def _of(device: int | None) -> _pond.Pond:
    if _module is None:
        raise Error("millpond: not enabled: call millpond.cupy.enable() first")
    return _pond.of(_module.cuda.device.get_device_id() if device is None else int(device))


def record_stream(array: "cupy.ndarray", stream: "cupy.cuda.Stream") -> None:
    """Tells that an array is used on a stream beside its own: what is queued there until the array is gone comes before
    the next use of its memory. Before that stream is destroyed, ``release_stream`` is called.

    Raises ``Error`` for an array that does not live in Millpond.
    """
    memory = array.data.mem
    owner = getattr(memory, "_owner", None)
    pond = owner.pond if isinstance(owner, _Block) else _of(memory.device_id)
    pond.record_stream(memory.ptr, stream.ptr)


def release_stream(stream: "cupy.cuda.Stream", device: int | None = None) -> None:
    """Forgets a stream. Call it before a stream is destroyed that was passed to ``record_stream``, or on which PyTorch
    has allocated: the driver may crash where it is asked about one that is gone.

    Raises ``Error`` for a stream that was not used.
    """
    _of(device).release_stream(stream.ptr)


def stats(device: int | None = None) -> dict[str, int]:
    """Returns all statistics of a device as a dict of numbers, under the keys that ``millpond.torch.stats`` has. They
    count the whole process."""
    return _of(device).stats()


def memory_summary(device: int | None = None, abbreviated: bool = False) -> str:
    """Returns the statistics of a device as a table."""
    return _of(device).summary(abbreviated)


def set_limit(size: int | None, device: int | None = None) -> None:
    """Limits the bytes that the process may reserve on a device; ``None`` lifts the limit."""
    _of(device).set_limit(size)


def trim(size: int, device: int | None = None) -> int:
    """Gives cached memory back until at most ``size`` bytes are reserved. Returns the bytes that are reserved then."""
    return _of(device).trim(size)


def empty_cache(device: int | None = None) -> None:
    """Gives all cached memory of a device back to the driver."""
    _of(device).empty_cache()
