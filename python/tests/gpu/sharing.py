"""Tensors that go to other processes."""

import os
import subprocess
import sys

from gpu.common import ARGUMENTS, Absent, child, expect, feature

IPC = """
import torch.multiprocessing as mp

def work(queue, back):
    while (got := queue.get()) is not None:
        x, view = got
        assert x.untyped_storage().data_ptr() == view.untyped_storage().data_ptr()
        back.put((float(x.double().sum()), float(view.double().sum())))
        x += 1
        torch.cuda.synchronize()
        del got, x, view
        back.put("done")

if __name__ == "__main__":
    context = mp.get_context("spawn")
    queue, back = context.Queue(), context.Queue()
    # What a queue cannot send fails in a thread of its own, and nothing comes back then.
    task = context.Process(target=work, args=(queue, back), daemon=True)
    task.start()
    pad = torch.empty(100000, device="cuda")
    kept = []
    for megabytes in (0, 30, 90, 7):
        count = (megabytes << 20) // 4 or 100000
        # One in front of it and one behind it, which must stay as they are.
        around = [torch.full((count,), 5.0, device="cuda")]
        x = torch.ones(count, device="cuda")
        around.append(torch.full((count,), 5.0, device="cuda"))
        queue.put((x, x[1000:3000].view(2, 1000)[:, ::2]))
        assert back.get(timeout=60) == (count, 1000), megabytes
        assert back.get(timeout=60) == "done"
        assert float(x.double().sum()) == 2 * count, (megabytes, float(x.double().sum()))
        assert all(float(other.double().sum()) == 5.0 * count for other in around), megabytes
        kept.append(around[0])
        print("sum", megabytes, float(x.double().sum()))
    queue.put(None)
    task.join()
    assert task.exitcode == 0
    # The memory is ours again.
    del x, around, kept
    torch.cuda.ipc_collect()
    torch.cuda.empty_cache()
    print("shared", torch.cuda.memory_allocated())
"""


def has_pages() -> bool:
    import millpond.torch

    conf = millpond.torch.conf()
    return "policy:direct" not in conf and ("policy:classic" not in conf or "expandable_segments" in conf)


def shares() -> None:
    """Fails with Absent where a process may not have a descriptor of another one, as memory of pages needs."""
    if ARGUMENTS.native or not has_pages():
        return
    fetch = ("import ctypes, sys\nlibc = ctypes.CDLL(None)\n"
             f"sys.exit(0 if libc.syscall(438, libc.syscall(434, {os.getpid()}, 0), 0, 0) >= 0 else 1)")
    if subprocess.run([sys.executable, "-c", fetch]).returncode != 0:
        raise Absent("pidfd_getfd is refused here, which PyTorch's own expandable segments need, too")


@feature
def ipc() -> None:
    shares()
    expect("shared" in child(IPC))


@feature
def ipc_under_classic() -> None:
    if ARGUMENTS.native:
        raise Absent("it is Millpond's")
    kept, ARGUMENTS.conf = ARGUMENTS.conf, "policy:classic"
    try:
        expect("shared" in child(IPC))
    finally:
        ARGUMENTS.conf = kept


def processes(*sides: str) -> str:
    """Runs processes.py, with the allocator of each side."""
    script = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "processes.py")
    done = subprocess.run(
        [sys.executable, script, "--conf", ARGUMENTS.conf or "", *sides], capture_output=True, text=True, timeout=240
    )
    output = done.stdout + done.stderr
    expect(done.returncode == 0 and "as they should be" in output, output[-2500:])
    return next(line for line in output.splitlines() if "as they should be" in line)


@feature
def ipc_sizes() -> str:
    shares()
    return processes(*(["--sender", "native", "--receiver", "native"] if ARGUMENTS.native else []))


@feature
def ipc_to_native() -> str:
    if ARGUMENTS.native:
        raise Absent("it is Millpond's")
    shares()
    return processes("--receiver", "native")


@feature
def ipc_from_native() -> str:
    if ARGUMENTS.native:
        raise Absent("it is Millpond's")
    shares()
    return processes("--sender", "native")


@feature
def ipc_is_off_where_the_environment_says_so() -> None:
    if ARGUMENTS.native or not has_pages():
        raise Absent("it is Millpond's, for pages")
    said = child("x = torch.ones(1000, device='cuda')\n"
                 "try:\n    x.untyped_storage()._share_cuda_()\nexcept RuntimeError as error:\n    print(error)",
                 {"TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC": "0"})
    expect("cannot be shared" in said and "policy:classic" in said, said)
