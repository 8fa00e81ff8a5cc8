"""Recordings and reports of a program under a real torch. No kernel runs, so a simulated device will do. With a GPU:

    python python/tests/recordings.py [--conf policy:classic]

The report is made where MILLPOND_COMMAND names the command ``millpond``, or it is on the PATH.
"""

import argparse
import os
import pathlib
import shutil
import tempfile
from types import ModuleType
from typing import Any


def read(path: pathlib.Path) -> tuple[str, list[str]]:
    """The header, and what was asked. Times, and what is said of the device, differ from run to run."""
    header, *lines = path.read_text().splitlines()
    return header, [line for line in lines if line.startswith(("a ", "f ", "e"))]


def main(torch: ModuleType, folder: str) -> None:
    import millpond.torch

    def make(size: int) -> Any:
        return torch.empty(size, dtype=torch.uint8, device="cuda")

    def asked() -> int:
        return int(torch.cuda.memory_stats()["allocation.all.allocated"])

    path = pathlib.Path(folder, "program.trace")
    before, count = make(1000), asked()
    with millpond.torch.record(path, step=3):
        kept = [make(size) for size in (10, 3 << 20, 40 << 20)]
        del before, kept[1]
        torch.cuda.empty_cache()
        kept.append(make(3 << 20))
        count = asked() - count
    header, requests = read(path)
    assert requests == ["a 0 10 0", "a 1 3145728 0", "a 2 41943040 0", "f 1", "e", "a 3 3145728 0"], requests
    assert count == 4 and '"step":3' in header.replace(" ", ""), header
    # What is not recorded is not in it, and a second recording begins anew.
    del kept
    with millpond.torch.record(path):
        make(7)
    _, requests = read(path)
    assert requests == ["a 0 7 0", "f 0"], requests

    if not (os.environ.get("MILLPOND_COMMAND") or shutil.which("millpond")):
        return print("the command millpond is not there: no report")
    torch.cuda.memory._record_memory_history()
    kept = [make(size << 20) for size in range(1, 40)]
    del kept[::2]
    dump = pathlib.Path(folder, "history.pickle")
    torch.cuda.memory._dump_snapshot(str(dump))
    for file in (path, dump):
        page = millpond.torch.report(file, options=["--passes", "1"])
        assert "<!doctype html>" in page.read_text() and page.suffix == ".html"
        print(page.name, page.stat().st_size, "bytes")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conf", default=None)
    arguments = parser.parse_args()

    import millpond.torch
    import torch

    millpond.torch.enable(arguments.conf)
    with tempfile.TemporaryDirectory() as holder:
        main(torch, holder)
    print(f"ok recordings {arguments.conf or ''}")
