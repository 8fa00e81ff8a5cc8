"""Groups that are paused and resumed: contents, graphs, training in turns with generation, and programs of other
interfaces."""

import threading
from collections.abc import Callable
from typing import Any

import torch

from gpu.common import ARGUMENTS, MIB, Absent, child, expect, feature, tidy

GIB = 1 << 30


def mine() -> Any:
    """Returns ``millpond.torch`` where it can pause memory."""
    conf = str(ARGUMENTS.conf or "")
    if ARGUMENTS.native or "policy:classic" in conf or "policy:direct" in conf:
        raise Absent("memory is paused by the page, under policy:paged")
    import millpond.torch

    return millpond.torch


def free() -> int:
    """Returns what the driver has free, once nothing runs and the cache is empty."""
    tidy()
    return int(torch.cuda.mem_get_info()[0])


def patterned(bytes: int, seed: int) -> torch.Tensor:
    """Returns bytes that repeat after no power of two."""
    return ((torch.arange(bytes, device="cuda", dtype=torch.int32) * 31 + seed) % 251).to(torch.uint8)


def refused(call: Callable[[], object], kind: type[BaseException], part: str) -> str:
    try:
        call()
    except kind as error:
        expect(part in str(error), error)
        return str(error).splitlines()[0]
    raise AssertionError("no error")


SIZES = [1, 700, 5000, 3 * MIB + 7, 40 * MIB, 700 * MIB]


@feature
def sleep_keeps_contents() -> str:
    sleep = mine()
    expected = [patterned(size, seed).cpu() for seed, size in enumerate(SIZES)]
    group, side = sleep.group("contents"), torch.cuda.Stream()
    with group:
        tensors = [each.cuda() for each in expected[::2]]
        with torch.cuda.stream(side):
            tensors += [each.cuda() for each in expected[1::2]]
    expected = expected[::2] + expected[1::2]
    side.synchronize()
    addresses, outside = [each.data_ptr() for each in tensors], patterned(5 * MIB, 9)
    before = free()
    sleep.pause(group)
    sleep.pause("contents")
    given, info = free() - before, group.info()
    expect(given >= sum(SIZES) - 64 * MIB, given)
    expect(info.is_paused and info.paused_bytes >= sum(SIZES) - 64 * MIB and info.host_bytes >= sum(SIZES), info)
    others = [torch.full((GIB,), 7, dtype=torch.uint8, device="cuda") for _ in range(2)]
    del others
    sleep.resume("contents")
    sleep.resume(group)
    expect([each.data_ptr() for each in tensors] == addresses, "addresses")
    expect(all(torch.equal(now.cpu(), then) for now, then in zip(tensors, expected)), "contents")
    expect(torch.equal(outside, patterned(5 * MIB, 9)), "outside")
    expect(not group.info().is_paused and group.info().paused_bytes == 0)
    for each in tensors:
        each.fill_(3)
    expect(all(int(each.min()) == int(each.max()) == 3 for each in tensors), "it is memory as before")
    del tensors, each
    tidy()
    return f"{given / GIB:.2f} GiB given back"


@feature
def sleep_waits_for_work_in_flight() -> None:
    sleep = mine()
    side = torch.cuda.Stream()
    with sleep.group("flight"):
        x = torch.zeros(64 * MIB, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(500_000_000)
        x.add_(1)
    x.record_stream(side)
    sleep.pause("flight")
    sleep.resume("flight")
    expect(int(x.min()) == int(x.max()) == 1)


@feature
def sleep_discards() -> None:
    sleep = mine()
    group = sleep.group("discarded")
    with group:
        x = torch.ones(300 * MIB, device="cuda")
    before = free()
    sleep.pause(group, keep="discard")
    expect(free() - before >= 4 * 300 * MIB - 64 * MIB and group.info().host_bytes == 0, group.info())
    sleep.resume(group)
    x.fill_(2)
    expect(int(x.min()) == int(x.max()) == 2)


@feature
def sleep_refuses_and_frees() -> str:
    sleep = mine()
    with sleep.group("refusing"):
        kept, dropped = patterned(30 * MIB, 1), patterned(50 * MIB, 2)
    sleep.pause("refusing")

    def inside() -> None:
        with sleep.group("refusing"):
            torch.empty(MIB, device="cuda")

    said = refused(inside, RuntimeError, "paused")
    live = torch.cuda.memory_allocated()
    del dropped
    expect(torch.cuda.memory_allocated() <= live - 50 * MIB, "a free while it is paused")
    expect(float(torch.ones(MIB, device="cuda").sum()) == MIB, "others go on")
    sleep.resume("refusing")
    expect(torch.equal(kept, patterned(30 * MIB, 1)))
    inside()
    return said[:90]


@feature
def sleep_stays_paused_without_memory() -> str:
    sleep = mine()
    total, group = torch.cuda.mem_get_info()[1], sleep.group("large")
    with group:
        x = patterned(512 * MIB, 3)
    sleep.pause(group)
    tidy()
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 600 * MIB) / total)
    try:
        other = torch.empty(500 * MIB, dtype=torch.uint8, device="cuda")
        said = refused(lambda: sleep.resume(group), torch.OutOfMemoryError, "large")
        expect(group.info().is_paused)
        del other
        tidy()
        sleep.resume(group)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    expect(torch.equal(x, patterned(512 * MIB, 3)), "contents")
    return said[:90]


