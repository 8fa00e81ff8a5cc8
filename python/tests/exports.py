"""Memory that goes to other drivers and other libraries, under a real torch. No kernel runs, so a simulated device will do:
scripts/torch-simulated.sh. With a GPU:

    python python/tests/exports.py [--conf policy:paged]

MILLPOND_TEST_CALLS names the library of tests/simulated/calls.cpp; without it, what it asks is left out.
"""

import argparse
import ctypes
import os
import socket
import warnings
from collections.abc import Callable

import torch

import millpond.torch

MIB = 1 << 20
# Numbers of PyTorch's TraceEntry::Action.
ALLOC, FREE, MAP, UNMAP = 3, 4, 5, 6


def raises(kind: type[Exception], part: str, call: Callable[[], object]) -> None:
    try:
        call()
    except kind as error:
        assert part in str(error), error
    else:
        raise AssertionError(f"nothing was raised: {part}")


def files() -> int:
    return len(os.listdir("/proc/self/fd"))


def is_simulated() -> bool:
    return "simulat" in torch.cuda.get_device_name().lower()


def filled(count: int) -> torch.Tensor:
    """Returns a tensor whose bytes differ from place to place."""
    tensor = torch.empty(count, dtype=torch.uint8, device="cuda")
    tensor.copy_((torch.arange(count) * 7 % 251).to(torch.uint8))
    torch.cuda.synchronize()
    return tensor


def bytes_behind(descriptor: int, offset: int, count: int) -> bytes:
    """Returns bytes of a page of the simulated driver, whose descriptors are files with the place of the page."""
    place = os.lseek(descriptor, 0, os.SEEK_CUR) & ((1 << 40) - 1)
    return os.pread(descriptor, count, place + offset)


def pages(conf: str) -> None:
    before, tensor = files(), filled(30 * MIB)
    part = tensor[1000 : 29 * MIB]
    open_before = files()
    exported = millpond.torch.export_pages(part)
    listed = exported.pages
    assert listed[0].address + exported.offset == part.data_ptr(), exported
    assert all(one.address + one.bytes == other.address for one, other in zip(listed, listed[1:])), listed
    assert listed[-1].address < part.data_ptr() + part.numel() <= listed[-1].address + listed[-1].bytes, listed
    assert len({page.descriptor for page in listed}) == len(listed)
    # Millpond keeps one for each page, and these are copies.
    assert files() == open_before + 2 * len(listed), (files(), open_before)
    if is_simulated():
        assert bytes_behind(listed[0].descriptor, exported.offset, 4) == bytes(part[:4].tolist())
        last = part.data_ptr() + part.numel() - 4 - listed[-1].address
        assert bytes_behind(listed[-1].descriptor, last, 4) == bytes(part[-4:].tolist())
    # Another process gets them through a socket.
    ours, theirs = socket.socketpair()
    socket.send_fds(ours, [b"x"], [listed[0].descriptor])
    _, came, _, _ = socket.recv_fds(theirs, 1, 1)
    assert os.path.sameopenfile(came[0], listed[0].descriptor) and len(came) == 1
    os.close(came[0])
    ours.close()
    theirs.close()
    exported.close()
    exported.close()
    assert files() == open_before + len(listed)
    # Strided views have bytes up to the end of the last element.
    with millpond.torch.export_pages(tensor[: 4 * MIB].view(2, -1)[:, ::2]) as again:
        assert again.offset + 4 * MIB - 1 <= sum(page.bytes for page in again.pages)
    del tensor, part
    torch.cuda.empty_cache()
    assert files() == before, "released pages have no files"
    print(conf, "pages", len(listed))


def segments(conf: str) -> None:
    tensor = filled(30 * MIB)
    raises(millpond.torch.Error, "is not in pages", lambda: millpond.torch.export_pages(tensor))
    print(conf, "no pages")


def dma_buffers(conf: str) -> None:
    tensor = filled(30 * MIB)
    before = files()
    for view in (tensor, tensor[12345:], tensor[3 * MIB : 3 * MIB + 1]):
        try:
            made = millpond.torch.export_dma_buf(view)
        except millpond.torch.Error as error:
            # A GPU's driver may have none, or take one page at a time.
            assert not is_simulated() and ("DMA buffer" in str(error)), error
            print(conf, "no DMA buffer:", error)
            return
        with made:
            assert (view.data_ptr() - made.offset) % 4096 == 0 and files() == before + 1
            assert made.offset + view.numel() <= made.bytes < view.numel() + (128 << 10)
    assert files() == before
    print(conf, "DMA buffers")


