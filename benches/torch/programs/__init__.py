"""Ten programs as they are run on GPUs, with random weights and made-up data, of torch's own modules alone.

Each module has ``steps(setting, count)``, which sets the program up and yields the loss of each step, a tensor on the
device. The sizes of step n are the same in every run: they are drawn from a seed, and depend on nothing that the device
does.
"""

import importlib

NAMES = ("gpt2", "llama", "resnet50", "generate", "bert", "gnn", "unet", "moe", "loader", "serving")


def load(name):
    """Returns the module of a program. Raises ``KeyError`` for a name that is not in ``NAMES``."""
    if name not in NAMES:
        raise KeyError(name)
    return importlib.import_module(f"programs.{name}")
