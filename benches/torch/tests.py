"""Tests of what compares programs: the tables, and the processes that print their rows. Needs no PyTorch.

    python benches/torch/tests.py
"""

import contextlib
import io
import json
import os
import pathlib
import sys
import tempfile
import types
import unittest

from libraries import PROGRAMS
from programs import tables
from programs.allocators import rows
from programs.compare import Catalogue, Comparison, counts
from programs.measure import Meter, drive

# A script as a child sees it: what it prints depends on its allocator.
CHILD = """\
import json, os, sys

allocator = sys.argv[sys.argv.index("--child") + 1]
names = sys.argv[sys.argv.index("--only") + 1].split(",")
by_turns = "--turns" in sys.argv
for name in names:
    if by_turns:
        print("ready", flush=True)
        if not os.read(0, 1):
            sys.exit(1)
    if allocator == "async" and name == "b":
        sys.exit("it broke")
    row = {"program": name, "allocator": allocator, "steps": 4, "times": [1, 1, 2, 2], "losses": [1.0, 2.0]}
    row["loss"] = 2.0
    if allocator == "expandable" and name == "b":
        row = {"program": name, "allocator": allocator, "failed": "no memory", "step": 2, "trace": "File x"}
    print("row " + json.dumps(row), flush=True)
    if "failed" in row:
        sys.exit("the device is lost")
"""


def row(program, allocator, reserved=3, times=(9, 9, 2, 2), losses=(1.0, 2.0)):
    """Returns a row as a process prints it."""
    return {"program": program, "allocator": allocator, "steps": 4, "times": list(times), "losses": list(losses),
            "loss": losses[-1], "reserved": reserved * 2**30, "live": 2 * 2**30, "retries": 0, "driver": {}}


class Kinds(Catalogue):
    """A catalogue of three programs of two kinds."""

    def __init__(self, script=""):
        super().__init__("", script, "told", ("a", "b", "c"))

    def kind(self, name):
        return "pools" if name == "c" else "plain"


class Tables(unittest.TestCase):
    def write(self, measured):
        with tempfile.TemporaryDirectory() as folder:
            text = tables.write(Kinds(), folder, measured)
            self.assertEqual(json.loads((pathlib.Path(folder) / "told.json").read_text()), measured)
            self.assertEqual((pathlib.Path(folder) / "told.md").read_text(), text)
        return text.splitlines()

    def test_losses_are_equal_or_like_the_control_or_differ(self):
        native, control = row("a", "native"), row("a", "control", losses=(1.0, 2.001))
        for losses, wanted in (((1.0, 2.0), " equal "), ((1.0, 2.002), " like control "), ((1.0, 2.1), " DIFFERS ")):
            told = self.write([native, control, row("a", "millpond", losses=losses)])
            self.assertIn(wanted, told[4], losses)
            self.assertIn("like control", told[3])
        self.assertEqual(tables.apart([float("nan")], [float("nan")]), 0)
        self.assertEqual(tables.apart([float("nan")], [1.0]), float("inf"))

    def test_a_control_without_a_native_run_is_compared_with_nothing(self):
        self.assertTrue(self.write([row("a", "control")])[2].endswith("| 2.000000 |"))
        self.assertIn("5.0e-02 apart", self.write([row("a", "native"), row("a", "tight", losses=(1.0, 2.1))])[3])

    def test_times_are_over_the_same_steps_of_the_same_round(self):
        rounds = [row("a", "native", times=(1, 1, 10, 20)), row("a", "millpond", times=(5, 5, 11, 22)),
                  row("a", "native", times=(1, 1, 100, 100)), row("a", "millpond", times=(5, 5, 130, 130), reserved=5)]
        told = self.write(rounds)[3]
        self.assertIn("| 1.200 (1.100 to 1.300) |", told)
        self.assertIn("| 5.00 | 2.00 | 2.500 |", told)

    def test_means_and_worst_cases_are_of_each_kind(self):
        measured = [row("a", "native"), row("b", "native"), row("c", "native"), row("a", "millpond", reserved=2),
                    row("b", "millpond", reserved=8, times=(1, 1, 3, 3)), row("c", "millpond", reserved=6),
                    {"program": "b", "allocator": "async", "failed": "no | memory", "step": 3}]
        told = self.write(measured)
        self.assertIn("NOT FINISHED, at step 3: no / memory", "\n".join(told))
        self.assertIn("| plain | millpond | 2 | 2.000 | 4.000 (b) | 1.225 | 1.500 (b) |  |", told)
        self.assertIn("| pools | millpond | 1 | 3.000 | 3.000 (c) | 1.000 | 1.000 (c) |  |", told)
        self.assertIn("| plain | async | 0 |  |  |  |  | b |", told)

    def test_a_program_that_failed_once_has_failed(self):
        failed = {"program": "a", "allocator": "native", "failed": "late", "step": 1}
        self.assertIn("NOT FINISHED", self.write([row("a", "native"), failed, row("a", "native")])[2])
        skipped = {"program": "a", "allocator": "native", "skipped": "not installed: trl"}
        self.assertIn("SKIPPED: not installed: trl", self.write([skipped])[2])


