"""PyTorch on Millpond: every CUDA tensor of a program lives there.

    import millpond.torch
    millpond.torch.enable()      # before the first use of CUDA

PyTorch's own functions (``torch.cuda.memory_stats``, ``memory_snapshot`` and so on) then tell of Millpond. What they have
no names for is here.
"""

import ctypes
import functools
import json
import os
import operator
import pathlib
import re
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias

from millpond import _export, _groups, _library, _peak, _pond, _record, _shim, _shortage, _sleep
from millpond._export import DmaBuf, Page, Pages
from millpond._groups import Info
from millpond._library import BadType, BadValue, Error
from millpond._sleep import Group
from millpond._shortage import Fit, Hook, Shortage

if TYPE_CHECKING:
    import torch

    # What torch takes for a device: a number, a text such as "cuda:1", or a torch.device.
    Device: TypeAlias = int | str | torch.device

__all__ = [
    "DmaBuf", "Error", "Fit", "Group", "Hook", "Info", "Page", "Pages", "Shortage", "conf", "disable", "enable",
    "export_dma_buf", "export_pages", "group", "is_enabled", "memory_summary", "on_out_of_memory", "pause", "peak", "poll",
    "record", "report", "resume", "snapshot", "stats", "would_fit",
]

_lock = threading.Lock()
_loaded: ctypes.CDLL | None = None
# The configuration that enable() was called with.
_asked: str | None = None

_TOO_LATE = (
    "millpond: enable() must run before the first CUDA use in this process: PyTorch's CUDA allocator is already "
    "initialised, and its tensors cannot be taken over. Call it right behind `import torch`. Pinned memory counts as a "
    "use, and so may an import that allocates; with MILLPOND_TORCH=1 in the environment Millpond is enabled by "
    "`import torch` itself"
)

_NO_EFFECT = "millpond: the allocator setting {} has no effect"
_PINNED = re.compile(r"(pinned_\w+)\s*:\s*(\w+)")

_SAVER = (
    "millpond: torch_memory_saver's hooks are loaded. They see no memory, because Millpond does not call cudaMalloc for "
    "its pages, so pause() would free nothing. Take its library out of LD_PRELOAD, and import the module with the same "
    "interface: from millpond.torch_memory_saver import torch_memory_saver"
)


# What has PyTorch register all memory with NCCL, under its two names.
_NCCL_HOOK = ("TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK", "NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK")

# What PyTorch takes for true, in lower case.
_NCCL_TRUE = ("1", "true", "t", "yes", "y", "on")

_NCCL_HOOK_IS_OFF = (
    "millpond: {name} is turned off for this process, as PyTorch turns it off with expandable segments: NCCL would go on "
    "using pages that went back to the driver. Use policy:classic, or register a torch.cuda.MemPool whose memory NCCL has "
    "allocated: MemPool(backend.mem_allocator), and backend.register_mem_pool(pool)"
)


