"""Recordings and reports of a program under PyTorch, with a stand-in for torch, on simulated devices. scripts/python.sh
runs it."""

import os
import pathlib
import tempfile
import unittest

import stand_ins
from stand_ins import TORCH

# A program: blocks of this many bytes, in order, the first of which is live before the recording.
PROGRAM = """
import ctypes, os, millpond.torch
from millpond import _library
millpond.torch.enable()
class Block(ctypes.Structure):
    _fields_ = [("address", ctypes.c_void_p), ("context", ctypes.c_void_p)]
def entry(name, result, *arguments):
    return ctypes.CFUNCTYPE(result, *arguments)(getattr(_library._table(), name))
entry_alloc = entry("alloc", Block, ctypes.c_int32, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p)
entry_free = entry("free", ctypes.c_int32, ctypes.c_void_p)
entry_use = entry("record_stream", ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
def alloc(size): return entry_alloc(0, None, size, None).context
def free(block): assert entry_free(block) == 0
folder = os.environ["FOLDER"]
before = alloc(3000)
"""


def run(code, folder, **environment):
    """Runs a program in a process of its own. Returns its output; ``None`` where there is no C compiler."""
    environment = {"MILLPOND_TORCH_DEVICE": "sim", "FOLDER": folder, **environment}
    return stand_ins.run(PROGRAM + code, {"torch.py": TORCH}, environment, needs_shim=True)


class Recordings(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = holder.name

    def run_or_skip(self, code, **environment):
        said = run(code, self.folder, **environment)
        if said is None:
            self.skipTest("there is no C compiler")
        return said

    def test_a_recording_is_a_trace_of_what_was_asked(self):
        self.run_or_skip("""
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
        lines = pathlib.Path(self.folder, "one.trace").read_text().splitlines()
        self.assertIn('"workload":"one"', lines[0].replace(" ", ""))
        for fact in ('"torch":"2.11.0+cu130"', '"gpu":"stand-in0"', '"batch":7', '"seconds":', '"conf":'):
            self.assertIn(fact, lines[0].replace(" ", ""))
        self.assertEqual(lines[1:], ["a 0 1000 0", "a 1 5000000 0", "u 0 0", "f 0"])
        import gzip

        two = gzip.decompress(pathlib.Path(self.folder, "two.trace.gz").read_bytes()).decode()
        self.assertEqual(two.splitlines()[1:], ["a 0 10 0"])

    def test_what_an_error_ends_is_written_too(self):
        self.run_or_skip("""
try:
    with millpond.torch.record(folder + "/it.trace"):
        alloc(1)
        raise KeyError
except KeyError: pass
""")
        self.assertTrue(pathlib.Path(self.folder, "it.trace").is_file())

    def test_mistakes_are_named(self):
        said = self.run_or_skip("""
def refused(call):
    try: call()
    except millpond.torch.Error as error: print(error)
    else: raise AssertionError("not refused")
refused(millpond.torch.record(folder + "/no/such.trace").start)
refused(millpond.torch.record(folder + "/it.trace").stop)
one = millpond.torch.record(folder + "/it.trace").start()
refused(millpond.torch.record(folder + "/other.trace").start)
one.stop()
bad = millpond.torch.record(folder + "/it.trace", gpu=3).start()
refused(bad.stop)
full = millpond.torch.record(folder).start()
refused(full.stop)
good = millpond.torch.record(folder + "/it.trace").start()
good.stop()
refused(lambda: millpond.torch.report(folder + "/none.trace"))
os.environ["PATH"] = ""
refused(lambda: millpond.torch.report(folder + "/it.trace"))
os.environ["MILLPOND_COMMAND"] = folder
refused(lambda: millpond.torch.report(folder + "/it.trace"))
""").splitlines()
        expected = ["there is no folder", "was not started", "is being recorded already", "gpu", "directory",
                    "there is no file", "cargo install millpond-cli", "does not start"]
        self.assertEqual(len(said), len(expected), said)
        for line, part in zip(said, expected):
            self.assertIn(part, line)

    def test_a_report_is_a_page_of_the_recording(self):
        command = os.environ.get("MILLPOND_TEST_COMMAND", "")
        if not pathlib.Path(command).is_file():
            self.skipTest("MILLPOND_TEST_COMMAND does not name the command millpond")
        said = self.run_or_skip("""
with millpond.torch.record(folder + "/run.v2.trace.zst", workload="stand-in program"):
    for size in range(1, 200):
        free(alloc(size * 100_000))
print(millpond.torch.report(folder + "/run.v2.trace.zst", options=["--passes", "1"]))
print(millpond.torch.report(folder + "/run.v2.trace.zst", folder + "/tight.html", ["tight"]))
bad = folder + "/bad.trace"
open(bad, "w").write("x\\n")
try: millpond.torch.report(bad)
except millpond.torch.Error as error: print("exit code" in str(error))
""", MILLPOND_COMMAND=command)
        self.assertEqual(said.split(), [f"{self.folder}/run.v2.html", f"{self.folder}/tight.html", "True"])
        page = pathlib.Path(self.folder, "run.v2.html").read_text()
        self.assertIn("<!doctype html>", page)
        self.assertIn("classic", page)


if __name__ == "__main__":
    unittest.main(verbosity=2)
