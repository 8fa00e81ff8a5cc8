"""Each function of torch.cuda.memory and torch.accelerator.memory. No kernel runs, so the simulated driver will do:
scripts/torch-simulated.sh. With a GPU:

    python python/tests/functions.py [--conf policy:classic | --native]

A function that none of the checks names fails, so that a new version of PyTorch is looked at. The reference page has a
row for each: docs/reference/torch-functions.md.
"""

import argparse
import ctypes
import gc
import json
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import sources

MIB = 1 << 20
# A check, and the functions that it is about.
Check = Callable[["Scene"], None]
CHECKS: list[tuple[Check, list[str]]] = []
# Not about memory, or not to be called here.
OTHERS = {
    "contextlib": "a module", "is_initialized": "asks for CUDA", "_cuda_CUDAAllocator": "a type",
    "_save_segment_usage": "draws with a script that it downloads", "_save_memory_usage": "draws with a script that it downloads",
    "_set_allocator_settings": "in settings.py", "_host_allocator": "pinned memory", "_CUDAAllocator": "a type",
    "_free_mutex": "a lock of PyTorch's", "_dummy_type": "a type", "_get_device_index": "asks for a device",
    "_get_nvml_device_index": "asks for a device", "_get_amdsmi_device_index": "asks for a device", "_flatten_stats": "a helper",
    "_make_uvm_allocator": "a part of _use_uvm", "_recurse_add_to_result": "a helper", "_augment_memory_snapshot_stack_traces": "a helper",
}


class Scene:
    def __init__(self, torch: ModuleType, is_native: bool, conf: str | None) -> None:
        self.torch, self.cuda, self.accelerator, self.is_native = torch, torch.cuda.memory, torch.accelerator.memory, is_native
        self.conf = conf or "policy:paged"
        self.has_segments = is_native or ("policy:classic" in self.conf and "expandable" not in self.conf)
        self.version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])

    def empty(self, count: int) -> Any:
        return self.torch.empty(count, dtype=self.torch.uint8, device="cuda")

    def tidy(self) -> None:
        gc.collect()
        self.torch.cuda.synchronize()
        self.cuda.empty_cache()

    def has(self, name: str) -> bool:
        return hasattr(self.cuda, name)


def about(names: str) -> Callable[[Check], Check]:
    def add(check: Check) -> Check:
        CHECKS.append((check, names.split()))
        return check

    return add


@about("memory_allocated max_memory_allocated memory_reserved max_memory_reserved memory_stats memory_stats_as_nested_dict "
       "reset_peak_memory_stats reset_accumulated_memory_stats memory_cached max_memory_cached reset_max_memory_allocated "
       "reset_max_memory_cached memory_summary")
def statistics(scene: Scene) -> None:
    scene.tidy()
    cuda, accelerator = scene.cuda, scene.accelerator
    before = cuda.memory_stats()
    one, two = scene.empty(3 * MIB + 7), scene.empty(700)
    after, nested = cuda.memory_stats(), cuda.memory_stats_as_nested_dict()
    assert after["allocated_bytes.all.current"] - before["allocated_bytes.all.current"] == 3 * MIB + 512 + 1024
    assert after["requested_bytes.all.current"] - before["requested_bytes.all.current"] == 3 * MIB + 7 + 700
    assert nested["allocated_bytes"]["all"]["current"] == after["allocated_bytes.all.current"] == cuda.memory_allocated()
    of_any = accelerator.memory_stats()
    assert len(of_any) >= 122 and all(after[key] == value for key, value in of_any.items()), set(of_any.items()) - set(after.items())
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"):
        assert getattr(cuda, name)() == getattr(accelerator, name)() == getattr(cuda, name)("cuda:0"), name
    assert cuda.memory_cached() == cuda.memory_reserved() and cuda.max_memory_cached() == cuda.max_memory_reserved()
    del one
    for reset in (cuda.reset_peak_memory_stats, accelerator.reset_peak_memory_stats, cuda.reset_max_memory_allocated,
                  cuda.reset_max_memory_cached):
        held = scene.empty(9 * MIB)
        del held
        assert cuda.max_memory_allocated() > cuda.memory_allocated()
        reset()
        assert cuda.max_memory_allocated() == cuda.memory_allocated(), reset
    for reset in (cuda.reset_accumulated_memory_stats, accelerator.reset_accumulated_memory_stats):
        reset()
        held = scene.empty(MIB)
        assert cuda.memory_stats()["allocated_bytes.all.allocated"] == MIB, reset
        del held
    assert "Allocated memory" in cuda.memory_summary() and "GPU reserved memory" in cuda.memory_summary(abbreviated=True)
    assert ("num_oom_rejections" in after) == (scene.version >= (2, 12))
    del two