def enable(conf: str | None = None) -> None:
    """Puts Millpond in the place of PyTorch's CUDA allocator, for the rest of the process.

    ``conf`` has the configuration, in the grammar of ``PYTORCH_CUDA_ALLOC_CONF``, such as ``"policy:classic"``. Without it
    the environment decides: the first of ``MILLPOND_CONF``, ``PYTORCH_CUDA_ALLOC_CONF`` and ``PYTORCH_ALLOC_CONF`` that is
    set. CuPy and RMM on Millpond share the allocator of each device and its configuration, so that one of theirs applies
    if they were enabled first. Neither CUDA nor a device is touched. A second call with the same configuration does
    nothing.

    Raises ``Error``, and changes nothing, if torch is missing or of a version that is not served, if the configuration has
    a mistake, or if CUDA memory is in use already. Warns if torch_memory_saver's hooks are loaded: they see no memory; and
    of keys that ask for what Millpond does not do. ``torch._C._accelerator_setAllocatorSettings`` changes settings later.
    Where memory lies in pages, it turns ``TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK`` off in the environment, and warns.
    """
    global _asked, _loaded
    with _lock:
        if _loaded is not None:
            if conf is not None and conf != _asked:
                raise Error("millpond: enabled already, with another configuration")
            return
        try:
            import torch
        except ImportError as error:
            raise Error(f"millpond: there is no PyTorch to serve: {error}") from error
        shim = _shim.load(torch)
        if shim.millpond_shim_in_use():
            raise Error(_TOO_LATE)
        present = ctypes.create_string_buffer(100)
        shim.millpond_shim_present(present, len(present))
        if present.value not in (b"native", b"cudaMallocAsync"):
            raise Error(f"millpond: PyTorch's allocator was replaced by another one: {present.value.decode()}")
        _library.configure(_chosen(conf))
        unserved = [key for key in _library.text("unserved").split(",") if key]
        reason = ctypes.create_string_buffer(4000)
        if shim.millpond_shim_install(_library.address(), reason, len(reason)) != 0:
            raise Error(f"millpond: {reason.value.decode()}")
        shim.millpond_shim_warn(_WARN)
        _asked, _loaded = conf, shim
    for key in unserved:
        warnings.warn(f"{_NO_EFFECT.format(key)}: it asks for what Millpond does not do", RuntimeWarning, stacklevel=2)
    _hand_on(torch, os.environ.get("MILLPOND_CONF", "") if conf is None else conf)
    if _has_saver():
        warnings.warn(_SAVER, RuntimeWarning, stacklevel=2)
    if _has_pages():
        for name in _NCCL_HOOK:
            if os.environ.get(name, "").lower() in _NCCL_TRUE:
                os.environ[name] = "0"
                warnings.warn(_NCCL_HOOK_IS_OFF.format(name=name), RuntimeWarning, stacklevel=2)


def _has_pages() -> bool:
    """Returns whether memory lies in pages under the present configuration."""
    chosen = _library.text("configuration")
    is_classic = "policy:classic" in chosen and "expandable_segments:True" not in chosen
    return not is_classic and "policy:direct" not in chosen


def _warn(text: bytes) -> None:
    """Warns of what the shim has found, where Python has called torch."""
    warnings.warn(text.decode(), RuntimeWarning, stacklevel=2)


# The shim keeps its address, so it lives as long as the process.
_WARN = _shim.WARN(_warn)


def _hand_on(torch: Any, conf: str) -> None:
    """Hands the settings of pinned memory to PyTorch, which has an allocator of its own for it, and reads its own variables
    alone."""
    for key, value in _PINNED.findall(conf):
        try:
            torch._C._accelerator_setAllocatorSettings(f"{key}:{value}")
        except (RuntimeError, ValueError) as error:
            text = f"{_NO_EFFECT.format(key)}: it is of PyTorch's pinned memory, and PyTorch does not take it: {error}"
            warnings.warn(text, RuntimeWarning, stacklevel=3)


def _chosen(conf: str | None) -> str | None:
    """Returns the configuration to set; ``None`` for that of the environment."""
    if conf is None and os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING", "0") not in ("", "0"):
        # PyTorch's switch for memory checkers: nothing is cached.
        return "policy:direct"
    return conf


def _has_saver() -> bool:
    """Returns whether torch_memory_saver's hooks are in this process, or are to be in those that it starts."""
    if "torch_memory_saver" in os.environ.get("LD_PRELOAD", ""):
        return True
    try:
        return "/torch_memory_saver_hook_mode_" in pathlib.Path("/proc/self/maps").read_text(errors="replace")
    except OSError:
        return False


def disable() -> NoReturn:
    """Raises ``Error``: a process that has begun with Millpond ends with it, because its tensors live there."""
    raise Error(
        "millpond: a process cannot go back: its tensors live in Millpond, and PyTorch's allocator cannot free them. Run it "
        "without enable() and without MILLPOND_TORCH. For one stretch of code, torch.cuda.caching_allocator_disabled() "
        "takes memory from the driver itself"
    )


def is_enabled() -> bool:
    """Returns whether Millpond serves this process."""
    return _loaded is not None


def conf() -> str:
    """Returns the configuration in its canonical form: the keys that differ from the defaults."""
    return _library.text("configuration")


