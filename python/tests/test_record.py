"""Recordings and reports of a program under PyTorch, with a stand-in for torch, on simulated devices. scripts/python.sh
runs it."""

import gzip
import os
import pathlib
import tempfile
import unittest

import stand_ins
from stand_ins import TORCH

# A program: blocks of this many bytes, in order, the first of which is live before the recording.
PROGRAM = """
import ctypes, decimal, fractions, json, os, pathlib, resource, shutil, sys, millpond.torch, torch
from millpond import _library
millpond.torch.enable()
class Block(ctypes.Structure):
    _fields_ = [("address", ctypes.c_void_p), ("context", ctypes.c_void_p)]
def entry(name, result, *arguments):
    return ctypes.CFUNCTYPE(result, *arguments)(getattr(_library._table(), name))
entry_alloc = entry("alloc", Block, ctypes.c_int32, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p)
entry_free = entry("free", ctypes.c_int32, ctypes.c_void_p)
entry_use = entry("record_stream", ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
def alloc(size, device=0): return entry_alloc(device, None, size, None).context
def free(block): assert entry_free(block) == 0
def refused(call, *kinds):
    try: call()
    except millpond.torch.Error as error: print(error)
    else: raise AssertionError("not refused")
def lines(path):
    text = pathlib.Path(os.fsdecode(path)).read_text()
    return [line for line in text.splitlines() if line.split(" ")[0] in {"a", "f", "u", "e"}]
folder = os.environ["FOLDER"]
before = alloc(3000)
"""

# A fact, and what the trace has for it: a value, or a part of the error that names the fact.
FACTS = """
class Numpy:
    # A scalar of NumPy that no class of Python's knows, such as numpy.bool_.
    shape, __module__ = (), "numpy"
    def item(self): return True
class Half:
    def __float__(self): return 0.5
import numbers
numbers.Real.register(Half)
class Whole:
    def __int__(self): return 7
numbers.Integral.register(Whole)
itself = []
itself.append(itself)
for value, expected in [
    ("text", "text"), (3, 3), (2**64 - 1, 2**64 - 1), (-2**63, -2**63), (2.5, 2.5), (True, True), (None, None),
    (pathlib.Path("/a/b"), "/a/b"), (Half(), 0.5), (Whole(), 7), (Numpy(), True), (fractions.Fraction(1, 4), 0.25),
    ([1, (pathlib.Path("x"), None)], [1, ["x", None]]), ({"deep": {"er": Whole()}}, {"deep": {"er": 7}}),
    (float("nan"), ValueError), (float("inf"), ValueError), ([1, float("-inf")], ValueError), (2**64, ValueError),
    (fractions.Fraction(10**400), ValueError), ("\\udcff", ValueError), ({"\\udcff": 1}, ValueError), (itself, ValueError),
    (b"bytes", TypeError), ({1, 2}, TypeError), (decimal.Decimal(1), TypeError), (object(), TypeError), (len, TypeError),
    ({1: 2}, TypeError), (1j, TypeError),
]:
    recording = millpond.torch.record(folder + "/fact.trace", what=value)
    if isinstance(expected, type):
        try: recording.start()
        except expected as error: assert isinstance(error, millpond.torch.Error) and "'what'" in str(error), error
        else: raise AssertionError(f"{value!r} is taken")
        refused(recording.stop)
    else:
        with recording: pass
        found = json.loads(pathlib.Path(folder, "fact.trace").read_text().splitlines()[0][2:])["what"]
        assert found == expected and type(found) is type(expected), (value, found)
for name, value in [("gpu", 3), ("workload", None), ("seconds", 1.0), ("conf", ["x"]), ("peak_reserved", -1)]:
    try: millpond.torch.record(folder + "/fact.trace", **{name: value}).start()
    except ValueError as error: assert repr(name) in str(error), error
    else: raise AssertionError(f"{name} is taken")
refused(millpond.torch.record(folder + "/fact.trace", long="x" * (1 << 20)).start)
# Nothing is being recorded after all that.
refused(lambda: _library.take_recording(0))
"""


class Program(unittest.TestCase):
    """Programs in a folder of their own."""

    def setUp(self) -> None:
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = holder.name

    def run_it(self, code: str, **environment: str) -> str:
        """Runs a program in a process of its own. Returns its output."""
        environment = {"MILLPOND_TORCH_DEVICE": "sim", "FOLDER": self.folder, **environment}
        return stand_ins.run(PROGRAM + code, {"torch.py": TORCH}, environment, needs_shim=True)

    def expect(self, said: str, *parts: str) -> None:
        """Expects a line with each of the parts, in order, and no other."""
        found = said.splitlines()
        self.assertEqual(len(found), len(parts), found)
        for line, part in zip(found, parts):
            self.assertIn(part, line)


