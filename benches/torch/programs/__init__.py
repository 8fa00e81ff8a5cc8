"""Ten programs as they are run on GPUs, with random weights and made-up data, of torch's own modules alone, and six
more, which are only recorded.

Each module has ``steps(setting, count)``, which sets the program up and yields the loss of each step, a tensor on the
device. The sizes of step n are the same in every run: they are drawn from a seed, and depend on nothing that the device
does.
"""

import importlib

NAMES = ("gpt2", "llama", "resnet50", "generate", "bert", "gnn", "unet", "moe", "loader", "serving")
# What the allocator does for these is looked at on recordings alone: their sizes vary more than those of the ten.
MORE = ("detect", "segment", "video", "audio", "points", "diffusion")


def load(name):
    """Returns the module of a program. Raises ``KeyError`` for a name that is neither in ``NAMES`` nor in ``MORE``."""
    if name not in NAMES + MORE:
        raise KeyError(name)
    return importlib.import_module(f"programs.{name}")
