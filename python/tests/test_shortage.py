"""Hooks that run before a request is refused, and forecasts, with a stand-in for torch, on simulated devices.
scripts/python.sh runs it."""

import pathlib
import re
import unittest

import stand_ins
from millpond import _shortage
from stand_ins import TORCH

# What the shim does for PyTorch, and a limit of 64 MiB on device 0.
PROGRAM = """
import ctypes, sys, threading, torch, millpond.torch as pond
from millpond import _library
pond.enable("policy:paged")
class Block(ctypes.Structure):
    _fields_ = [("address", ctypes.c_void_p), ("context", ctypes.c_void_p)]
def entry(name, result, *arguments):
    return ctypes.CFUNCTYPE(result, *arguments)(getattr(_library._table(), name))
entry_alloc = entry("alloc", Block, ctypes.c_int32, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p)
entry_free = entry("free", ctypes.c_int32, ctypes.c_void_p)
entry_limits = entry("limits", ctypes.c_int32, ctypes.c_int32, ctypes.c_void_p)
set_fraction = entry("set_fraction", ctypes.c_int32, ctypes.c_int32, ctypes.c_double)
MIB = 1 << 20
def alloc(mib, device=0):
    block = entry_alloc(device, None, mib * MIB, None)
    return block.context if block.address else None
def free(block): assert entry_free(block) == 0
limits = (ctypes.c_uint64 * 5)()
assert entry_limits(0, limits) == 0
assert set_fraction(0, 64.5 * MIB / limits[0]) == 0
"""


def run(code: str) -> str:
    """Runs code behind the program above. Returns its output."""
    environment = {"MILLPOND_TORCH_DEVICE": "sim"}
    return stand_ins.run(PROGRAM + code, {"torch.py": TORCH}, environment, needs_shim=True)


class Hooks(unittest.TestCase):
    def test_what_a_hook_frees_serves_the_request(self) -> None:
        self.assertEqual(run("""
cache = [alloc(20), alloc(20), alloc(20)]
seen = []
def spill(shortage):
    seen.append(shortage)
    if cache: free(cache.pop()); return True
hook = pond.on_out_of_memory(spill)
assert alloc(40), "two of the cache made room"
first, second = seen
assert (first.attempt, second.attempt, first.device, first.rejected) == (1, 2, 0, False)
assert first.requested_bytes == 40 * MIB and first.limit_bytes // MIB == 64 and first.short_bytes > 0
assert first.total_bytes > first.reserved_bytes >= first.allocated_bytes == 60 * MIB
assert "out of memory" in first.text and "What to do" in first.text
assert alloc(40) is None and alloc(40) is None, "the cache is empty soon"
print(len(cache), len(seen), pond.stats()["num_ooms"])
hook.remove()
hook.remove()
assert alloc(40) is None
print(len(seen))
"""), "0 5 2\n5\n")

    def test_a_hook_is_called_from_threads_that_do_not_have_the_gil(self) -> None:
        self.assertEqual(run("""
held = [alloc(30), alloc(30)]
threads = []
def spill(shortage):
    threads.append(threading.current_thread().name)
    if held: free(held.pop()); return True
with pond.on_out_of_memory(spill):
    # ctypes gives the GIL up during the call, as PyTorch does in its backward pass.
    workers = [threading.Thread(target=alloc, args=(40,), name=f"worker {number}") for number in range(2)]
    for worker in workers: worker.start()
    for worker in workers: worker.join(60)
print(not any(worker.is_alive() for worker in workers), set(threads) <= {"worker 0", "worker 1"}, len(held))
calls = len(threads)
alloc(60)
print(len(threads) == calls, "the hook has ended with its block")
"""), "True True 0\nTrue the hook has ended with its block\n")

    def test_the_cache_serves_a_hook_and_nothing_else_does(self) -> None:
        said = run("""
live = alloc(40)
def ask(shortage):
    print(alloc(30), _library._table().last_error().decode()[:32])
    raise KeyError("a mistake of the program")
pond.on_out_of_memory(ask)
print(alloc(50), "refused")
""")
        self.assertEqual(said, "None a hook that runs because the all\nNone refused\n")

    def test_what_ended_is_not_kept(self) -> None:
        self.assertEqual(run("""
import gc, weakref
from millpond import _shortage
class Cache:
    def spill(self, shortage): return False
cache = Cache()
gone = weakref.ref(cache)
hook = pond.on_out_of_memory(cache.spill)
del cache
gc.collect()
assert gone() is not None and len(_shortage._held) == 1, "a hook stays until it is removed"
hook.remove()
del hook
gc.collect()
print(gone(), len(_shortage._held))
for wrong in (9, "cpu", None):
    try: pond.on_out_of_memory(print, wrong)
    except pond.Error: print("no device", len(_shortage._held))
    else: print(len(_shortage._held))
"""), "None 0\nno device 0\nno device 0\n1\n")


class Forecasts(unittest.TestCase):
    def test_a_request_is_served_if_it_fits(self) -> None:
        self.assertEqual(run("""
fit = pond.would_fit(40 * MIB)
print(fit.fits, fit.served_by, fit.reserves_bytes // MIB, fit.bound)
live = alloc(40)
fit = pond.would_fit(40 * MIB, "cuda:0")
print(fit.fits, fit.served_by, fit.bound, fit.bound_bytes // MIB, fit.short_bytes > 0)
assert alloc(40) is None
free(live)
print(pond.would_fit(40 * MIB).served_by, pond.would_fit(40 * MIB, 1).served_by)
try: pond.would_fit(1 << 60)
except pond.Error as error: print("2^60" in str(error))
"""), "True new 40 None\nFalse nothing limit 64 True\ncached new\nTrue\n")


class Header(unittest.TestCase):
    def test_python_knows_the_types_as_the_header_has_them(self) -> None:
        header = pathlib.Path(_shortage.__file__).parent / "shim" / "millpond.h"
        text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.DOTALL)
        for name, known in (("shortage", _shortage.CShortage), ("hook", _shortage.CHook), ("fit", _shortage.CFit)):
            body = text.split(f"typedef struct millpond_{name} {{")[1].split("}")[0]
            fields = re.findall(r"(?:\(\*(\w+)\)\([^)]*\)|(\w+));", body)
            self.assertEqual([a or b for a, b in fields], [field[0] for field in known._fields_], name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
