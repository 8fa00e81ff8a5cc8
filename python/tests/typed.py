"""A program that uses every function of the package, for mypy --strict: each call has types, and wrong ones are noticed.
It is never run. scripts/python.sh checks it against the installed package."""

import pathlib
from typing import Any

import millpond
import millpond.cupy
import millpond.rmm
import millpond.torch
import millpond.vllm


def statistics(device: int) -> dict[str, int]:
    found: dict[str, int] = millpond.torch.stats()
    for other in (millpond.torch.stats(device), millpond.torch.stats("cuda:1"), millpond.torch.stats(device=None)):
        found.update(other)
    for other in (millpond.cupy.stats(device), millpond.rmm.stats(device)):
        found.update(other)
    return found


def peaks() -> int:
    with millpond.torch.peak(device="cuda:0") as part:
        found: dict[str, int] = part.stats()
    released: int = millpond.torch.poll() + millpond.torch.poll("cuda:1")
    return released + part.allocated_bytes + part.active_bytes + part.requested_bytes + part.reserved_bytes + found["num_ooms"]


def texts() -> list[str]:
    version: str = millpond.__version__
    return [
        version, millpond.version(), millpond.torch.conf(), millpond.torch.memory_summary("cuda", abbreviated=True),
        millpond.cupy.memory_summary(), millpond.rmm.memory_summary(0, True),
    ]


def recordings(path: pathlib.Path) -> pathlib.Path:
    with millpond.torch.record(path, workload="mine", batch=7) as recording:
        pass
    recording = millpond.torch.record(b"program.trace.zst", "cuda:0").start()
    try:
        recording.stop()
    except millpond.torch.Error:
        recording.stop(path)
    return millpond.torch.report("program.trace.zst", options=["--passes", "1"])


def short_of_memory() -> list[int]:
    def spill(shortage: millpond.torch.Shortage) -> bool:
        return shortage.short_bytes > 0 and shortage.limit_bytes is not None and "memory" in shortage.text

    hook: millpond.torch.Hook = millpond.torch.on_out_of_memory(spill)
    hook.remove()
    with millpond.torch.on_out_of_memory(lambda shortage: False, device="cuda:1"):
        fit: millpond.torch.Fit = millpond.torch.would_fit(1 << 20, 0)
    return [fit.short_bytes, fit.reserves_bytes, fit.releases_bytes, int(fit.fits), len(fit.served_by)]


def exports(tensor: Any) -> list[int]:
    with millpond.torch.export_pages(tensor) as exported:
        pages: tuple[millpond.torch.Page, ...] = exported.pages
        found = [exported.offset, *(page.descriptor + page.address + page.bytes for page in pages)]
    made: millpond.torch.DmaBuf = millpond.torch.export_dma_buf(tensor)
    found += [made.descriptor, made.fileno(), made.offset, made.bytes]
    made.close()
    return found


def switches() -> list[bool]:
    millpond.torch.enable("policy:classic")
    millpond.torch.enable(conf=None)
    millpond.cupy.enable()
    millpond.rmm.enable("policy:paged", devices=[0, 1])
    millpond.cupy.set_limit(1 << 30)
    millpond.rmm.set_limit(None, device=1)
    reserved: int = millpond.cupy.trim(0) + millpond.rmm.trim(0, device=1)
    millpond.cupy.empty_cache()
    millpond.rmm.empty_cache()
    millpond.cupy.disable()
    millpond.rmm.disable()
    return [millpond.torch.is_enabled(), millpond.cupy.is_enabled(), millpond.rmm.is_enabled(1), reserved == 0]


def saving() -> bool:
    from millpond.torch_memory_saver import configure_subprocess, torch_memory_saver

    torch_memory_saver.hook_mode = "torch"
    with configure_subprocess(), torch_memory_saver.region("kv", enable_cpu_backup=True, cpu_backup_backend="pinned"):
        torch_memory_saver.pause("kv")
    with torch_memory_saver.disable():
        torch_memory_saver.resume()
    return torch_memory_saver.enabled


def sleeping() -> int:
    kv: millpond.torch.Group = millpond.torch.group("kv")
    with kv as entered, millpond.torch.group("weights"):
        name: str = entered.name
    millpond.torch.pause(kv)
    millpond.torch.pause(name, keep="discard")
    info: millpond.torch.Info = kv.info("cuda:0")
    millpond.torch.resume("kv")
    worker = millpond.vllm.CuMemAllocator.get_instance()
    with worker.use_memory_pool(tag="weights"):
        worker.sleep(offload_tags=("weights",))
    worker.wake_up(["weights"])
    return info.paused_bytes + info.host_bytes + worker.get_current_usage() + int(info.is_paused)


def mistakes() -> None:
    # Each is one for mypy: where it is not noticed, the comment is.
    millpond.torch.enable(7)  # type: ignore[arg-type]
    millpond.torch.record(7)  # type: ignore[arg-type]
    millpond.cupy.trim("all")  # type: ignore[arg-type]
    millpond.rmm.enable(devices=0)  # type: ignore[arg-type]
    text: str = millpond.torch.snapshot()  # type: ignore[assignment]
    millpond.torch.group(7)  # type: ignore[arg-type]
    millpond.torch.pause("kv", keep="disk")  # type: ignore[arg-type]
    millpond.torch.disable()
    print(text)
