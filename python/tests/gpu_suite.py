"""Every feature of torch.cuda that touches memory, one after the other, on a machine with a GPU.

    python python/tests/gpu_suite.py              on Millpond
    python python/tests/gpu_suite.py --native     the same on PyTorch's own allocator
    python python/tests/gpu_suite.py --conf policy:classic --only ipc,training

Prints a line for each feature: `works`, `fails` with the reason, or `absent` where this machine or version has not what it
takes. Lines that begin with `hash` are to be compared between the two allocators: training is deterministic. Ends with 1 if a
feature fails.
"""

import argparse
import gc
import hashlib
import os
import pickle
import random
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

MIB = 1 << 20
FEATURES = []


class Absent(Exception):
    """The machine, or this version, has not what a feature takes."""


def feature(function):
    FEATURES.append((function.__name__, function))
    return function


def expect(condition, *what):
    if not condition:
        raise AssertionError(" ".join(str(part) for part in what) or "not so")


def tidy():
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


def child(code, environment=None, timeout=240, prelude=True):
    """Runs code in a process of its own, on the same allocator. Returns its output; fails with it unless it ends with 0."""
    begin = "import torch\n"
    if prelude and not ARGUMENTS.native:
        begin = f"import millpond.torch\nmillpond.torch.enable({ARGUMENTS.conf!r})\nimport torch\n"
    with tempfile.NamedTemporaryFile("w", suffix=".py", delete=False) as file:
        file.write((begin if prelude else "") + code)
    try:
        done = subprocess.run(
            [sys.executable, file.name], capture_output=True, text=True, timeout=timeout,
            env={**os.environ, **(environment or {})},
        )
    finally:
        os.unlink(file.name)
    output = done.stdout + done.stderr
    if done.returncode != 0:
        raise AssertionError(f"exit code {done.returncode}: {output[-1500:]}")
    return output


# ---- Who allocates ------------------------------------------------------------------------------------------------------


@feature
def backend():
    name = torch.cuda.get_allocator_backend()
    expect(name == ("native" if ARGUMENTS.native else "millpond"), name)
    return name


@feature
def enable_does_not_initialise():
    expect("no no" in child("print('yes' if torch.cuda.is_initialized() else 'no', end=' ')\n"
                            "torch.cuda.is_available(); torch.manual_seed(1)\n"
                            "print('yes' if torch.cuda.is_initialized() else 'no')"))


@feature
def autoload():
    if ARGUMENTS.native:
        raise Absent("it is Millpond's")
    code = "import torch; torch.empty(1, device='cuda'); print(torch.cuda.get_allocator_backend())"
    try:
        expect("millpond" in child(code, {"MILLPOND_TORCH": "1"}, prelude=False))
    except AssertionError:
        import importlib.metadata

        points = importlib.metadata.entry_points(group="torch.backends")
        if not any(point.name == "millpond" for point in points):
            raise Absent("the package is not installed, so it has no entry point") from None
        raise
    expect("native" in child(code, {"MILLPOND_TORCH": "0"}, prelude=False))


@feature
def too_late():
    if ARGUMENTS.native:
        raise Absent("it is Millpond's")
    for use in ("torch.empty(8, pin_memory=True)", "torch.empty(8, device='cuda')"):
        said = child(f"import torch\n{use}\nimport millpond.torch\n"
                     "try:\n    millpond.torch.enable()\nexcept millpond.torch.Error as error:\n    print(error)\n"
                     "print(torch.cuda.get_allocator_backend(), float(torch.ones(3, device='cuda').sum()))", prelude=False)
        expect("before the first CUDA use" in said and "native" in said, said)


@feature
def fork_before_use():
    child("import os\npid = os.fork()\nx = torch.ones(1000, device='cuda')\nassert float(x.sum()) == 1000\n"
          "if pid == 0:\n    torch.cuda.synchronize(); os._exit(0)\n"
          "assert os.waitpid(pid, 0)[1] == 0")


@feature
def exit_with_live_tensors():
    child("kept = [torch.randn(1000, 1000, device='cuda') for _ in range(20)]\nkept.append(kept[0] @ kept[1])\n"
          "s = torch.cuda.Stream()\nwith torch.cuda.stream(s):\n    kept.append(torch.empty(1 << 20, device='cuda'))\n"
          "kept[0].record_stream(s)")


