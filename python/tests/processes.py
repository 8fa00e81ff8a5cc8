"""Tensors that go to another process, under a real torch. No kernel runs, so a simulated device will do, if it has bytes.
With a GPU:

    python python/tests/processes.py [--conf policy:paged] [--sender native] [--receiver native]

A native process has PyTorch's own allocator, with expandable segments.
"""

import argparse
import os
from collections.abc import Callable
from typing import Any

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--conf", default="")
parser.add_argument("--sender", choices=["millpond", "native"], default="millpond")
parser.add_argument("--receiver", choices=["millpond", "native"], default="millpond")
arguments = parser.parse_args()
# The other process imports this file, too.
side = arguments.receiver if "RECEIVER" in os.environ else arguments.sender
if side == "native":
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"

import torch
import torch.multiprocessing as mp
import torch.multiprocessing.reductions as reductions

if side == "millpond":
    import millpond.torch

    millpond.torch.enable(arguments.conf)

MIB = 1 << 20
# A small one that shares its page, some of the sizes of pages, and some of many pages. Behind them, some that are likely to
# lie in pages of several sizes, which PyTorch's own allocator does not know.
SIZES = [1000, 3000, 3 * MIB, 10 * MIB, 20 * MIB]
UNEVEN = [10 * MIB, 22 * MIB, 34 * MIB, 46 * MIB] * 2


def pattern(count: int, step: int) -> torch.Tensor:
    """Returns bytes that differ from place to place, on the host."""
    return (torch.arange(count) * step % 251).to(torch.uint8)


def put(tensor: torch.Tensor, host: torch.Tensor) -> None:
    tensor.copy_(host)
    torch.cuda.synchronize()


def files() -> int:
    return len(os.listdir("/proc/self/fd"))


def kinds_of_handles() -> set[bytes]:
    """Returns a set to which the first bytes of all handles are added that this process receives."""
    kinds, rebuild = set(), reductions.rebuild_cuda_tensor

    def watched(
        cls: Any, size: Any, stride: Any, offset: Any, storage: Any, dtype: Any, device: Any, handle: bytes, *rest: Any
    ) -> Any:
        kinds.add(bytes(handle[:2]))
        return rebuild(cls, size, stride, offset, storage, dtype, device, handle, *rest)

    reductions.rebuild_cuda_tensor = watched
    return kinds


def receive(queue: Any, back: Any, done: Any) -> None:
    """Checks each tensor and writes other bytes there. Tells the kinds of handles."""
    torch.cuda.init()
    kinds, before = kinds_of_handles(), None
    for size in SIZES + UNEVEN:
        try:
            tensor, view, again = queue.get()
        except RuntimeError as error:
            # PyTorch's own allocator says so of what Millpond alone knows.
            assert arguments.receiver == "native" and "future version of torch" in str(error), error
            assert size in UNEVEN, size
            back.put("refused")
            continue
        assert tensor.numel() == size and torch.equal(tensor.cpu(), pattern(size, 7)), size
        assert tensor.data_ptr() == again.data_ptr(), "one storage is mapped once"
        assert torch.equal(view.cpu(), pattern(size, 7)[100:200]), size
        put(tensor, pattern(size, 5))
        del tensor, view, again
        before = files() if before is None else before
        back.put("written")
    # A page that stayed open would be a file.
    assert before is not None and files() <= before + 10, (before, files())
    back.put(kinds)
    done.wait()


def other_process(context: Any, work: Callable[..., None]) -> tuple[Any, Any, Any, Any]:
    queue, back, done = context.Queue(), context.Queue(), context.Event()
    os.environ["RECEIVER"] = "1"
    task = context.Process(target=work, args=(queue, back, done), daemon=True)
    task.start()
    del os.environ["RECEIVER"]
    return task, queue, back, done


def end(task: Any, done: Any) -> None:
    done.set()
    task.join(60)
    assert task.exitcode == 0, task.exitcode


def main() -> tuple[set[str], set[bytes]]:
    context = mp.get_context("spawn")
    task, queue, back, done = other_process(context, receive)
    held, outcomes = [], set()
    for size in SIZES + UNEVEN:
        # One beside it, so that small ones do not begin their page, which must stay as it is.
        held.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        put(held[-1], pattern(size, 3))
        tensor = torch.empty(size, dtype=torch.uint8, device="cuda")
        put(tensor, pattern(size, 7))
        queue.put((tensor, tensor[100:200], tensor[:50]))
        outcome = back.get(timeout=120)
        outcomes.add(outcome)
        assert torch.equal(tensor.cpu(), pattern(size, 5 if outcome == "written" else 7)), size
        assert torch.equal(held[-1].cpu(), pattern(size, 3)), size
        if size in UNEVEN:
            held.append(tensor)
        del tensor
    kinds = back.get(timeout=60)
    end(task, done)
    return outcomes, kinds


if __name__ == "__main__":
    outcomes, kinds = main()
    told = f"{sorted(outcomes)}, handles {sorted(kinds)}"
    conf = arguments.conf or "default"
    print(f"processes: as they should be, {arguments.sender} to {arguments.receiver}, {conf}: {told}")
