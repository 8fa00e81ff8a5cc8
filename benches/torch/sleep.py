"""What pausing memory costs and what gives memory back, under PyTorch on a machine with a GPU.

    python benches/torch/sleep.py bare 64:640        the driver's calls alone, for 640 pages of 64 MiB
    python benches/torch/sleep.py saver 20 40        torch_memory_saver: 20 GiB kept, 40 GiB discarded
    python benches/torch/sleep.py experts [native]   the conversion of a mixture of experts inside a group, or a MemPool
    python benches/torch/sleep.py idle               a peak of 20 GiB, then requests of 8 MiB, and polls
    python benches/torch/sleep.py hook               a hook that makes room, and forecasts
    python benches/torch/sleep.py peak               scopes of peaks

`millpond-sleep-bench` of this folder's package measures Millpond itself: see benches/record/nvidia-h200/sleep.md.
"""

import ctypes
import sys
import time
from collections.abc import Callable
from typing import Any

GIB, MIB = 1 << 30, 1 << 20


class Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class Properties(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_int), ("handles", ctypes.c_int), ("location", Location), ("windows", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    ]


class Access(ctypes.Structure):
    _fields_ = [("location", Location), ("flags", ctypes.c_int)]


def bare(*parts: str) -> None:
    """Creates and maps pages, and unmaps and releases them."""
    cuda = ctypes.CDLL("libcuda.so.1")

    def call(name: str, *arguments: object) -> None:
        code = getattr(cuda, name)(*arguments)
        assert code == 0, f"{name}: {code}"

    size, number = ctypes.c_size_t, ctypes.c_uint64
    device, context, base = ctypes.c_int(), ctypes.c_void_p(), number()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    here = Location(1, 0)
    properties, access = Properties(type=1, location=here), Access(here, 3)
    sizes = [int(mib) * MIB for mib, count in (part.split(":") for part in parts) for _ in range(int(count))]
    call("cuMemAddressReserve", ctypes.byref(base), size(sum(sizes)), size(0), number(0), number(0))
    handles = (number * len(sizes))()
    places = [base.value + sum(sizes[:at]) for at in range(len(sizes))]
    for turn in range(3):
        times = [time.perf_counter()]
        for at, (place, bytes) in enumerate(zip(places, sizes)):
            call("cuMemCreate", ctypes.byref(handles, 8 * at), size(bytes), ctypes.byref(properties), number(0))
            call("cuMemMap", number(place), size(bytes), size(0), number(handles[at]), number(0))
            call("cuMemSetAccess", number(place), size(bytes), ctypes.byref(access), size(1))
        times.append(time.perf_counter())
        for at, (place, bytes) in enumerate(zip(places, sizes)):
            call("cuMemUnmap", number(place), size(bytes))
            call("cuMemRelease", number(handles[at]))
        times.append(time.perf_counter())
        print(f"bare, turn {turn}: {sum(sizes) / GIB:.1f} GiB in {len(sizes)} pages made in "
              f"{(times[1] - times[0]) * 1e3:.1f} ms, given back in {(times[2] - times[1]) * 1e3:.1f} ms")