# ---- Memory ---------------------------------------------------------------------------------------------------------------


@feature
def allocate_and_free():
    before = torch.cuda.memory_allocated()
    held = [torch.full((n,), float(n), device="cuda") for n in (1, 127, 129, 5000, 1 << 20, 7 << 20, 40 << 20)]
    for x in held:
        expect(float(x[0]) == x.numel() and float(x[-1]) == x.numel(), x.numel())
    grown = torch.cuda.memory_allocated() - before
    expect(grown >= sum(4 * x.numel() for x in held), grown)
    del held, x
    expect(torch.cuda.memory_allocated() == before, "after del", torch.cuda.memory_allocated() - before)


@feature
def nothing_and_views():
    empty = torch.empty(0, device="cuda")
    expect(empty.data_ptr() == 0 and empty.device.type == "cuda")
    x = torch.arange(1000, device="cuda")
    y = x[100:200].clone()
    x.resize_(5000)
    x.untyped_storage().resize_(0)
    expect(int(y.sum()) == sum(range(100, 200)))


@feature
def raw_functions():
    before = torch.cuda.memory_allocated()
    a = torch.cuda.caching_allocator_alloc(3 * MIB)
    stream = torch.cuda.Stream()
    b = torch.cuda.caching_allocator_alloc(1000, stream=stream)
    expect(a != 0 and b != 0 and torch.cuda.memory_allocated() > before)
    torch.cuda.caching_allocator_delete(a)
    torch.cuda.caching_allocator_delete(b)
    expect(torch.cuda.memory_allocated() == before)


@feature
def freed_twice():
    a = torch.cuda.caching_allocator_alloc(MIB)
    torch.cuda.caching_allocator_delete(a)
    try:
        torch.cuda.caching_allocator_delete(a)
    except RuntimeError as error:
        return str(error).splitlines()[0][:90]
    raise AssertionError("no error")


@feature
def empty_cache():
    x = torch.empty(300 * MIB, dtype=torch.uint8, device="cuda")
    reserved = torch.cuda.memory_reserved()
    del x
    expect(torch.cuda.memory_reserved() == reserved, "the cache keeps it")
    tidy()
    expect(torch.cuda.memory_reserved() <= reserved - 290 * MIB, torch.cuda.memory_reserved(), reserved)


@feature
def lazy_clone():
    x = torch.arange(1000, device="cuda")
    y = torch._lazy_clone(x)
    y += 1
    expect(int(x.sum()) + 1000 == int(y.sum()))


@feature
def uncached():
    with torch.cuda.memory.caching_allocator_disabled() if hasattr(torch.cuda.memory, "caching_allocator_disabled") \
            else _disabled():
        before = torch.cuda.memory_allocated()
        x = torch.ones(1000, device="cuda")
        expect(torch.cuda.memory_allocated() == before)
    expect(float(x.sum()) == 1000)
    del x


class _disabled:
    def __enter__(self):
        torch._C._cuda_cudaCachingAllocator_enable(False)

    def __exit__(self, *_):
        torch._C._cuda_cudaCachingAllocator_enable(True)


# ---- Statistics -----------------------------------------------------------------------------------------------------------


@feature
def memory_stats():
    tidy()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.reset_accumulated_memory_stats()
    before = torch.cuda.memory_stats()
    expect(len(before) >= 122, len(before))
    x, y = torch.empty(1000, device="cuda"), torch.empty(5 * MIB, device="cuda")
    after = torch.cuda.memory_stats()
    rise = {key: after[key] - before[key] for key in before}
    expect(rise["allocation.all.current"] == 2 and rise["allocation.small_pool.current"] == 1)
    expect(rise["allocated_bytes.small_pool.current"] == 4096, rise["allocated_bytes.small_pool.current"])
    expect(rise["requested_bytes.all.current"] == 4000 + 20 * MIB, rise["requested_bytes.all.current"])
    del x, y
    end = torch.cuda.memory_stats()
    expect(end["allocated_bytes.all.peak"] == after["allocated_bytes.all.current"])
    expect(end["allocated_bytes.all.freed"] == rise["allocated_bytes.all.current"])
    torch.cuda.reset_peak_memory_stats()
    expect(torch.cuda.max_memory_allocated() == torch.cuda.memory_allocated())
    expect(torch.accelerator.memory_allocated() == torch.cuda.memory_allocated())
    expect(torch.accelerator.memory_reserved() == torch.cuda.memory_reserved())
    return f"{len(before)} keys"