def _device(device: "Device | None") -> int:
    """Returns the number of a device, the current one without a number, as torch does.

    Raises ``Error`` if there is no such device: it is also a ``ValueError`` or a ``TypeError``.
    """
    import torch

    _enabled()
    torch.cuda.init()
    named: Any = torch.device(device) if isinstance(device, str) else device
    if isinstance(named, torch.device):
        if named.type != "cuda":
            raise BadValue(f"millpond: Expected a cuda device, but got: {device}")
        named = named.index
    if named is None:
        return int(torch.cuda.current_device())
    try:
        # A torch.cuda.device, which is a context, has its number there.
        number = operator.index(getattr(named, "idx", named))
    except TypeError:
        raise BadType(f"millpond: {device!r} is no device: name a number, a text such as 'cuda:1' or a torch.device") from None
    count = torch.cuda.device_count()
    if not 0 <= number < count:
        raise BadValue(f"millpond: Invalid device argument {number}: there are {count} devices, with numbers from 0")
    return number


def stats(device: "Device | None" = None) -> dict[str, int]:
    """Returns all statistics of a device as a dict of numbers: those of ``torch.cuda.memory_stats`` under the same keys, what
    the policy ``paged`` has done with pages (``pages.*``), what is reserved beyond what is live (``slack.*``), what went
    back because nothing had needed it (``idle.*``), and what the driver was asked (``driver.*``)."""
    found: dict[str, int] = json.loads(_library.text("stats_json", _device(device)))
    return found


def peak(device: "Device | None" = None) -> _peak.Peak:
    """Measures the most memory that a part of the program has on a device at one time.

        with millpond.torch.peak() as step:
            train_step()
        print(step.allocated_bytes, step.reserved_bytes)

    ``step`` has ``allocated_bytes``, ``active_bytes``, ``requested_bytes`` and ``reserved_bytes``, and all of
    ``torch.cuda.memory_stats`` as ``step.stats()``: while the part runs up to now, and afterwards up to its end. Parts may
    be nested, and may overlap on several threads. None changes another one, nor what ``torch.cuda.max_memory_allocated``
    returns; and ``torch.cuda.reset_peak_memory_stats`` changes no part. What other threads allocate meanwhile counts too.
    """
    return _peak.Peak(lambda: _device(device))


def poll(device: "Device | None" = None) -> int:
    """Gives memory of a device back to the driver that nothing has needed for as long as ``release_idle_after`` in the
    configuration says, such as ``enable("release_idle_after:30s")``. Returns the bytes that went back, which is 0 without
    that key.

    Call it now and then, such as once in a step; or configure ``release_idle_in_background:True``. It does not wait for
    kernels, and does nothing while a graph is captured. ``keep_idle_mb`` in the configuration is what stays beyond what was
    needed.
    """
    return _library.number("poll", _device(device))


def memory_summary(device: "Device | None" = None, abbreviated: bool = False) -> str:
    """Returns the table of ``torch.cuda.memory_summary``, with Millpond's sections on pages, slack and the device."""
    return _library.text("summary", _device(device), int(abbreviated))


def snapshot() -> dict[str, Any]:
    """Returns what ``torch.cuda.memory._snapshot`` does, with Millpond's statistics of each device under ``millpond``."""
    import torch

    _device(None)
    taken: dict[str, Any] = torch.cuda.memory._snapshot()
    taken["millpond"] = {
        "version": _library.version(),
        "conf": conf(),
        "devices": [stats(device) for device in range(torch.cuda.device_count()) if _is_used(device)],
    }
    return taken


