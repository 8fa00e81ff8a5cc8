"""Which devices the functions take, under a real torch: those that there are, and the current one without a number. No
kernel runs, so a simulated device will do. With a GPU:

    python python/tests/devices.py [--conf policy:classic | --native]
"""

import argparse
import tempfile
from collections.abc import Callable
from types import ModuleType
from typing import Any


def refused(function: Callable[[Any], object], device: Any) -> None:
    """Expects one of the errors that torch has for a device that it does not take."""
    try:
        said = function(device)
    except (RuntimeError, ValueError, TypeError, AssertionError):
        return
    raise AssertionError(f"{device!r} is taken: {str(said)[:100]}")


def main(torch: ModuleType, mine: ModuleType | None) -> None:
    torch.cuda.init()
    count = torch.cuda.device_count()
    functions: list[Callable[[Any], object]] = [
        torch.cuda.memory_stats, torch.cuda.memory_allocated, torch.cuda.reset_peak_memory_stats,
        torch.cuda.reset_accumulated_memory_stats,
    ]
    # PyTorch asks for a number here.
    fractions: list[Callable[[Any], object]] = [
        torch.cuda.get_per_process_memory_fraction,
        lambda device: torch.cuda.set_per_process_memory_fraction(1.0, device),
    ]
    own: list[Callable[[Any], object]] = []
    folder = tempfile.TemporaryDirectory()
    if mine is not None:

        def record(device: Any) -> None:
            assert mine is not None
            with mine.record(f"{folder.name}/it.trace", device):
                pass

        own = [mine.stats, mine.memory_summary, record]
    for function in functions + own + fractions:
        for device in (None, count - 1, f"cuda:{count - 1}", torch.device("cuda", count - 1)):
            function(device)
        for device in () if function in fractions else ("cuda", torch.device("cuda")):
            function(device)
        for device in ("cpu", torch.device("cpu"), "meta", count, -1, 63, f"cuda:{count}", "toaster"):
            refused(function, device)
    # What torch takes for the current device, by an accident of its own.
    for function in own:
        for device in (1.5, b"cuda", []):
            refused(function, device)
    folder.cleanup()
    if mine is not None:
        for at in range(count):
            torch.cuda.set_device(at)
            kept = torch.empty(1000 * (at + 1), dtype=torch.uint8, device="cuda")
            for device in (None, "cuda", torch.device("cuda"), at, torch.cuda.device(at)):
                assert mine.stats(device)["requested_bytes.all.current"] == 1000 * (at + 1), (device, at)
            del kept


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conf", default="")
    parser.add_argument("--native", action="store_true")
    arguments = parser.parse_args()
    import torch

    own: ModuleType | None = None
    if not arguments.native:
        import millpond.torch

        millpond.torch.enable(arguments.conf)
        own = millpond.torch
    main(torch, own)
    print(f"devices: as they should be, {'native' if arguments.native else arguments.conf or 'default'}")
