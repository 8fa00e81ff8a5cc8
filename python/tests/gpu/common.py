"""What all features need: their list, expectations, and processes of their own."""

import argparse
import gc
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable

MIB = 1 << 20
# A check. What it returns is printed.
Feature = Callable[[], object]
FEATURES: list[tuple[str, Feature]] = []

# What gpu_suite.py was asked for, which fills it in before any feature runs.
ARGUMENTS = argparse.Namespace(native=False, conf=None)


class Absent(Exception):
    """The machine, or this version, has not what a feature takes."""


def feature(function: Feature) -> Feature:
    """Adds a function to the features. It fails by raising, and what it returns is printed."""
    FEATURES.append((function.__name__, function))
    return function


def expect(condition: object, *what: object) -> None:
    """Raises ``AssertionError`` with ``what`` unless the condition holds."""
    if not condition:
        raise AssertionError(" ".join(str(part) for part in what) or "not so")


def tidy() -> None:
    """Waits for the device, and empties the cache."""
    import torch

    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


def child(code: str, environment: dict[str, str] | None = None, timeout: float = 240, prelude: bool = True) -> str:
    """Runs code in a process of its own, on the same allocator. Returns its output; fails unless it ends with 0."""
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
