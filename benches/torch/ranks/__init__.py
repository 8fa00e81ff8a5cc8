"""Programs for two GPUs, in two processes or in one.

Each is a class with ``step(number)``, which runs one step and returns its loss, a tensor, or ``None``; and
``finish()``, which returns a hash of all that the program has computed. A step that computes something wrong raises
``AssertionError``. What a step asks for is drawn from a seed, and depends on nothing that the device does.
"""

import importlib

# The module and the class of each, and how many processes it has.
PROGRAMS = {
    "ddp": ("training", "Replicated", 2),
    "fsdp": ("training", "Sharded", 2),
    "collectives": ("collectives", "Collectives", 2),
    "copies": ("peers", "Copies", 1),
    "parallel": ("peers", "Parallel", 1),
}


def processes(name):
    """Returns how many processes a program has."""
    return PROGRAMS[name][2]


def load(name):
    """Returns the class of a program."""
    module, attribute, _ = PROGRAMS[name]
    return getattr(importlib.import_module(f"ranks.{module}"), attribute)