class Recordings(Program):
    def test_a_recording_is_a_trace_of_what_was_asked(self) -> None:
        self.run_it("""
with millpond.torch.record(folder + "/one.trace", batch=7):
    first, second = alloc(1000), alloc(5_000_000)
    assert entry_use(first, None) == 0
    free(before)
    free(first)
recording = millpond.torch.record(folder + "/two.trace.gz")
recording.start()
free(second)
third = alloc(10)
recording.stop()
""")
        whole = pathlib.Path(self.folder, "one.trace").read_text().splitlines()
        # Each event has a time, which differs from run to run, and so do the times at which the device was asked.
        lines = [line for line in whole if not line.startswith(("i ", "o "))]
        self.assertLess(len(lines), len(whole))
        self.assertIn('"workload":"one"', lines[0].replace(" ", ""))
        for fact in ('"torch":"2.11.0+cu130"', '"gpu":"stand-in0"', '"batch":7', '"seconds":', '"conf":'):
            self.assertIn(fact, lines[0].replace(" ", ""))
        self.assertEqual(lines[1:5], ["a 0 1000 0", "a 1 5000000 0", "u 0 0", "f 0"])
        two = gzip.decompress(pathlib.Path(self.folder, "two.trace.gz").read_bytes()).decode()
        self.assertEqual(two.splitlines()[2:3], ["a 0 10 0"])

    def test_what_an_error_ends_is_written_too(self) -> None:
        self.run_it("""
try:
    with millpond.torch.record(folder + "/it.trace"):
        alloc(1)
        raise KeyError
except KeyError: pass
""")
        self.assertTrue(pathlib.Path(self.folder, "it.trace").is_file())

    def test_mistakes_are_named(self) -> None:
        said = self.run_it("""
refused(millpond.torch.record(folder + "/no/such.trace").start)
refused(millpond.torch.record(folder + "/it.trace").stop)
one = millpond.torch.record(folder + "/it.trace").start()
refused(millpond.torch.record(folder + "/other.trace").start)
one.stop()
refused(one.stop)
refused(millpond.torch.record(folder + "/it.trace", gpu=3).start)
refused(millpond.torch.record(folder).start)
good = millpond.torch.record(folder + "/it.trace").start()
good.stop()
refused(lambda: millpond.torch.report(folder + "/none.trace"))
import importlib.metadata
importlib.metadata.files = lambda name: None
os.environ["PATH"] = ""
refused(lambda: millpond.torch.report(folder + "/it.trace"))
os.environ["MILLPOND_COMMAND"] = folder
refused(lambda: millpond.torch.report(folder + "/it.trace"))
""")
        self.expect(said, "there is no folder", "was not started", "is being recorded already", "was not started", "gpu",
                    "is a directory", "there is no file", "install the wheel again", "does not start")

    def test_a_fact_is_json_or_is_refused_at_the_start(self) -> None:
        self.run_it(FACTS)

    def test_a_path_is_checked_at_the_start_as_python_does(self) -> None:
        said = self.run_it("""
for path, kind in [(3, TypeError), (None, TypeError), (b"a\\0b", ValueError), ("a\\0b", ValueError), ("", ValueError)]:
    try: millpond.torch.record(path).start()
    except kind as error: print(error)
refused(millpond.torch.record(folder + "/it.trace/on/a/file").start)
os.symlink(folder + "/none/it.trace", folder + "/link.trace")
refused(millpond.torch.record(folder + "/link.trace").start)
refused(millpond.torch.record(folder + "/new.trace/").start)
refused(millpond.torch.record(folder + "/" + "x" * 256).start)
""")
        self.expect(said, "not int", "not NoneType", "null byte", "null byte", "empty", "there is no folder",
                    "there is no folder", "is a directory", "may not be written")

    def test_a_path_is_that_of_the_start_whatever_its_type(self) -> None:
        said = self.run_it("""
os.chdir(folder)
os.mkdir("elsewhere")
bytes_path = os.fsencode(folder) + b"/\\xff\\xfe.trace"
for path in ["text.trace", b"bytes.trace", pathlib.Path("path.trace"), bytes_path, "./elsewhere/../dots.trace"]:
    os.chdir(folder)
    with millpond.torch.record(path) as recording:
        os.chdir("elsewhere")
        free(alloc(7))
    assert recording.path.is_absolute()
for name in ["text.trace", b"bytes.trace", "path.trace", bytes_path, "dots.trace"]:
    path = os.path.join(os.fsencode(folder), os.fsencode(name))
    assert lines(path) == ["a 0 7 0", "f 0"], name
assert os.listdir("elsewhere" if os.path.isdir("elsewhere") else ".") == []
print(len(os.listdir(folder)))
""")
        self.expect(said, "6")


