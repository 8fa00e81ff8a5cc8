"""Every feature of torch.cuda that touches memory, one after the other, on a machine with a GPU.

    python python/tests/gpu_suite.py              on Millpond
    python python/tests/gpu_suite.py --native     the same on PyTorch's own allocator
    python python/tests/gpu_suite.py --conf policy:classic --only ipc,training

Prints a line for each feature: `works`, `fails` with the reason, or `absent` where this machine or version has not what
it takes. Lines that begin with `hash` are to be compared between the two allocators: training is deterministic. Ends
with 1 if a feature fails. The features are in the folder gpu beside this file.
"""

import argparse
import gc
import os
import sys
import time
import traceback
import warnings

import gpu
from gpu.common import ARGUMENTS, Absent

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")


def main() -> int:
    chosen = [name for name in ARGUMENTS.only.split(",") if name]
    counts = {"works": 0, "fails": 0, "absent": 0}
    for name, function in gpu.load():
        if chosen and not any(part in name for part in chosen):
            continue
        began = time.time()
        try:
            said, became = function(), "works"
        except Absent as error:
            said, became = error, "absent"
        except BaseException as error:  # noqa: BLE001
            said = f"{type(error).__name__}: {str(error)[:ARGUMENTS.length]}"
            if ARGUMENTS.traceback:
                traceback.print_exc()
            became = "fails"
        counts[became] += 1
        print(f"{became:7}{name:34}{time.time() - began:6.1f} s  {said or ''}", flush=True)
        gc.collect()
    print(f"{counts['works']} work, {counts['fails']} fail, {counts['absent']} are absent, on "
          f"{'the native allocator' if ARGUMENTS.native else f'Millpond ({millpond.torch.conf()})'}, torch {torch.__version__}")
    return 1 if counts["fails"] else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--native", action="store_true")
    parser.add_argument("--conf")
    parser.add_argument("--only", default="")
    parser.add_argument("--length", type=int, default=400)
    parser.add_argument("--traceback", action="store_true")
    parser.parse_args(namespace=ARGUMENTS)
    if not ARGUMENTS.native:
        import millpond.torch

        millpond.torch.enable(ARGUMENTS.conf)
    import torch

    warnings.filterwarnings("ignore")
    torch.backends.cudnn.deterministic = True
    torch.use_deterministic_algorithms(True, warn_only=True)
    sys.exit(main())
