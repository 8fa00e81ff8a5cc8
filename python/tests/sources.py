"""MemPool(allocator=...): private pools whose memory another allocator supplies. Without a GPU no kernel runs, so a
simulated device will do: scripts/torch-simulated.sh. With a GPU:

    python python/tests/sources.py [--conf policy:classic]       on Millpond
    python python/tests/sources.py --native                      the same on PyTorch's own allocator

Needs a C compiler.
"""

import argparse
import ctypes
import gc
import pathlib
import shutil
import subprocess
import tempfile
from types import ModuleType
from typing import Any

MIB = 1 << 20


def build(folder: str) -> pathlib.Path:
    """Compiles the allocator, and returns its path."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise SystemExit("SKIPPED: there is no C compiler")
    path = pathlib.Path(folder, "pool_allocator.so")
    source = pathlib.Path(__file__).with_name("pool_allocator.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", str(source), "-ldl", "-o", str(path)], check=True)
    return path


class Scene:
    """The allocator, and what it has been asked."""

    def __init__(self, torch: ModuleType, path: pathlib.Path) -> None:
        self.torch = torch
        self.path = path
        self.library = ctypes.CDLL(str(path))
        for name in ("pool_begin", "pool_allow"):
            getattr(self.library, name).argtypes = [ctypes.c_long, ctypes.c_int][: 2 if name == "pool_begin" else 1]
        for name in ("pool_allocs", "pool_frees", "pool_bytes"):
            getattr(self.library, name).restype = ctypes.c_long
        self.has_gpu = torch.cuda.get_device_name() != "simulated"

    def begin(self, allowed: int = 1 << 40) -> None:
        gc.collect()
        self.torch.cuda.empty_cache()
        self.library.pool_begin(allowed, int(self.has_gpu))

    def allocator(self) -> Any:
        return self.torch.cuda.memory.CUDAPluggableAllocator(str(self.path), "pool_alloc", "pool_free")

    def inside(self, pool: Any, *sizes: int) -> list[Any]:
        with self.torch.cuda.use_mem_pool(pool):
            assert pool.use_count() == 2
            return [self.torch.empty(size, dtype=self.torch.uint8, device="cuda") for size in sizes]

    def asked(self) -> tuple[int, ...]:
        """Returns the allocations and the frees so far, and the bytes that are out."""
        return self.library.pool_allocs(), self.library.pool_frees(), self.library.pool_bytes()

    def expect_asked(self, *expected: int) -> None:
        assert self.asked() == expected, (self.asked(), expected)


def lies_in(segments: Any, tensor: Any) -> bool:
    begins = [s["address"] for s in segments if s["address"] <= tensor.data_ptr() < s["address"] + s["total_size"]]
    return len(begins) == 1


def segments_and_blocks(scene: Scene) -> None:
    torch = scene.torch
    scene.begin()
    reserved, allocated = torch.cuda.memory_reserved(), torch.cuda.memory_allocated()
    pool = torch.cuda.MemPool(scene.allocator().allocator())
    assert pool.use_count() == 1
    scene.expect_asked(0, 0, 0)
    tensors = scene.inside(pool, 3 * MIB, 4 * MIB)
    scene.expect_asked(1, 0, 20 * MIB)
    tensors += scene.inside(pool, 700, 30 * MIB)
    scene.expect_asked(3, 0, 52 * MIB)
    assert pool.use_count() == 1
    outside = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
    scene.expect_asked(3, 0, 52 * MIB)

    segments = pool.snapshot()
    assert sorted(s["total_size"] for s in segments) == [2 * MIB, 20 * MIB, 30 * MIB], segments
    assert all(tuple(s["segment_pool_id"]) == tuple(pool.id) and not s["is_expandable"] for s in segments)
    assert all(lies_in(segments, tensor) for tensor in tensors) and not lies_in(segments, outside)
    assert torch.cuda.memory_allocated() - allocated == 40 * MIB + 1024
    assert torch.cuda.memory_reserved() - reserved >= 52 * MIB
    if scene.has_gpu:
        for value, tensor in enumerate(tensors):
            tensor.fill_(value)
        del tensor
        assert all(int(tensor[-1]) == value for value, tensor in enumerate(tensors))

    # What is free serves the pool again, and stays in it while the pool is there.
    address = tensors[0].data_ptr()
    del tensors[0]
    torch.cuda.empty_cache()
    tensors += scene.inside(pool, 3 * MIB)
    assert tensors[-1].data_ptr() == address
    scene.expect_asked(3, 0, 52 * MIB)
    tensors.clear()
    torch.cuda.empty_cache()
    scene.expect_asked(3, 0, 52 * MIB)
    del pool
    gc.collect()
    torch.cuda.empty_cache()
    scene.expect_asked(3, 3, 0)
    del outside


def lifetimes(scene: Scene) -> None:
    """The pool, and what is live of it, may outlive whoever made the allocator; the last segment goes back to it."""
    torch = scene.torch
    scene.begin()
    allocator = scene.allocator()
    pool = torch.cuda.MemPool(allocator.allocator())
    del allocator
    gc.collect()
    first, last = scene.inside(pool, 30 * MIB, 3 * MIB)
    del first, pool
    gc.collect()
    torch.cuda.empty_cache()
    scene.expect_asked(2, 1, 20 * MIB)
    del last
    torch.cuda.empty_cache()
    scene.expect_asked(2, 2, 0)

    # Two pools of one allocator are two pools.
    allocator = scene.allocator()
    pools = [torch.cuda.MemPool(allocator.allocator()) for _ in range(2)]
    tensors = [scene.inside(pool, 3 * MIB) for pool in pools]
    scene.expect_asked(4, 2, 40 * MIB)
    del tensors, pools, allocator
    gc.collect()
    torch.cuda.empty_cache()
    scene.expect_asked(4, 4, 0)


def refusals(scene: Scene) -> None:
    """A request for which the allocator has nothing is out of memory, and the pool goes on."""
    torch = scene.torch
    scene.begin(allowed=24 * MIB)
    pool = torch.cuda.MemPool(scene.allocator().allocator())
    kept = scene.inside(pool, 3 * MIB)
    try:
        scene.inside(pool, 30 * MIB)
    except torch.cuda.OutOfMemoryError as error:
        assert "Tried to allocate 30.00 MiB" in str(error), error
        assert "Millpond" not in str(error) or "a source of its own, which has refused 30.00 MiB" in str(error), error
    else:
        raise AssertionError("there is no error")
    scene.expect_asked(1, 0, 20 * MIB)
    kept += scene.inside(pool, 4 * MIB)
    scene.library.pool_allow(1 << 40)
    kept += scene.inside(pool, 30 * MIB)
    scene.expect_asked(2, 0, 50 * MIB)
    del kept, pool
    gc.collect()
    torch.cuda.empty_cache()
    scene.expect_asked(2, 2, 0)


def flags(scene: Scene) -> None:
    """Without splitting, each allocation has a segment of its own."""
    torch = scene.torch
    scene.begin()
    pool = torch.cuda.MemPool(scene.allocator().allocator(), no_split=True)
    tensors = scene.inside(pool, 3 * MIB, 4 * MIB)
    scene.expect_asked(2, 0, 40 * MIB)
    del tensors, pool
    gc.collect()
    torch.cuda.empty_cache()
    scene.expect_asked(2, 2, 0)


def history(scene: Scene) -> None:
    """The history has the segments."""
    torch = scene.torch
    scene.begin()
    torch.cuda.memory._record_memory_history()
    pool = torch.cuda.MemPool(scene.allocator().allocator())
    tensors = scene.inside(pool, 3 * MIB)
    del tensors, pool
    gc.collect()
    torch.cuda.empty_cache()
    entries = torch.cuda.memory._snapshot()["device_traces"][0]
    torch.cuda.memory._record_memory_history(enabled=None)
    told = [entry["action"] for entry in entries if entry["size"] == 20 * MIB]
    assert told == ["segment_alloc", "segment_free"], told


def main(torch: ModuleType) -> None:
    with tempfile.TemporaryDirectory() as folder:
        torch.cuda.synchronize()
        scene = Scene(torch, build(folder))
        for check in (segments_and_blocks, lifetimes, refusals, flags, history):
            check(scene)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--native", action="store_true")
    parser.add_argument("--conf")
    arguments = parser.parse_args()
    if not arguments.native:
        import millpond.torch

        millpond.torch.enable(arguments.conf)
    import torch

    torch.cuda.init()
    main(torch)
    print("sources: as they should be,", arguments.conf or ("native" if arguments.native else "default"))
