"""Memory that NCCL registers, and memory that other drivers import. The collectives take two GPUs.

Without one, `python python/tests/gpu/registration.py` tries the plain sums on the processor.
"""

import os
import subprocess
import sys
import tempfile

from gpu.common import ARGUMENTS, Absent, child, expect, feature
from gpu.sharing import has_pages

# Two ranks run `part(rank)` of the code that follows this. Sizes are from one page to many, and all numbers are exact.
RANKS = """
import os
import torch.distributed as dist
import torch.multiprocessing as mp

IS_CUDA = torch.cuda.is_available()
DEVICE = "cuda" if IS_CUDA else "cpu"
SIZES = [1000, 3 << 18, 5 << 20, 40 << 20] if IS_CUDA else [1000, 3 << 10]

def fill(x, rank, turn):
    # The sum over both ranks differs from place to place and from turn to turn.
    x.copy_(torch.arange(x.numel(), device=x.device) % 251)
    x.add_(1000 * turn + rank)

def check(x, turn, what):
    expected = 2 * (torch.arange(x.numel(), device=x.device) % 251) + 2000 * turn + 1
    assert torch.equal(x, expected.to(x.dtype)), (what, x.numel(), turn)

def sums(rank, make=None, turns=6, what="sums"):
    make = make or (lambda size: torch.empty(size, device=DEVICE))
    for turn in range(turns):
        kept = []
        for size in SIZES:
            x = make(size)
            fill(x, rank, turn)
            dist.all_reduce(x)
            check(x, turn, what)
            kept.append(x)
        del x, kept
        if IS_CUDA and turn % 2:
            # Memory goes back to the driver, and other memory comes to the same addresses.
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            torch.empty(30 << 20, device=DEVICE)

def run(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE="2")
    if IS_CUDA:
        torch.cuda.set_device(rank)
        dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    else:
        dist.init_process_group("gloo")
    part(rank)
    dist.barrier()
    dist.destroy_process_group()
    print("rank", rank, "is done", flush=True)
"""

START = """
if __name__ == "__main__":
    import socket
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(run, (port,), nprocs=2)
"""

PLAIN = "part = sums\n"

POOL = """
def part(rank):
    backend = dist.group.WORLD._get_backend(torch.device("cuda", rank))
    sums(rank, what="before")
    pool = torch.cuda.MemPool({allocator})
    def make(size):
        with torch.cuda.use_mem_pool(pool):
            return torch.empty(size, device=DEVICE)
    early = make(3 << 20)
    backend.register_mem_pool(pool)
    late = make(30 << 20)
    for turn in range(3):
        for x in (early, late):
            fill(x, rank, turn)
            dist.all_reduce(x)
            check(x, turn, "in the pool")
    sums(rank, make, what="of the pool")
    torch.cuda.synchronize()
    # It fails for a segment that was not registered: the one of `late` came later.
    backend.deregister_mem_pool(pool)
    del early, late
    print("segments", len(pool.snapshot()))
"""

GRAPH = """
def part(rank):
    kept = [torch.empty(size, device=DEVICE) for size in SIZES]
    for x in kept:
        dist.all_reduce(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for x in kept:
            inner = x * 1
            dist.all_reduce(inner)
            x.copy_(inner)
    for turn in range(4):
        for x in kept:
            fill(x, rank, turn)
        graph.replay()
        for x in kept:
            check(x, turn, "in a graph")
        # Memory comes and goes around the graph, which keeps its own.
        sums(rank, turns=2, what="around a graph")
    torch.cuda.synchronize()
    del graph, kept
    torch.cuda.empty_cache()
    sums(rank, turns=2, what="after a graph")
"""

SYMMETRIC = """
import torch.distributed._symmetric_memory as symm_mem

def reduced(x, rank, what):
    symm_mem.rendezvous(x, dist.group.WORLD)
    for turn in range(3):
        fill(x, rank, turn)
        dist.barrier()
        check(torch.ops.symm_mem.one_shot_all_reduce(x, "sum", dist.group.WORLD.group_name), turn, what)
        dist.barrier()

def part(rank):
    device = torch.device("cuda", rank)
    for size in (4096, 3 << 18):
        reduced(symm_mem.empty(size, dtype=torch.float32, device=device), rank, "symmetric memory")
    # A pool whose memory is symmetric, where this version has one.
    make_pool = getattr(symm_mem, "get_mem_pool", None)
    if make_pool is None:
        print("no pool of symmetric memory")
        return
    with torch.cuda.use_mem_pool(make_pool(device)):
        x = torch.empty(3 << 18, dtype=torch.float32, device=device)
    reduced(x, rank, "a symmetric pool")
    sums(rank, turns=2, what="beside symmetric memory")
"""

# What NCCL says of registrations.
SAYS = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "REG"}


def two_ranks(part: str, environment: dict[str, str] | None = None) -> str:
    """Runs a part on two GPUs. Returns how many lines NCCL has said of registered memory."""
    import torch

    if torch.cuda.device_count() < 2:
        raise Absent("there is one GPU")
    # NVLink's multicast is not for every machine.
    said = child(RANKS + part + START, {"NCCL_NVLS_ENABLE": "0", **SAYS, **(environment or {})})
    expect(said.count("is done") == 2, said[-1500:])
    # What torch.distributed says of a segment.
    expect("Failed to register" not in said and "Failed to deregister" not in said, said[-1500:])
    lines = [line for line in said.splitlines() if "NCCL INFO" in line and "egister" in line]
    return f"{len(lines)} lines of NCCL's on registrations"


@feature
def nccl_registers_all_memory() -> str:
    """With pages, enable() turns this off. Elsewhere all segments are registered, those that come later, too."""
    return two_ranks(PLAIN, {"TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK": "1", "NCCL_LOCAL_REGISTER": "1"})


@feature
def nccl_registers_nothing() -> str:
    return two_ranks(PLAIN, {"NCCL_LOCAL_REGISTER": "0", "NCCL_GRAPH_REGISTER": "0"})


@feature
def nccl_registers_a_pool_of_its_own_memory() -> str:
    return two_ranks(POOL.format(allocator="backend.mem_allocator"))


@feature
def nccl_registers_a_pool() -> str:
    if not ARGUMENTS.native and has_pages():
        raise Absent("with pages, a pool that is registered takes NCCL's allocator")
    return two_ranks(POOL.format(allocator=""))


@feature
def nccl_registers_what_a_graph_uses() -> str:
    return two_ranks(GRAPH, {"NCCL_GRAPH_REGISTER": "1"})


@feature
def symmetric_memory() -> str:
    import torch

    if torch.cuda.device_count() < 2 or not torch.cuda.can_device_access_peer(0, 1):
        raise Absent("it takes two GPUs that reach each other")
    return two_ranks(SYMMETRIC)


@feature
def exports() -> str:
    """Runs exports.py: pages and DMA buffers, as far as the driver has them."""
    if ARGUMENTS.native:
        raise Absent("it is Millpond's")
    script = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "exports.py")
    done = subprocess.run(
        [sys.executable, script, "--conf", ARGUMENTS.conf or "policy:paged"], capture_output=True, text=True, timeout=240
    )
    expect(done.returncode == 0 and "as they should be" in done.stdout, (done.stdout + done.stderr)[-2500:])
    return "; ".join(done.stdout.splitlines()[:-1])


if __name__ == "__main__":
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write("import torch\n" + RANKS + PLAIN + START)
        file.flush()
        subprocess.run([sys.executable, file.name], check=True, timeout=240)