def on_out_of_memory(hook: Callable[[Shortage], object], device: "Device | None" = None) -> Hook:
    """Has a function called before a request of PyTorch's for memory of a device is refused.

        def spill(shortage: millpond.torch.Shortage) -> bool:
            return cache.drop(shortage.short_bytes)    # True: something was freed, so try again

        hook = millpond.torch.on_out_of_memory(spill)
        hook.remove()

    It is called on the thread that allocates, and on several at once if several are short of memory. It may drop tensors
    and call ``torch.cuda.empty_cache``. If what it returns is true the request is tried again; otherwise the next hook
    is called. The request is refused once all hooks return false in one round, or after 8 rounds. Tensors that it makes
    itself must come from the cache: a request that the cache does not serve at once is a ``RuntimeError`` there. An
    exception of the hook is printed, and counts as ``False``.

    The observers of ``torch._C._cuda_attach_out_of_memory_observer``, and the error, come only when the request is
    refused in the end. PyTorch's own callbacks that free memory come before the hooks. Opens the device.
    """
    return Hook(_device(device), hook)


def would_fit(size: int, device: "Device | None" = None) -> Fit:
    """Returns whether a request of ``size`` bytes on the current stream of a device would be served, and what it would
    take: for programs that admit work by the memory that it needs. Changes nothing.

    If it fits, and nothing else happens, the request succeeds. A tensor takes a request for its storage. What the driver
    gives may differ from what it reports as free. Private pools, as of CUDA graphs, are not looked at.
    """
    number = _device(device)
    import torch

    return _shortage.would_fit(number, torch.cuda.current_stream(number).cuda_stream, size)


def record(path: _record.Path, device: "Device | None" = None, **facts: object) -> _record.Recording:
    """Returns a recording of what the program asks of a device's allocator, as a trace that ``millpond replay`` reads.

        with millpond.torch.record("train.trace.zst"):
            train()

    or ``recording.start()`` and ``recording.stop()``, which writes the file, compressed if its name ends in ``.zst`` or
    ``.gz``. If that fails, what was recorded is kept: ``stop()`` or ``stop(path)`` writes it later. The path is that at
    the start, and the file is whole or not there. Blocks that are live at the start are not in the trace, so begin in front
    of the model. Meanwhile each request takes a lock that all streams share. ``facts`` become part of the header, such as ``workload="my program"``:
    texts, paths, finite numbers, also of NumPy, ``True``, ``False``, ``None``, and lists and dicts of them.
    """

    def facts_of(number: int) -> dict[str, object]:
        import torch

        found = {"workload": _record.stem(path), "conf": conf(), "torch": str(torch.__version__)}
        return {**found, "gpu": torch.cuda.get_device_name(number), **facts}

    return _record.Recording(path, lambda: _device(device), facts_of)


def report(
    path: _record.Path,
    out: _record.Path | None = None,
    policies: Sequence[str] = ("classic", "paged"),
    options: Sequence[str] = (),
) -> pathlib.Path:
    """Writes a page that shows what memory was used for, of a trace or of a file that
    ``torch.cuda.memory._dump_snapshot`` wrote. Returns its path: ``out``, or that of the file with ``.html``.

    The command ``millpond report`` makes it, which replays the trace on a simulated device under each of the policies;
    ``options`` are further arguments of it. Raises ``Error`` if it is not there, or fails.
    """
    return _record.report(path, out, policies, options)


def _is_used(device: int) -> bool:
    import torch

    return bool(torch.cuda.memory_stats(device).get("num_device_alloc", 0) > 0)


def _enabled() -> ctypes.CDLL:
    """Returns the shim. Raises ``Error`` if Millpond is not enabled."""
    if _loaded is None:
        raise Error("millpond: not enabled: call millpond.torch.enable() before the first use of CUDA")
    return _loaded


def group(name: str) -> Group:
    """Returns the group of this name, which is made if there is none: memory that is paused and resumed together.

        with millpond.torch.group("kv"):
            cache = torch.empty(size, device="cuda")
        millpond.torch.pause("kv")
        millpond.torch.resume("kv")

    Within ``with`` all that this thread allocates on the current device, on any stream, belongs to the group until it
    is freed. So does the private pool of a CUDA graph whose capture begins there. Other threads are not affected, such
    as those that run ``backward()``. While the group is paused, an allocation in it is an error, and a free is not.
    """
    return _sleep.group(name, _enabled(), _device)


