"""The allocators that programs run on, each in processes of its own."""

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import threading

# The variable and the value that choose each. `control` is the same as `native`: what it takes over that shows how far
# two processes differ anyway. `millpond` is Millpond as it is, enabled by two lines, and `entry` is the same by a
# variable alone, which takes the installed package.
ALLOCATORS = {
    "native": ("PYTORCH_CUDA_ALLOC_CONF", ""),
    "control": ("PYTORCH_CUDA_ALLOC_CONF", ""),
    "expandable": ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),
    "async": ("PYTORCH_CUDA_ALLOC_CONF", "backend:cudaMallocAsync"),
    "millpond": ("MILLPOND_CONF", ""),
    "entry": ("MILLPOND_TORCH", "1"),
    "tight": ("MILLPOND_CONF", "policy:paged,growth:tight"),
    "classic": ("MILLPOND_CONF", "policy:classic"),
}
_OURS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "MILLPOND_CONF", "MILLPOND_TORCH")


def is_millpond(allocator):
    """Returns whether an allocator is Millpond."""
    return ALLOCATORS[allocator][0].startswith("MILLPOND_")


def environment(allocator):
    """Returns the environment in which a process uses an allocator."""
    clean = {key: value for key, value in os.environ.items() if key not in _OURS}
    name, value = ALLOCATORS[allocator]
    return {**clean, name: value} if value else clean


def enable(allocator):
    """Puts Millpond in place in this process, if that is the allocator and the environment does not."""
    if ALLOCATORS[allocator][0] == "MILLPOND_CONF":
        import millpond.torch

        millpond.torch.enable()


def start_anew():
    """Waits for the device, empties the cache, and begins new peaks and totals."""
    import torch

    gc.collect()
    torch.cuda.synchronize()
    getattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: None)()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.reset_accumulated_memory_stats()


def asked(allocator):
    """Returns how often the driver was asked so far, by the keys of the statistics that the allocator has."""
    import torch

    if allocator == "async":
        return {}
    keys = ("num_device_alloc", "num_device_free")
    if is_millpond(allocator):
        import millpond.torch

        stats = millpond.torch.stats()
        return {key: value for key, value in stats.items() if key.startswith("driver.") or key in keys}
    stats = torch.cuda.memory_stats()
    return {key: stats[key] for key in keys}


def rows(script, arguments, allocator, limit, seen=lambda row: None):
    """Runs a script on an allocator in a new process, which prints rows behind ``row``. Returns them, and why there are
    no more: a text that is empty if it has succeeded. Calls ``seen`` with each row when it comes."""
    command = [sys.executable, script, "--child", allocator, *map(str, arguments)]
    found, late = [], threading.Event()
    with tempfile.TemporaryFile("w+") as errors:
        with subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment(allocator)) as process:
            watch = threading.Timer(limit, lambda: (late.set(), process.kill()))
            watch.start()
            try:
                for line in process.stdout:
                    for row in rows_in([line]):
                        found.append(row)
                        seen(row)
                code = process.wait()
            finally:
                watch.cancel()
        errors.seek(0)
        why = f"exit code {code}: {errors.read()[-1500:]}" if code else ""
    return found, f"took more than {limit:.0f} s" if late.is_set() else why


def rows_in(lines):
    """Returns the rows among the lines that a process has printed."""
    return [json.loads(line[4:]) for line in lines if line.startswith("row ")]


def tell(row):
    """Prints a row for the process that has begun this one."""
    print("row " + json.dumps(row), flush=True)


def chosen(known):
    """Returns a parser of names separated by commas."""
    def parse(text):
        names = text.split(",")
        wrong = [name for name in names if name not in known]
        if wrong:
            raise argparse.ArgumentTypeError(f"{', '.join(wrong)}: choose from {', '.join(known)}")
        return names

    return parse
