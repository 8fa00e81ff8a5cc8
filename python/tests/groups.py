"""Which private pools belong to which group, under a real torch. No kernel runs, so a simulated device will do. With a
GPU:

    python python/tests/groups.py [--conf policy:classic]

Stand-ins take the place of the library's groups, and note the pools: nothing is paused.
"""

import argparse
import gc
import threading
from types import ModuleType
from typing import Any

import stand_in_groups

MIB = 1 << 20


def pool_of(torch: ModuleType, tensor: Any) -> tuple[int, int]:
    """Returns the private pool in which a tensor lies; (0, 0) is none."""
    found = [
        tuple(segment["segment_pool_id"]) for segment in torch.cuda.memory._snapshot()["segments"]
        if segment["address"] <= tensor.data_ptr() < segment["address"] + segment["total_size"]
    ]
    assert len(found) == 1, found
    return found[0]


def block(torch: ModuleType, bytes: int = 30 * MIB) -> Any:
    return torch.empty(bytes, dtype=torch.uint8, device="cuda")


def has_gpu(torch: ModuleType) -> bool:
    return bool(torch.cuda.get_device_name() != "simulated")


def scopes(torch: ModuleType, mine: ModuleType, groups: stand_in_groups.Groups) -> None:
    kv, weights = mine.group("kv"), mine.group("weights")
    outside = block(torch)
    with kv:
        first = block(torch)
        # A simulated device has one stream.
        with torch.cuda.stream(torch.cuda.Stream() if has_gpu(torch) else torch.cuda.current_stream()):
            second = block(torch)
        with weights:
            third = block(torch)
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(block(torch)))
        thread.start()
        thread.join()
        small = block(torch, 1000)
    pools = [pool_of(torch, tensor) for tensor in (outside, found[0], first, second, small, third)]
    assert pools[0] == pools[1] == (0, 0) and pools[2] == pools[3] == pools[4] not in (pools[0], pools[5]), pools
    assert pools[2] in groups.find("kv").pools and pools[5] in groups.find("weights").pools

    # A thread that is in a group at the same time has another pool of it.
    def enter() -> None:
        with kv:
            found.append(block(torch))

    with kv:
        again = block(torch)
        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
    assert pool_of(torch, again) == pools[2] != pool_of(torch, found[1])
    assert {pools[2], pool_of(torch, found[1])} <= groups.find("kv").pools

    # Between scopes a pool keeps nothing that is free.
    reserved = torch.cuda.memory_reserved()
    del first, second, again
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() <= reserved - 60 * MIB, (torch.cuda.memory_reserved(), reserved)


def pools_inside(torch: ModuleType, mine: ModuleType, groups: stand_in_groups.Groups) -> None:
    graphs = mine.group("graphs")
    pool = torch.cuda.MemPool()
    with graphs, torch.cuda.use_mem_pool(pool):
        tensor = block(torch)
    assert pool_of(torch, tensor) == tuple(pool.id) and tuple(pool.id) in groups.find("graphs").pools
    uses = pool.use_count()
    try:
        with mine.group("others"), torch.cuda.use_mem_pool(pool):
            raise AssertionError("a pool is of one group")
    except RuntimeError as error:
        assert 'is of the group "graphs"' in str(error), error
    assert pool.use_count() == uses
    with torch.cuda.use_mem_pool(pool):
        another = block(torch)
    del tensor, another, pool
    gc.collect()


def outside(torch: ModuleType, groups: stand_in_groups.Groups) -> None:
    from millpond.torch_memory_saver import torch_memory_saver as saver

    torch.cuda.empty_cache()
    with saver.region("saved"):
        inside = block(torch)
        reserved = torch.cuda.memory_reserved()
        with saver.disable():
            tensor = block(torch, 300 * MIB)
            apart = pool_of(torch, tensor)
            del tensor
        assert torch.cuda.memory_reserved() == reserved, "what is free of it went back"
    assert pool_of(torch, inside) in groups.find("saved").pools
    assert all(apart not in group.pools for group in groups.made) and apart != (0, 0)


def captured(torch: ModuleType, mine: ModuleType, groups: stand_in_groups.Groups) -> None:
    graph, x = torch.cuda.CUDAGraph(), torch.zeros(MIB, device="cuda")
    with mine.group("captured"), torch.cuda.graph(graph):
        y = x + 1
    assert tuple(graph.pool()) in groups.find("captured").pools and pool_of(torch, y) == tuple(graph.pool())
    graph.replay()
    torch.cuda.synchronize()
    assert float(y[0]) == 1


def main(torch: ModuleType, mine: ModuleType, groups: stand_in_groups.Groups) -> None:
    scopes(torch, mine, groups)
    pools_inside(torch, mine, groups)
    outside(torch, groups)
    if has_gpu(torch):
        captured(torch, mine, groups)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conf")
    arguments = parser.parse_args()
    noted = stand_in_groups.install()
    import millpond.torch

    millpond.torch.enable(arguments.conf)
    import torch

    torch.cuda.init()
    main(torch, millpond.torch, noted)
    print("groups: as they should be,", arguments.conf or "default")
