"""Allocations, frees and limits."""

import torch

from gpu.common import ARGUMENTS, MIB, expect, feature, tidy


@feature
def allocate_and_free() -> None:
    before = torch.cuda.memory_allocated()
    held = [torch.full((n,), float(n), device="cuda") for n in (1, 127, 129, 5000, 1 << 20, 7 << 20, 40 << 20)]
    for x in held:
        expect(float(x[0]) == x.numel() and float(x[-1]) == x.numel(), x.numel())
    grown = torch.cuda.memory_allocated() - before
    expect(grown >= sum(4 * x.numel() for x in held), grown)
    del held, x
    expect(torch.cuda.memory_allocated() == before, "after del", torch.cuda.memory_allocated() - before)


@feature
def nothing_and_views() -> None:
    empty = torch.empty(0, device="cuda")
    expect(empty.data_ptr() == 0 and empty.device.type == "cuda")
    x = torch.arange(1000, device="cuda")
    y = x[100:200].clone()
    x.resize_(5000)
    x.untyped_storage().resize_(0)
    expect(int(y.sum()) == sum(range(100, 200)))


@feature
def raw_functions() -> None:
    before = torch.cuda.memory_allocated()
    a = torch.cuda.caching_allocator_alloc(3 * MIB)
    stream = torch.cuda.Stream()
    b = torch.cuda.caching_allocator_alloc(1000, stream=stream)
    expect(a != 0 and b != 0 and torch.cuda.memory_allocated() > before)
    torch.cuda.caching_allocator_delete(a)
    torch.cuda.caching_allocator_delete(b)
    expect(torch.cuda.memory_allocated() == before)


@feature
def freed_twice() -> str:
    a = torch.cuda.caching_allocator_alloc(MIB)
    torch.cuda.caching_allocator_delete(a)
    try:
        torch.cuda.caching_allocator_delete(a)
    except RuntimeError as error:
        return str(error).splitlines()[0][:90]
    raise AssertionError("no error")


@feature
def empty_cache() -> None:
    x = torch.empty(300 * MIB, dtype=torch.uint8, device="cuda")
    reserved = torch.cuda.memory_reserved()
    del x
    expect(torch.cuda.memory_reserved() == reserved, "the cache keeps it")
    tidy()
    expect(torch.cuda.memory_reserved() <= reserved - 290 * MIB, torch.cuda.memory_reserved(), reserved)


@feature
def lazy_clone() -> None:
    x = torch.arange(1000, device="cuda")
    y = torch._lazy_clone(x)
    y += 1
    expect(int(x.sum()) + 1000 == int(y.sum()))


@feature
def uncached() -> None:
    with torch.cuda.memory.caching_allocator_disabled() if hasattr(torch.cuda.memory, "caching_allocator_disabled") \
            else _disabled():
        before = torch.cuda.memory_allocated()
        x = torch.ones(1000, device="cuda")
        raw = torch._C._cuda_cudaCachingAllocator_raw_alloc(MIB, 0)
        expect(torch.cuda.memory_allocated() == before)
    expect(float(x.sum()) == 1000)
    del x
    # PyTorch's own allocator does not know it, and cannot give it back.
    if not ARGUMENTS.native:
        torch._C._cuda_cudaCachingAllocator_raw_delete(raw)
    expect(torch.cuda.memory_allocated() == before, torch.cuda.memory_allocated(), before)


class _disabled:
    def __enter__(self) -> None:
        torch._C._cuda_cudaCachingAllocator_enable(False)

    def __exit__(self, *_: object) -> None:
        torch._C._cuda_cudaCachingAllocator_enable(True)


@feature
def out_of_memory() -> str:
    tidy()
    before = torch.cuda.memory_stats()["num_ooms"]
    seen = []
    torch._C._cuda_attach_out_of_memory_observer(lambda *numbers: seen.append(numbers))
    try:
        torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        text = str(error)
    expect(text.startswith("CUDA out of memory. Tried to allocate"), text)
    expect("has a total capacity of" in text and "is reserved by PyTorch but unallocated." in text)
    expect(ARGUMENTS.native or "What to do:" in text, text)
    expect(torch.cuda.memory_stats()["num_ooms"] == before + 1 and len(seen) == 1, seen)
    expect(float(torch.ones(10, device="cuda").sum()) == 10, "it goes on")
    return text.splitlines()[0][:70]


@feature
def too_large() -> None:
    try:
        torch.cuda.caching_allocator_alloc(1 << 60)
    except torch.OutOfMemoryError as error:
        expect("more than 1EB" in str(error), error)
        return
    raise AssertionError("no error")


@feature
def memory_fraction() -> None:
    tidy()
    total = torch.cuda.mem_get_info()[1]
    share = (torch.cuda.memory_reserved() + 512 * MIB) / total
    torch.cuda.set_per_process_memory_fraction(share)
    try:
        expect(abs(torch.cuda.get_per_process_memory_fraction() - share) < 1e-9)
        x = torch.empty(300 * MIB, dtype=torch.uint8, device="cuda")
        try:
            torch.empty(300 * MIB, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError as error:
            expect("allowed" in str(error), error)
        else:
            raise AssertionError("the limit was passed")
        del x
        # The cache is given back, or used again, for what fits.
        y = torch.empty(400 * MIB, dtype=torch.uint8, device="cuda")
        del y
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
