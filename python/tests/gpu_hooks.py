"""CuPy, RMM, both with PyTorch, and recordings on a machine with a GPU, each in a process of its own. A package that is
missing is skipped.

    python python/tests/gpu_hooks.py [--only cupy,rmm,joint,record] [--out FOLDER]

With --out the traces of `record` stay in that folder. Prints a line for each check, and fails if one does.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import traceback


def tell_peak(stats: dict[str, int]) -> None:
    """Prints what was reserved, and how often something was allocated."""
    peak, allocations = stats["reserved_bytes.all.peak"] >> 20, stats["allocation.all.allocated"]
    print(f"   peak reserved {peak} MiB, allocations {allocations}")


def check_cupy(_: str) -> None:
    """Arrays on two streams hold what was put into them, and memory is granted again in order."""
    import cupy
    import numpy

    import millpond.cupy as hook

    hook.enable()
    before = numpy.arange(1 << 20, dtype=numpy.float32)
    array = cupy.asarray(before)
    assert hook.stats()["allocated_bytes.all.current"] >= before.nbytes
    assert (cupy.asnumpy(array.copy()) == before).all()
    one, two = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
    for turn in range(200):
        with one:
            made = cupy.asarray(before + turn)
            kept = made.copy()
        two.wait_event(one.record())
        with two:
            hook.record_stream(kept, two)
            copy = kept.copy()
        del made, kept
        with one:
            other = cupy.zeros(1 << 20, dtype=cupy.float32)
        assert (copy.get(stream=two) == before + turn).all(), f"turn {turn}: memory was granted too early"
        two.synchronize()
        del other, copy
    one.synchronize()
    try:
        print(f"   a kernel: {float((array * 2 + 1).sum()):.6g}")
    except Exception as error:
        print(f"   kernels do not compile here: {type(error).__name__}")
    try:
        cupy.zeros(1 << 50, dtype=cupy.uint8)
        raise AssertionError("a petabyte was granted")
    except cupy.cuda.memory.OutOfMemoryError:
        pass
    hook.release_stream(one)
    hook.release_stream(two)
    stats = hook.stats()
    tell_peak(stats)
    hook.disable()
    del array
    assert hook.is_enabled() is False


def check_rmm(_: str) -> None:
    """Buffers on two streams hold what was put into them, also with an adaptor above Millpond."""
    import numpy
    import rmm
    import rmm.mr
    from rmm.pylibrmm.stream import Stream

    import millpond.rmm as hook

    hook.enable()
    data = numpy.arange(1 << 20, dtype=numpy.uint8)
    one, two = Stream(), Stream()
    for turn in range(200):
        first = rmm.DeviceBuffer.to_device(data.tobytes(), stream=one)
        one.synchronize()
        second = rmm.DeviceBuffer(ptr=first.ptr, size=first.size, stream=two)
        two.synchronize()
        assert second.copy_to_host(stream=two).tobytes() == data.tobytes(), turn
        del first, second
    counted = rmm.mr.StatisticsResourceAdaptor(hook.resource(0))
    rmm.mr.set_current_device_resource(counted)
    buffer = rmm.DeviceBuffer(size=1000)
    assert counted.allocation_counts.current_bytes >= 1000
    try:
        rmm.DeviceBuffer(size=1 << 50)
        raise AssertionError("a petabyte was granted")
    except MemoryError as error:
        print(f"   {str(error)[:100]}")
    del buffer
    stats = hook.stats()
    assert stats["allocated_bytes.all.current"] == 0, stats["allocated_bytes.all.current"]
    tell_peak(stats)
    hook.disable()


def check_joint(_: str) -> None:
    """PyTorch, CuPy and RMM have one pool: what one frees the others get, on the same stream and on others."""
    import cupy
    import numpy
    import rmm
    import torch
    from rmm.pylibrmm.stream import Stream

    import millpond.cupy
    import millpond.rmm
    import millpond.torch

    millpond.cupy.enable()
    millpond.rmm.enable()
    # CuPy has used the device before PyTorch is enabled.
    first = cupy.zeros(1 << 20, dtype=cupy.uint8)
    millpond.torch.enable()
    size = 40 << 20
    tensor = torch.zeros(size, dtype=torch.uint8, device="cuda")
    address = tensor.data_ptr()
    del tensor
    array = cupy.zeros(size, dtype=cupy.uint8)
    assert array.data.ptr == address, "PyTorch's memory serves CuPy"
    del array
    buffer = rmm.DeviceBuffer(size=size)
    assert buffer.ptr == address, "CuPy's memory serves RMM, on the same stream"
    del buffer
    for figures in (millpond.cupy.stats(), millpond.rmm.stats(), torch.cuda.memory_stats()):
        assert figures["allocated_bytes.all.current"] == first.nbytes, figures["allocated_bytes.all.current"]

    side, other = torch.cuda.Stream(), Stream()
    for turn in range(200):
        with torch.cuda.stream(side):
            ones = torch.full((1 << 20,), turn % 250, dtype=torch.uint8, device="cuda")
            twin = ones.clone()
        del ones
        host = numpy.full(1 << 20, (turn + 1) % 250, dtype=numpy.uint8)
        buffer = rmm.DeviceBuffer.to_device(host.tobytes(), stream=other)
        with cupy.cuda.ExternalStream(side.cuda_stream):
            array = cupy.asarray(host)
        side.synchronize()
        assert int(twin[0]) == turn % 250 and bool((twin == twin[0]).all()), f"turn {turn}: PyTorch's bytes"
        assert (array.get() == host).all(), f"turn {turn}: CuPy's bytes"
        assert buffer.copy_to_host(stream=other).tobytes() == host.tobytes(), f"turn {turn}: RMM's bytes"
        del array, buffer, twin
    tell_peak(millpond.torch.stats(0))


def check_record(folder: str) -> None:
    """A recording of training has as many allocations as the statistics say, and trains to the same weights."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    import torch

    import millpond.torch

    millpond.torch.enable()

    def train(seed: int) -> float:
        torch.manual_seed(seed)
        side = torch.cuda.Stream()
        model = torch.nn.Sequential(torch.nn.Linear(512, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 512)).cuda()
        optimiser = torch.optim.AdamW(model.parameters())
        for step in range(20):
            data = torch.randn(64 * (step % 7 + 1), 512, device="cuda")
            with torch.cuda.stream(side):
                side.wait_stream(torch.cuda.default_stream())
                noise = data * 0.1
                data.record_stream(side)
            torch.cuda.default_stream().wait_stream(side)
            noise.record_stream(torch.cuda.default_stream())
            (model(data + noise) - data).square().mean().backward()
            optimiser.step()
            optimiser.zero_grad()
        return float(sum(weight.double().abs().sum() for weight in model.parameters()))

    torch.use_deterministic_algorithms(True, warn_only=True)
    plain = train(1)
    path = pathlib.Path(folder, "train.trace")
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    with millpond.torch.record(path, workload="a small model"):
        recorded = train(1)
    asked = torch.cuda.memory_stats()["allocation.all.allocated"] - before
    lines = path.read_text().splitlines()
    traced = sum(line.startswith("a ") for line in lines)
    uses = sum(line.startswith("u ") for line in lines)
    print(f"   {len(lines)} lines, {traced} allocations, {uses} uses on other streams; {lines[0][:160]}")
    assert traced == asked and uses >= 40, (traced, asked, uses)
    assert recorded == plain, (recorded, plain)
    try:
        print(f"   {millpond.torch.report(path)}")
    except millpond.torch.Error as error:
        print(f"   no report here: {str(error)[:90]}")


CHECKS = {"cupy": check_cupy, "rmm": check_rmm, "joint": check_joint, "record": check_record}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(CHECKS))
    parser.add_argument("--out", default="")
    parser.add_argument("--child", default="", choices=["", *CHECKS], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        try:
            CHECKS[arguments.child](arguments.out)
        except ImportError as error:
            print(f"   {error}")
            return 77
        except Exception:
            traceback.print_exc(file=sys.stdout)
            return 1
        return 0
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        if arguments.out:
            os.makedirs(arguments.out, exist_ok=True)
        for name in arguments.only.split(","):
            command = [sys.executable, __file__, "--child", name, "--out", arguments.out or folder]
            code = subprocess.run(command, timeout=120).returncode
            known = {0: f"ok {name}", 77: f"skipped {name}: a package is missing"}
            print(known.get(code, f"FAILED {name}: {code}"), flush=True)
            failed += code not in (0, 77)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
