"""torch_memory_saver's interface on Millpond: a program changes one import.

    from millpond.torch_memory_saver import torch_memory_saver

Importing this module enables Millpond, so import it before the first use of CUDA. What a region allocates belongs to a
group of ``millpond.torch``, which has the tag as its name: one for regions without a backup, and one, ``TAG (kept)``,
for those with one. Contents are copied to host memory when a region with a backup is paused, and to nowhere otherwise.

What is different: pausing twice and resuming twice are no errors; resuming with too little memory is one, and leaves
the memory paused; and an allocation in a region that is paused is refused.
"""

import contextlib
import os
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import millpond.torch
from millpond import _sleep
from millpond._library import BadType, BadValue, Error

if TYPE_CHECKING:
    import torch

__all__ = ["Error", "TorchMemorySaver", "configure_subprocess", "torch_memory_saver"]

_DEFAULT = "default"
HookMode = Literal["preload", "torch"]
Backend = Literal["mmap", "pinned"]

# What the other package reads from the environment, and what to write instead.
_UNSERVED = {
    "TMS_INIT_ENABLE": "put what is to be paused into `with torch_memory_saver.region():`",
    "TMS_INIT_ENABLE_CPU_BACKUP": "give region() enable_cpu_backup=True",
}


def _wish(name: str) -> bool:
    return os.environ.get(name, "").lower() not in ("", "0", "false", "no")


def _ignored(what: str, why: str) -> None:
    warnings.warn(f"millpond: {what} has no effect: {why}", RuntimeWarning, stacklevel=3)


class TorchMemorySaver:
    """Regions of memory that are paused and resumed by their tags. The module has one, ``torch_memory_saver``."""

    def __init__(self) -> None:
        # By tag, and whether their contents are kept.
        self._groups: dict[tuple[str, bool], millpond.torch.Group] = {}
        self._hook_mode: HookMode = "preload"

    def _group(self, tag: str, is_kept: bool, backend: Backend | None) -> millpond.torch.Group:
        for name, instead in _UNSERVED.items():
            if _wish(name):
                raise Error(
                    f"millpond: {name} puts all memory of a process into a region, which is not served: {instead}"
                )
        if not isinstance(tag, str):
            raise BadType(f"millpond: {tag!r} is no tag: it is a text")
        if backend is not None and not is_kept:
            raise BadValue("millpond: cpu_backup_backend requires enable_cpu_backup=True")
        if backend not in (None, "mmap", "pinned"):
            raise BadValue(f"millpond: cpu_backup_backend is {backend!r}, and may be 'mmap' or 'pinned'")
        group = millpond.torch.group(f"{tag} (kept)" if is_kept else tag)
        return self._groups.setdefault((tag, is_kept), group)

    @contextlib.contextmanager
    def region(
        self,
        tag: str = _DEFAULT,
        enable_cpu_backup: bool = False,
        enable_disk_backup: bool = False,
        cpu_backup_backend: Backend | None = None,
    ) -> Iterator[None]:
        """Makes what this thread allocates on the current device pauseable under a tag. Regions nest: the innermost
        counts.

        With ``enable_cpu_backup`` a pause keeps the contents. ``cpu_backup_backend`` is checked and has no effect:
        Millpond chooses the host memory. Raises ``Error`` for ``enable_disk_backup``.
        """
        if enable_disk_backup:
            raise Error("millpond: contents are not kept in files: use enable_cpu_backup=True, or no backup")
        with self._group(tag, enable_cpu_backup, cpu_backup_backend):
            yield

    @contextlib.contextmanager
    def cuda_graph(
        self,
        cuda_graph: "torch.cuda.CUDAGraph",
        pool: Any = None,
        stream: Any = None,
        capture_error_mode: str = "global",
        tag: str = _DEFAULT,
        enable_cpu_backup: bool = False,
        cpu_backup_backend: Backend | None = None,
    ) -> Iterator[None]:
        """``torch.cuda.graph``, whose private pool is pauseable under a tag. Graphs that share a pool have one tag.

        Works with both hook modes.
        """
        import torch

        group = self._group(tag, enable_cpu_backup, cpu_backup_backend)
        with torch.cuda.stream(stream), _sleep.joining(group.name, millpond.torch._enabled()):
            with torch.cuda.graph(cuda_graph, pool=pool, stream=stream, capture_error_mode=capture_error_mode):
                yield

    @contextlib.contextmanager
    def disable(self) -> Iterator[None]:
        """Keeps what this thread allocates out of the region that it is in. Outside of regions it does nothing."""
        with _sleep.outside(millpond.torch._enabled()):
            yield

    def _tagged(self, tag: str | None) -> "list[tuple[bool, millpond.torch.Group]]":
        return [(kept, group) for (of, kept), group in list(self._groups.items()) if not tag or of == tag]

    def pause(self, tag: str | None = None) -> None:
        """Gives the memory under a tag back to the driver; without a tag, that of all. Waits for the streams that use
        it."""
        for is_kept, group in self._tagged(tag):
            millpond.torch.pause(group, "host" if is_kept else "discard")

    def resume(self, tag: str | None = None) -> None:
        """Gives paused memory its pages again, at the same addresses. Raises ``torch.OutOfMemoryError`` if there are
        too few: what is paused still stays so, and a later call goes on."""
        for _, group in self._tagged(tag):
            millpond.torch.resume(group)

    @property
    def enabled(self) -> bool:
        """Whether memory can be paused."""
        return millpond.torch.is_enabled()

    @property
    def hook_mode(self) -> HookMode:
        """How the other package hooks the allocator. Here both modes are the same, as Millpond is the allocator."""
        return self._hook_mode

    @hook_mode.setter
    def hook_mode(self, mode: HookMode) -> None:
        if mode not in ("preload", "torch"):
            raise BadValue(f"millpond: hook_mode is {mode!r}, and may be 'preload' or 'torch', which are the same here")
        self._hook_mode = mode

    @property
    def memory_margin_bytes(self) -> int:
        """Bytes that stay free on the device: 0, as Millpond keeps none."""
        return 0

    @memory_margin_bytes.setter
    def memory_margin_bytes(self, value: int) -> None:
        if value:
            _ignored(
                f"memory_margin_bytes = {value}",
                "torch.cuda.set_per_process_memory_fraction() limits what the process may reserve",
            )

    @property
    def retain_cpu_backup(self) -> bool:
        """Whether host memory is kept between pauses: Millpond decides that."""
        return False

    @retain_cpu_backup.setter
    def retain_cpu_backup(self, value: bool) -> None:
        if value:
            _ignored("retain_cpu_backup = True", "Millpond keeps or frees host memory by itself")

    def get_cpu_backup(self, x: "torch.Tensor", zero_copy: bool = False) -> None:
        """Returns ``None`` while nothing is paused, as the other package does. Raises ``Error`` otherwise: the contents
        are kept by page, as the driver copied them, and no tensor on the host has them."""
        for _, group in self._tagged(None):
            if group.info(x.device).is_paused:
                raise Error(
                    f"millpond: {group.name!r} is paused, and what it keeps cannot be read as a tensor: resume it and "
                    "copy with x.cpu(), or copy before the pause"
                )

    def set_disk_backup_dir(self, path: str) -> None:
        """Does nothing: ``region`` refuses ``enable_disk_backup``, so no file is written."""


@contextlib.contextmanager
def configure_subprocess() -> Iterator[None]:
    """Does nothing: the other package preloads its hooks into processes that are started meanwhile, and Millpond has
    none. A process that imports this module is served."""
    yield


millpond.torch.enable()
torch_memory_saver = TorchMemorySaver()