@feature
def sleep_threads() -> None:
    """A group in several threads at once, while another one is paused and resumed."""
    sleep = mine()
    with sleep.group("still"):
        still = patterned(64 * MIB, 5)
    wrong: list[object] = []

    def work(seed: int) -> None:
        try:
            for turn in range(50):
                with sleep.group("busy"):
                    size = 1000 * (seed + 1) + turn * MIB // 10
                    tensors = [torch.full((size,), seed, device="cuda") for _ in range(4)]
                if not all(int(each[0]) == int(each[-1]) == seed for each in tensors):
                    wrong.append((seed, turn))
        except Exception as error:  # noqa: BLE001
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        sleep.pause("still")
        sleep.resume("still")
    for thread in threads:
        thread.join()
    expect(not wrong, *wrong[:1])
    expect(torch.equal(still, patterned(64 * MIB, 5)))


@feature
def sleep_graph_100_cycles() -> None:
    """A captured graph over a group, with its pool in another one, replayed after each of 100 pauses: the same to the
    bit."""
    sleep = mine()
    torch.manual_seed(0)
    with sleep.group("weights"):
        weights = [torch.randn(512, 512, device="cuda") / 512**0.5 for _ in range(4)]
    x = torch.randn(256, 512, device="cuda")

    def step() -> torch.Tensor:
        y = x
        for weight in weights:
            y = torch.nn.functional.gelu(y @ weight) + torch.ones(16 * MIB, device="cuda")[: y.shape[1]]
        return y

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with sleep.group("graph"), torch.cuda.graph(graph):
        y = step()
    inputs = [torch.randn_like(x) for _ in range(3)]

    def outputs() -> list[torch.Tensor]:
        found = []
        for each in inputs:
            x.copy_(each)
            graph.replay()
            found.append(y.clone())
        return found

    expected, held = outputs(), free()
    for turn in range(100):
        sleep.pause("graph", keep="discard")
        sleep.pause("weights")
        if turn == 0:
            expect(free() - held >= 40 * MIB, "memory of the graph went back", free() - held)
        other = torch.full((32 * MIB,), float(turn), device="cuda")
        sleep.resume("weights")
        sleep.resume("graph")
        expect(all(torch.equal(now, then) for now, then in zip(outputs(), expected)), "cycle", turn)
        expect(float(other[-1]) == turn, "outside", turn)
    del graph, y
    tidy()


