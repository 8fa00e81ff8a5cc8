"""Statistics, snapshots, the history, and the tools that are told of memory."""

import pickle
import random
import tempfile

import torch

from gpu.common import ARGUMENTS, MIB, expect, feature, tidy


@feature
def memory_stats() -> str:
    tidy()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.reset_accumulated_memory_stats()
    before = torch.cuda.memory_stats()
    expect(len(before) >= 122, len(before))
    x, y = torch.empty(1000, device="cuda"), torch.empty(5 * MIB, device="cuda")
    after = torch.cuda.memory_stats()
    rise = {key: after[key] - before[key] for key in before}
    expect(rise["allocation.all.current"] == 2 and rise["allocation.small_pool.current"] == 1)
    expect(rise["allocated_bytes.small_pool.current"] == 4096, rise["allocated_bytes.small_pool.current"])
    expect(rise["requested_bytes.all.current"] == 4000 + 20 * MIB, rise["requested_bytes.all.current"])
    del x, y
    end = torch.cuda.memory_stats()
    expect(end["allocated_bytes.all.peak"] == after["allocated_bytes.all.current"])
    expect(end["allocated_bytes.all.freed"] == rise["allocated_bytes.all.current"])
    torch.cuda.reset_peak_memory_stats()
    expect(torch.cuda.max_memory_allocated() == torch.cuda.memory_allocated())
    expect(torch.accelerator.memory_allocated() == torch.cuda.memory_allocated())
    expect(torch.accelerator.memory_reserved() == torch.cuda.memory_reserved())
    return f"{len(before)} keys"


@feature
def summaries() -> None:
    for text in (torch.cuda.memory_summary(), torch.cuda.memory_summary(abbreviated=True)):
        expect("Allocated memory" in text and "GPU reserved memory" in text)
    free, total = torch.cuda.mem_get_info()
    expect(0 < free <= total)
    if not ARGUMENTS.native:
        import millpond.torch

        expect("Millpond memory summary" in millpond.torch.memory_summary())
        expect(millpond.torch.stats()["allocated_bytes.all.current"] == torch.cuda.memory_allocated())


@feature
def snapshot_agrees_with_statistics() -> str:
    tidy()
    held = [torch.empty(random.randrange(1, 6 * MIB), dtype=torch.uint8, device="cuda") for _ in range(60)]
    del held[::2]
    stats = torch.cuda.memory_stats()
    segments = torch.cuda.memory_snapshot()
    sums = {"allocated": 0, "active": 0, "reserved": 0, "requested": 0}
    for segment in segments:
        expect(sum(block["size"] for block in segment["blocks"]) == segment["total_size"], "blocks tile", segment)
        sums["reserved"] += segment["total_size"]
        sums["allocated"] += segment["allocated_size"]
        sums["active"] += segment["active_size"]
        sums["requested"] += segment["requested_size"]
    for name, value in sums.items():
        expect(value == stats[f"{name}_bytes.all.current"], name, value, stats[f"{name}_bytes.all.current"])
    return f"{len(segments)} segments"


@feature
def history() -> None:
    torch.cuda.memory._record_memory_history(stacks="python")
    try:
        x = torch.empty(3 * MIB, device="cuda")
        address = x.data_ptr()
        del x
        tidy()
        y = torch.empty(77, device="cuda")
        taken = torch.cuda.memory._snapshot()
        trace = taken["device_traces"][0]
        found = [entry["action"] for entry in trace if entry.get("addr") == address]
        expect(found[:3] == ["alloc", "free_requested", "free_completed"] or "alloc" in found, found)
        entry = next(entry for entry in trace if entry["action"] == "alloc" and entry["addr"] == address)
        expect(entry["size"] == 12 * MIB, entry["size"])
        expect(any("gpu/statistics" in frame["filename"] for frame in entry["frames"]), entry["frames"][:2])
        expect({e["action"] for e in trace} & {"segment_alloc", "segment_map", "segment_free", "segment_unmap"})
        live = [b for s in taken["segments"] for b in s["blocks"] if b["address"] == y.data_ptr()]
        expect(live and live[0]["frames"], "frames of a live block")
        with tempfile.NamedTemporaryFile(suffix=".pickle") as file:
            torch.cuda.memory._dump_snapshot(file.name)
            expect(pickle.load(open(file.name, "rb"))["segments"])
        from torch.cuda import _memory_viz

        expect("<" in _memory_viz.trace_plot(taken) and "<" in _memory_viz.segment_plot(taken))
    finally:
        torch.cuda.memory._record_memory_history(None)
    expect(not torch.cuda.memory._snapshot()["device_traces"][0])


@feature
def profiler_memory() -> None:
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], profile_memory=True) as taken:
        x = torch.empty(MIB, device="cuda")
        del x
    sizes = [getattr(e, "self_device_memory_usage", 0) for e in taken.events() if e.name == "aten::empty"]
    expect(4 * MIB in sizes, sizes)


@feature
def gpu_trace_hooks() -> None:
    import torch.cuda._gpu_trace as hooks

    seen = []
    hooks.register_callback_for_memory_allocation(lambda address: seen.append(("alloc", address)))
    hooks.register_callback_for_memory_deallocation(lambda address: seen.append(("free", address)))
    torch._C._activate_gpu_trace()
    x = torch.empty(1000, device="cuda")
    address = x.data_ptr()
    del x
    expect(("alloc", address) in seen and ("free", address) in seen, seen[:4])
