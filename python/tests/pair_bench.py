"""Nanoseconds for a pair of an allocation and a free, on PyTorch's allocator and on Millpond, each in processes of its
own.

    python python/tests/pair_bench.py [--pairs PATH/TO/pairs.so] [--rounds 3] [--confs policy:paged policy:classic]
    python python/tests/pair_bench.py --pairs PATH/TO/pairs.so --together     # threads in C++ together, alone

Rows are sizes and kinds: `empty` is torch.empty in Python, `c++ allocate` and `c++ raw` are loops in C++, which the
library of python/tests/pairs.cpp has. The processes take turns, and the best of the rounds counts. With that library a
second table has the pairs of 1, 2, 4 and 8 threads in C++ together, each on a stream of its own, in millions a second:
of one size, and with 64 live blocks of mixed sizes for each thread. Python takes no part in it.
"""

import argparse
import ctypes
import json
import subprocess
import sys
import threading
import time
from types import ModuleType
from typing import Any

SIZES = [512, 1 << 20, 4 << 20]
THREADS = [1, 2, 4, 8]
# What threads do together: the kind and the size for the library, and a name.
TOGETHER = [*((0, size, f"{size} bytes") for size in SIZES), (2, 4 << 20, "mixed, up to 4 MiB")]


def python_pairs(torch: ModuleType, size: int, count: int) -> float:
    empty, uint8 = torch.empty, torch.uint8
    for _ in range(count // 10):
        empty(size, dtype=uint8, device="cuda")
    begin = time.perf_counter_ns()
    for _ in range(count):
        empty(size, dtype=uint8, device="cuda")
    return (time.perf_counter_ns() - begin) / count


def on_threads(torch: ModuleType, size: int, count: int, number: int) -> float:
    times = []

    def work() -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            times.append(python_pairs(torch, size, count))

    tasks = [threading.Thread(target=work) for _ in range(number)]
    for task in tasks:
        task.start()
    for task in tasks:
        task.join()
    return sum(times) / len(times)


def in_cpp(path: str) -> Any:
    """Returns the function of the library, or ``None`` where there is no library."""
    if not path:
        return None
    function = ctypes.CDLL(path).millpond_time_pairs
    function.restype = ctypes.c_double
    function.argtypes = [ctypes.c_int, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_int]
    return function


def measure(arguments: argparse.Namespace) -> None:
    if arguments.on != "native":
        import millpond.torch

        millpond.torch.enable(arguments.on)
    import torch

    torch.cuda.init()
    # The first allocation opens the device.
    torch.empty(1, device="cuda")
    rows, together, time_pairs = {}, {}, in_cpp(arguments.pairs)
    for size in [] if arguments.together else SIZES:
        rows[f"empty, {size} bytes, 1 thread"] = python_pairs(torch, size, arguments.count // 10)
        rows[f"empty, {size} bytes, 8 threads"] = on_threads(torch, size, arguments.count // 40, 8)
        for kind, name in ((0, "allocate"), (1, "raw")) if time_pairs else ():
            for threads, held, share in ((1, 0, 1), (8, 0, 40), (8, 32 << 20, 10)):
                holding = f", each with {held >> 20} MiB" if held else ""
                rows[f"c++ {name}, {size} bytes, {threads} threads{holding}"] = time_pairs(
                    kind, size, held, arguments.count // share, threads)
    for kind, size, what in TOGETHER if time_pairs else ():
        for threads in THREADS:
            # Threads that wait for each other are given less to do, so that none takes minutes.
            share = 2 if threads == 1 else 5 * threads
            nanoseconds = time_pairs(kind, size, 0, arguments.count // share, threads)
            together[f"{what}, {threads} threads"] = nanoseconds / threads
    print(json.dumps({"rows": rows, "together": together}))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", default="")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int, default=400_000)
    parser.add_argument("--confs", nargs="*", default=["policy:paged", "policy:classic"])
    parser.add_argument("--together", action="store_true", help="measure threads in C++ together, and nothing else")
    parser.add_argument("--on", default="")
    arguments = parser.parse_args()
    if arguments.together and not arguments.pairs:
        parser.error("--together takes --pairs")
    if arguments.on:
        measure(arguments)
        return 0
    sides = ["native", *arguments.confs]
    best: dict[str, dict[str, dict[str, float]]] = {"rows": {side: {} for side in sides}, "together": {side: {} for side in sides}}
    for _ in range(arguments.rounds):
        for side in sides:
            command = [sys.executable, __file__, "--on", side, "--count", str(arguments.count)]
            command += ["--pairs", arguments.pairs]
            command += ["--together"] * arguments.together
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                print(f"{side}: {done.stderr[-800:]}", file=sys.stderr)
                return 1
            for table, rows in json.loads(done.stdout.splitlines()[-1]).items():
                for row, value in rows.items():
                    best[table][side][row] = min(value, best[table][side].get(row, value))
    if not arguments.together:
        print_table("ns for a pair", best["rows"], lambda value: f"{value:.0f}")
    if best["together"]["native"]:
        print("\nAll threads together, c++ allocate:\n")
        print_table("millions of pairs a second", best["together"], lambda value: f"{1000 / value:.2f}")
    return 0


def print_table(title: str, columns: Any, written: Any) -> None:
    print(f"| {title} | " + " | ".join(columns) + " |")
    print("|---|" + "---:|" * len(columns))
    for row in columns["native"]:
        print(f"| {row} | " + " | ".join(written(of[row]) for of in columns.values()) + " |")


if __name__ == "__main__":
    sys.exit(main())
