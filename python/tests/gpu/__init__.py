"""The features that gpu_suite.py tries, by what they are about.

A module registers its features with ``common.feature``, in the order in which they are tried. It is imported once the
allocator is in place.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpu.common import Feature

SECTIONS = (
    "installed", "memory", "statistics", "streams", "training", "processes", "sharing", "registration", "graphs", "sleep",
)


def load() -> "list[tuple[str, Feature]]":
    """Imports all sections. Returns the names and functions of their features, in order."""
    from gpu import common

    for section in SECTIONS:
        importlib.import_module(f"gpu.{section}")
    return common.FEATURES
