"""Groups that are paused and resumed, and the modules with the interfaces of others, with stand-ins for torch, the shim
and the library's groups. scripts/python.sh runs it."""

import pathlib
import unittest

import stand_ins
from stand_ins import TORCH

# What torch has of private pools: the scopes that are open, the last one first, with the thread of each.
POOLS = """
import contextlib, itertools, threading
class OutOfMemoryError(RuntimeError): pass
_numbers = itertools.count(1)
opened, uses = [], {}
class _C:
    @staticmethod
    def _cuda_beginAllocateCurrentThreadToPool(device, pool):
        assert not any((device, pool) == each[:2] for each in opened), "already recording to mempool_id"
        uses[device, pool] = uses.get((device, pool), 0) + 1
        opened.insert(0, (device, pool, threading.get_ident()))
    @staticmethod
    def _cuda_endAllocateToPool(device, pool): opened.remove((device, pool, threading.get_ident()))
    @staticmethod
    def _cuda_releasePool(device, pool): uses[device, pool] -= 1
def pool_here(device=0):
    "Returns the pool that an allocation of this thread would come from."
    found = [pool for at, pool, thread in opened if (at, thread) == (device, threading.get_ident())]
    return found[0] if found else None
class _MemPool:
    def __init__(self): self.id = (0, next(_numbers))
@contextlib.contextmanager
def _use_mem_pool(pool):
    _C._cuda_beginAllocateCurrentThreadToPool(cuda.chosen, pool.id)
    try: yield
    finally:
        _C._cuda_endAllocateToPool(cuda.chosen, pool.id)
        _C._cuda_releasePool(cuda.chosen, pool.id)
@contextlib.contextmanager
def _graph(graph, pool=None, stream=None, capture_error_mode="global"):
    cuda.is_capturing, graph.asked = True, (pool, stream, capture_error_mode)
    try: yield
    finally: cuda.is_capturing = False
# The workspaces of cuBLAS: the streams that have one, each with the pool that it is from.
_graph.default_capture_stream, workspaces, cuda.stream_now = None, {}, "a current stream"
@contextlib.contextmanager
def _stream(stream):
    before, cuda.stream_now = cuda.stream_now, cuda.stream_now if stream is None else stream
    try: yield
    finally: cuda.stream_now = before
cuda.Stream, cuda.stream = staticmethod(lambda: "that of captures"), staticmethod(_stream)
cuda.current_blas_handle = staticmethod(lambda: workspaces.setdefault(cuda.stream_now, pool_here()))
cuda.is_capturing = False
cuda.is_current_stream_capturing = staticmethod(lambda: cuda.is_capturing)
cuda.graph_pool_handle = staticmethod(lambda: (next(_numbers), 0))
# Two of three devices are in use.
cuda.memory_stats = staticmethod(lambda device: {"num_device_alloc": int(device < 2)})
cuda.MemPool, cuda.use_mem_pool, cuda.graph = _MemPool, staticmethod(_use_mem_pool), staticmethod(_graph)
"""

BEGIN = """
import ctypes, threading, warnings
import stand_in_groups
groups = stand_in_groups.install()
import millpond.torch, torch
def here():
    "Returns the group that the shim would add a pool to."
    shim = millpond.torch._enabled()
    shim.group_of_this_thread.restype = ctypes.c_char_p
    return shim.group_of_this_thread().decode()
def refused(call, *kinds):
    try: call()
    except millpond.torch.Error as error:
        assert all(isinstance(error, kind) for kind in kinds), type(error).__mro__
        print(error)
    else: raise AssertionError("not refused")
def other_thread(call):
    found = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    thread.join()
    return found[0]
"""

ENABLED = BEGIN + "millpond.torch.enable()\n"


def run(
    code: str,
    environment: dict[str, str] | None = None,
    begin: str = ENABLED,
    more: dict[str, str] | None = None,
) -> list[str]:
    """Runs code with the stand-ins, and more modules. Returns the lines of its output."""
    groups = pathlib.Path(__file__).with_name("stand_in_groups.py").read_text()
    modules = {"torch.py": TORCH + POOLS, "stand_in_groups.py": groups, **(more or {})}
    return stand_ins.run(begin + code, modules, environment, needs_shim=True).splitlines()


