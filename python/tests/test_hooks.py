"""CuPy and RMM on Millpond, with stand-ins for both and a simulated driver. scripts/python.sh runs it."""

import unittest

import stand_ins
from stand_ins import CUPY, DRIVER, RMM, RMM_MR, TORCH

MODULES = {"cupy.py": CUPY, "rmm/__init__.py": RMM, "rmm/mr.py": RMM_MR}


def run(code: str, environment: dict[str, str] | None = None) -> str:
    """Runs code on the simulated driver. Returns its output."""
    return stand_ins.run(DRIVER + code, MODULES, {"LD_PRELOAD": stand_ins.driver() or "", **(environment or {})})


def run_with_torch(code: str) -> str:
    """Runs code on the simulated driver, with a stand-in for torch, too. Returns its output."""
    environment = {"LD_PRELOAD": stand_ins.driver() or ""}
    return stand_ins.run(DRIVER + code, {**MODULES, "torch.py": TORCH}, environment, needs_shim=True)


class Refusals(unittest.TestCase):
    def test_without_the_package_there_is_nothing_to_serve(self) -> None:
        for name, shown, call in (("cupy", "CuPy", "enable()"), ("rmm", "RMM", "enable(devices=(0,))")):
            code = f"import millpond.{name} as hook\ntry: hook.enable()\nexcept hook.Error as error: print(error)\n" \
                   "try: hook.stats()\nexcept hook.Error as error: print(error)"
            said = stand_ins.run(code, {f"{name}.py": "raise ImportError('not here')"})
            self.assertIn(f"there is no {shown} to serve: not here", said)
            self.assertIn(f"call millpond.{name}.{call} first", said)

    def test_a_machine_without_a_gpu_and_a_mistake_in_the_configuration_are_named(self) -> None:
        code = "import cupy, millpond.cupy as hook\ntry: hook.enable({})\nexcept hook.Error as error: print(error)\n" \
               "hook.enable()\ntry: cupy.array(8)\nexcept hook.Error as error: print(error)"
        said = stand_ins.run(code.format("'policy:best'"), MODULES, {"CUDA_VISIBLE_DEVICES": ""}).splitlines()
        self.assertEqual(len(said), 2, said)
        self.assertIn("`best`", said[0])

    def test_python_knows_the_functions_as_the_header_has_them(self) -> None:
        import pathlib
        import re

        from millpond import _pond

        header = pathlib.Path(_pond.__file__).parent / "shim" / "millpond.h"
        text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.DOTALL)
        for name, arguments in _pond.FUNCTIONS.items():
            found = re.search(rf"millpond_status millpond_{name}\(([^)]*)\);", text)
            self.assertEqual(len(found.group(1).split(",")) if found else None, len(arguments), name)