@feature
def summaries():
    for text in (torch.cuda.memory_summary(), torch.cuda.memory_summary(abbreviated=True)):
        expect("Allocated memory" in text and "GPU reserved memory" in text)
    free, total = torch.cuda.mem_get_info()
    expect(0 < free <= total)
    if not ARGUMENTS.native:
        expect("Millpond memory summary" in millpond.torch.memory_summary())
        expect(millpond.torch.stats()["allocated_bytes.all.current"] == torch.cuda.memory_allocated())


@feature
def snapshot_agrees_with_statistics():
    tidy()
    held = [torch.empty(random.randrange(1, 6 * MIB), dtype=torch.uint8, device="cuda") for _ in range(60)]
    del held[::2]
    stats = torch.cuda.memory_stats()
    segments = torch.cuda.memory_snapshot()
    sums = {"allocated": 0, "active": 0, "reserved": 0, "requested": 0}
    for segment in segments:
        expect(sum(block["size"] for block in segment["blocks"]) == segment["total_size"], "blocks tile", segment)
        sums["reserved"] += segment["total_size"]
        sums["allocated"] += segment["allocated_size"]
        sums["active"] += segment["active_size"]
        sums["requested"] += segment["requested_size"]
    for name, value in sums.items():
        expect(value == stats[f"{name}_bytes.all.current"], name, value, stats[f"{name}_bytes.all.current"])
    return f"{len(segments)} segments"


@feature
def history():
    torch.cuda.memory._record_memory_history(stacks="python")
    try:
        x = torch.empty(3 * MIB, device="cuda")
        address = x.data_ptr()
        del x
        tidy()
        y = torch.empty(77, device="cuda")
        taken = torch.cuda.memory._snapshot()
        trace = taken["device_traces"][0]
        found = [entry["action"] for entry in trace if entry.get("addr") == address]
        expect(found[:3] == ["alloc", "free_requested", "free_completed"] or "alloc" in found, found)
        entry = next(entry for entry in trace if entry["action"] == "alloc" and entry["addr"] == address)
        expect(entry["size"] == 12 * MIB, entry["size"])
        expect(any("gpu_suite" in frame["filename"] for frame in entry["frames"]), entry["frames"][:2])
        expect({e["action"] for e in trace} & {"segment_alloc", "segment_map", "segment_free", "segment_unmap"})
        live = [b for s in taken["segments"] for b in s["blocks"] if b["address"] == y.data_ptr()]
        expect(live and live[0]["frames"], "frames of a live block")
        with tempfile.NamedTemporaryFile(suffix=".pickle") as file:
            torch.cuda.memory._dump_snapshot(file.name)
            expect(pickle.load(open(file.name, "rb"))["segments"])
        from torch.cuda import _memory_viz

        expect("<" in _memory_viz.trace_plot(taken) and "<" in _memory_viz.segment_plot(taken))
    finally:
        torch.cuda.memory._record_memory_history(None)
    expect(not torch.cuda.memory._snapshot()["device_traces"][0])


@feature
def profiler_memory():
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], profile_memory=True) as taken:
        x = torch.empty(MIB, device="cuda")
        del x
    sizes = [getattr(e, "self_device_memory_usage", 0) for e in taken.events() if e.name == "aten::empty"]
    expect(4 * MIB in sizes, sizes)


@feature
def gpu_trace_hooks():
    import torch.cuda._gpu_trace as hooks

    seen = []
    hooks.register_callback_for_memory_allocation(lambda address: seen.append(("alloc", address)))
    hooks.register_callback_for_memory_deallocation(lambda address: seen.append(("free", address)))
    torch._C._activate_gpu_trace()
    x = torch.empty(1000, device="cuda")
    address = x.data_ptr()
    del x
    expect(("alloc", address) in seen and ("free", address) in seen, seen[:4])