@about("memory_stats MemPool use_mem_pool memory_snapshot")
def pools(scene: Scene) -> None:
    scene.tidy()
    cuda, torch = scene.cuda, scene.torch
    pool, other = torch.cuda.MemPool(), torch.cuda.MemPool(use_on_oom=True)
    with torch.cuda.use_mem_pool(pool):
        held = scene.empty(30 * MIB)
        with torch.cuda.use_mem_pool(other):
            inner = scene.empty(4 * MIB)
    reserved = {}
    for each, tensor in ((pool, held), (other, inner)):
        segments = cuda.memory_snapshot(each.id, include_traces=False)
        assert [s for s in segments if s["address"] <= tensor.data_ptr() < s["address"] + s["total_size"]], segments
        assert all(tuple(s["segment_pool_id"]) == tuple(each.id) for s in segments)
        reserved[each.id] = sum(s["total_size"] for s in segments)
        assert each.use_count() == 1 and len(each.snapshot()) == len(segments)
    if scene.version >= (2, 13):
        told = cuda.memory_stats_as_nested_dict()["reserved_bytes_by_private_pools"]
        for number, size in reserved.items():
            assert told[number]["all"]["current"] == told[number]["large_pool"]["current"] == size, (told, reserved)
            assert told[number]["all"]["peak"] >= size and told[number]["all"]["allocated"] >= size
        assert cuda.memory_stats()[f"reserved_bytes_by_private_pools.{pool.id[0]}_{pool.id[1]}.all.current"] == reserved[pool.id]
    number = pool.id
    del held, inner, pool, other
    scene.tidy()
    if scene.version >= (2, 13):
        told = cuda.memory_stats_as_nested_dict()["reserved_bytes_by_private_pools"]
        assert told.get(number, {"all": {"current": 0}})["all"]["current"] == 0, told


@about("caching_allocator_alloc caching_allocator_delete caching_allocator_enable caching_allocator_disabled")
def raw(scene: Scene) -> None:
    cuda, torch = scene.cuda, scene.torch
    before = cuda.memory_allocated()
    stream = torch.cuda.Stream()
    addresses = [cuda.caching_allocator_alloc(MIB), cuda.caching_allocator_alloc(MIB, stream=stream),
                 cuda.caching_allocator_alloc(MIB, device=0, stream=stream.cuda_stream)]
    assert cuda.memory_allocated() == before + 3 * MIB
    for address in addresses:
        cuda.caching_allocator_delete(address)
    cuda.caching_allocator_enable(False)
    held = scene.empty(MIB)
    cuda.caching_allocator_enable(True)
    assert cuda.memory_allocated() == before
    del held
    if scene.has("caching_allocator_disabled"):
        with cuda.caching_allocator_disabled():
            held = scene.empty(MIB)
        assert cuda.memory_allocated() == before
        del held


