"""PyTorch, CuPy and RMM in one process, under a real torch on the simulated driver of CUDA, where memory has bytes.
scripts/torch-simulated.sh runs it. Stand-ins take the place of CuPy and RMM, and call what these call.

What one library frees serves the others, in the order of its stream; every block keeps its bytes for as long as it
lives; and the driver sees no mistake.
"""

import argparse
import ctypes
import pathlib
import random
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import stand_ins

MIB = 1 << 20
# How many bytes of a block are looked at, and how often that is done at most.
SLOT, SLOTS = 64, 5000


class Violation(ctypes.Structure):
    """RawViolation of tests/cuda-driver/src/table.rs."""

    _fields_ = [
        ("kind", ctypes.c_uint32), ("device", ctypes.c_uint32),
        ("address", ctypes.c_uint64), ("bytes", ctypes.c_uint64),
    ]


class Controls(ctypes.Structure):
    """The table of tests/cuda-driver/src/table.rs, up to the last entry that is called here."""

    _fields_ = [
        ("version", ctypes.c_uint64),
        *((name, ctypes.c_void_p) for name in (
            "reset", "fail_nth", "calls", "set_bytes", "set_others", "set_rdma", "set_dma_buf",
            "read_dma_buf", "held_bytes", "lose",
        )),
        ("hold", ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint32, ctypes.c_size_t)),
        ("open", ctypes.CFUNCTYPE(None, ctypes.c_uint64)),
        ("violation", ctypes.CFUNCTYPE(Violation, ctypes.c_uint64)),
    ]


