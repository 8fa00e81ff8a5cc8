"""Checkpoints of private pools through the functions that torch's trees of graphs call. No kernel runs, so a simulated device
will do: scripts/torch-simulated.sh. With a GPU:

    python python/tests/checkpoints.py [--conf policy:classic]       on Millpond
    python python/tests/checkpoints.py --native                      the same on PyTorch's own allocator
"""

import argparse
import gc
from collections.abc import Callable
from types import ModuleType
from typing import Any

SIZES = [512, 3 << 20, 40 << 20, 100 << 10]


def fails(part: str, function: Callable[..., object], *arguments: object) -> None:
    try:
        function(*arguments)
    except RuntimeError as error:
        assert part in str(error), error
        return
    raise AssertionError(f"no error with {part!r}")


def main(torch: ModuleType) -> None:
    take, restore = torch._C._cuda_getCheckpointState, torch._C._cuda_setCheckpointPoolState
    delete = torch._C._cuda_cudaCachingAllocator_raw_delete
    pool = torch.cuda.MemPool()

    def inside(*sizes: int) -> list[Any]:
        with torch.cuda.use_mem_pool(pool):
            return [torch.empty(size, dtype=torch.uint8, device="cuda") for size in sizes]

    def live() -> Any:
        segments = [s for s in torch.cuda.memory_snapshot() if tuple(s["segment_pool_id"]) == tuple(pool.id)]
        blocks = [block for segment in segments for block in segment["blocks"]]
        return sorted((b["address"], b["size"]) for b in blocks if b["state"] == "active_allocated")

    def storages(tensors: list[Any]) -> list[Any]:
        return [tensor.untyped_storage()._cdata for tensor in tensors]

    def over(address: int, size: int) -> Any:
        """Returns a tensor at an address whose end frees nothing."""
        device = torch.device("cuda", 0)
        storage = torch._C._construct_storage_from_data_pointer(address, device, size)
        return torch.empty([0], device=device, dtype=torch.uint8).set_(
            source=storage, storage_offset=0, size=(size,), stride=(1,))

    # What is live then and now is the same block, for whoever has it.
    outputs = inside(*SIZES)
    state, before = take(0, pool.id), live()
    addresses = [tensor.data_ptr() for tensor in outputs]
    assert len(before) == len(SIZES)
    assert torch._C._cuda_checkPoolLiveAllocations(0, pool.id, set(addresses))
    assert not torch._C._cuda_checkPoolLiveAllocations(0, pool.id, set(addresses[1:]))
    restore(0, state, [], [])
    assert live() == before
    del outputs
    assert live() == []

    # What has gone is there again, and is freed by its address.
    restore(0, state, [], [])
    assert live() == before
    for left, address in reversed(list(enumerate(reversed(addresses)))):
        delete(address)
        assert len(live()) == left

    # Storages that are named get the blocks at their addresses.
    tensors = [over(address, size) for address, size in zip(addresses, SIZES)]
    restore(0, state, [], storages(tensors[:2]))
    assert live() == before
    standard = [torch._C._has_Standard_Deleter(storage) for storage in storages(tensors)]
    assert standard == [True, True, False, False], standard
    for left in (3, 2, 2, 2):
        tensors.pop(0)
        assert len(live()) == left
    delete(addresses[2])
    delete(addresses[3])
    assert live() == []

    # What came later is freed, and its storages do not free it once more.
    first = inside(512)
    state, before = take(0, pool.id), live()
    later = inside(6 << 20, 700)
    assert len(live()) == 3
    restore(0, state, storages(later), [])
    assert live() == before
    del later
    gc.collect()
    assert live() == before

    # The history has both halves.
    torch.cuda.memory._record_memory_history()
    restore(0, state, [], [])
    actions = [entry["action"] for entry in torch.cuda.memory._snapshot()["device_traces"][0]]
    torch.cuda.memory._record_memory_history(enabled=None)
    assert {"free_requested", "free_completed", "alloc"} <= set(actions), actions
    del first
    assert live() == []

    fails("Could not find pool of id", torch._C._cuda_checkPoolLiveAllocations, 0, (90, 90), set())
    fails("Could not find pool of id", take, 0, (90, 90))
    del pool, state
    gc.collect()
    torch.cuda.empty_cache()


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
    print("checkpoints: as they should be,", arguments.conf or ("native" if arguments.native else "default"))