@about("set_per_process_memory_fraction get_per_process_memory_fraction empty_cache mem_get_info list_gpu_processes get_memory_info")
def limits(scene: Scene) -> None:
    scene.tidy()
    cuda, torch = scene.cuda, scene.torch
    free, total = cuda.mem_get_info()
    assert 0 < free <= total
    if hasattr(scene.accelerator, "get_memory_info"):
        assert scene.accelerator.get_memory_info()[1] == total
    share = (cuda.memory_reserved() + 64 * MIB) / total
    cuda.set_per_process_memory_fraction(share)
    try:
        assert abs(cuda.get_per_process_memory_fraction() - share) < 1e-9
        try:
            scene.empty(65 * MIB)
        except torch.cuda.OutOfMemoryError as error:
            assert "allowed" in str(error), error
        else:
            raise AssertionError("the limit was passed")
    finally:
        cuda.set_per_process_memory_fraction(1.0)
    for wrong in (-0.1, 1.1):
        try:
            cuda.set_per_process_memory_fraction(wrong)
        except ValueError:
            continue
        raise AssertionError(wrong)
    held, reserved = scene.empty(40 * MIB), cuda.memory_reserved()
    del held
    scene.accelerator.empty_cache()
    assert cuda.memory_reserved() <= reserved - 40 * MIB, (cuda.memory_reserved(), reserved)
    assert isinstance(cuda.list_gpu_processes(), str)


@about("memory_stats")
def rejections(scene: Scene) -> None:
    """What throw_on_cudamalloc_oom refuses: the text, the counters, and who is told. PyTorch has it since 2.12."""
    if scene.is_native and scene.version < (2, 12):
        return
    scene.tidy()
    cuda, torch = scene.cuda, scene.torch
    settings, path = torch._C._accelerator_setAllocatorSettings, os.environ.get("MILLPOND_TEST_CALLS")
    calls = ctypes.CDLL(path) if path and scene.version >= (2, 12) else None
    if calls:
        calls.calls_watch_rejections()
    seen: list[Any] = []
    torch._C._cuda_attach_out_of_memory_observer(lambda *numbers: seen.append(numbers))
    held, total = scene.empty(20 * MIB), cuda.mem_get_info()[1]
    reserved, before = cuda.memory_reserved(), cuda.memory_stats()

    def ask(is_on: bool) -> tuple[str, list[str]]:
        settings(f"throw_on_cudamalloc_oom:{is_on}")
        cuda._record_memory_history(stacks="python")
        try:
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
                scene.empty(total - MIB)
        except torch.cuda.OutOfMemoryError as error:
            told = [entry["action"] for entry in cuda._snapshot()["device_traces"][0]]
            names = ["profiler" for event in profile.events() if event.name == "[OutOfMemory]"]
            return str(error), [action for action in told if action == "oom"] + names
        finally:
            settings("throw_on_cudamalloc_oom:False")
            cuda._record_memory_history(enabled=None)
        raise AssertionError("the device was passed")

    text, told = ask(True)
    size = f"{(total - MIB) / (1 << 30):.2f} GiB"
    assert text.startswith("CUDA out of memory. Allocation was preemptively rejected because it would exceed "
                           f"per_process_memory_fraction limit. Requested size: {size}"), text
    after = cuda.memory_stats()
    assert after.get("num_oom_rejections", 1) == before.get("num_oom_rejections", 0) + 1, after
    assert all(after[key] == before[key] for key in ("num_ooms", "num_alloc_retries")) and told == seen == [], (told, seen)
    if calls:
        numbers = (ctypes.c_size_t * 4)()
        calls.calls_rejections(numbers)
        assert list(numbers)[:1] + list(numbers)[2:] == [1, reserved, total] and numbers[1] >= total - MIB, list(numbers)
    if not scene.is_native:
        assert "would be reserved in addition to" in text and "What to do: " in text, text
    # Without it the same request is an error as usual.
    text, told = ask(False)
    assert "Tried to allocate" in text and told == ["oom", "profiler"] and len(seen) == 1, (text, told, seen)
    last = cuda.memory_stats()
    assert last.get("num_oom_rejections") == after.get("num_oom_rejections"), last
    assert last["num_ooms"] == after["num_ooms"] + 1, last
    del held


@about("host_memory_stats host_memory_stats_as_nested_dict reset_accumulated_host_memory_stats reset_peak_host_memory_stats "
       "empty_host_cache")
