"""Compares allocators on the programs of a catalogue: each allocator in processes of its own, in rounds."""

import argparse
import os
import sys

from programs import tables, turns
from programs.allocators import ALLOCATORS, chosen, rows
from programs.measure import child


class Catalogue:
    """The programs that one script measures, by their names, in the order of the tables. ``file`` names the files that
    are written."""

    # The part of the steps after which requests to the driver are counted.
    settled = 0.5
    # How many steps a program has, unless the command line says so.
    usual_steps = 60
    # The allocators, unless the command line names them.
    first = ("native", "expandable", "async", "millpond")

    def __init__(self, title, script, file, names):
        self.title, self.script, self.file, self.names = title, script, file, tuple(names)

    def load(self, name):
        """Returns the function of a program."""
        raise NotImplementedError

    def steps(self, name, arguments):
        """Returns how many steps a program has."""
        return arguments.steps or self.usual_steps

    def needs(self, name):
        """Returns the packages that a program needs beside torch."""
        return ()

    def kind(self, name):
        """Returns of which programs a program's figures are a part: each kind has its own means."""
        return "all"


class Comparison:
    """What was measured so far: it is written whenever there is more, as a machine may not be lent for long enough."""

    def __init__(self, catalogue, arguments):
        self.catalogue, self.arguments, self.rows = catalogue, arguments, []

    def see(self, row):
        """Keeps a row, and shows it."""
        self.rows.append(row)
        print(tables.line(row), flush=True)
        if "trace" in row:
            print(f"{row['program']} on {row['allocator']}: {row['trace']}", file=sys.stderr, flush=True)
        if self.arguments.out:
            tables.write(self.catalogue, self.arguments.out, self.rows)

    def run(self, names, allocators, by_turns):
        """Runs programs on allocators, each in a new process, one after another or by turns."""
        own = self.arguments
        options = ["--only", ",".join(names), "--device", own.device]
        options += ["--steps", own.steps] * bool(own.steps)
        options += ["--cudnn-attention"] * own.cudnn_attention + ["--tiny"] * own.tiny
        limit, before, failed = own.timeout * len(names), len(self.rows), {}
        if by_turns:
            failed = turns.play(self.catalogue.script, options, allocators, limit * len(allocators), self.see)[1]
        else:
            for allocator in allocators:
                failed[allocator] = rows(self.catalogue.script, options, allocator, limit, self.see)[1]
        found = self.rows[before:]
        for allocator, why in failed.items():
            if why:
                print(f"{allocator}: {why}", file=sys.stderr, flush=True)
            mine = [row for row in found if row["allocator"] == allocator]
            told = {row["program"] for row in mine}
            left = [name for name in names if name not in told]
            # A process that has said so of a program may have had to end for that.
            if left and not (mine and "failed" in mine[-1]):
                reason = " ".join(why.split())[-200:] or "the process has ended"
                self.see({"program": left.pop(0), "allocator": allocator, "failed": reason, "step": 0})
            if left:
                self.run(left, [allocator], by_turns=False)


def parser(catalogue):
    """Returns the parser of the options that every script has."""
    made = argparse.ArgumentParser(description=catalogue.title, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--only", type=chosen(catalogue.names), default=list(catalogue.names), metavar="PROGRAM,...")
    made.add_argument("--allocators", type=chosen(ALLOCATORS), default=list(catalogue.first), metavar="ALLOCATOR,...")
    made.add_argument("--rounds", type=int, default=3)
    made.add_argument("--steps", type=int, default=0, help="steps of each program, instead of its own number")
    made.add_argument("--together", action="store_true", help="run all programs of an allocator in one process")
    made.add_argument("--by-turns", action="store_true", help="have the allocators take steps in turn")
    made.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    made.add_argument("--tiny", action="store_true", help="sizes of a test")
    made.add_argument("--cudnn-attention", action="store_true", help="let cuDNN compile attention for each shape")
    made.add_argument("--timeout", type=float, default=90.0, help="seconds for each program")
    made.add_argument("--out", default=os.environ.get("OUT", ""), help="a folder for the rows and the tables")
    made.add_argument("--child", choices=list(ALLOCATORS), help=argparse.SUPPRESS)
    made.add_argument("--turns", action="store_true", help=argparse.SUPPRESS)
    return made


def measured(catalogue, arguments):
    """Measures what the command line asks for. Returns the exit code: 1 if a program did not finish natively or on
    Millpond."""
    if arguments.steps == 1 or arguments.steps < 0 or arguments.rounds < 1:
        raise SystemExit("there are at least 2 steps and 1 round")
    if arguments.child:
        return child(catalogue, arguments)
    on_cpu = ["native", "control"] if arguments.by_turns else ["native"]
    allocators = arguments.allocators if arguments.device == "cuda" else on_cpu
    groups = [arguments.only] if arguments.together else [[name] for name in arguments.only]
    comparison = Comparison(catalogue, arguments)
    print(tables.HEAD, flush=True)
    for number in range(arguments.rounds):
        # Each round begins with another allocator, so that none is always the first on a cold device.
        turn = number % len(allocators)
        for names in groups:
            comparison.run(names, allocators[turn:] + allocators[:turn], arguments.by_turns)
    if arguments.out:
        print("\n" + tables.write(catalogue, arguments.out, comparison.rows))
    return 1 if any(counts(row) for row in comparison.rows) else 0


def counts(row):
    """Returns whether a program failed where it has to finish. That it does not on other allocators of PyTorch, which
    lack some abilities, is a result."""
    return "failed" in row and row["allocator"] not in ("expandable", "async")