def refusals() -> None:
    for export in (millpond.torch.export_pages, millpond.torch.export_dma_buf):
        raises(ValueError, "0 elements on cuda:0", lambda: export(torch.empty(0, device="cuda")))
        raises(millpond.torch.Error, "3 elements on cpu", lambda: export(torch.empty(3)))


class Calls:
    """What tests/simulated/calls.cpp asks."""

    def __init__(self, path: str) -> None:
        self.library = ctypes.CDLL(path)
        self.library.calls_base.restype = ctypes.c_void_p
        self.library.calls_base.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        self.library.calls_error.restype = ctypes.c_char_p

    def base(self, tensor: torch.Tensor) -> tuple[int, int]:
        """Returns the base and the bytes of an allocation. Raises what C++ throws."""
        count = ctypes.c_size_t()
        base = self.library.calls_base(tensor.data_ptr(), ctypes.byref(count))
        if base is None:
            raise RuntimeError(self.library.calls_error().decode())
        return base, count.value

    def events(self) -> list[tuple[int, ...]]:
        """Returns the events since the last call: action, address, bytes, and both parts of the pool."""
        found, one = [], (ctypes.c_size_t * 5)()
        while self.library.calls_next(one):
            found.append(tuple(one))
        return found


def base(calls: Calls, has_pages: bool) -> None:
    tensor = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
    if has_pages:
        raises(RuntimeError, "export_pages and export_dma_buf", lambda: calls.base(tensor))
        return
    begin, size = calls.base(tensor)
    assert begin <= tensor.data_ptr() and tensor.data_ptr() + 3 * MIB <= begin + size, (begin, size)


def events(calls: Calls, has_pages: bool) -> None:
    """Events of a pool's segments name the pool, those of segments from before the tracker, too."""
    torch.cuda.empty_cache()
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        early = torch.empty(30 * MIB, dtype=torch.uint8, device="cuda")
    calls.library.calls_watch()
    assert calls.events() == []
    plain = torch.empty(40 * MIB, dtype=torch.uint8, device="cuda")
    with torch.cuda.use_mem_pool(pool):
        late = torch.empty(50 * MIB, dtype=torch.uint8, device="cuda")
    of, kinds = tuple(pool.id), (MAP,) if has_pages else (ALLOC,)
    came = calls.events()
    assert {event[0] for event in came} == set(kinds), came
    # Of expandable segments some memory was left.
    assert sum(event[2] for event in came if event[3:] == (0, 0)) >= 20 * MIB, came
    assert sum(event[2] for event in came if event[3:] == of) >= 30 * MIB, came
    addresses = {early.data_ptr(), late.data_ptr()}
    del early, late, plain, pool
    torch.cuda.empty_cache()
    went = calls.events()
    if has_pages:
        assert {event[0] for event in went} == {UNMAP}, went
    else:
        assert {event[1] for event in went if event[0] == FREE and event[3:] == of} == addresses, (went, addresses)
        assert [event[2] for event in went if event[3:] == (0, 0)] == [40 * MIB], went
    print("events", len(came), len(went))


def enable(conf: str, has_pages: bool) -> None:
    """Enables Millpond in an environment that has PyTorch register all memory with NCCL, which pages do not take."""
    hook, other = "TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK", "NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK"
    os.environ.update({hook: "True", other: "0"})
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        millpond.torch.enable(conf)
    texts = [str(warning.message) for warning in said if "_ALLOCATOR_HOOK" in str(warning.message)]
    assert len(texts) == has_pages and all("register_mem_pool" in text for text in texts), texts
    get = ctypes.CDLL(None).getenv
    get.restype = ctypes.c_char_p
    assert get(hook.encode()) == (b"0" if has_pages else b"True"), "C++ asks the environment of C"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conf", default="policy:paged")
    conf: str = parser.parse_args().conf
    has_pages = "paged" in conf or "expandable_segments:True" in conf
    enable(conf, has_pages)
    torch.empty(1, device="cuda")
    (pages if has_pages else segments)(conf)
    dma_buffers(conf)
    refusals()
    path = os.environ.get("MILLPOND_TEST_CALLS")
    if path:
        calls = Calls(path)
        base(calls, has_pages)
        if "direct" not in conf:
            events(calls, has_pages)
    print("as they should be")


if __name__ == "__main__":
    main()