def saver(kept: str, discarded: str) -> None:
    """Pauses and resumes memory of torch_memory_saver."""
    import torch
    from torch_memory_saver import torch_memory_saver

    torch_memory_saver.hook_mode = "torch"

    def blocks(gib: int) -> list[Any]:
        return [torch.full((GIB // 2,), at, dtype=torch.uint8, device="cuda") for at in range(2 * gib)]

    def timed(call: Callable[[], object]) -> float:
        torch.cuda.synchronize()
        begin = time.perf_counter()
        call()
        torch.cuda.synchronize()
        return time.perf_counter() - begin

    with torch_memory_saver.region(tag="weights", enable_cpu_backup=True):
        weights = blocks(int(kept))
    with torch_memory_saver.region(tag="kv"):
        blocks_of_kv = blocks(int(discarded))
    host = torch.empty(GIB // 2, dtype=torch.uint8, pin_memory=True)
    for turn in range(3):
        plain = timed(lambda: [host.copy_(block, non_blocking=True) for block in weights])
        out, gone = timed(lambda: torch_memory_saver.pause("weights")), timed(lambda: torch_memory_saver.pause("kv"))
        back, made = timed(lambda: torch_memory_saver.resume("weights")), timed(lambda: torch_memory_saver.resume("kv"))
        rates = [int(kept) / seconds for seconds in (out, back, plain)]
        print(f"torch_memory_saver, turn {turn}: {rates[0]:.1f} GiB/s out and {rates[1]:.1f} back, {rates[2]:.1f} by a "
              f"plain copy; discarded in {gone * 1e3:.1f} ms, made again in {made * 1e3:.1f} ms")
    del blocks_of_kv


def experts(*native: str) -> None:
    """Converts the weights of a mixture of experts to another layout, layer by layer, inside a pool of their own."""
    import torch

    layers, count, hidden, inner = 8, 32, 2048, 1408
    half = {"dtype": torch.bfloat16, "device": "cuda"}

    def build() -> list[dict[str, Any]]:
        return [
            {"w13": torch.randn(count, 2 * inner, hidden, **half), "w2": torch.randn(count, hidden, inner, **half),
             "gate": torch.randn(count, hidden, device="cuda")} for _ in range(layers)
        ]

    def convert(layer: dict[str, Any]) -> None:
        longer = torch.empty(count, hidden, 2 * inner + 128, **half)
        longer[..., : 2 * inner] = layer["w13"].transpose(1, 2)
        layer["w13"] = longer
        layer["w2"] = torch.nn.functional.pad(layer["w2"].transpose(1, 2).contiguous(), (0, 64))
        layer["scale"] = torch.rand(count, 2 * inner // 16, hidden // 16, device="cuda")

    if native:
        pool, most = torch.cuda.MemPool(), [0, 0]
        with torch.cuda.use_mem_pool(pool):
            for layer in (model := build()):
                convert(layer)
                own = [each for each in torch.cuda.memory._snapshot()["segments"] if each["segment_pool_id"] == pool.id]
                sums = [sum(each[key] for each in own) for key in ("allocated_size", "total_size")]
                most = [max(before, now) for before, now in zip(most, sums)]
        print(f"MemPool: {most[1] / GIB:.3f} GiB reserved, {most[0] / GIB:.3f} live: {most[1] / most[0]:.3f}")
        del model
        return
    import millpond.torch

    millpond.torch.enable()
    with millpond.torch.group("weights") as group, millpond.torch.peak() as peak:
        for layer in (model := build()):
            convert(layer)
    print(f"group: {peak.reserved_bytes / GIB:.3f} GiB reserved, {peak.allocated_bytes / GIB:.3f} live: "
          f"{peak.reserved_bytes / peak.allocated_bytes:.3f}")
    millpond.torch.pause(group)
    millpond.torch.resume(group)
    print(f"after a pause and a resume {group.info().reserved_bytes / GIB:.3f} GiB")


def block(bytes: int) -> Any:
    import torch

    return torch.empty(bytes, dtype=torch.uint8, device="cuda")


def idle() -> None:
    """Reaches a peak, and asks for little afterwards."""
    import millpond.torch
    import torch

    millpond.torch.enable("release_idle_after:1s")
    peak = [block(GIB) for _ in range(20)]
    print(f"at the peak {torch.cuda.memory_reserved() / GIB:.3f} GiB are reserved")
    peak.clear()
    begin, requests = time.perf_counter(), 0
    while time.perf_counter() - begin < 3.5:
        block(8 * MIB)
        requests += 1
        if requests % 100 == 0:
            millpond.torch.poll()
    stats = millpond.torch.stats()
    print(f"after {requests} requests of 8 MiB {torch.cuda.memory_reserved() / GIB:.3f} GiB; {stats['idle.releases']} "
          f"release of {stats['idle.released_bytes'] / GIB:.3f} GiB")


def hook() -> None:
    """Drops a cache once memory is short."""
    import millpond.torch
    import torch

    millpond.torch.enable()
    torch.cuda.set_per_process_memory_fraction(8 * GIB / torch.cuda.get_device_properties(0).total_memory)
    cache, told = [block(GIB) for _ in range(6)], []

    def spill(shortage: Any) -> bool:
        told.append(f"attempt {shortage.attempt}: {shortage.short_bytes // MIB} MiB short")
        return bool(cache and (cache.pop() is not None))

    registered = millpond.torch.on_out_of_memory(spill)
    print(millpond.torch.would_fit(4 * GIB))
    served = block(4 * GIB)
    print(f"4 GiB are served after {told}, with {len(cache)} of 6 GiB left")
    registered.remove()
    del served


def peak() -> None:
    """Measures parts of a program."""
    import millpond.torch
    import torch

    millpond.torch.enable()
    block(GIB)
    with millpond.torch.peak() as outer:
        first = block(300 * MIB)
        with millpond.torch.peak() as inner:
            block(100 * MIB)
        second = block(50 * MIB)
    print(f"inner {inner.allocated_bytes // MIB} MiB, outer {outer.allocated_bytes // MIB} MiB, PyTorch's own "
          f"{torch.cuda.max_memory_allocated() // MIB} MiB")
    del first, second


PARTS: dict[str, Callable[..., None]] = {
    "bare": bare, "saver": saver, "experts": experts, "idle": idle, "hook": hook, "peak": peak,
}

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in PARTS:
        sys.exit(__doc__)
    PARTS[sys.argv[1]](*sys.argv[2:])