def pinned(scene: Scene) -> None:
    cuda, torch = scene.cuda, scene.torch
    before = cuda.host_memory_stats()["allocated_bytes.current"]
    held = torch.empty(3 * MIB, dtype=torch.uint8, pin_memory=True)
    assert cuda.host_memory_stats()["allocated_bytes.current"] > before
    assert cuda.host_memory_stats_as_nested_dict()["allocated_bytes"]["current"] > before
    del held
    cuda.reset_peak_host_memory_stats()
    cuda.reset_accumulated_host_memory_stats()
    if hasattr(scene.accelerator, "empty_host_cache"):
        scene.accelerator.empty_host_cache()
        assert cuda.host_memory_stats()["allocated_bytes.current"] == 0, cuda.host_memory_stats()


@about("get_allocator_backend CUDAPluggableAllocator change_current_allocator _get_current_allocator")
def allocators(scene: Scene) -> None:
    cuda = scene.cuda
    assert cuda.get_allocator_backend() == ("native" if scene.is_native else "millpond")
    try:
        cuda.change_current_allocator(cuda._get_current_allocator())
    except RuntimeError as error:
        assert "Can't swap an already initialized allocator" in str(error), error
    else:
        raise AssertionError("the allocator was replaced")


def of_address(trace: Any, address: int) -> Any:
    return [entry for entry in trace if entry.get("addr") == address]


@about("_record_memory_history _record_memory_history_impl _record_memory_history_legacy _snapshot _dump_snapshot "
       "_set_memory_metadata _get_memory_metadata _memory_metadata_supported _annotate_tensor _allocation_traceback")
def history(scene: Scene) -> None:
    cuda, torch = scene.cuda, scene.torch
    cuda._record_memory_history(stacks="python", global_record_annotations=True)
    try:
        metadata = {"step": 1} if scene.version >= (2, 15) else '{"step":1}'
        cuda._set_memory_metadata(metadata)
        assert json.loads(cuda._get_memory_metadata()) == {"step": 1}
        held = scene.empty(3 * MIB + 7)
        cuda._set_memory_metadata("")
        if scene.has("_annotate_tensor"):
            assert cuda._memory_metadata_supported()
            cuda._annotate_tensor(held[100:], "kept for the backward pass")
        if scene.has("_allocation_traceback"):
            frames = cuda._allocation_traceback(held.data_ptr())
            assert any(frame["name"] == "history" for frame in frames), frames
            assert cuda._allocation_traceback(held.data_ptr() + 512) is None
        with torch.profiler.record_function("a span"):
            other = scene.empty(700)
        address = held.data_ptr()
        del held, other
        taken = cuda._snapshot()
        if hasattr(scene.accelerator, "_snapshot"):
            assert len(scene.accelerator._snapshot()["segments"]) == len(taken["segments"])
        with tempfile.TemporaryDirectory() as folder:
            cuda._dump_snapshot(os.path.join(folder, "dump.pickle"))
            with open(os.path.join(folder, "dump.pickle"), "rb") as file:
                assert pickle.load(file).keys() == taken.keys()
    finally:
        cuda._record_memory_history(enabled=None)
    entries = of_address(taken["device_traces"][0], address)
    actions = [entry["action"] for entry in entries if not entry["action"].startswith("segment")]
    annotated = ["annotate"] if scene.has("_annotate_tensor") else []
    assert actions == ["alloc", *annotated, "free_requested", "free_completed"], actions
    alloc = next(entry for entry in entries if entry["action"] == "alloc")
    assert alloc["size"] == 3 * MIB + 7 and json.loads(alloc["user_metadata"]) == {"step": 1}, alloc
    for entry in entries:
        # PyTorch's own allocator tags what it allocates on the way to a given address. Millpond allocates nothing else there.
        assert "internal_metadata" not in entry, entry
        if entry["action"] == "annotate":
            assert (entry["size"], entry["user_metadata"]) == (3 * MIB + 7, "kept for the backward pass"), entry
            assert any(frame["name"] == "_annotate_tensor" for frame in entry["frames"]), entry
    spans = [(span["name"], span["stage"]) for span in taken["external_annotations"]]
    assert spans == [("a span", "START"), ("a span", "END")], spans
    begin, end = (span["time_us"] for span in taken["external_annotations"])
    assert alloc["time_us"] <= begin <= end, (alloc["time_us"], begin, end)
    assert cuda._snapshot()["external_annotations"] == []
    settings = taken["allocator_settings"]
    assert settings["max_split_size"] == -1 and settings.get("max_round_threshold", -1) == -1, settings
    assert settings.get("max_cached_size", -1) == -1, settings