def pause(group: Group | str, keep: Literal["host", "discard"] = "host") -> None:
    """Gives the memory of a group back to the driver, on all devices, until ``resume``. Addresses stay reserved.

    ``keep`` says what becomes of the contents: a copy in host memory, or nothing. Waits for the streams that use the
    group, and for the copy. A group that is paused stays as it is. Until ``resume`` no work may use its memory: do not
    replay a graph that uses it.

    Raises ``Error``, which is also a ``ValueError``, if no group has this name. Raises ``Error`` while a graph of the
    group is being captured, if a tensor of it is shared with another process, or if the host has too little memory. With
    several devices, those before the failing one stay paused.
    """
    _enabled()
    kinds = {"host": _groups.HOST, "discard": _groups.DISCARD}
    if keep not in kinds:
        raise BadValue(f"millpond: keep is {keep!r}, and may be 'host' or 'discard'")
    found = _sleep.named(group)
    for device in _devices_of(found):
        _groups.pause(device, found.name, kinds[keep])


def resume(group: Group | str) -> None:
    """Takes memory from the driver again for a paused group, at the same addresses, on all devices. Contents that were
    kept are copied back; others are undefined. A group that is not paused stays as it is.

    Raises ``torch.OutOfMemoryError`` if a device has too little memory: the group stays paused there, and a later call
    tries again.
    """
    _enabled()
    found = _sleep.named(group)
    for device in _devices_of(found):
        try:
            _groups.resume(device, found.name)
        except _pond.OutOfMemory as error:
            raise _out_of_memory()(str(error)) from error


def export_pages(tensor: "torch.Tensor") -> Pages:
    """Returns the pages behind a tensor, each as a file descriptor for another process or another library, which maps it
    with ``cuMemImportFromShareableHandle``. It takes memory of pages: ``policy:paged``, or expandable segments.

        with millpond.torch.export_pages(tensor) as exported:
            for page in exported.pages:
                send(page.descriptor, page.bytes)      # such as with socket.send_fds

    A descriptor gives access to the whole page, and so to all that lies next to the tensor. Keep the tensor until the
    others are done with it: freed memory is used again while they still see it. They keep what they have mapped, whatever
    becomes of the tensor and of the descriptors here.

    Raises ``Error`` for memory that does not lie in pages, and if the device cannot share pages. Raises ``ValueError`` for
    a tensor without bytes on a CUDA device.
    """
    return _export.pages(*_bytes_of(tensor))


def export_dma_buf(tensor: "torch.Tensor") -> DmaBuf:
    """Returns one file descriptor for all bytes of a tensor, which the driver of another device imports, such as that of a
    network card with ``ibv_reg_dmabuf_mr``. It takes memory of every policy.

    The file has whole pages of the host, so it also shows what lies around the tensor. Keep the tensor until the others
    are done with it, as for ``export_pages``.

    Raises ``Error`` if the device has no DMA buffers, and if its driver makes none of a tensor that lies in several pages:
    the message says what to do then. Raises ``ValueError`` for a tensor without bytes on a CUDA device.
    """
    return _export.dma_buf(*_bytes_of(tensor))


def _bytes_of(tensor: "torch.Tensor") -> tuple[int, int]:
    """Returns the address of a tensor's first element, and the number of bytes up to the end of its last one."""
    _enabled()
    if not tensor.is_cuda or tensor.numel() == 0:
        raise BadValue(f"millpond: a tensor with {tensor.numel()} elements on {tensor.device} has no bytes on a CUDA device")
    last = sum((size - 1) * stride for size, stride in zip(tensor.size(), tensor.stride()))
    return tensor.data_ptr(), (last + 1) * tensor.element_size()


def _devices_of(group: Group) -> list[int]:
    """Returns the devices on which a group may have memory: those where its scope was open, and, for the pools of
    graphs, all others that are in use."""
    import torch

    return [device for device in range(torch.cuda.device_count()) if group.was_open_on(device) or _is_used(device)]


@functools.cache
def _out_of_memory() -> type[Error]:
    """Returns the class of an error that PyTorch's programs catch, and Millpond's."""
    import torch

    return type("OutOfMemory", (_pond.OutOfMemory, torch.OutOfMemoryError), {"__module__": __name__})
