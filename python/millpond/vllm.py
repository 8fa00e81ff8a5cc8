"""vLLM's sleep mode on Millpond: the allocator that its workers ask for memory, and put to sleep and wake.

vLLM has an allocator of its own for that, a ``CUDAPluggableAllocator``. It works under Millpond, too, but its memory is
not in Millpond's pages, and is copied one piece after the other. ``install`` serves its tags by groups instead. As a
plug-in of vLLM it is called in each of its processes, and does nothing where Millpond is not enabled.
"""

import contextlib
import gc
import threading
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import millpond.torch
from millpond import _sleep

__all__ = ["CuMemAllocator", "install"]

# The tag of the pools of CUDA graphs, which wake with whatever wakes.
_GRAPHS = "cudagraph"


def _tuple(tags: Iterable[str] | str | None, default: tuple[str, ...]) -> tuple[str, ...]:
    return default if tags is None else (tags,) if isinstance(tags, str) else tuple(tags)


class CuMemAllocator:
    """What vLLM calls ``CuMemAllocator``: memory by tags. ``get_instance`` returns the one of the process."""

    default_tag = "default"
    _instance: "CuMemAllocator | None" = None
    _lock = threading.Lock()

    def __init__(self) -> None:
        self._groups: dict[str, millpond.torch.Group] = {}

    @staticmethod
    def get_instance() -> "CuMemAllocator":
        """Returns the one of this process."""
        with CuMemAllocator._lock:
            if CuMemAllocator._instance is None:
                CuMemAllocator._instance = CuMemAllocator()
            return CuMemAllocator._instance

    def _group(self, tag: str) -> millpond.torch.Group:
        return self._groups.setdefault(tag, millpond.torch.group(tag))

    @contextlib.contextmanager
    def use_memory_pool(self, tag: str | None = None) -> Iterator[None]:
        """Puts what this thread allocates on the current device under a tag."""
        with self._group(self.default_tag if tag is None else tag):
            yield

    @contextlib.contextmanager
    def use_cudagraph_pool(self, pool: Any = None) -> Iterator[Any]:
        """Yields a pool to capture graphs in, which sleeps and wakes with the rest. Its contents are not kept: a replay
        computes them anew."""
        import torch

        with _sleep.joining(self._group(_GRAPHS).name, millpond.torch._enabled()):
            yield torch.cuda.graph_pool_handle() if pool is None else pool

    def release_cudagraph_pool(self, pool: Any = None) -> None:
        """Does nothing: the memory of graphs that are gone is free."""

    def sleep(self, offload_tags: Iterable[str] | str | None = None) -> None:
        """Gives all memory back to the driver. The contents of these tags are kept in host memory; without any named,
        those of the default tag."""
        kept = _tuple(offload_tags, (self.default_tag,))
        for tag, group in list(self._groups.items()):
            millpond.torch.pause(group, "host" if tag in kept else "discard")
        self._tidy()

    def discard(self, tags: Iterable[str] | str) -> None:
        """Gives the memory of these tags back to the driver, without its contents."""
        for tag in _tuple(tags, ()):
            if tag in self._groups:
                millpond.torch.pause(self._groups[tag], "discard")
        self._tidy()

    def wake_up(self, tags: Iterable[str] | str | None = None) -> None:
        """Gives these tags their memory again, or all of them. Raises ``torch.OutOfMemoryError`` if there is too
        little: what still sleeps stays so, with its contents, and a later call goes on."""
        woken = _tuple(tags, tuple(self._groups))
        for tag, group in list(self._groups.items()):
            if tag in woken or tag == _GRAPHS:
                millpond.torch.resume(group)

    def get_current_usage(self) -> int:
        """Returns the bytes of all live blocks of the current device that have a tag."""
        return sum(group.info().allocated_bytes for group in self._groups.values())

    @staticmethod
    def _tidy() -> None:
        import torch

        gc.collect()
        torch.cuda.empty_cache()


def install() -> None:
    """Makes vLLM use this allocator in this process. Does nothing unless Millpond is enabled, as with
    ``MILLPOND_TORCH=1``. Warns if this vLLM has its allocator elsewhere."""
    if not millpond.torch.is_enabled():
        return
    try:
        import vllm.device_allocator.cumem as cumem

        # Modules of vLLM hold the class by name; all of them ask it for the instance.
        replaced = cumem.CuMemAllocator
        replaced.get_instance = staticmethod(CuMemAllocator.get_instance)
    except (ImportError, AttributeError) as error:
        warnings.warn(
            f"millpond: this vLLM has its allocator for sleep mode elsewhere ({error}), so that it stays in use: it "
            "works, but its memory is not in Millpond's pages",
            RuntimeWarning,
            stacklevel=2,
        )
