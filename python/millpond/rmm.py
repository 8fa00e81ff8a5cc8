"""RMM on Millpond: what cuDF, cuML and other programs of RAPIDS allocate from now on lives there.

    import millpond.rmm
    millpond.rmm.enable()

It is a ``CallbackMemoryResource``: each allocation and each free is for the stream that RMM names.
"""

from millpond import _pond
from millpond._library import Error

__all__ = [
    "Error", "disable", "empty_cache", "enable", "is_enabled", "memory_summary", "resource", "set_limit", "stats",
    "trim",
]

# The resources that were put in place, and those that were there before, by device. A resource is kept for ever:
# buffers may live in it after it was replaced.
_resources = {}
_before = {}


def _import():
    try:
        import rmm
        import rmm.mr
    except ImportError as error:
        raise Error(f"millpond: there is no RMM to serve: {error}") from error
    return rmm


def _handle(stream):
    """Returns the driver's handle of a stream of RMM."""
    if hasattr(stream, "__cuda_stream__"):
        return stream.__cuda_stream__()[1]
    return getattr(stream, "_cuda_stream", 0)


def resource(device=0, conf=None):
    """Returns Millpond on a device as a resource of RMM, which may be the upstream of adaptors.

    ``conf`` has the configuration, such as ``"policy:classic"``; without it that of the environment applies, as for
    ``millpond.torch.enable``. CuPy, if it is enabled too, shares the allocator of each device; PyTorch has its own.

    Raises ``Error`` if RMM is missing, for a mistake in the configuration, and for another one once a device is in use.
    """
    rmm = _import()
    _pond.configure(conf)
    if device not in _resources:
        # What a program frees on another stream than that of the allocation is used there until then.
        def allocate(size, stream):
            return _pond.of(device).alloc(size, _handle(stream))

        def deallocate(address, size, stream):
            if address:
                pond = _pond.of(device)
                pond.record_stream(address, _handle(stream))
                pond.free(address)

        _resources[device] = rmm.mr.CallbackMemoryResource(allocate, deallocate)
    return _resources[device]


def enable(conf=None, devices=(0,)):
    """Makes Millpond RMM's resource of these devices. Buffers that there are already stay where they are.

    Raises ``Error`` as ``resource`` does.
    """
    rmm = _import()
    for device in devices:
        mine = resource(device, conf)
        if device not in _before:
            _before[device] = rmm.mr.get_per_device_resource(device)
        rmm.mr.set_per_device_resource(device, mine)


def disable():
    """Gives RMM back the resources that it had. Buffers that live in Millpond stay there until they are gone."""
    for device, before in list(_before.items()):
        _import().mr.set_per_device_resource(device, before)
        del _before[device]


def is_enabled(device=0):
    """Returns whether Millpond serves RMM on a device."""
    return device in _before


def _of(device):
    if device not in _resources:
        raise Error("millpond: not enabled: call millpond.rmm.enable() first")
    return _pond.of(device)


def stats(device=0):
    """Returns all statistics of a device as a dict of numbers, under the keys that ``millpond.torch.stats`` has."""
    return _of(device).stats()


def memory_summary(device=0, abbreviated=False):
    """Returns the statistics of a device as a table."""
    return _of(device).summary(abbreviated)


def set_limit(size, device=0):
    """Limits the bytes that may be reserved on a device; ``None`` lifts the limit."""
    _of(device).set_limit(size)


def trim(size, device=0):
    """Gives cached memory back until at most ``size`` bytes are reserved. Returns the bytes that are reserved then."""
    return _of(device).trim(size)


def empty_cache(device=0):
    """Gives all cached memory of a device back to the driver."""
    _of(device).empty_cache()
