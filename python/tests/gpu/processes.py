"""Forks, ends, and several GPUs."""

import tempfile
import threading

import torch

from gpu.common import ARGUMENTS, MIB, Absent, child, expect, feature


@feature
def fork_before_use() -> None:
    child("import os\npid = os.fork()\nx = torch.ones(1000, device='cuda')\nassert float(x.sum()) == 1000\n"
          "if pid == 0:\n    torch.cuda.synchronize(); os._exit(0)\n"
          "assert os.waitpid(pid, 0)[1] == 0")


AFTER_FORK = """
import gc, os, sys
kept = [torch.ones(1 << 20, device="cuda") for _ in range(4)]
view = kept[1][10:]
torch.cuda.synchronize()
for _ in range(2):
    pid = os.fork()
    if pid == 0:
        # What is inherited may be dropped: it is the parent's, and stays as it is there.
        del kept[0], view
        gc.collect()
        try:
            torch.ones(1, device="cuda")
        except RuntimeError as error:
            if "Cannot re-initialize CUDA in forked subprocess" in str(error):
                ENDS(0)
            print(error, flush=True)
        os._exit(7)
    ended = os.waitpid(pid, 0)[1]
    assert ended == 0, (ended, "of a forked process")
    assert len(kept) == 4 and all(float(x.sum()) == 1 << 20 for x in kept)
    more = [torch.full((1 << 20,), 2.0, device="cuda") for _ in range(4)]
    assert all(float(x.sum()) == 2 << 20 for x in more)
print("refused in the forked process")
"""


@feature
def fork_after_use() -> None:
    """A forked process may not use CUDA again, which is PyTorch's error, and may drop what it has inherited."""
    expect("refused" in child("import os\nENDS = os._exit\n" + AFTER_FORK, timeout=60))


@feature
def fork_after_use_and_exit() -> None:
    """The same, and the forked process ends as interpreters do, with what else it has inherited."""
    expect("refused" in child("import sys\nENDS = sys.exit\n" + AFTER_FORK, timeout=60))


FORKED_WORKERS = """
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    # What a dataset holds on the GPU is inherited by the workers, which never touch it.
    kept = torch.ones(1000, device="cuda")
    def __len__(self):
        return 64
    def __getitem__(self, at):
        return torch.full((1000,), float(at))

for _ in range(2):
    batches = DataLoader(Numbers(), 8, num_workers=2, multiprocessing_context="fork", pin_memory=True, timeout=40)
    total = 0.0
    for batch in batches:
        total += float(batch.to("cuda", non_blocking=True).sum())
    assert total == 1000 * sum(range(64)), total
assert float(Numbers.kept.sum()) == 1000
"""


@feature
def forked_workers() -> None:
    """Workers of a DataLoader that are forked while CUDA is in use, with tensors of the GPU in the dataset."""
    child(FORKED_WORKERS, timeout=120)


SPAWNED_WORKERS = """
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __init__(self, device):
        self.device = device
    def __len__(self):
        return 24
    def __getitem__(self, at):
        x = torch.full((50000 + 1000 * at,), float(at), device="cuda")
        x = torch.cat([x, x + 1])[-1000:].clone()
        return (x.to(self.device), torch.cuda.get_allocator_backend())

def first(batch):
    return batch[0]

if __name__ == "__main__":
    here, device = torch.ones(1000, device="cuda"), DEVICE
    batches = DataLoader(
        Numbers(device), 1, num_workers=2, multiprocessing_context="spawn", collate_fn=first, timeout=25)
    try:
        for at, (batch, backend) in enumerate(batches):
            assert backend == torch.cuda.get_allocator_backend(), backend
            assert batch.device.type == device and float(batch.sum()) == 1000.0 * (at + 1), (at, batch)
            del batch
    except RuntimeError as error:
        raise SystemExit(str(error)[:200])
    assert float(here.sum()) == 1000
"""


@feature
def spawned_workers() -> None:
    """Workers of a DataLoader compute on the GPU, each on an allocator of its own, and return tensors of the host."""
    child("DEVICE = 'cpu'\n" + SPAWNED_WORKERS, timeout=120)


@feature
def spawned_workers_that_share() -> None:
    """The same with tensors of the GPU, which the parent gets."""
    try:
        child("DEVICE = 'cuda'\n" + SPAWNED_WORKERS, timeout=120)
    except AssertionError as error:
        if "memory of pages" in str(error):
            raise Absent("the policy has pages, which the error says: policy:classic shares") from None
        raise


