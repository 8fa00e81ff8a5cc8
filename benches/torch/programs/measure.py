"""Runs programs in a process that uses one allocator, and prints a row of each.

A program is a function. Either it yields the loss of each step, as a tensor on the device or a number, or it takes a
third argument, which it calls with the loss at the end of each step: trainers of libraries have loops of their own. The
first step includes what sets the program up.
"""

import contextlib
import importlib.util
import inspect
import sys
import time
import traceback

from programs import turns
from programs.allocators import asked, enable, start_anew, tell


class Meter:
    """Times and losses of the steps of a program, and what its allocator asks of the driver from one step on."""

    def __init__(self, allocator, setting, steps, settled, turn):
        self.allocator, self.setting, self.steps, self.settled, self.turn = allocator, setting, steps, settled, turn
        self.times, self.losses, self.before = [], [], {}
        self.last = 0.0

    def begin(self):
        """Begins a step, once it is this process's turn."""
        if len(self.times) == self.settled and self.setting.is_cuda:
            self.before = asked(self.allocator)
        self.turn()
        self.last = time.perf_counter()

    def end(self, loss):
        """Ends a step, and begins the next one, if there is one."""
        if len(self.times) == self.steps:
            return
        if self.setting.is_cuda:
            synchronize()
        self.times.append(time.perf_counter() - self.last)
        self.losses.append(float(loss))
        if len(self.times) < self.steps:
            self.begin()

    def pass_by(self):
        """Takes the turns of the steps that a program which has failed did not take, so that all processes are at the
        same program."""
        for _ in range(len(self.times) + 1, self.steps):
            self.turn()

    def driver(self):
        """Returns how often the driver was asked since the step from which it counts."""
        return {key: value - self.before[key] for key, value in asked(self.allocator).items()}


def synchronize():
    """Waits for the device."""
    import torch

    torch.cuda.synchronize()


def drive(program, setting, steps, end):
    """Runs the steps of a program, and calls ``end`` with the loss of each. Returns what is still there of the program,
    to be closed, or ``None``."""
    if not inspect.isgeneratorfunction(program):
        return program(setting, steps, end)
    running = program(setting, steps)
    for _ in range(steps):
        end(next(running))
    return running


def run(program, setting, steps, meter):
    """Runs and measures the steps of a program, as ``drive``. Raises ``RuntimeError`` if it ends before."""
    meter.begin()
    running = drive(program, setting, steps, meter.end)
    if len(meter.times) < steps:
        raise RuntimeError(f"ended after {len(meter.times)} of {steps} steps")
    return running


def measure(name, program, allocator, setting, meter):
    """Runs a program, and returns its row."""
    if setting.is_cuda:
        import torch

        start_anew()
        left = torch.cuda.memory_reserved()
    began = time.perf_counter()
    running = run(program, setting, meter.steps, meter)
    row = {
        "program": name,
        "allocator": allocator,
        "steps": meter.steps,
        "times": [round(1000 * time, 3) for time in meter.times],
        "seconds": time.perf_counter() - began,
        "losses": meter.losses,
        "loss": meter.losses[-1],
    }
    if setting.is_cuda:
        stats = torch.cuda.memory_stats()
        row["reserved"] = stats["reserved_bytes.all.peak"]
        row["live"] = stats["allocated_bytes.all.peak"]
        row["left"] = left
        row["retries"] = stats["num_alloc_retries"]
        row["driver"] = meter.driver()
    if running is not None:
        running.close()
    return row


def missing(needs):
    """Returns which of these packages are not installed, as a text that is empty if all are."""
    return ", ".join(name for name in needs if importlib.util.find_spec(name) is None)


def child(catalogue, arguments):
    """Runs the programs in this process, and prints a row of each. After one that fails, the others run, unless the
    device is of no more use to this process. Returns the exit code."""
    from programs.setting import Setting

    if arguments.device == "cuda":
        enable(arguments.child)
        leave_out_cudnn_attention(arguments)
    turn = turns.take if arguments.turns else lambda: None
    for name in arguments.only:
        row = {"program": name, "allocator": arguments.child}
        absent = missing(catalogue.needs(name))
        if absent:
            tell({**row, "skipped": f"not installed: {absent}"})
            continue
        setting, steps = Setting(arguments.device, arguments.tiny), catalogue.steps(name, arguments)
        meter = Meter(arguments.child, setting, steps, int(steps * catalogue.settled), turn)
        try:
            # What programs print is not mixed with what the process that began this one reads.
            with contextlib.redirect_stdout(sys.stderr):
                row = measure(name, catalogue.load(name), arguments.child, setting, meter)
        except EOFError:
            raise
        except Exception as error:
            row["failed"] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
            row["step"], row["trace"] = len(meter.times), traceback.format_exc(-8)[-3000:]
        tell(row)
        if "failed" in row:
            if setting.is_cuda:
                synchronize()
            meter.pass_by()
    return 0


def leave_out_cudnn_attention(arguments):
    """Has PyTorch use its own attention kernels. Those of cuDNN are compiled anew for each shape of a request, and a
    program whose shapes vary, like bert, spends most of its time in that compiler, whatever its allocator."""
    import torch

    torch.backends.cuda.enable_cudnn_sdp(arguments.cudnn_attention)
