"""Memory that another stream has used, after its free, under a real torch. No kernel runs, so a simulated driver will do:
scripts/torch-simulated.sh. With a GPU:

    python python/tests/recorded.py [--conf policy:classic]          on Millpond
    python python/tests/recorded.py --native                         the same on PyTorch's own allocator
"""

import argparse
import ctypes
from types import ModuleType
from typing import Any

SIZES = [16, 3 << 20, 40 << 20]


def stream(torch: ModuleType) -> Any:
    """Returns a stream of the driver, which knows none of the simulated runtime."""
    driver, context, handle = ctypes.CDLL(None), ctypes.c_void_p(), ctypes.c_void_p()
    if not hasattr(driver, "cuStreamCreate"):
        driver = ctypes.CDLL("libcuda.so.1")
    results = [driver.cuInit(0), driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
               driver.cuCtxSetCurrent(context), driver.cuStreamCreate(ctypes.byref(handle), 1)]
    assert not any(results), results
    return torch.cuda.ExternalStream(handle.value)


def block_at(torch: ModuleType, address: int) -> str | None:
    """Returns the state of the block that has this address."""
    blocks = [block for segment in torch.cuda.memory_snapshot() for block in segment["blocks"]]
    states = [b["state"] for b in blocks if b["address"] <= address < b["address"] + b["size"]]
    return states[0] if states else None


def main(torch: ModuleType, holds: bool) -> None:
    own, other = stream(torch), stream(torch)
    for size in SIZES:
        with torch.cuda.stream(own):
            tensor = torch.empty(size, dtype=torch.uint8, device="cuda")
        address = tensor.data_ptr()
        tensor.record_stream(other)
        del tensor
        expected = "active_pending_free" if holds else "inactive"
        assert block_at(torch, address) == expected, (size, block_at(torch, address), expected)
        stats = torch.cuda.memory_stats()
        pending = stats["active_bytes.all.current"] - stats["allocated_bytes.all.current"]
        assert (pending >= size) == holds, (size, pending)
        # The first request asks how far the other stream is. By the second one it is done, and that is known.
        with torch.cuda.stream(own):
            tensors = [torch.empty(size, dtype=torch.uint8, device="cuda")]
            torch.cuda.synchronize()
            tensors.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        addresses = [tensor.data_ptr() for tensor in tensors]
        assert not holds or address in addresses, (size, address, addresses)
        tensors.clear()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_stats()["active_bytes.all.current"] == 0
    assert torch.cuda.memory_reserved() == 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conf", default="policy:paged,record_stream:hold")
    parser.add_argument("--native", action="store_true")
    arguments = parser.parse_args()
    import torch

    if not arguments.native:
        import millpond.torch

        millpond.torch.enable(arguments.conf)
    held = arguments.native or "policy:classic" in arguments.conf or "record_stream:hold" in arguments.conf
    if "policy:direct" in arguments.conf:
        print("recorded: nothing to see where memory is not kept, policy:direct")
    else:
        main(torch, held)
        print(f"recorded: as it should be, {'native' if arguments.native else arguments.conf}")