TRAINED = """
import hashlib, os, pathlib, random, sys, time

def meet(what):
    # Both are at the same place at the same time.
    pathlib.Path(FOLDER, f"{what}-{os.getpid()}").touch()
    until = time.monotonic() + 100
    while len(list(pathlib.Path(FOLDER).glob(f"{what}-*"))) < 2:
        assert time.monotonic() < until, "the other process did not come"
        time.sleep(0.01)

torch.use_deterministic_algorithms(True)
torch.manual_seed(5)
draw = random.Random(5)
model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1024)).cuda()
optimiser = torch.optim.AdamW(model.parameters())
kept = torch.arange(1 << 24, device="cuda")
meet("start")
losses = []
for step in range(60):
    x = torch.randn(draw.randrange(64, 8192), 1024, device="cuda")
    loss = (model(x) - x).square().mean()
    loss.backward()
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)
    losses.append(float(loss).hex())
    if step % 20 == 19:
        torch.cuda.empty_cache()
meet("end")
assert bool((kept[1:] - kept[:-1] == 1).all())
weights = float(sum(w.double().abs().sum() for w in model.parameters())).hex()
print("trained", hashlib.sha256(" ".join([*losses, weights]).encode()).hexdigest()[:16])
"""


@feature
def two_processes() -> None:
    """Two processes train on one GPU at the same time, each with an allocator of its own, to the same weights."""
    said: list[str] = []
    wrong: list[BaseException] = []

    def run(folder: str) -> None:
        try:
            text = child(f"FOLDER = {folder!r}\n" + TRAINED, timeout=150)
            said.extend(line for line in text.splitlines() if line.startswith("trained"))
        except BaseException as error:  # noqa: BLE001
            wrong.append(error)

    with tempfile.TemporaryDirectory() as folder:
        tasks = [threading.Thread(target=run, args=(folder,)) for _ in range(2)]
        for task in tasks:
            task.start()
        for task in tasks:
            task.join()
    if wrong:
        raise wrong[0]
    expect(len(said) == 2 and said[0] == said[1], said)
    print(f"hash two_processes {said[0].split()[1]}")


EXIT_AT_WORK = """
import sys
x = torch.zeros(1000, device="cuda")
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    y = x + 1
pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    z = torch.empty(30 << 20, dtype=torch.uint8, device="cuda")
side, event = torch.cuda.Stream(), torch.cuda.Event()
graph.replay()
with torch.cuda.stream(side):
    torch.cuda._sleep(100_000_000)
    late = x * 2
    event.record()
x.record_stream(side)
sys.modules["kept"] = [late, y]
"""


@feature
def exit_with_live_tensors() -> None:
    child("kept = [torch.randn(1000, 1000, device='cuda') for _ in range(20)]\nkept.append(kept[0] @ kept[1])\n"
          "s = torch.cuda.Stream()\nwith torch.cuda.stream(s):\n    kept.append(torch.empty(1 << 20, device='cuda'))\n"
          "kept[0].record_stream(s)")


@feature
def exit_at_work() -> None:
    """The interpreter ends with a graph, a pool and work in flight."""
    child(EXIT_AT_WORK, timeout=60)


@feature
def nccl_one_rank() -> None:
    child("""
import os, socket
import torch.distributed as dist
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK="0", WORLD_SIZE="1")
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
def two_devices() -> None:
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


FOREIGN = """
side = torch.cuda.Stream("cuda:1")
for turn in range(20):
    x = torch.full((1 << 20,), float(turn), device="cuda:0")
    with torch.cuda.stream(side):
        torch.cuda._sleep(10_000_000)
    x.record_stream(side)
    del x
torch.cuda.synchronize("cuda:0"), torch.cuda.synchronize("cuda:1")
y = torch.full((1 << 20,), 5.0, device="cuda:0")
assert float(y.sum()) == 5 << 20
del y
torch.cuda.empty_cache()
assert torch.cuda.memory_allocated(0) == 0, torch.cuda.memory_allocated(0)
assert torch.cuda.memory_reserved(0) <= 4 << 20, torch.cuda.memory_reserved(0)
"""


@feature
def stream_of_another_gpu() -> None:
    """A tensor is used on a stream of the other GPU when it ends, and its memory comes back."""
    if torch.cuda.device_count() < 2:
        raise Absent("there is one GPU")
    said = child(FOREIGN, timeout=60)
    # What fails in a destructor is printed, and nothing else tells of it.
    expect("millpond:" not in said, said[-300:])
