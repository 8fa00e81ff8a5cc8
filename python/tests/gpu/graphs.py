"""CUDA graphs, private pools, and torch.compile with trees of graphs."""

import os
import shutil
import subprocess

import torch

from gpu.common import ARGUMENTS, MIB, Absent, child, expect, feature, tidy


@feature
def cuda_graph() -> None:
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
def graphed_callables() -> None:
    model = torch.nn.Linear(64, 64).cuda()
    x = torch.randn(8, 64, device="cuda", requires_grad=True)
    graphed = torch.cuda.make_graphed_callables(model, (x,))
    graphed(torch.randn_like(x).requires_grad_()).sum().backward()
    torch.cuda.synchronize()


@feature
def mem_pool() -> None:
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        x = torch.empty(30 * MIB, dtype=torch.uint8, device="cuda")
    segments = torch.cuda.memory_snapshot(pool.id)
    expect(any(s["address"] <= x.data_ptr() < s["address"] + s["total_size"] for s in segments))
    del x, pool
    tidy()


def child_of(module: str, *arguments: object) -> None:
    """Runs the function `main` of a script beside the folder in a process of its own."""
    folder, given = os.path.dirname(os.path.dirname(os.path.abspath(__file__))), ", ".join(map(repr, arguments))
    child(f"import sys\nsys.path.insert(0, {folder!r})\nimport {module}\ntorch.cuda.init()\n{module}.main(torch, {given})\n")


@feature
def mem_pool_from_allocator() -> None:
    if not (shutil.which("cc") or shutil.which("gcc")):
        raise Absent("SKIPPED: there is no C compiler")
    child_of("sources")


@feature
def checkpoints() -> None:
    child_of("checkpoints")


@feature
def functions() -> None:
    """Each function of torch.cuda.memory and torch.accelerator.memory."""
    child_of("functions", ARGUMENTS.native, ARGUMENTS.conf)


@feature
def captured() -> None:
    """What graphs count, several pools in one graph, and graphs that share a pool."""
    child_of("captured", ARGUMENTS.native, ARGUMENTS.conf)


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
def compile_reduce_overhead() -> str:
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
