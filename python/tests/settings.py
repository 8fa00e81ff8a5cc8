"""PyTorch's functions that change allocator settings, on Millpond under a real torch: each key acts, or is named once in a
warning, and leaves the others alone. No kernel runs, so a simulated device will do. With a GPU:

    python python/tests/settings.py [--conf policy:classic]

Needs a C compiler for a pool with an allocator of its own.
"""

import argparse
import gc
import re
import tempfile
import warnings
from types import ModuleType
from typing import Any

import sources

MIB = 1 << 20


class Settings:
    """Both functions of PyTorch, in turn."""

    def __init__(self, torch: ModuleType) -> None:
        self.torch = torch
        self.calls = 0

    def set(self, text: str) -> list[str]:
        """Changes settings. Returns what Millpond has warned of meanwhile."""
        self.calls += 1
        old, new = self.torch.cuda.memory._set_allocator_settings, self.torch._C._accelerator_setAllocatorSettings
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            (old if self.calls % 2 else new)(text)
        return [str(warning.message) for warning in caught if "millpond" in str(warning.message)]

    def refuse(self, text: str, *words: str) -> None:
        import millpond.torch

        before = millpond.torch.conf()
        for _ in range(2):
            try:
                self.set(text)
            except (RuntimeError, ValueError) as error:
                assert all(word in str(error) for word in words), (text, error)
            else:
                raise AssertionError(f"there is no error: {text}")
        assert millpond.torch.conf() == before, (text, before, millpond.torch.conf())


def pairs() -> dict[str, str]:
    """Returns the settings that differ from the defaults."""
    import millpond.torch

    return dict(pair.split(":", 1) for pair in millpond.torch.conf().split(",") if pair)


def rounded(torch: ModuleType, size: int) -> int:
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    tensor = torch.empty(size, dtype=torch.uint8, device="cuda")
    bytes = torch.cuda.memory_allocated() - before
    del tensor
    return int(bytes)


def out_of_memory(torch: ModuleType, size: int) -> str:
    """Returns the error of a request."""
    try:
        torch.empty(size, dtype=torch.uint8, device="cuda")
    except torch.cuda.OutOfMemoryError as error:
        return str(error)
    raise AssertionError(f"there is no error for {size} bytes")


def each_key_acts(torch: ModuleType, settings: Settings) -> None:
    """Each is changed alone, and the others stay."""
    expected = pairs()
    for key, value in (
        ("roundup_power2_divisions", "4"),
        ("max_split_size_mb", "64"),
        ("large_segment_size_mb", "32"),
        ("max_non_split_rounding_mb", "48"),
        ("garbage_collection_threshold", "0.75"),
        ("per_process_memory_fraction", "0.5"),
        ("throw_on_cudamalloc_oom", "True"),
        ("release_idle_after", "300s"),
        ("keep_idle_mb", "3"),
        ("release_idle_in_background", "True"),
        ("record_stream", "hold"),
    ):
        assert settings.set(f"{key}:{value}") == [], key
        expected[key] = value
        assert pairs() == expected, (key, expected, pairs())
    assert rounded(torch, 5000) == 5120 and rounded(torch, 34 * MIB) == 40 * MIB

    assert torch.cuda.get_per_process_memory_fraction() == 0.5
    capacity = re.search(r"The GPU has ([\d.]+) GiB", out_of_memory(torch, 1 << 50))
    most = int(float(capacity.group(1)) * 0.6 * 1024) * MIB if capacity else 0
    said = out_of_memory(torch, most)
    assert "preemptively rejected" in said, said
    # White space, several keys and a list, as PyTorch takes them.
    assert settings.set(" roundup_power2_divisions : [64:1, >:1] ,throw_on_cudamalloc_oom:False") == []
    assert settings.set("per_process_memory_fraction:1,release_idle_after:off,keep_idle_mb:0") == []
    assert rounded(torch, 5000) == 5120 and rounded(torch, 34 * MIB) == 34 * MIB
    assert torch.cuda.get_per_process_memory_fraction() == 1
    torch.empty(most, dtype=torch.uint8, device="cuda")


