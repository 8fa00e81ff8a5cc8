"""Children of a process, threads, and the ends of programs, as tables: with stand-ins for CuPy, RMM and torch, on simulated
devices. scripts/python.sh runs it."""

import unittest

import stand_ins
from stand_ins import CUPY, RMM, RMM_MR, TORCH

# What the processes of the tables do, in a module that each of them imports.
WORK = """
import ctypes, os, sys, threading
import cupy, rmm, rmm.mr, torch
import millpond.cupy, millpond.rmm, millpond.torch
from millpond import _library

class Block(ctypes.Structure):
    _fields_ = [("address", ctypes.c_void_p), ("context", ctypes.c_void_p)]

def with_cupy():
    if not millpond.cupy.is_enabled(): millpond.cupy.enable()
    return cupy.array(1000)

def with_rmm():
    if not millpond.rmm.is_enabled(): millpond.rmm.enable()
    resource = millpond.rmm.resource(0)
    class Buffer:
        address = 0
        def __init__(self): self.address = resource.allocate(1000, rmm.Stream(0))
        def __del__(self): resource.deallocate(self.address, 1000, rmm.Stream(0))
    return Buffer()

def with_torch():
    millpond.torch.enable()
    alloc, free = (
        ctypes.CFUNCTYPE(result, *arguments)(getattr(_library._table(), name)) for name, result, *arguments in (
            ("alloc", Block, ctypes.c_int32, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p),
            ("free", ctypes.c_int32, ctypes.c_void_p)))
    class Tensor:
        context = None
        def __init__(self):
            block = alloc(0, None, 1000, None)
            if block.address is None: millpond.torch.stats()  # The error's text.
            self.context = block.context
        def __del__(self): assert free(self.context) == 0
    return Tensor()

def use(kind):
    # Returns what comes of a use.
    try:
        thing = globals()["with_" + kind]()
        del thing
        return "works"
    except millpond.torch.Error as error:
        return "refused" if "was forked from one that had made allocators" in str(error) else str(error)

def tell(kind, queue): queue.put(use(kind))
"""

KINDS = ("cupy", "rmm", "torch")

# How a process is started, whether its parent had used a device by then, and what comes of a use in the child.
CHILDREN = [
    ("fork", "before", "works"),
    ("fork", "after", "refused"),
    ("spawn", "before", "works"),
    ("spawn", "after", "works"),
    ("forkserver", "before", "works"),
    ("forkserver", "after", "works"),
]

CHILD = """
import multiprocessing, work
kept = work.with_KIND() if "WHEN" == "after" else None
context = multiprocessing.get_context("METHOD")
queue = context.Queue()
child = context.Process(target=work.tell, args=("KIND", queue))
child.start()
print(queue.get(timeout=60))
child.join(60)
assert child.exitcode == 0, child.exitcode
assert work.use("KIND") == "works"
"""

# Programs that fork by themselves, and what they print. Nothing may be printed as an error.
FORKS = [
    ("what is inherited is dropped in silence", """
kept = [work.with_KIND() for _ in range(3)]
def in_the_child():
    kept.pop()
    gc.collect()
    print(work.use("KIND"), flush=True)
    kept.pop()
ask(in_the_child)
kept.clear()
print(work.use("KIND"))
""", "refused works"),
    ("an interpreter ends with what it has inherited", """
kept = work.with_KIND()
def in_the_child():
    print(work.use("KIND"), flush=True)
    sys.exit(0)
ask(in_the_child)
print(work.use("KIND"))
""", "refused works"),
    ("a child of a child is told too", """
kept = work.with_KIND()
ask(lambda: ask(lambda: print(work.use("KIND"), flush=True)))
""", "refused"),
    ("threads of the parent hold no lock that a child waits for", """
kept, ended = work.with_KIND(), threading.Event()
def loop():
    while not ended.is_set(): work.use("KIND")
threads = [threading.Thread(target=loop) for _ in range(3)]
for thread in threads: thread.start()
for _ in range(20): ask(lambda: print(work.use("KIND"), flush=True))
ended.set()
for thread in threads: thread.join(60)
""", " ".join(["refused"] * 20)),
    ("a child of a child that made the first allocator", """
def in_the_child():
    print(work.use("KIND"), flush=True)
    ask(lambda: print(work.use("KIND"), flush=True))
ask(in_the_child)
print(work.use("KIND"))
""", "works refused works"),
]

FORK = """
import gc, os, sys, threading, work
def ask(code):
    sys.stdout.flush()
    process = os.fork()
    if process == 0:
        try: code()
        except SystemExit: raise
        except BaseException: os._exit(3)
        sys.stdout.flush()
        os._exit(0)
    for _ in range(600):
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended: break
        threading.Event().wait(0.05)
    else:
        os.kill(process, 9)
        raise SystemExit("the child waits for ever")
    assert status == 0, status
"""