class Driver:
    """The simulated driver: streams, work on them, and the mistakes that it has seen."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so")
        entry = self.library.millpond_cuda_driver_table
        entry.restype = ctypes.POINTER(Controls)
        self.controls = entry().contents
        assert self.controls.version == 4, self.controls.version
        context = ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxSetCurrent", context)
        # Where bytes are copied to: copies to other memory of the host wait for their stream.
        self.pinned, self.taken = ctypes.c_void_p(), 0
        self.call("cuMemAllocHost_v2", ctypes.byref(self.pinned), ctypes.c_size_t(SLOTS * SLOT))

    def call(self, name: str, *arguments: object) -> None:
        status = self.library[name](*arguments)
        assert status == 0, (name, status)

    def new_stream(self) -> int:
        stream = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(stream), 1)
        return stream.value or 0

    def fill(self, address: int, value: int, size: int, stream: int) -> None:
        self.call(
            "cuMemsetD8Async", ctypes.c_uint64(address), ctypes.c_ubyte(value), ctypes.c_size_t(size),
            ctypes.c_void_p(stream)
        )

    def read(self, address: int, stream: int) -> int:
        """Copies some bytes to the host, in the order of the stream. Returns where they are then."""
        assert self.taken < SLOTS
        slot = (self.pinned.value or 0) + self.taken * SLOT
        self.taken += 1
        self.call(
            "cuMemcpyDtoHAsync_v2", ctypes.c_void_p(slot), ctypes.c_uint64(address), ctypes.c_size_t(SLOT),
            ctypes.c_void_p(stream)
        )
        return slot

    def hold(self, stream: int) -> int:
        """Keeps a stream from going on, until the gate that is returned is opened."""
        gate: int = self.controls.hold(0, stream)
        assert gate != 0
        return gate

    def check(self) -> None:
        found = self.controls.violation(0)
        assert found.kind == 0, (found.kind, hex(found.address), found.bytes)


class Libraries:
    """The three libraries, each with what it does to allocate and to free."""

    def __init__(self, torch: Any, cupy: Any, rmm: Any) -> None:
        self.torch, self.cupy, self.rmm = torch, cupy, rmm
        self.resource = rmm.mr.get_per_device_resource(0)
        self.streams: dict[int, Any] = {0: torch.cuda.default_stream()}
        self.allocate: dict[str, Callable[[int, int], tuple[int, Any]]] = {
            "torch": self._torch, "cupy": self._cupy, "rmm": self._rmm,
        }

    def _torch(self, size: int, stream: int) -> tuple[int, Any]:
        external = self.streams.setdefault(stream, self.torch.cuda.ExternalStream(stream))
        with self.torch.cuda.stream(external):
            tensor = self.torch.empty(size, dtype=self.torch.uint8, device="cuda")
        return tensor.data_ptr(), tensor

    def _cupy(self, size: int, stream: int) -> tuple[int, Any]:
        self.cupy.cuda.current = self.cupy._Stream(stream)
        array = self.cupy.array(size)
        return array.data.ptr, array

    def _rmm(self, size: int, stream: int) -> tuple[int, Any]:
        named = self.rmm.Stream(stream)
        address = self.resource.allocate(size, named)

        class Buffer:
            def __del__(self, free: Any = self.resource.deallocate) -> None:
                free(address, size, named)

        return address, Buffer()


def what_one_frees_the_others_get(libraries: Libraries, driver: Driver) -> None:
    stream, other = driver.new_stream(), driver.new_stream()
    before = libraries.torch.cuda.memory_reserved()
    address, block = libraries.allocate["torch"](30 * MIB, stream)
    for name in ("cupy", "rmm", "torch", "rmm", "cupy", "torch"):
        del block
        again, block = libraries.allocate[name](30 * MIB, stream)
        assert again == address, (name, hex(again), hex(address))
    assert libraries.torch.cuda.memory_reserved() - before < 60 * MIB

    # The tensor is used on another stream, which is held: Millpond hands the memory out only after that has gone on.
    gate = driver.hold(other)
    block.record_stream(libraries.torch.cuda.ExternalStream(other))
    driver.fill(address, 7, 30 * MIB, other)
    del block
    taken = [libraries.allocate[name](30 * MIB, stream) for name in ("cupy", "rmm", "torch")]
    for value, (place, _) in enumerate(taken, 1):
        driver.fill(place, value, 30 * MIB, stream)
    slots = [driver.read(place, stream) for place, _ in taken]
    driver.controls.open(gate)
    driver.call("cuCtxSynchronize")
    found = [set(ctypes.string_at(slot, SLOT)) for slot in slots]
    assert found == [{1}, {2}, {3}], found


def everything_keeps_its_bytes(libraries: Libraries, driver: Driver, seed: int, holds: bool) -> None:
    """Allocates and frees at random, in all libraries, on several streams, some of which are held now and then."""
    draw = random.Random(seed)
    streams = [0, *(driver.new_stream() for _ in range(3))]
    live: list[tuple[int, int, int, int, Any]] = []
    expected: list[tuple[int, int]] = []
    gates: list[int] = []
    for step in range(600):
        if holds and draw.random() < 0.05:
            gates.append(driver.hold(draw.choice(streams[1:])))
        if len(gates) > 1 or (gates and draw.random() < 0.1):
            driver.controls.open(gates.pop(0))
        if len(live) < 40 and draw.random() < 0.55:
            size = int(2 ** draw.uniform(9, 24))
            stream, name, value = draw.choice(streams), draw.choice(list(libraries.allocate)), step % 251
            address, block = libraries.allocate[name](size, stream)
            driver.fill(address, value, size, stream)
            live.append((address, size, stream, value, block))
        elif live:
            address, size, stream, value, block = live.pop(draw.randrange(len(live)))
            expected += [(value, driver.read(address + offset, stream)) for offset in (0, size - SLOT)]
            del block
    for gate in gates:
        driver.controls.open(gate)
    driver.call("cuCtxSynchronize")
    found = [(value, set(ctypes.string_at(slot, SLOT))) for value, slot in expected]
    assert all(bytes == {value} for value, bytes in found), (seed, [pair for pair in found if pair[1] != {pair[0]}][:5])
    block = None
    live.clear()


def main(conf: str) -> None:
    import millpond.cupy
    import millpond.rmm
    import millpond.torch

    millpond.cupy.enable(conf)
    millpond.torch.enable()
    millpond.rmm.enable()
    import cupy
    import rmm
    import torch

    driver = Driver()
    torch.cuda.init()
    libraries = Libraries(torch, cupy, rmm)
    # This policy keeps nothing, and a free waits for the device.
    is_direct = conf == "policy:direct"
    if not is_direct:
        what_one_frees_the_others_get(libraries, driver)
    for seed in range(4):
        everything_keeps_its_bytes(libraries, driver, seed, holds=not is_direct)
    torch.cuda.empty_cache()
    stats = [millpond.cupy.stats(), millpond.rmm.stats(), millpond.torch.stats(0), torch.cuda.memory_stats()]
    for key in ("allocated_bytes.all.current", "allocated_bytes.all.peak", "reserved_bytes.all.peak",
                "allocation.all.allocated"):
        assert len({figures[key] for figures in stats}) == 1, (key, [figures[key] for figures in stats])
    assert stats[0]["allocated_bytes.all.current"] == 0, stats[0]["allocated_bytes.all.current"]
    driver.check()
    live, reserved = (stats[0][f"{name}_bytes.all.peak"] for name in ("allocated", "reserved"))
    print(f"ok {conf}: at most {live >> 20} MiB were live in all libraries together, and {reserved >> 20} reserved")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conf", default="policy:paged")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        modules = {"cupy.py": stand_ins.CUPY, "rmm/__init__.py": stand_ins.RMM, "rmm/mr.py": stand_ins.RMM_MR}
        for name, text in modules.items():
            path = pathlib.Path(folder, name)
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        sys.path.insert(0, folder)
        main(arguments.conf)
