"""Memory for other processes and other drivers: the entries of the library's table for it.

This module knows the C interface and nothing of PyTorch.
"""

import ctypes
import dataclasses
import os
from types import TracebackType
from typing import Any, TypeVar

from millpond import _library


class _CPage(ctypes.Structure):
    """``millpond_core_page`` of the header."""

    _fields_ = [
        ("bytes", ctypes.c_uint64),
        ("number", ctypes.c_uint64),
        ("descriptor", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
    ]


class _CDmaBuf(ctypes.Structure):
    """``millpond_core_dma_buf`` of the header."""

    _fields_ = [
        ("bytes", ctypes.c_uint64),
        ("offset", ctypes.c_uint64),
        ("descriptor", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
    ]


_Tell = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(_CPage))


class _CPages(ctypes.Structure):
    """``millpond_core_pages`` of the header."""

    _fields_ = [("user", ctypes.c_void_p), ("page", _Tell)]


_Self = TypeVar("_Self", bound="_Files")


class _Files:
    """File descriptors that are closed together: by ``close``, at the end of ``with``, or with the object."""

    def __init__(self, descriptors: list[int]) -> None:
        self._open = descriptors

    def close(self) -> None:
        """Closes the descriptors. Memory that others have imported stays theirs. A second call does nothing."""
        while self._open:
            os.close(self._open.pop())

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


@dataclasses.dataclass(frozen=True)
class Page:
    """A page of exported memory."""

    #: A file descriptor of the page, as ``cuMemImportFromShareableHandle`` takes it.
    descriptor: int
    #: The address at which the exported memory has the page.
    address: int
    #: The size of the page in bytes.
    bytes: int


class Pages(_Files):
    """The pages behind a tensor, one after another."""

    def __init__(self, pages: list[Page], offset: int) -> None:
        super().__init__([page.descriptor for page in pages])
        #: In the order of their addresses.
        self.pages = tuple(pages)
        #: Where the tensor begins in the first page, in bytes.
        self.offset = offset

    def __repr__(self) -> str:
        return f"Pages({len(self.pages)} pages, offset={self.offset})"


class DmaBuf(_Files):
    """A DMA buffer: memory as a file that other drivers of the machine import, such as that of a network card."""

    def __init__(self, descriptor: int, size: int, offset: int) -> None:
        super().__init__([descriptor])
        #: The file descriptor.
        self.descriptor = descriptor
        #: The size of the file.
        self.bytes = size
        #: Where the tensor begins in the file, in bytes.
        self.offset = offset

    def fileno(self) -> int:
        """Returns the file descriptor."""
        return self.descriptor

    def __repr__(self) -> str:
        return f"DmaBuf(descriptor={self.descriptor}, bytes={self.bytes}, offset={self.offset})"


def _copies(descriptors: list[int]) -> list[int]:
    """Returns descriptors of the same files. Raises ``Error`` if this process has too many open."""
    copies: list[int] = []
    try:
        for descriptor in descriptors:
            copies.append(os.dup(descriptor))
    except OSError as error:
        for copy in copies:
            os.close(copy)
        raise _library.Error(
            f"millpond: {len(descriptors)} pages are exported, and each takes an open file: {error}. Raise the limit "
            "(ulimit -n)"
        ) from error
    return copies


def pages(address: int, size: int) -> Pages:
    """Exports the pages behind bytes of a live block, which lives until this returns."""
    told: list[tuple[int, int]] = []

    def tell(_user: Any, page: Any) -> None:
        told.append((page.contents.descriptor, page.contents.bytes))

    sink, offset = _CPages(None, _Tell(tell)), ctypes.c_uint64()
    _library.call("export_pages", address, size, ctypes.byref(sink), ctypes.byref(offset))
    copies = _copies([descriptor for descriptor, _ in told])
    found, at = [], address - offset.value
    for copy, (_, length) in zip(copies, told):
        found.append(Page(copy, at, length))
        at += length
    return Pages(found, offset.value)


def dma_buf(address: int, size: int) -> DmaBuf:
    """Exports bytes of a live block as a DMA buffer."""
    out = _CDmaBuf()
    _library.call("export_dma_buf", address, size, ctypes.byref(out))
    return DmaBuf(out.descriptor, out.bytes, out.offset)
