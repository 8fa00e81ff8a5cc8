"""What becomes of the keys of a configuration at ``enable()``, with stand-ins for torch and the shim; and the table of the
reference. scripts/python.sh runs it. settings.py has what PyTorch's functions change later.
"""

import pathlib
import re
import unittest

import stand_ins
from stand_ins import TORCH

from millpond import _library

PROGRAM = """
import warnings
import torch, millpond.torch
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    millpond.torch.enable({conf})
print("told:", torch._C.told)
for warning in caught: print(warning.category.__name__, pathlib.Path(warning.filename).name, warning.message)
print("conf:", millpond.torch.conf())
"""


def enable(conf: str | None, environment: dict[str, str] | None = None) -> list[str]:
    """Enables Millpond in a process of its own. Returns the lines of what PyTorch was told, the warnings and the result."""
    code = "import pathlib\n" + PROGRAM.format(conf=repr(conf))
    return stand_ins.run(code, {"torch.py": TORCH}, environment, needs_shim=True).splitlines()


def warned(key: str, why: str = "it asks for what Millpond does not do") -> str:
    return f"RuntimeWarning <string> millpond: the allocator setting {key} has no effect: {why}"


class AtEnable(unittest.TestCase):
    def test_keys_that_act_and_keys_that_say_what_is_so_are_not_named(self) -> None:
        conf = "roundup_power2_divisions:2,backend:native,release_lock_on_cudamalloc:True," \
               "graph_capture_record_stream_reuse:False"
        self.assertEqual(enable(conf), ["told: []", "conf: roundup_power2_divisions:2"])

    def test_each_key_that_asks_for_what_is_not_done_is_named(self) -> None:
        for pair in (
            "graph_capture_record_stream_reuse:True",
            "expandable_segments_reserve:0.5",
            "expandable_segments_reserve_by_class:[a:1,b:80G]",
        ):
            expected = ["told: []", warned(pair.split(":")[0]), "conf: "]
            self.assertEqual(enable(pair), expected)
            for variable in ("MILLPOND_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
                self.assertEqual(enable(None, {variable: pair}), expected)

    def test_settings_of_pinned_memory_are_handed_on_where_pytorch_does_not_see_them(self) -> None:
        conf = "pinned_use_background_threads : True,slack:1,pinned_num_register_threads:4"
        told = "told: ['pinned_use_background_threads:True', 'pinned_num_register_threads:4']"
        self.assertEqual(enable(conf), [told, "conf: slack:1"])
        self.assertEqual(enable(None, {"MILLPOND_CONF": conf}), [told, "conf: slack:1"])
        self.assertEqual(enable(None, {"PYTORCH_CUDA_ALLOC_CONF": conf}), ["told: []", "conf: slack:1"])

    def test_one_that_this_pytorch_does_not_have_is_named(self) -> None:
        why = "it is of PyTorch's pinned memory, and PyTorch does not take it: Unrecognized key"
        lines = enable("pinned_free_catch_all:True,pinned_max_cached_size_mb:7")
        self.assertEqual(lines[0], "told: ['pinned_free_catch_all:True', 'pinned_max_cached_size_mb:7']")
        self.assertEqual(lines[1:-1], [warned("pinned_free_catch_all", why)])

    def test_a_warning_of_the_shim_is_one_of_python(self) -> None:
        said = enable("slack:1", {"SHIM_WARNS": "millpond: of the shim"})
        self.assertEqual([line.split(" ", 2)[2] for line in said[1:-1]], ["millpond: of the shim"])


class Reference(unittest.TestCase):
    def test_the_table_has_each_key_once(self) -> None:
        page = pathlib.Path(__file__).parents[2] / "docs" / "reference" / "torch-functions.md"
        section = page.read_text().split("## Settings that change")[1].split("\n## ")[0]
        rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
        named = [key for row in rows for key in re.findall("`([a-z0-9_]+)`", row)]
        keys = [key for key in _library.text("keys").split(",") if "hip" not in key]
        self.assertEqual(sorted(named), sorted(keys))


if __name__ == "__main__":
    unittest.main(verbosity=2)