class Processes(unittest.TestCase):
    def compare(self, allocators, by_turns):
        arguments = types.SimpleNamespace(steps=0, device="cpu", tiny=True, cudnn_attention=False, timeout=60, out="")
        with tempfile.TemporaryDirectory() as folder:
            script = os.path.join(folder, "child.py")
            pathlib.Path(script).write_text(CHILD)
            comparison = Comparison(Kinds(script), arguments)
            with contextlib.redirect_stdout(None), contextlib.redirect_stderr(io.StringIO()) as errors:
                comparison.run(["a", "b", "c"], allocators, by_turns)
            self.assertIn("b on expandable: File x", errors.getvalue())
        return [(one["program"], one["allocator"], one.get("failed")) for one in comparison.rows]

    def test_what_broke_has_a_row_and_the_rest_runs_anew(self):
        for by_turns in (False, True):
            found = self.compare(["native", "async", "expandable"], by_turns)
            self.assertEqual([one for one in found if one[1] == "native"], [(name, "native", None) for name in "abc"])
            broken = [one for one in found if one[1] == "async"]
            self.assertEqual([one[0] for one in broken], ["a", "b", "c"])
            self.assertIn("it broke", broken[1][2])
            self.assertIsNone(broken[2][2])
            said = [one for one in found if one[1] == "expandable"]
            self.assertEqual([one[2] for one in said], [None, "no memory", None])
            self.assertEqual([one[0] for one in said], ["a", "b", "c"])

    def test_only_programs_on_native_and_millpond_have_to_finish(self):
        failed = {"program": "a", "failed": "late", "step": 1}
        for allocator, wanted in (("async", False), ("expandable", False), ("native", True), ("millpond", True)):
            self.assertEqual(counts({**failed, "allocator": allocator}), wanted, allocator)
        self.assertFalse(counts({"program": "a", "allocator": "millpond", "skipped": "not installed: trl"}))

    def test_a_process_that_takes_too_long_is_ended(self):
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder) / "child.py"
            script.write_text("import time\nprint('row {\"program\": 1}', flush=True)\ntime.sleep(60)\n")
            seen = []
            found, why = rows(str(script), [], "native", 2, seen.append)
        self.assertEqual((found, why), ([{"program": 1}], "took more than 2 s"))
        self.assertEqual(seen, found)


class Steps(unittest.TestCase):
    def meter(self, steps):
        self.turns = 0

        def turn():
            self.turns += 1

        return Meter("native", types.SimpleNamespace(is_cuda=False), steps, 0, turn)

    def test_both_kinds_of_programs_have_the_same_steps(self):
        def yields(setting, count):
            yield from (float(number) for number in range(count))

        def calls(setting, count, tick):
            for number in range(count + 2):
                tick(float(number))

        for program in (yields, calls):
            meter = self.meter(3)
            meter.begin()
            drive(program, None, 3, meter.end)
            self.assertEqual((meter.losses, len(meter.times), self.turns), ([0.0, 1.0, 2.0], 3, 3), program)

    def test_a_program_that_failed_takes_the_turns_of_its_steps(self):
        meter = self.meter(5)
        meter.begin()
        meter.end(1.0)
        meter.pass_by()
        self.assertEqual(self.turns, 5)

    def test_every_program_has_steps_and_a_module(self):
        folder = pathlib.Path(__file__).parent / "libraries"
        for name, program in PROGRAMS.items():
            module, function = program.where.split(":")
            self.assertIn(f"\ndef {function}(", (folder / f"{module}.py").read_text(), name)
            self.assertGreaterEqual(program.steps, 4, name)


if __name__ == "__main__":
    sys.exit(unittest.main())