def what_does_not_act_is_named_once(settings: Settings, conf: str) -> None:
    before = pairs()
    is_classic, is_expandable = "classic" in conf, "expandable" in conf
    for text, key, is_named in (
        ("expandable_segments:True", "expandable_segments", is_classic and not is_expandable),
        ("expandable_segments:False", "expandable_segments", is_expandable),
        ("policy:direct", "policy", "direct" not in conf),
        ("scrub:always", "scrub", True),
        ("graph_capture_record_stream_reuse:False", "graph_capture_record_stream_reuse", False),
        ("graph_capture_record_stream_reuse:True", "graph_capture_record_stream_reuse", True),
        ("release_lock_on_cudamalloc:True", "release_lock_on_cudamalloc", False),
        ("pinned_use_background_threads:True", "pinned_use_background_threads", False),
        ("pinned_num_register_threads:2", "pinned_num_register_threads", False),
        ("backend:native", "backend", False),
        ("expandable_segments_reserve:0.5", "expandable_segments_reserve", True),
        ("expandable_segments_reserve_by_class:[a:0.5,b:8G]", "expandable_segments_reserve_by_class", True),
    ):
        said = settings.set(text)
        assert len(said) == is_named and all(f"setting {key} has no effect" in line for line in said), (text, said)
        if key in ("expandable_segments", "policy", "scrub"):
            assert all("Set it at the start" in line and "millpond.torch.enable()" in line for line in said), said
        assert settings.set(text) == [], f"{text} is named once"
    assert pairs() == before, (before, pairs())


def mistakes_change_nothing(settings: Settings) -> None:
    settings.refuse("roundup_power2_divisions:8,expandable_segments:true", "True")
    settings.refuse("keep_idle_mb:9,slack:-1", "slack")
    settings.refuse("roundup_power2_divisions:8,max_split_size_mb:", "")
    settings.refuse("no_such_key:1", "no_such_key")
    settings.refuse("keep_idle_mb:9,backend:cudaMallocAsync", "cudaMallocAsync")


def as_vllm_does(torch: ModuleType, settings: Settings) -> None:
    """vLLM turns expandable segments off before its pool of its own allocator, and on behind it."""
    settings.set("roundup_power2_divisions:8,max_split_size_mb:100")
    before, size = pairs(), rounded(torch, 4097)
    with tempfile.TemporaryDirectory() as folder:
        scene = sources.Scene(torch, sources.build(folder))
        scene.begin()
        settings.set("expandable_segments:False")
        allocator: Any = torch.cuda.memory.CUDAPluggableAllocator(str(scene.path), "pool_alloc", "pool_free")
        pool: Any = torch.cuda.memory.MemPool(allocator._allocator)
        with torch.cuda.memory.use_mem_pool(pool):
            inside = [torch.empty(n * MIB, dtype=torch.uint8, device="cuda") for n in (3, 30)]
        segments = pool.snapshot()
        assert len(segments) == 2 and not any(segment["is_expandable"] for segment in segments), segments
        scene.expect_asked(2, 0, sum(segment["total_size"] for segment in segments))
        outside = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
        settings.set("expandable_segments:True")
        assert not sources.lies_in(segments, outside)
        assert pairs() == before and rounded(torch, 4097) == size == 4608, (before, pairs(), size)
        del inside, outside, pool
        gc.collect()
        torch.cuda.empty_cache()
        scene.expect_asked(2, 2, 0)


def main(torch: ModuleType, conf: str) -> None:
    settings = Settings(torch)
    # While no device is in use the whole configuration may change.
    assert settings.set("expandable_segments:True,roundup_power2_divisions:16") == []
    assert pairs()["expandable_segments"] == "True" and pairs()["roundup_power2_divisions"] == "16"
    back = "True" if "expandable" in conf else "False"
    assert settings.set(f"expandable_segments:{back}") == []
    torch.empty(1, device="cuda")
    each_key_acts(torch, settings)
    what_does_not_act_is_named_once(settings, conf)
    mistakes_change_nothing(settings)
    as_vllm_does(torch, settings)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conf", default="")
    arguments = parser.parse_args()
    import torch

    import millpond.torch

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        given = "graph_capture_record_stream_reuse:True,pinned_use_cuda_host_register:True,pinned_free_catch_all:True"
        millpond.torch.enable(",".join(filter(None, [arguments.conf, given])))
    said = [str(warning.message) for warning in caught if "millpond" in str(warning.message)]
    assert "graph_capture_record_stream_reuse" in said[0], said
    # PyTorch has the last of these keys since 2.12.
    is_known = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 12)
    assert len(said) == 1 + (not is_known) and (is_known or "pinned_free_catch_all" in said[1]), said
    main(torch, arguments.conf)
    print("settings: as they should be,", arguments.conf or "default")