class Groups(unittest.TestCase):
    def test_requests_go_to_the_pool_of_the_innermost_group_of_the_thread(self) -> None:
        run("""
kv = millpond.torch.group("kv")
assert kv is millpond.torch.group("kv") and repr(kv) == "millpond.torch.group('kv')"
assert torch.pool_here() is None and here() == ""
with kv as entered:
    assert entered is kv
    first = torch.pool_here()
    assert here() == "kv" and torch.uses[0, first] == 1
    assert other_thread(lambda: (torch.pool_here(), here())) == (None, "")
    with millpond.torch.group("weights"):
        assert here() == "weights" and torch.pool_here() not in (None, first)
        with kv:
            assert here() == "kv" and torch.pool_here() not in (None, first)
        assert here() == "weights"
    assert here() == "kv" and torch.pool_here() == first
    # The same group, in two threads at once.
    def other():
        with kv: return torch.pool_here(), here()
    assert other_thread(other)[0] not in (None, first) and other_thread(other)[1] == "kv"
assert torch.pool_here() is None and here() == "" and torch.opened == []
assert set(torch.uses.values()) == {0}, "a pool has no reference between scopes"
# Pools are used again: there are as many as were open at once.
before = len(torch.uses)
for _ in range(100):
    with kv, kv: pass
assert len(torch.uses) == before
# Each device has pools of its own.
torch.cuda.chosen = 1
with kv: assert torch.pool_here(0) is None and torch.pool_here(1) is not None
""")

    def test_workspaces_that_stay_are_outside_of_groups(self) -> None:
        run("""
millpond.torch.group("kv")
assert torch.workspaces == {}
with millpond.torch.group("kv"), millpond.torch.group("weights"): pass
assert torch.workspaces == {"a current stream": None, "that of captures": None}, torch.workspaces
def failing(): raise RuntimeError("there is no cuBLAS")
torch.cuda.current_blas_handle = failing
with millpond.torch.group("kv"): assert here() == "kv"
""")

    def test_a_scope_ends_where_it_began_also_after_errors(self) -> None:
        said = run("""
kv = millpond.torch.group("kv")
try:
    with kv: raise KeyError("of the program")
except KeyError: pass
assert torch.opened == [] and here() == ""
begin = torch._C._cuda_beginAllocateCurrentThreadToPool
def failing(device, pool): raise RuntimeError("no pool")
torch._C._cuda_beginAllocateCurrentThreadToPool = failing
try:
    with kv: pass
except RuntimeError as error: print(error)
assert here() == "" and torch.opened == []
torch._C._cuda_beginAllocateCurrentThreadToPool = begin
with kv: assert here() == "kv"
torch.cuda.is_capturing = True
refused(lambda: kv.__enter__())
assert here() == "" and torch.opened == []
""")
        self.assertEqual(said[0], "no pool")
        self.assertIn("open the scope around the capture", said[1])

    def test_a_group_is_paused_and_resumed_on_the_devices_that_are_in_use(self) -> None:
        said = run("""
kv = millpond.torch.group("kv")
millpond.torch.pause(kv)
assert groups.calls == [("pause 1", 0, "kv"), ("pause 1", 1, "kv")], groups.calls
info = {"allocated_bytes": 7, "reserved_bytes": 0, "paused_bytes": 5, "host_bytes": 5}
assert kv.info() == millpond.torch.Info(**info, is_paused=True)
assert not kv.info("cuda:2").is_paused
millpond.torch.resume("kv")
assert not kv.info().is_paused and kv.info(1).paused_bytes == 0
millpond.torch.resume("kv")
millpond.torch.pause("kv", keep="discard")
assert groups.calls[-1] == ("pause 0", 1, "kv") and kv.info().host_bytes == 0
groups.full.add("kv")
refused(lambda: millpond.torch.resume(kv), torch.OutOfMemoryError, MemoryError)
assert kv.info().is_paused
groups.full.clear()
millpond.torch.resume(kv)
assert not kv.info().is_paused
# Also on a device that has no memory yet, so that an allocation there is refused.
torch.cuda.chosen = 2
with kv: pass
millpond.torch.pause(kv)
assert [device for _, device, _ in groups.calls[-3:]] == [0, 1, 2]
""")
        self.assertEqual(said, ['millpond: out of memory: the group "kv" stays paused'])

    def test_mistakes_are_named(self) -> None:
        said = run("""
refused(lambda: millpond.torch.group("kv"))
refused(lambda: millpond.torch.pause("kv"))
millpond.torch.enable()
refused(lambda: millpond.torch.group(""), ValueError)
refused(lambda: millpond.torch.group("k\\0v"), ValueError)
refused(lambda: millpond.torch.group(7), TypeError)
refused(lambda: millpond.torch.pause("kv"), ValueError)
millpond.torch.group("weights"), millpond.torch.group("cache")
refused(lambda: millpond.torch.resume("kv"), ValueError)
refused(lambda: millpond.torch.pause("cache", keep="disk"), ValueError)
assert groups.calls == []
""", begin=BEGIN)
        parts = [
            "not enabled", "not enabled", "no name of a group", "no name of a group", "is a text",
            "no group 'kv', so nothing was done. The groups are: none yet", "'cache', 'weights'",
            "keep is 'disk', and may be 'host' or 'discard'",
        ]
        for line, part in zip(said, parts, strict=True):
            self.assertIn(part, line)