# How a program ends, and the code. Nothing may be printed as an error.
ENDS = [
    ("at its last line", "kept = [work.with_KIND() for _ in range(10)]", 0),
    ("by sys.exit", "kept = work.with_KIND()\nsys.exit(5)", 5),
    ("by os._exit", "kept = work.with_KIND()\nos._exit(6)", 6),
    ("by a signal", "kept = work.with_KIND()\nos.kill(os.getpid(), 15)\nthreading.Event().wait(60)", -15),
    ("with a cycle that has a block", "kept = [work.with_KIND()]\nkept.append(kept)", 0),
    ("with a thread that goes on for a while", """
def later():
    time.sleep(0.3)
    assert work.use("KIND") == "works"
kept = work.with_KIND()
threading.Thread(target=later).start()
""", 0),
    ("with threads that go on for ever", """
def loop():
    while True: work.use("KIND")
kept = work.with_KIND()
for _ in range(3): threading.Thread(target=loop, daemon=True).start()
time.sleep(0.1)
""", 0),
    ("with a handler that frees and allocates", """
import atexit
kept = [work.with_KIND()]
def at_the_end():
    kept.clear()
    assert work.use("KIND") == "works"
atexit.register(at_the_end)
""", 0),
    ("with a block that a thread of its own keeps", """
local = threading.local()
def keep(): local.kept = work.with_KIND()
thread = threading.Thread(target=keep)
thread.start()
thread.join(60)
""", 0),
]

# What threads do at the same time. Each returns without an error.
THREADS = [
    ("allocate and free", "for _ in range(20): assert work.use(KIND) == 'works'"),
    ("keep some, and free them in another order", """
    kept = []
    for at in range(20):
        kept.append(getattr(work, "with_" + KIND)())
        if at % 3 == 2: del kept[at % len(kept)]
    kept.clear()
"""),
    ("free what others have allocated", """
    for _ in range(20):
        shared.append(getattr(work, "with_" + KIND)())
        if len(shared) > 3: shared.popleft()
"""),
    ("begin and end", """
    for _ in range(10):
        thread = threading.Thread(target=work.use, args=(KIND,))
        thread.start()
        thread.join(60)
"""),
    ("look at the statistics", """
    for _ in range(10):
        assert work.use(KIND) == "works"
        assert getattr(millpond, KIND).stats()["allocated_bytes.all.current"] >= 0
"""),
]

THREAD = """
import collections, millpond, threading, work
KIND, shared, done = "{kind}", collections.deque(), []
def run():
    {code}
    done.append(None)
threads = [threading.Thread(target=run) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join(90)
shared.clear()
assert getattr(millpond, KIND).stats()["allocated_bytes.all.current"] == 0
print(len(done))
"""


@unittest.skipUnless(stand_ins.driver(), "MILLPOND_TEST_DRIVER does not name the simulated driver")
class Processes(unittest.TestCase):
    def run_it(self, code: str, kind: str, code_at_end: int = 0) -> str:
        modules = {"cupy.py": CUPY, "rmm/__init__.py": RMM, "rmm/mr.py": RMM_MR, "torch.py": TORCH, "work.py": WORK}
        # The hooks run on the driver, and the table on simulated devices, of which no driver knows.
        environment = {"MILLPOND_TORCH_DEVICE": "sim"} if kind == "torch" else {"LD_PRELOAD": stand_ins.driver() or ""}
        return stand_ins.run(code, modules, environment, needs_shim=True, is_quiet=True, code_at_end=code_at_end)

    def test_children(self) -> None:
        for kind in KINDS:
            for method, when, expected in CHILDREN:
                with self.subTest(kind=kind, method=method, when=when):
                    code = CHILD.replace("KIND", kind).replace("METHOD", method).replace("WHEN", when)
                    self.assertEqual(self.run_it(code, kind), expected + "\n")

    def test_forks(self) -> None:
        for kind in KINDS:
            for name, code, expected in FORKS:
                with self.subTest(kind=kind, name=name):
                    self.assertEqual(self.run_it(FORK + code.replace("KIND", kind), kind).split(), expected.split())

    def test_ends(self) -> None:
        for kind in KINDS:
            for name, code, code_at_end in ENDS:
                with self.subTest(kind=kind, name=name):
                    code = "import os, sys, threading, time, work\n" + code.replace("KIND", kind)
                    self.assertEqual(self.run_it(code, kind, code_at_end), "")

    def test_threads(self) -> None:
        for kind in KINDS:
            for name, code in THREADS:
                with self.subTest(kind=kind, name=name):
                    self.assertEqual(self.run_it(THREAD.format(kind=kind, code=code), kind), "8\n")


if __name__ == "__main__":
    unittest.main(verbosity=2)
