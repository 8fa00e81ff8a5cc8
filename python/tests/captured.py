"""The memory of captured graphs: what is counted, which pool serves what, and what graphs that share a pool reserve. No
kernel runs, so the simulated driver will do: scripts/torch-simulated.sh. With a GPU:

    python python/tests/captured.py [--conf policy:classic | --native] [--figures]

With --figures it prints what is reserved.
"""

import argparse
import gc
from types import ModuleType
from typing import Any

MIB = 1 << 20
# Of float32 tensors: those that PyTorch's own test of graphs counts, with the MiB that PyTorch reserves while the graph
# is there, and behind it while its output lives.
SIZES = [(128, 2, 2), (MIB // 4, 4, 2), (MIB // 4 + 128, 20, 20), (10 * MIB // 4 - 128, 40, 20), (10 * MIB // 4 + 128, 36, 12)]


class Scene:
    def __init__(self, torch: ModuleType, is_native: bool, conf: str | None) -> None:
        self.torch, self.is_native, self.conf = torch, is_native, conf or "policy:paged"
        self.is_paged = not is_native and "policy:paged" in self.conf
        # Blocks of PyTorch's sizes, whatever lies beneath.
        self.has_segments = is_native or ("classic" in self.conf and "expandable" not in self.conf)
        self.stream = torch.cuda.Stream()

    def empty(self, count: int) -> Any:
        return self.torch.empty(count, dtype=self.torch.uint8, device="cuda")

    def stat(self, name: str) -> int:
        return int(self.torch.cuda.memory_stats()[f"{name}.current"])

    def tidy(self) -> None:
        gc.collect()
        self.torch.cuda.synchronize()
        self.torch.cuda.empty_cache()

    def graph(self, pool: Any = None) -> Any:
        """Returns a graph, and the context of its capture. What a graph keeps beside its pool exists afterwards."""
        graph = self.torch.cuda.CUDAGraph()
        return graph, self.torch.cuda.graph(graph, pool=pool, stream=self.stream)


def counts(scene: Scene) -> None:
    """Counts as PyTorch does; under paged, graphs of large tensors reserve less, and never more."""
    torch = scene.torch
    for count, during, behind in SIZES:
        scene.tidy()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(scene.stream):
            first = torch.ones(count, device="cuda")
            reserved, active = scene.stat("reserved_bytes.all"), scene.stat("active_bytes.all")
            graph.capture_begin()
            last = first.clone()
            for _ in range(5):
                last = last.clone() + 1
            graph.capture_end()
        for _ in range(2):
            now = (scene.stat("reserved_bytes.all") - reserved, scene.stat("active_bytes.all") - active)
            extra = now[1] - 4 * count
            assert extra in (0, 1024), (count, now)
            assert now[0] <= (during + (2 if extra else 0)) * MIB or "expandable" in scene.conf, (count, now)
            assert not scene.has_segments or now[0] in (during * MIB, (during + 2) * MIB), (count, now)
            graph.replay()
            torch.cuda.empty_cache()
        del graph
        scene.tidy()
        now = (scene.stat("reserved_bytes.all") - reserved, scene.stat("active_bytes.all") - active)
        assert now[1] == 4 * count, (count, now)
        assert now[0] <= behind * MIB or "expandable" in scene.conf, (count, now)
        assert not scene.has_segments or now[0] == behind * MIB, (count, now)
        del first, last
        scene.tidy()


def segments_of(scene: Scene, pool: Any) -> Any:
    return scene.torch.cuda.memory_snapshot(pool)


def lies_in(segments: Any, tensor: Any) -> bool:
    return any(s["address"] <= tensor.data_ptr() < s["address"] + s["total_size"] for s in segments)


def several_pools(scene: Scene) -> None:
    """A graph that allocates in a pool of the program's beside its own: each serves its requests, and both stay."""
    cuda = scene.torch.cuda
    graph, capture = scene.graph()
    beside = cuda.MemPool()
    with capture:
        before = scene.empty(3 * MIB)
        with cuda.use_mem_pool(beside):
            inside = scene.empty(4 * MIB)
        behind = scene.empty(5 * MIB)
    own, other = segments_of(scene, graph.pool()), segments_of(scene, beside.id)
    assert lies_in(own, before) and lies_in(own, behind) and not lies_in(own, inside)
    assert lies_in(other, inside) and not lies_in(other, before)
    number = beside.id
    del before, inside, behind, beside
    scene.tidy()
    graph.replay()
    assert segments_of(scene, graph.pool()), "a graph keeps its memory"
    if hasattr(graph, "pools"):
        assert set(graph.pools()) == {graph.pool(), number}, graph.pools()
        assert segments_of(scene, number), "a graph keeps the memory of each pool that it has used"
    own = graph.pool()
    graph.reset()
    del graph
    scene.tidy()
    assert not segments_of(scene, own) and not segments_of(scene, number)


def temporaries(scene: Scene) -> Any:
    """Allocates as a layer of a program does: a few large tensors that go, and a small one that stays."""
    for size in (24, 40, 16):
        held = scene.empty(size * MIB)
        del held
    return scene.empty(2 * MIB)


def sharing(scene: Scene) -> tuple[int, int]:
    """Returns the bytes that 8 graphs reserve with a pool each, and with one for all: the temporaries lie one over another
    there, and the outputs beside each other."""
    cuda, figures = scene.torch.cuda, []
    for handle in (None, cuda.graph_pool_handle()):
        scene.tidy()
        reserved = scene.stat("reserved_bytes.all")
        kept = []
        for _ in range(8):
            graph, capture = scene.graph(handle)
            with capture:
                kept.append((graph, temporaries(scene)))
        for graph, _ in kept:
            graph.replay()
        outputs = [output.data_ptr() for _, output in kept]
        assert len(set(outputs)) == 8, "each graph has its own output"
        figures.append(scene.stat("reserved_bytes.all") - reserved)
        del kept, graph, capture, _
        scene.tidy()
    alone, together = figures
    if "direct" not in scene.conf:
        assert together * 3 < alone, (alone, together)
    return alone, together


def main(torch: ModuleType, is_native: bool = False, conf: str | None = None) -> tuple[int, int]:
    scene = Scene(torch, is_native, conf)
    # What every graph after it finds there.
    graph, capture = scene.graph()
    with capture:
        held = scene.empty(512)
    del graph, capture, held
    counts(scene)
    several_pools(scene)
    return sharing(scene)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--native", action="store_true")
    parser.add_argument("--conf")
    parser.add_argument("--figures", action="store_true")
    arguments = parser.parse_args()
    if not arguments.native:
        import millpond.torch

        millpond.torch.enable(arguments.conf)
    import torch

    torch.cuda.init()
    alone, together = main(torch, arguments.native, arguments.conf)
    if arguments.figures:
        print(f"8 graphs reserve {alone / MIB:.0f} MiB with a pool each, and {together / MIB:.0f} MiB with one pool")
    print("captured: as they should be,", arguments.conf or ("native" if arguments.native else "default"))