class Warnings(unittest.TestCase):
    CODE = """
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    millpond.torch.enable()
    millpond.torch.enable()
for each in said: print(each.category.__name__, each.message)
"""

    def test_hooks_that_would_pause_nothing_are_named_once(self) -> None:
        self.assertEqual(run(self.CODE, begin=BEGIN), [])
        # The linker warns of a library that it does not find, and goes on.
        said = run(self.CODE, {"LD_PRELOAD": "/no/torch_memory_saver_hook_mode_preload_cu13.abi3.so"}, BEGIN)
        self.assertEqual(len(said), 1, said)
        self.assertIn("RuntimeWarning millpond: torch_memory_saver's hooks are loaded", said[0])
        self.assertIn("from millpond.torch_memory_saver import torch_memory_saver", said[0])

    def test_a_library_that_is_mapped_is_seen(self) -> None:
        code = "import mmap, os, tempfile\nfolder = tempfile.mkdtemp()\n" \
               "path = os.path.join(folder, 'torch_memory_saver_hook_mode_preload_cu13.abi3.so')\n" \
               "open(path, 'wb').write(b'x' * 100)\nfile = open(path, 'rb')\n" \
               "mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)\n" + self.CODE
        self.assertEqual(len(run(code, begin=BEGIN)), 1)


SAVER = BEGIN + """
from millpond.torch_memory_saver import TorchMemorySaver, configure_subprocess, torch_memory_saver as saver
assert millpond.torch.is_enabled() and saver.enabled
"""


class Saver(unittest.TestCase):
    """``millpond.torch_memory_saver``."""

    def test_tags_with_and_without_backup_are_paused_and_resumed_together(self) -> None:
        run("""
with saver.region(): assert here() == "default"
with saver.region(tag="weights", enable_cpu_backup=True, cpu_backup_backend="mmap"):
    assert here() == "weights (kept)"
    with saver.region(tag="weights"):
        assert here() == "weights"
    assert here() == "weights (kept)"
@saver.region("kv_cache")
def inside(): return here()
assert inside() == "kv_cache" and here() == ""
def asked(device=0):
    found = [(what, name) for what, at, name in groups.calls if at == device]
    groups.calls.clear()
    return found
saver.pause("weights")
assert asked() == [("pause 1", "weights (kept)"), ("pause 0", "weights")]
saver.resume("weights")
assert asked() == [("resume", "weights (kept)"), ("resume", "weights")]
saver.pause("no such tag")
assert asked() == []
saver.pause()
assert [name for _, name in asked(1)] == ["default", "weights (kept)", "weights", "kv_cache"]
saver.resume(tag=None)
assert all(group.kept is None for group in groups.made)
""", begin=SAVER)

    def test_the_pool_of_a_graph_is_opened_in_its_region(self) -> None:
        said = run("""
class Graph: pass
graph = Graph()
with saver.cuda_graph(graph, pool=(3, 0), stream="a stream", capture_error_mode="relaxed", tag="graph"):
    assert here() == "graph" and torch.cuda.is_capturing and torch.pool_here() is None
    def nested():
        with saver.region("kv"): pass
    refused(nested)
assert graph.asked == ((3, 0), "a stream", "relaxed") and here() == ""
assert set(torch.workspaces) == {"a stream", "that of captures"}
""", begin=SAVER)
        self.assertIn("'kv' cannot be entered while a graph is being captured", said[0])

    def test_a_part_of_a_region_is_outside_of_it(self) -> None:
        run("""
with saver.disable(): assert torch.pool_here() is None
with saver.region():
    pool = torch.pool_here()
    with saver.disable():
        assert here() == "" and torch.pool_here() not in (None, pool)
        with saver.region("inner"): assert here() == "inner"
        with saver.disable(): assert here() == ""
    assert here() == "default" and torch.pool_here() == pool
assert torch.opened == [] and set(torch.uses.values()) == {0}
""", begin=SAVER)

    def test_what_is_not_served_says_so(self) -> None:
        said = run("""
def region(**options):
    with saver.region(**options): pass
refused(lambda: region(enable_disk_backup=True))
refused(lambda: region(cpu_backup_backend="pinned"), ValueError)
refused(lambda: region(enable_cpu_backup=True, cpu_backup_backend="file"), ValueError)
refused(lambda: region(tag=3), TypeError)
def choose(mode): saver.hook_mode = mode
refused(lambda: choose("none"), ValueError)
class Tensor: device = 0
region(enable_cpu_backup=True)
assert saver.get_cpu_backup(Tensor()) is None
saver.pause()
refused(lambda: saver.get_cpu_backup(Tensor(), zero_copy=True))
with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    saver.memory_margin_bytes, saver.retain_cpu_backup = 1 << 30, True
    saver.memory_margin_bytes, saver.retain_cpu_backup = 0, False
    assert saver.memory_margin_bytes == 0 and saver.retain_cpu_backup is False
for each in warned: print(each.message, each.filename)
choose("torch")
assert saver.hook_mode == "torch"
with configure_subprocess(): pass
""", begin=SAVER)
        parts = [
            "not kept in files", "requires enable_cpu_backup", "may be 'mmap' or 'pinned'", "no tag",
            "may be 'preload' or 'torch'", "cannot be read as a tensor", "memory_margin_bytes = 1073741824 has no effect",
            "retain_cpu_backup = True",
        ]
        for line, part in zip(said, parts, strict=True):
            self.assertIn(part, line)
        self.assertTrue(said[-1].endswith("<string>"), "the line of the program is named")

    def test_a_region_of_the_whole_process_is_refused(self) -> None:
        code = "def region():\n    with saver.region(): pass\nrefused(region)"
        self.assertIn("TMS_INIT_ENABLE puts all memory", run(code, {"TMS_INIT_ENABLE": "1"}, SAVER)[0])
        run("with saver.region(): pass", {"TMS_INIT_ENABLE": "0"}, SAVER)