# ---- Streams ---------------------------------------------------------------------------------------------------------------


def sleep(cycles):
    torch.cuda._sleep(cycles)


@feature
def record_stream():
    """A side stream reads a tensor late; its memory must not be written before, and the data must be right."""
    tidy()
    side = torch.cuda.Stream()
    for _ in range(5):
        x = torch.full((4 * MIB,), 7.0, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            sleep(50_000_000)
            total = x.sum()
        x.record_stream(side)
        del x
        others = [torch.full((4 * MIB,), 1.0, device="cuda") for _ in range(3)]
        side.synchronize()
        expect(float(total) == 7.0 * 4 * MIB, float(total))
        del others


@feature
def many_streams():
    streams = [torch.cuda.Stream() for _ in range(40)]
    for turn in range(3):
        kept = []
        for at, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                kept.append(torch.full((random.randrange(1, MIB),), float(at), device="cuda"))
        for at, x in enumerate(kept):
            streams[at].synchronize()
            expect(float(x[-1]) == at)
        del kept, x


@feature
def threads():
    wrong = []

    def work(number):
        try:
            own, other = torch.cuda.Stream(), torch.cuda.Stream()
            draw = random.Random(number)
            with torch.cuda.stream(own):
                for turn in range(300):
                    x = torch.full((draw.randrange(1, 300_000),), float(number), device="cuda")
                    other.wait_stream(own)
                    with torch.cuda.stream(other):
                        y = x * 2
                    x.record_stream(other)
                    y.record_stream(own)
                    if turn % 50 == 0:
                        other.synchronize()
                        expect(float(y[-1]) == 2 * number)
                    del x, y
        except BaseException as error:  # noqa: BLE001
            wrong.append(error)

    tasks = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    [task.start() for task in tasks]
    [task.join() for task in tasks]
    if wrong:
        raise wrong[0]


# ---- Limits ----------------------------------------------------------------------------------------------------------------


@feature
def out_of_memory():
    tidy()
    before = torch.cuda.memory_stats()["num_ooms"]
    seen = []
    torch._C._cuda_attach_out_of_memory_observer(lambda *numbers: seen.append(numbers))
    try:
        torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        text = str(error)
    expect(text.startswith("CUDA out of memory. Tried to allocate"), text)
    expect("has a total capacity of" in text and "is reserved by PyTorch but unallocated." in text)
    expect(ARGUMENTS.native or "What to do:" in text, text)
    expect(torch.cuda.memory_stats()["num_ooms"] == before + 1 and len(seen) == 1, seen)
    expect(float(torch.ones(10, device="cuda").sum()) == 10, "it goes on")
    return text.splitlines()[0][:70]


@feature
def too_large():
    try:
        torch.cuda.caching_allocator_alloc(1 << 60)
    except torch.OutOfMemoryError as error:
        expect("more than 1EB" in str(error), error)
        return
    raise AssertionError("no error")


@feature
def memory_fraction():
    tidy()
    total = torch.cuda.mem_get_info()[1]
    share = (torch.cuda.memory_reserved() + 512 * MIB) / total
    torch.cuda.set_per_process_memory_fraction(share)
    try:
        expect(abs(torch.cuda.get_per_process_memory_fraction() - share) < 1e-9)
        x = torch.empty(300 * MIB, dtype=torch.uint8, device="cuda")
        try:
            torch.empty(300 * MIB, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError as error:
            expect("allowed" in str(error), error)
        else:
            raise AssertionError("the limit was passed")
        del x
        # The cache is given back, or used again, for what fits.
        y = torch.empty(400 * MIB, dtype=torch.uint8, device="cuda")
        del y
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


@feature
def cudnn_benchmark():
    torch.backends.cudnn.benchmark = True
    try:
        layer = torch.nn.Conv2d(8, 16, 3, padding=1).cuda()
        layer(torch.randn(4, 8, 64, 64, device="cuda")).sum().backward()
    finally:
        torch.backends.cudnn.benchmark = False


# ---- Training ----------------------------------------------------------------------------------------------------------------


def digest(values):
    return hashlib.sha256("\n".join(values).encode()).hexdigest()[:16]


def resnet():
    class Block(torch.nn.Module):
        def __init__(self, inner, outer, stride):
            super().__init__()
            nn = torch.nn
            self.main = nn.Sequential(
                nn.Conv2d(inner, outer, 3, stride, 1, bias=False), nn.BatchNorm2d(outer), nn.ReLU(),
                nn.Conv2d(outer, outer, 3, 1, 1, bias=False), nn.BatchNorm2d(outer))
            self.short = nn.Sequential() if inner == outer and stride == 1 else nn.Sequential(
                nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer))

        def forward(self, x):
            return torch.relu(self.main(x) + self.short(x))

    nn, layers, inner = torch.nn, [], 64
    layers += [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    for outer, stride in ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)):
        layers.append(Block(inner, outer, stride))
        inner = outer
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10)).cuda()