class FailedWrites(Program):
    def test_what_is_not_written_is_kept_while_others_are_recorded(self) -> None:
        said = self.run_it("""
os.mkdir(folder + "/gone")
recording = millpond.torch.record(folder + "/gone/one.trace")
recording.start()
free(alloc(11))
shutil.rmtree(folder + "/gone")
refused(recording.stop)
free(alloc(12))
refused(recording.stop)
with millpond.torch.record(folder + "/two.trace"): free(alloc(13))
refused(recording.start)
recording.stop(folder + "/elsewhere.trace")
refused(recording.stop)
assert lines(folder + "/elsewhere.trace") == ["a 0 11 0", "f 0"] and lines(folder + "/two.trace") == ["a 0 13 0", "f 0"]
with millpond.torch.record(folder + "/three.trace") as recording:
    os.mkdir(folder + "/three.trace")
    free(alloc(14))
    refused(recording.stop)
    os.rmdir(folder + "/three.trace")
assert lines(folder + "/three.trace") == ["a 0 14 0", "f 0"]
""")
        self.expect(said, "It is kept", "It is kept", "was not written", "is written", "directory")

    def test_a_file_is_whole_or_the_one_before(self) -> None:
        said = self.run_it("""
path, blocks = folder + "/it.trace", 5000
with millpond.torch.record(path): free(alloc(1))
old = open(path).read()
recording = millpond.torch.record(path).start()
for _ in range(blocks): free(alloc(2))
most = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, most[1]))
refused(recording.stop)
resource.setrlimit(resource.RLIMIT_FSIZE, most)
assert open(path).read() == old and os.listdir(folder) == ["it.trace"]
recording.stop()
assert len(lines(path)) == 2 * blocks and os.listdir(folder) == ["it.trace"]
full = millpond.torch.record("/dev/full").start()
for _ in range(blocks): free(alloc(2))
refused(full.stop)
full.stop(path + ".zst")
assert os.path.exists("/dev/full") and open(path + ".zst", "rb").read(4) == b"\\x28\\xb5\\x2f\\xfd"
""")
        self.expect(said, "large", "space")

    def test_a_link_stays_and_permissions_too(self) -> None:
        self.run_it("""
open(folder + "/real.trace", "w").close()
os.chmod(folder + "/real.trace", 0o600)
os.symlink("real.trace", folder + "/link.trace")
with millpond.torch.record(folder + "/link.trace"): free(alloc(1))
assert os.path.islink(folder + "/link.trace") and lines(folder + "/real.trace") == ["a 0 1 0", "f 0"]
assert os.stat(folder + "/real.trace").st_mode & 0o777 == 0o600
""")

    def test_an_error_in_the_program_and_one_in_the_write_are_both_told(self) -> None:
        self.run_it("""
os.mkdir(folder + "/gone")
recording = millpond.torch.record(folder + "/gone/one.trace")
try:
    with recording:
        shutil.rmtree(folder + "/gone")
        raise KeyError("mine")
except millpond.torch.Error as error:
    context = error
    while context is not None and not isinstance(context, KeyError): context = context.__context__
    assert isinstance(context, KeyError)
recording.stop(folder + "/one.trace")
""")

    def test_a_recording_that_nobody_can_stop_ends(self) -> None:
        said = self.run_it("""
import gc, warnings
warnings.simplefilter("always")
warnings.showwarning = lambda message, *rest: print(message)
millpond.torch.record(folder + "/it.trace").start()
gc.collect()
refused(lambda: _library.take_recording(0))
with millpond.torch.record(folder + "/it.trace"): free(alloc(1))
""")
        self.expect(said, "it was not stopped", "is not being recorded")