VLLM = {"vllm/__init__.py": "", "vllm/device_allocator/__init__.py": "", "vllm/device_allocator/cumem.py": """
class CuMemAllocator:
    @staticmethod
    def get_instance(): return "vLLM's own"
"""}
PLUG_IN = """
import importlib.metadata
points = importlib.metadata.entry_points(group="vllm.general_plugins")
install = next(point for point in points if point.name == "millpond").load()
torch.cuda.empty_cache = lambda: None
"""


class Vllm(unittest.TestCase):
    """``millpond.vllm``."""

    def test_its_workers_get_groups_by_its_tags(self) -> None:
        run("""
from vllm.device_allocator.cumem import CuMemAllocator
install()
assert CuMemAllocator.get_instance() == "vLLM's own", "Millpond is not enabled"
millpond.torch.enable()
install()
worker = CuMemAllocator.get_instance()
assert worker is CuMemAllocator.get_instance() and worker.get_current_usage() == 0
with worker.use_memory_pool(tag="weights"): assert here() == "weights"
with worker.use_memory_pool(tag="kv_cache"): assert here() == "kv_cache"
with worker.use_cudagraph_pool() as pool: assert here() == "cudagraph" and pool is not None
with worker.use_cudagraph_pool((7, 0)) as pool: assert pool == (7, 0)
assert worker.get_current_usage() == 21
def asked():
    found = {name: what for what, at, name in groups.calls if at == 0}
    groups.calls.clear()
    return found
worker.sleep(offload_tags=("weights",))
assert asked() == {"weights": "pause 1", "kv_cache": "pause 0", "cudagraph": "pause 0"}
worker.wake_up(tags=["weights"])
assert asked() == {"weights": "resume", "cudagraph": "resume"}
worker.wake_up()
assert asked() == {"weights": "resume", "kv_cache": "resume", "cudagraph": "resume"}
worker.sleep(tuple())
assert set(asked().values()) == {"pause 0"}
worker.wake_up(["weights", "kv_cache"])
asked()
worker.discard("kv_cache")
assert asked() == {"kv_cache": "pause 0"}
with worker.use_memory_pool(): assert here() == "default"
worker.sleep()
assert asked() == {"default": "pause 1", "weights": "pause 0", "kv_cache": "pause 0", "cudagraph": "pause 0"}
""", begin=BEGIN + PLUG_IN, more=VLLM)

    def test_one_that_has_its_allocator_elsewhere_is_named(self) -> None:
        code = "millpond.torch.enable()\nwith warnings.catch_warnings(record=True) as said: install()\n" \
               "for each in said: print(each.message)"
        said = run(code, begin=BEGIN + PLUG_IN, more={"vllm/__init__.py": ""})
        self.assertEqual(len(said), 1)
        self.assertIn("elsewhere (No module named 'vllm.device_allocator'), so that it stays in use", said[0])


if __name__ == "__main__":
    unittest.main(verbosity=2)
