"""RMM on Millpond: what cuDF, cuML and other programs of RAPIDS allocate from now on lives there.

    import millpond.rmm
    millpond.rmm.enable()

It is a ``CallbackMemoryResource``: each allocation and each free is for the stream that RMM names.
"""

from collections.abc import Iterable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from millpond import _library, _pond
from millpond._library import Error

if TYPE_CHECKING:
    import rmm.mr

__all__ = [
    "Error", "disable", "empty_cache", "enable", "is_enabled", "memory_summary", "resource", "set_limit", "stats",
    "trim",
]

# The resources that were put in place, and those that were there before, by device. A resource is kept for ever:
# buffers may live in it after it was replaced.
_resources: "dict[int, rmm.mr.DeviceMemoryResource]" = {}
_before: "dict[int, rmm.mr.DeviceMemoryResource]" = {}


def _import() -> ModuleType:
    try:
        import rmm
        import rmm.mr
    except ImportError as error:
        raise Error(f"millpond: there is no RMM to serve: {error}") from error
    module: ModuleType = rmm
    return module


def _handle(stream: Any) -> int:
    """Returns the driver's handle of a stream of RMM."""
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    return int(getattr(stream, "_cuda_stream", 0))


def resource(device: int = 0, conf: str | None = None) -> "rmm.mr.DeviceMemoryResource":
    """Returns Millpond on a device as a resource of RMM, which may be the upstream of adaptors.

    ``conf`` has the configuration, such as ``"policy:classic"``; without it that of the environment applies, as for
    ``millpond.torch.enable``. PyTorch and CuPy, if they are enabled, too, before or afterwards, share the allocator of
    each device and its configuration.

    Raises ``Error`` if RMM is missing, for a mistake in the configuration, and for another one than the process has.
    """
    rmm = _import()
    _library.configure(conf)
    if device not in _resources:
        def allocate(size: int, stream: object) -> int:
            return _pond.of(device).alloc(size, _handle(stream))

        def deallocate(address: int, size: int, stream: object) -> None:
            pond = _pond.of(device)
            if address and not pond.is_inherited:
                pond.free(address, _handle(stream))

        _resources[device] = rmm.mr.CallbackMemoryResource(allocate, deallocate)
    return _resources[device]


def enable(conf: str | None = None, devices: Iterable[int] = (0,)) -> None:
    """Makes Millpond RMM's resource of these devices. Buffers that there are already stay where they are.

    Raises ``Error`` as ``resource`` does.
    """
    rmm = _import()
    for device in devices:
        mine = resource(device, conf)
        if device not in _before:
            _before[device] = rmm.mr.get_per_device_resource(device)
        rmm.mr.set_per_device_resource(device, mine)


def disable() -> None:
    """Gives RMM back the resources that it had. Buffers that live in Millpond stay there until they are gone."""
    for device, before in list(_before.items()):
        _import().mr.set_per_device_resource(device, before)
        del _before[device]


def is_enabled(device: int = 0) -> bool:
    """Returns whether Millpond serves RMM on a device."""
    return device in _before


def _of(device: int) -> _pond.Pond:
    if device not in _resources:
        raise Error(f"millpond: not enabled on device {device}: call millpond.rmm.enable(devices=({device},)) first")
    return _pond.of(device)


def stats(device: int = 0) -> dict[str, int]:
    """Returns all statistics of a device as a dict of numbers, under the keys that ``millpond.torch.stats`` has. They
    count the whole process."""
    return _of(device).stats()


def memory_summary(device: int = 0, abbreviated: bool = False) -> str:
    """Returns the statistics of a device as a table."""
    return _of(device).summary(abbreviated)


def set_limit(size: int | None, device: int = 0) -> None:
    """Limits the bytes that the process may reserve on a device; ``None`` lifts the limit."""
    _of(device).set_limit(size)


def trim(size: int, device: int = 0) -> int:
    """Gives cached memory back until at most ``size`` bytes are reserved. Returns the bytes that are reserved then."""
    return _of(device).trim(size)


def empty_cache(device: int = 0) -> None:
    """Gives all cached memory of a device back to the driver."""
    _of(device).empty_cache()
