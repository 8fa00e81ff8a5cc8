"""The peaks of a part of a program on one device."""

import json
import os
import types
from collections.abc import Callable

from millpond import _library
from millpond._library import Error


class Peak:
    """The peaks of a part of a program: see ``millpond.torch.peak``."""

    def __init__(self, device: Callable[[], int]) -> None:
        self._device = device
        self._number, self._scope = 0, 0
        self._process: int | None = None
        # What was seen last, which is what there was at the end once the part has ended.
        self._stats: dict[str, int] | None = None

    def __enter__(self) -> "Peak":
        if self._process is not None:
            raise Error("millpond: this peak was measured already: call millpond.torch.peak() for each part")
        self._number = self._device()
        self._scope = _library.number("peak_open", self._number)
        self._process = os.getpid()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        # In a child of `fork` the scope is the parent's.
        if self._process == os.getpid():
            self.stats()
            self._close()

    def __del__(self) -> None:
        if self._process == os.getpid():
            self._close()

    def _close(self) -> None:
        scope, self._scope = self._scope, 0
        if scope:
            _library.call("peak_close", self._number, scope)

    def stats(self) -> dict[str, int]:
        """Returns the numbers of ``torch.cuda.memory_stats`` under its keys, with the peaks of this part: up to now, or up
        to its end."""
        if self._scope:
            self._stats = json.loads(_library.text("peak_json", self._number, self._scope))
        if self._stats is None:
            raise Error("millpond: nothing was measured: use `with millpond.torch.peak() as peak`")
        return self._stats

    @property
    def allocated_bytes(self) -> int:
        """The most bytes that were in tensors at one time, after rounding (``torch.cuda.max_memory_allocated``)."""
        return self.stats()["allocated_bytes.all.peak"]

    @property
    def active_bytes(self) -> int:
        """The most bytes that were at one time in tensors, or freed and waiting for the device."""
        return self.stats()["active_bytes.all.peak"]

    @property
    def requested_bytes(self) -> int:
        """The most bytes that the program had asked for in these at one time, before rounding."""
        return self.stats()["requested_bytes.all.peak"]

    @property
    def reserved_bytes(self) -> int:
        """The most bytes that were reserved at one time (``torch.cuda.max_memory_reserved``)."""
        return self.stats()["reserved_bytes.all.peak"]