@about("_use_uvm")
def managed(scene: Scene) -> None:
    if not scene.has("_use_uvm"):
        return
    cuda = scene.cuda
    if not os.environ.get("LD_PRELOAD"):
        with cuda._use_uvm():
            held = scene.empty(3 * MIB)
        held.fill_(3)
        assert int(held[-1]) == 3
        return
    # Without a GPU there is no managed memory: the same way with an allocator of the tests.
    with tempfile.TemporaryDirectory() as folder:
        library = ctypes.CDLL(str(sources.build(folder)))
        library.pool_begin.argtypes, library.pool_bytes.restype = [ctypes.c_long, ctypes.c_int], ctypes.c_long
        library.pool_begin(1 << 40, 0)
        address = [ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in ("pool_alloc", "pool_free")]
        cuda._UVM_ALLOCATOR = (None, None, scene.torch._C._cuda_customAllocator(*address))
        with cuda._use_uvm() as pool:
            held = scene.empty(3 * MIB)
            assert library.pool_bytes() == 20 * MIB, library.pool_bytes()
        del pool
        # The tensor outlives the pool, whose memory goes back with the next emptying.
        scene.tidy()
        assert library.pool_bytes() == 20 * MIB
        del held
        scene.tidy()
        assert library.pool_bytes() == 0, library.pool_bytes()


UNCACHED = """
import sys
if len(sys.argv) > 1 and sys.argv[1] == "millpond":
    import millpond.torch
    millpond.torch.enable()
import torch
held = torch.empty(3 << 20, dtype=torch.uint8, device="cuda")
del held
# Millpond gives it back once the stream is done with it, at the next request; PyTorch waits for the device.
torch.cuda.synchronize()
held = torch.empty(512, dtype=torch.uint8, device="cuda")
del held
print("freed" if torch.cuda.memory_reserved() <= 512 else torch.cuda.memory_reserved())
"""


@about("empty_cache")
def uncached(scene: Scene) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_CONF")}
    command = [sys.executable, "-c", UNCACHED, "native" if scene.is_native else "millpond"]
    done = subprocess.run(command, env={**environment, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}, capture_output=True, text=True)
    assert done.stdout.split() == ["freed"], done.stdout + done.stderr


def covered() -> set[str]:
    return {name for _, names in CHECKS for name in names} | OTHERS.keys()


def all_are_covered(torch: ModuleType) -> None:
    """A function that no check names is new: it wants a check, and a row in the reference."""
    for module in (torch.cuda.memory, torch.accelerator.memory):
        own = {name for name, value in vars(module).items() if callable(value) and getattr(value, "__module__", "") == module.__name__}
        missing = sorted((own | set(module.__all__)) - covered())
        assert not missing, f"{module.__name__}: {missing}"
    page = pathlib.Path(__file__).parents[2] / "docs/reference/torch-functions.md"
    if page.exists():
        text = page.read_text()
        absent = [name for _, names in CHECKS for name in names if f"{name}`" not in text]
        assert not absent, f"{page.name} does not mention {absent}"


def main(torch: ModuleType, is_native: bool = False, conf: str | None = None) -> None:
    scene = Scene(torch, is_native, conf)
    all_are_covered(torch)
    for check, _ in CHECKS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            check(scene)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--native", action="store_true")
    parser.add_argument("--conf")
    arguments = parser.parse_args()
    if not arguments.native:
        import millpond.torch

        millpond.torch.enable(arguments.conf)
    import torch

    torch.cuda.init()
    main(torch, arguments.native, arguments.conf)
    print("functions: as they should be,", arguments.conf or ("native" if arguments.native else "default"))
