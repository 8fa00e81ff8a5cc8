"""What ``import torch`` calls at its end, through the entry point ``torch.backends``."""

import os


def autoload() -> None:
    """Enables Millpond if the environment has ``MILLPOND_TORCH=1``."""
    wish = os.environ.get("MILLPOND_TORCH", "")
    if wish in ("", "0"):
        return
    if wish != "1":
        raise RuntimeError(f"millpond: MILLPOND_TORCH is {wish!r}, and must be 1 or 0")
    from millpond import torch as millpond_torch

    millpond_torch.enable()