def train(model, batches):
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for inputs, targets in batches:
        loss = torch.nn.functional.cross_entropy(model(inputs), targets)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        losses.append(float(loss).hex())
    weights = float(sum(p.double().abs().sum() for p in model.parameters())).hex()
    return losses, weights


@feature
def training_resnet():
    torch.manual_seed(1)
    draw = random.Random(1)
    sizes = [draw.randrange(4, 24) for _ in range(12)]
    batches = ((torch.randn(n, 3, 96, 96, device="cuda"), torch.randint(0, 10, (n,), device="cuda")) for n in sizes)
    losses, weights = train(resnet(), batches)
    print(f"hash resnet {digest([*losses, weights])} last loss {losses[-1]} weights {weights}")


@feature
def training_transformer():
    torch.manual_seed(2)
    nn = torch.nn
    layer = nn.TransformerEncoderLayer(256, 8, 1024, dropout=0.1, batch_first=True)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.layers, self.head = nn.Embedding(1000, 256), nn.TransformerEncoder(layer, 4), nn.Linear(256, 10)

        def forward(self, tokens):
            return self.head(self.layers(self.embed(tokens)).mean(1))

    draw = random.Random(2)
    shapes = [(draw.randrange(2, 16), draw.randrange(16, 200)) for _ in range(12)]
    batches = ((torch.randint(0, 1000, shape, device="cuda"), torch.randint(0, 10, shape[:1], device="cuda"))
               for shape in shapes)
    losses, weights = train(Model().cuda(), batches)
    print(f"hash transformer {digest([*losses, weights])} last loss {losses[-1]} weights {weights}")


@feature
def training_four_streams():
    """Four models on four streams of one thread, memory of each used on the others."""
    torch.manual_seed(3)
    streams = [torch.cuda.Stream() for _ in range(4)]
    models = [torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 512)).cuda()
              for _ in streams]
    torch.cuda.synchronize()
    draw, sums, x = random.Random(3), [], torch.randn(64, 512, device="cuda")
    torch.cuda.synchronize()
    for _ in range(12):
        n = draw.randrange(64, 2000)
        x = torch.nn.functional.interpolate(x.T[None], size=n)[0].T.contiguous()
        for stream, model in zip(streams, models):
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                with torch.no_grad():
                    y = torch.tanh(model(x))
            x.record_stream(stream)
            torch.cuda.current_stream().wait_stream(stream)
            y.record_stream(torch.cuda.current_stream())
            x = y
        sums.append(float(x.double().sum()).hex())
    print(f"hash four_streams {digest(sums)}")


@feature
def host_memory():
    x = torch.randn(MIB, pin_memory=True)
    y = x.to("cuda", non_blocking=True)
    expect(torch.equal(y.cpu(), x))
    expect(torch.cuda.host_memory_stats())


# ---- Other processes ------------------------------------------------------------------------------------------------------------

IPC = """
import torch.multiprocessing as mp

def work(queue, back):
    x = queue.get()
    back.put(float(x.sum()))
    x += 1
    torch.cuda.synchronize()
    del x
    back.put("done")

if __name__ == "__main__":
    context = mp.get_context("spawn")
    queue, back = context.Queue(), context.Queue()
    # What a queue cannot send fails in a thread of its own, and nothing comes back then.
    task = context.Process(target=work, args=(queue, back), daemon=True)
    task.start()
    pad = torch.empty(100000, device="cuda")
    x = torch.ones(100000, device="cuda")
    queue.put(x)
    print("sum", back.get(timeout=40))
    assert back.get(timeout=40) == "done"
    task.join()
    assert float(x.sum()) == 200000, float(x.sum())
    print("shared")
"""