class Decoder(torch.nn.Module):
    """A small decoder with a cache of keys and values."""

    def __init__(self, width: int = 128, heads: int = 4, layers: int = 3, words: int = 97) -> None:
        super().__init__()
        nn = torch.nn
        self.heads = heads
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(256, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers))
        self.mixes = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(layers))
        self.outs = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.feeds = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(layers))
        self.head = nn.Linear(width, words)

    def forward(self, words: torch.Tensor, cache: torch.Tensor | None = None, begin: int = 0) -> torch.Tensor:
        """``cache`` is (layer, key or value, batch, head, place, width of a head), and holds the places before
        ``begin``."""
        batch, count = words.shape
        x = self.words(words) + self.places(torch.arange(begin, begin + count, device=words.device))
        for layer, (mix, out, feed) in enumerate(zip(self.mixes, self.outs, self.feeds)):
            parts = mix(self.norms[2 * layer](x)).view(batch, count, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            query, key, value = parts[0], parts[1], parts[2]
            if cache is not None:
                cache[layer, 0, :, :, begin:begin + count], cache[layer, 1, :, :, begin:begin + count] = key, value
                key, value = cache[layer, 0, :, :, :begin + count], cache[layer, 1, :, :, :begin + count]
            scores = query @ key.transpose(-1, -2) / key.shape[-1] ** 0.5
            places = torch.arange(begin, begin + count, device=words.device)
            hidden = torch.arange(key.shape[-2], device=words.device)[None, :] > places[:, None]
            mixed = scores.masked_fill(hidden, float("-inf")).softmax(-1) @ value
            x = x + out(mixed.transpose(1, 2).reshape(batch, count, -1))
            x = x + feed(self.norms[2 * layer + 1](x))
        logits: torch.Tensor = self.head(x)
        return logits


def alternate(sleep: Any, pauses: bool) -> tuple[list[str], list[list[int]], int]:
    """Trains and generates by turns. Returns the losses, the words, and the most that was reserved while it
    generated."""
    torch.manual_seed(0)
    tidy()
    with sleep.group("model"):
        model = Decoder().cuda()
    with sleep.group("optimizer"):
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        # The state is made by the first step, and is large here: a part of it stands for that of a real model.
        ballast = torch.ones(256 * MIB, dtype=torch.uint8, device="cuda")
    with sleep.group("cache"):
        cache = torch.empty(3, 2, 8, 4, 256, 32, device="cuda")
    losses, texts, reserved = [], [], 0
    for turn in range(6):
        if pauses:
            sleep.pause("cache", keep="discard")
        for step in range(4):
            places, rows = torch.arange(33, device="cuda"), torch.arange(8, device="cuda")
            words = (places[None, :] * (step + 2) + rows[:, None]) % 97
            loss = torch.nn.functional.cross_entropy(model(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            with sleep.group("optimizer"):
                optimizer.step()
            losses.append(float(loss).hex())
        optimizer.zero_grad(set_to_none=True)
        if pauses:
            sleep.pause("optimizer")
            sleep.resume("cache")
        cache.zero_()
        with torch.no_grad():
            words = torch.arange(8, device="cuda")[:, None] + turn
            for place in range(24):
                words_next = model(words, cache, place)[:, -1:].argmax(-1)
                texts.append(words_next.flatten().tolist())
                words = words_next
        tidy()
        reserved = max(reserved, torch.cuda.memory_reserved())
        if pauses:
            sleep.resume("optimizer")
    expect(int(ballast.min()) == int(ballast.max()) == 1)
    return losses, texts, reserved


@feature
def sleep_training_and_generation() -> str:
    sleep = mine()
    losses, texts, reserved = alternate(sleep, pauses=False)
    again, words, less = alternate(sleep, pauses=True)
    expect(losses == again, "losses", losses[-1], again[-1])
    expect(texts == words, "words")
    expect(less <= reserved - 200 * MIB, less, reserved)
    return f"reserved while generating {less / MIB:.0f} MiB instead of {reserved / MIB:.0f} MiB"


WORKSPACES = """
x, y = torch.ones(256, 256, device="cuda"), torch.ones(256, 256, device="cuda")
def captured():
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph): z = x @ y
    return graph, z
with millpond.torch.group("first"):
    inside = x @ y
    first, z = captured()
second, w = captured()
millpond.torch.pause("first")
second.replay()
torch.cuda.synchronize()
assert float(w.sum()) == 256**3 and float((x @ y).sum()) == 256**3
millpond.torch.resume("first")
first.replay()
torch.cuda.synchronize()
assert float(z.sum()) == float(inside.sum()) == 256**3
print("as it should be")
"""


@feature
def sleep_workspaces() -> None:
    """What cuBLAS keeps from its first use is not in a group, though that first use is."""
    mine()
    expect("as it should be" in child(WORKSPACES))


@feature
def sleep_two_devices() -> None:
    sleep = mine()
    if torch.cuda.device_count() < 2:
        raise Absent("SKIPPED: there is one GPU")
    tensors = []
    for device in range(2):
        with torch.cuda.device(device), sleep.group("both"):
            tensors.append(torch.full((100 * MIB,), device + 1.0, device="cuda"))
    before = [torch.cuda.mem_get_info(device)[0] for device in range(2)]
    sleep.pause("both")
    for device in range(2):
        expect(torch.cuda.mem_get_info(device)[0] - before[device] >= 300 * MIB, device)
    sleep.resume("both")
    expect(all(float(each[-1]) == device + 1 for device, each in enumerate(tensors)))


SAVER = """
from millpond.torch_memory_saver import torch_memory_saver as saver
import gc, torch
MIB = 1 << 20
def free():
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info()[0]
saver.hook_mode = "preload"
"""

SIMPLE = SAVER + """
plain = torch.full((1_000_000,), 100, dtype=torch.uint8, device="cuda")
with saver.region():
    lost = torch.full((600 * MIB,), 100, dtype=torch.uint8, device="cuda")
with saver.region(enable_cpu_backup=True):
    kept = torch.full((600 * MIB,), 42, dtype=torch.uint8, device="cuda")
addresses = lost.data_ptr(), kept.data_ptr()
before = free()
saver.pause()
paused = free()
assert paused - before > 1100 * MIB, (before, paused)
with saver.region("apart"), saver.disable():
    other = torch.ones(300 * MIB, device="cuda")
assert float(other.mean()) == 1
del other
saver.resume()
assert paused - free() > 1100 * MIB
assert (lost.data_ptr(), kept.data_ptr()) == addresses
assert kept.min() == kept.max() == 42 and plain.min() == plain.max() == 100
lost.fill_(7)
assert lost.min() == lost.max() == 7 and saver.get_cpu_backup(kept) is None
print("as it should be")
"""

GRAPH = SAVER + """
class Cache:
    def __init__(self):
        with saver.region(tag="kv_cache"):
            self.values = torch.full((5, 50 * MIB), 1, dtype=torch.float32, device="cuda")
    def execute(self, x):
        mean = (x + self.values.mean(dim=1)).mean()
        return (torch.ones(250 * MIB, device="cuda") * mean).mean()
cache = Cache()
x = torch.zeros(5, device="cuda")
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side): cache.execute(x)
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
with saver.cuda_graph(graph, tag="graph"): y = cache.execute(x)
def replay(value):
    x.fill_(value)
    graph.replay()
    return round(float(y), 3)
assert replay(100) == 101
before = free()
saver.pause("kv_cache")
middle = free()
assert middle - before > 900 * MIB
saver.pause("graph")
assert free() - middle > 900 * MIB
other = torch.zeros(1800 * MIB, dtype=torch.uint8, device="cuda")
del other
torch.cuda.empty_cache()
saver.resume("graph")
saver.resume("kv_cache")
cache.values.fill_(2)
assert replay(200) == 202
print("as it should be")
"""

# Reinforcement learning in turns: weights change outside while the engine sleeps, and a graph is replayed after it
# wakes.
TURNS = SAVER + """
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        with saver.region(tag="model_weights"):
            self.linear = torch.nn.Linear(20_480, 4_096, bias=False, device="cuda")
        torch.nn.init.ones_(self.linear.weight)
    @torch.no_grad()
    def forward(self, x): return self.linear(x).mean()
model = Model()
with saver.region(tag="kv_cache"):
    values = torch.full((5, 40 * MIB), 1, dtype=torch.float32, device="cuda")
x, addresses = torch.zeros(20_480, device="cuda"), (model.linear.weight.data_ptr(), values.data_ptr())
def generate(): return torch.stack([model(x), (x[:5] + values.mean(dim=1)).mean()])
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side): generate()
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph): y = generate()
for turn in range(1, 6):
    x.fill_(100)
    graph.replay()
    assert [round(each / full, 5) for each, full in zip(y.tolist(), (2048000 * turn, 100 + turn))] == [1, 1], (turn, y)
    before = free()
    saver.pause("kv_cache")
    saver.pause("model_weights")
    assert free() - before > 1000 * MIB
    # The trainer has the memory meanwhile.
    trained = torch.full((20_480, 4_096), turn + 1.0, device="cuda").T.contiguous()
    assert free() - before > 600 * MIB
    saver.resume("model_weights")
    with torch.no_grad(): model.linear.weight.copy_(trained)
    del trained
    torch.cuda.empty_cache()
    saver.resume("kv_cache")
    values.fill_(turn + 1)
    assert (model.linear.weight.data_ptr(), values.data_ptr()) == addresses
    saver.pause("kv_cache")
    assert float(model.linear.weight[0, 0]) == turn + 1
    saver.resume("kv_cache")
    values.fill_(turn + 1)
print("as it should be")
"""


def drop_in(code: str) -> None:
    mine()
    environment = {"MILLPOND_CONF": ARGUMENTS.conf} if ARGUMENTS.conf else {}
    expect("as it should be" in child(code, environment, prelude=False))


@feature
def sleep_saver_simple() -> None:
    drop_in(SIMPLE)


@feature
def sleep_saver_graph() -> None:
    drop_in(GRAPH)


@feature
def sleep_saver_in_turns() -> None:
    drop_in(TURNS)


@feature
def sleep_as_vllm_asks() -> None:
    mine()
    from millpond.vllm import CuMemAllocator

    worker = CuMemAllocator.get_instance()
    expect(worker.get_current_usage() == 0)
    with worker.use_memory_pool(tag="weights"):
        weights = patterned(200 * MIB, 6)
    with worker.use_memory_pool(tag="kv_cache"):
        cache = torch.zeros(200 * MIB, dtype=torch.uint8, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with worker.use_cudagraph_pool() as pool, torch.cuda.graph(graph, pool=pool):
        total = weights.to(torch.int64).sum()
    graph.replay()
    expected = int(total)
    expect(worker.get_current_usage() >= 400 * MIB, worker.get_current_usage())
    for tags in (("weights",), ()):
        before = free()
        worker.sleep(offload_tags=tags)
        expect(free() - before >= 400 * MIB, tags)
        worker.wake_up(tags=["weights"])
        if not tags:
            weights.copy_(patterned(200 * MIB, 6))
        expect(torch.equal(weights, patterned(200 * MIB, 6)))
        worker.wake_up()
        cache.fill_(1)
        graph.replay()
        expect(int(total) == expected and int(cache.min()) == 1)