@unittest.skipUnless(stand_ins.driver(), "MILLPOND_TEST_DRIVER does not name the simulated driver")
class Simulated(unittest.TestCase):
    def test_arrays_of_cupy_live_in_millpond_until_they_are_gone(self) -> None:
        self.assertEqual(run("""
import cupy, millpond.cupy as hook
before = cupy.cuda.get_allocator()
hook.enable("policy:classic")
hook.enable()
array = cupy.array(1000)
empty = cupy.array(0)
assert array.data.ptr % 512 == 0 and empty.data.ptr == 0 and array.data.mem.size == 1000
stats = hook.stats()
assert stats["allocated_bytes.all.current"] == 1024 and stats["reserved_bytes.all.current"] == 2 << 20, stats
assert "reserved" in hook.memory_summary(abbreviated=True).lower()
first = array.data.ptr
del array, empty
assert hook.stats()["allocated_bytes.all.current"] == 0
array = cupy.array(512)
assert array.data.ptr == first, "memory is granted again on its stream"
hook.disable()
assert cupy.cuda.get_allocator() is before and not hook.is_enabled()
del array
hook.enable()
assert hook.trim(0) == 0
try: hook.enable("policy:paged")
except hook.Error as error: print(error)
"""), "millpond: enabled already, with another configuration: 'policy:classic'\n")

    def test_an_array_belongs_to_the_current_stream_and_uses_on_others_are_waited_for(self) -> None:
        self.assertEqual(run("""
import cupy, millpond.cupy as hook
hook.enable("policy:classic")
one, two = cupy._Stream(new_stream()), cupy._Stream(new_stream())
cupy.cuda.current = one
array = cupy.array(4096)
address = array.data.ptr
del array
cupy.cuda.current = two
other = cupy.array(4096)
assert other.data.ptr != address, "memory of one stream is not that of another"
cupy.cuda.current = one
array = cupy.array(4096)
assert array.data.ptr == address
hook.record_stream(array, two)
# Work that the second stream cannot begin: the memory stays taken until it is over.
event, flag = ctypes.c_void_p(), ctypes.c_int32(0)
CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
import threading
gate = threading.Event()
wait = CALLBACK(lambda _: gate.wait(20))
check(driver.cuLaunchHostFunc(ctypes.c_void_p(two.ptr), wait, None))
del array
assert cupy.array(4096).data.ptr != address, "the memory is used on the second stream still"
gate.set()
check(driver.cuCtxSynchronize())
hook.empty_cache()
assert hook.stats()["active_bytes.all.current"] == 4096
hook.release_stream(one)
try: hook.release_stream(one)
except hook.Error as error: print("Error" if str(error).startswith("millpond: ") else error)
"""), "Error\n")

    def test_streams_may_be_destroyed_without_a_word(self) -> None:
        # The simulated driver uses handles again at once, and loses the device where it is asked about a stream that is
        # gone.
        self.assertEqual(run("""
import cupy, rmm, rmm.mr, millpond.cupy, millpond.rmm
millpond.cupy.enable("policy:classic")
millpond.rmm.enable()
def destroy(handle): check(driver.cuStreamDestroy_v2(ctypes.c_void_p(handle)))
class Stream(cupy._Stream):
    def __del__(self): destroy(self.ptr)
mine = rmm.mr.get_per_device_resource(0)
for turn in range(50):
    cupy.cuda.current = Stream(new_stream())
    array = cupy.array((turn + 5) << 20)
    # From now on the stream lives for the array alone.
    cupy.cuda.current = cupy._Stream(0)
    handle = new_stream()
    address = mine.allocate((turn + 3) << 20, rmm.Stream(handle))
    del array
    mine.deallocate(address, (turn + 3) << 20, rmm.Stream(handle))
    destroy(handle)
millpond.cupy.empty_cache()
print(millpond.cupy.stats()["allocated_bytes.all.current"], millpond.cupy.stats()["reserved_bytes.all.current"])
"""), "0 0\n")

    def test_no_memory_is_the_error_of_cupy_and_can_be_recovered_from(self) -> None:
        said = run("""
import cupy, millpond.cupy as hook
hook.enable()
try: cupy.array(1 << 50)
except cupy.cuda.memory.OutOfMemoryError as error: print(error, "because", type(error.__cause__).__name__)
hook.set_limit(64 << 20)
arrays = []
try:
    while True: arrays.append(cupy.array(8 << 20))
except MemoryError: print(len(arrays))
arrays.clear()
hook.empty_cache()
hook.set_limit(None)
arrays = [cupy.array(8 << 20) for _ in range(10)]
print(hook.stats()["allocated_bytes.all.current"] >> 20)
""")
        self.assertEqual(said.splitlines()[0], f"Out of memory allocating {1 << 50} (0) because OutOfMemory")
        self.assertEqual(said.splitlines()[1:], ["8", "80"])

    def test_rmm_names_the_stream_of_each_allocation_and_each_free(self) -> None:
        self.assertEqual(run("""
import rmm, rmm.mr, millpond.rmm as hook
hook.enable("policy:classic")
mine = rmm.mr.get_per_device_resource(0)
assert mine is hook.resource(0) and hook.is_enabled() and rmm.mr.get_per_device_resource(1) == "another one"
one, two = rmm.Stream(new_stream()), rmm.Stream(new_stream())
address = mine.allocate(1000, one)
assert mine.allocate(0, one) == 0
mine.deallocate(0, 0, one)
mine.deallocate(address, 1000, one)
again = mine.allocate(1000, one)
assert again == address
# Freed on another stream: what is queued there comes first.
import threading
gate = threading.Event()
wait = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: gate.wait(20))
check(driver.cuLaunchHostFunc(ctypes.c_void_p(two.handle), wait, None))
mine.deallocate(again, 1000, two)
assert mine.allocate(1000, one) != again
gate.set()
check(driver.cuCtxSynchronize())
try: mine.allocate(1 << 50, one)
except MemoryError as error: print("no memory")
hook.empty_cache()
assert hook.stats()["allocated_bytes.all.current"] == 1024 and hook.stats()["num_ooms"] == 1
import cupy, millpond.cupy
millpond.cupy.enable()
array = cupy.array(100)
assert hook.stats()["allocated_bytes.all.current"] == 1536, "CuPy and RMM share the allocator"
hook.disable()
assert rmm.mr.get_per_device_resource(0) == "the first one" and not hook.is_enabled()
"""), "no memory\n")

    def test_the_allocator_is_that_of_pytorch_whichever_is_enabled_first(self) -> None:
        orders = ("millpond.torch.enable('policy:classic')\nmillpond.cupy.enable()\n",
                  "millpond.cupy.enable('policy:classic')\nmillpond.torch.enable()\n",
                  "millpond.cupy.enable('policy:classic')\nfirst = cupy.array(0)\nmillpond.torch.enable()\n")
        for order in orders:
            self.assertEqual(run_with_torch("import cupy, millpond.cupy, millpond.torch\n" + order + """
assert millpond.torch.conf() == "policy:classic", millpond.torch.conf()
array = cupy.array(1000)
for stats in (millpond.cupy.stats(), millpond.torch.stats(0)):
    assert stats["allocated_bytes.all.current"] == 1024, stats
millpond.cupy.set_limit(64 << 20)
print(millpond.torch.would_fit(1 << 30).fits)
for enable in (millpond.torch.enable, millpond.cupy.enable):
    try: enable("policy:paged")
    except millpond.torch.Error as error: print(str(error)[:53])
"""), "False\n" + 2 * "millpond: enabled already, with another configuration\n", order)

    def test_the_configuration_of_the_environment_may_be_asked_for(self) -> None:
        self.assertEqual(run("""
import cupy, millpond.cupy as hook
hook.enable()
array = cupy.array(1000)
hook.enable("policy:classic")
try: hook.enable("policy:paged")
except hook.Error: print("refused")
import os
os.environ["MILLPOND_CONF"] = "policy:paged"
hook.enable("policy:classic")
""", {"MILLPOND_CONF": "policy:classic"}), "refused\n")

    def test_arrays_may_live_until_the_end_of_the_process(self) -> None:
        self.assertEqual(run("import cupy, millpond.cupy\nmillpond.cupy.enable()\n"
                             "arrays = [cupy.array(1 << 20) for _ in range(10)]\nprint(len(arrays))"), "10\n")


if __name__ == "__main__":
    unittest.main(verbosity=2)