@feature
def ipc():
    try:
        expect("shared" in child(IPC))
    except AssertionError as error:
        if "memory of pages" in str(error):
            raise Absent("the policy has pages, which the error says: policy:classic shares") from None
        raise


@feature
def ipc_under_classic():
    if ARGUMENTS.native:
        raise Absent("it is Millpond's")
    kept, ARGUMENTS.conf = ARGUMENTS.conf, "policy:classic"
    try:
        expect("shared" in child(IPC))
    finally:
        ARGUMENTS.conf = kept


@feature
def nccl_one_rank():
    child("""
import os
import torch.distributed as dist
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511", RANK="0", WORLD_SIZE="1")
dist.init_process_group("nccl", device_id=torch.device("cuda:0"))
x = torch.ones(1 << 20, device="cuda")
dist.all_reduce(x)
work = dist.all_reduce(x, async_op=True); work.wait()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(100, 100).cuda())
model(torch.randn(10, 100, device="cuda")).sum().backward()
torch.cuda.synchronize()
assert float(x.sum()) == 1 << 20
dist.destroy_process_group()
print("reduced")
""", {"NCCL_NVLS_ENABLE": "0"})


@feature
def two_devices():
    if torch.cuda.device_count() < 2:
        raise Absent("there is one GPU")
    # The first copy opens what there is, and the later ones find what was mapped since; large ones lie in windows, too.
    x = torch.arange(100_000, device="cuda:0").reshape(100, 1000)
    y = x.to("cuda:1")
    z = x.T[::2].to("cuda:1")
    expect(torch.equal(y.cpu(), x.cpu()) and torch.equal(z.cpu(), x.T[::2].cpu()))
    for megabytes in (1, 30, 90, 7, 60):
        w = torch.arange(megabytes * MIB // 4, device="cuda:0", dtype=torch.int32).reshape(-1, 64)
        there = w.T.to("cuda:1")
        back = there.T[::2].to("cuda:0")
        expect(torch.equal(there.cpu(), w.T.cpu()) and torch.equal(back.cpu(), w[::2].cpu()), megabytes)
        del w, there
    with torch.cuda.device(1):
        w = torch.ones(1000, device="cuda")
    expect(w.device.index == 1 and torch.cuda.memory_allocated(1) > 0)


# ---- Graphs and pools ------------------------------------------------------------------------------------------------------------


@feature
def cuda_graph():
    x = torch.zeros(1000, device="cuda")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = (x + 1) * 2
        z = torch.ones(MIB, device="cuda") + y[0]
    for turn in range(3):
        x.fill_(turn)
        graph.replay()
        torch.cuda.synchronize()
        expect(float(y[0]) == 2 * (turn + 1) and float(z[-1]) == 1 + 2 * (turn + 1))
    others = [torch.full((MIB,), -1.0, device="cuda") for _ in range(10)]
    graph.replay()
    torch.cuda.synchronize()
    expect(all(float(o[0]) == -1 and float(o[-1]) == -1 for o in others), "nothing outside is in the pool's memory")
    del graph, y, z
    tidy()


@feature
def graphed_callables():
    model = torch.nn.Linear(64, 64).cuda()
    x = torch.randn(8, 64, device="cuda", requires_grad=True)
    graphed = torch.cuda.make_graphed_callables(model, (x,))
    graphed(torch.randn_like(x).requires_grad_()).sum().backward()
    torch.cuda.synchronize()


@feature
def mem_pool():
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        x = torch.empty(30 * MIB, dtype=torch.uint8, device="cuda")
    segments = torch.cuda.memory_snapshot(pool.id)
    expect(any(s["address"] <= x.data_ptr() < s["address"] + s["total_size"] for s in segments))
    del x, pool
    tidy()


@feature
def checkpoints():
    child("import sys\nsys.path.insert(0, %r)\nimport checkpoints\ntorch.cuda.init()\ncheckpoints.main(torch)\n"
          % os.path.dirname(os.path.abspath(__file__)))


COMPILED = """
import torch._inductor.config
torch.manual_seed(0)
restored = []
restore = torch._C._cuda_setCheckpointPoolState
def counted(*arguments):
    restored.append(arguments)
    return restore(*arguments)
torch._C._cuda_setCheckpointPoolState = counted

def same(a, b, what):
    assert torch.allclose(a, b, rtol=1e-3, atol=1e-4), (what, float((a - b).abs().max()))

# A tree with two paths: behind the first graph comes either of two others, so that the second of them is recorded after
# the first has run again, and the pool goes back to a checkpoint.
models = [torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU()).cuda() for _ in range(3)]
first, left, right = [torch.compile(model, mode="reduce-overhead") for model in models]
with torch.no_grad():
    for turn in range(16):
        torch.compiler.cudagraph_mark_step_begin()
        x = torch.randn(64, 256, device="cuda")
        y = first(x)
        z = (left if turn % 3 else right)(y)
        same(z.clone(), models[1 if turn % 3 else 2](models[0](x)), ("tree", turn))
print("restored", len(restored))

# Training in two graphs, forward and backward each.
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(64, 128), torch.nn.Linear(128, 8)
    def forward(self, x):
        x = torch.relu(self.a(x))
        torch._dynamo.graph_break()
        return self.b(x)

def losses(fast):
    torch.manual_seed(1)
    model = Model().cuda()
    step = torch.compile(model, mode="reduce-overhead") if fast else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    result = []
    for _ in range(12):
        torch.compiler.cudagraph_mark_step_begin()
        x = torch.randn(16, 64, device="cuda")
        loss = step(x).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        result.append(loss.detach().clone())
    return torch.stack(result)
same(losses(True), losses(False), "training")
torch.cuda.synchronize()
print("compiled")
"""


@feature
def compile_reduce_overhead():
    try:
        import triton  # noqa: F401
    except ImportError:
        raise Absent("SKIPPED: there is no triton, without which torch.compile compiles nothing") from None
    try:
        said = child(COMPILED, timeout=200)
    except subprocess.TimeoutExpired:
        raise Absent("it did not end in 200 s") from None
    restored = [line for line in said.splitlines() if line.startswith("restored ")]
    expect("compiled" in said and restored and int(restored[0].split()[1]) > 0, said[-300:])
    return f"{restored[0].split()[1]} checkpoints restored"


# ---- The run ----------------------------------------------------------------------------------------------------------------------


def main():
    chosen = [name for name in ARGUMENTS.only.split(",") if name]
    counts = {"works": 0, "fails": 0, "absent": 0}
    for name, function in FEATURES:
        if chosen and not any(part in name for part in chosen):
            continue
        began = time.time()
        try:
            said, became = function(), "works"
        except Absent as error:
            said, became = error, "absent"
        except BaseException as error:  # noqa: BLE001
            said = f"{type(error).__name__}: {str(error)[:ARGUMENTS.length]}"
            if ARGUMENTS.traceback:
                traceback.print_exc()
            became = "fails"
        counts[became] += 1
        print(f"{became:7}{name:34}{time.time() - began:6.1f} s  {said or ''}", flush=True)
        gc.collect()
    print(f"{counts['works']} work, {counts['fails']} fail, {counts['absent']} are absent, on "
          f"{'the native allocator' if ARGUMENTS.native else f'Millpond ({millpond.torch.conf()})'}, torch {torch.__version__}")
    return 1 if counts["fails"] else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--native", action="store_true")
    parser.add_argument("--conf")
    parser.add_argument("--only", default="")
    parser.add_argument("--length", type=int, default=400)
    parser.add_argument("--traceback", action="store_true")
    ARGUMENTS = parser.parse_args()
    if not ARGUMENTS.native:
        import millpond.torch

        millpond.torch.enable(ARGUMENTS.conf)
    import torch

    warnings.filterwarnings("ignore")
    torch.backends.cudnn.deterministic = True
    torch.use_deterministic_algorithms(True, warn_only=True)
    sys.exit(main())