class Devices(Program):
    def test_a_device_is_the_current_one_or_is_refused_as_torch_does(self) -> None:
        said = self.run_it("""
alloc(1000, 1), alloc(5_000_000, 2)
def allocated(device): return millpond.torch.stats(device)["allocated_bytes.all.current"]
for current in (0, 1, 2):
    torch.cuda.chosen = current
    expected = [3072, 1024, 5_000_192]
    for here in (None, "cuda", torch.device("cuda")):
        assert allocated(here) == expected[current], (here, current)
    for at in (0, 1, 2):
        for named in (at, f"cuda:{at}", torch.device(f"cuda:{at}"), torch.cuda.device(at)):
            assert allocated(named) == expected[at], named
functions = [
    millpond.torch.stats, millpond.torch.memory_summary, millpond.torch.poll,
    lambda device: millpond.torch.record(folder + "/it.trace", device).start(),
]
for function in functions:
    for device, kind in [
        ("cpu", ValueError), (torch.device("cpu"), ValueError), ("meta:0", ValueError), (3, ValueError), (-1, ValueError),
        ("cuda:3", ValueError), (1.0, TypeError), (b"cuda", TypeError), ([], TypeError), ("toaster", RuntimeError),
    ]:
        try: function(device)
        except kind as error: assert isinstance(error, RuntimeError), error
        else: raise AssertionError(f"{device!r} is taken")
torch.cuda.chosen = 1
with millpond.torch.record(folder + "/it.trace", "cuda"): alloc(5, 1), alloc(6, 2)
print(lines(folder + "/it.trace"))
""")
        self.expect(said, "['a 0 5 0']")


class Peaks(Program):
    def test_parts_of_a_program_have_peaks_of_their_own(self) -> None:
        self.run_it("""
# One block is live before.
def mib(part): return (part.allocated_bytes - 3072) / 2**20
with millpond.torch.peak() as outer:
    free(alloc(8 << 20))
    with millpond.torch.peak("cuda:0") as inner:
        free(alloc(3 << 20))
        assert (mib(inner), mib(outer)) == (3, 8)
    free(alloc(12 << 20))
free(alloc(50 << 20))
assert (mib(inner), mib(outer)) == (3, 12)
assert inner.requested_bytes == (3 << 20) + 3000 and inner.active_bytes == inner.allocated_bytes
peak = millpond.torch.stats(0)["allocated_bytes.all.peak"]
assert 12 << 20 <= outer.reserved_bytes < 50 << 20 == peak - 3072
assert len(outer.stats()) == 122 and outer.stats()["allocation.all.peak"] == 2
unused = millpond.torch.peak()
for mistake in (outer.__enter__, lambda: unused.reserved_bytes, lambda: millpond.torch.peak("cpu").__enter__()):
    try: mistake()
    except millpond.torch.Error: pass
    else: raise AssertionError("a mistake is not noticed")
""")

    def test_a_part_that_is_not_left_ends_with_its_handle(self) -> None:
        self.run_it("""
from millpond import _library
part = millpond.torch.peak().__enter__()
scope = part._scope
del part
try: _library.call("peak_close", 0, scope)
except millpond.torch.Error as error: assert "is not open" in str(error), error
else: raise AssertionError("it was open")
""")


class Idle(Program):
    def test_polls_give_memory_back_that_nothing_needs(self) -> None:
        self.run_it("""
assert millpond.torch.poll() == 0
free(alloc(1 << 30))
released = 0
while not released: released += millpond.torch.poll()
stats = millpond.torch.stats()
assert stats["idle.released_bytes"] == released > 900 << 20 and stats["idle.releases"] == 1
assert stats["reserved_bytes.all.current"] < 100 << 20
""", MILLPOND_CONF="release_idle_after:2ms")


class Reports(Program):
    def test_a_report_is_a_page_of_the_recording(self) -> None:
        said = self.run_it("""
with millpond.torch.record(folder + "/run.v2.trace.zst", workload="stand-in program"):
    for size in range(1, 200):
        free(alloc(size * 100_000))
print(millpond.torch.report(folder + "/run.v2.trace.zst", options=["--passes", "1"]))
print(millpond.torch.report(folder + "/run.v2.trace.zst", folder + "/tight.html", ["tight"]))
bad = folder + "/bad.trace"
open(bad, "w").write("x\\n")
try: millpond.torch.report(bad)
except millpond.torch.Error as error: print("exit code" in str(error))
""")
        self.assertEqual(said.split(), [f"{self.folder}/run.v2.html", f"{self.folder}/tight.html", "True"])
        page = pathlib.Path(self.folder, "run.v2.html").read_text()
        self.assertIn("<!doctype html>", page)
        self.assertIn("classic", page)


if __name__ == "__main__":
    unittest.main(verbosity=2)
