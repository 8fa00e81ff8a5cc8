"""The installed package where there is neither a GPU nor PyTorch: it loads, and refuses clearly. scripts/python.sh runs it."""

import importlib.metadata
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

STUB = """
__version__ = {version!r}
class version:
    cuda, hip, git_version = {cuda!r}, {hip!r}, {git!r}
class cuda:
    @staticmethod
    def memory_stats(): return {{}}
before = dict(cuda.__dict__)
"""

TRY = """
import millpond.torch
try:
    millpond.torch.enable()
    print("enabled")
except millpond.torch.Error as error:
    print("Error:", error)
import torch
assert dict(torch.cuda.__dict__) == torch.before and not millpond.torch.is_enabled(), "torch was changed"
"""


def run(code, environment=None, **stub):
    """Runs code in a process of its own, with a module in the place of torch if its facts are given. Returns its output."""
    with tempfile.TemporaryDirectory() as folder:
        clean = {key: value for key, value in os.environ.items() if not re.match("(MILLPOND|PYTORCH)_", key)}
        if stub:
            facts = {"version": "2.11.0+cu130", "cuda": "13.0", "hip": None, "git": "0" * 40, **stub}
            pathlib.Path(folder, "torch.py").write_text(STUB.format(**facts))
            clean["PYTHONPATH"] = folder
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env={**clean, **(environment or {})}, timeout=100)
    if done.returncode != 0:
        raise AssertionError(done.stdout + done.stderr)
    return done.stdout


class Package(unittest.TestCase):
    def test_the_library_loads_and_has_the_version_of_the_package(self):
        said = run("import millpond; print(millpond.__version__)")
        self.assertEqual(said.strip(), importlib.metadata.version("millpond"))

    def test_without_torch_there_is_nothing_to_serve(self):
        said = run(TRY.split("import torch\n")[0])
        self.assertIn("Error: millpond: there is no PyTorch to serve", said)

    def test_a_torch_that_cannot_be_served_is_refused_and_left_as_it_was(self):
        cases = [
            ({"version": "2.10.0+cu128"}, "torch 2.10.0+cu128 is not supported"),
            ({"version": "2.16.0"}, "releases 2.11 to 2.15"),
            ({"version": "2.12.0a0+git123"}, "is not supported"),
            ({"version": "3.0.0"}, "is not supported"),
            ({"cuda": None}, "built without CUDA"),
            ({"hip": "6.4"}, "for ROCm"),
            ({}, "the package has no shim for torch 2.11.0+cu130 (commit 000000000000)"),
        ]
        for stub, part in cases:
            self.assertIn(part, run(TRY, **{"version": "2.11.0+cu130", **stub}), stub)

    def test_a_shim_for_another_torch_is_refused(self):
        compiler = shutil.which("cc")
        if compiler is None:
            self.skipTest("there is no C compiler")
        with tempfile.TemporaryDirectory() as folder:
            source, shim = pathlib.Path(folder, "shim.c"), pathlib.Path(folder, "shim.so")
            source.write_text('const char *millpond_shim_torch(void) { return "2.15.0"; }\n')
            subprocess.run([compiler, "-shared", "-fPIC", source, "-o", shim], check=True)
            said = run(TRY, {"MILLPOND_SHIM": str(shim)}, version="2.11.0")
            self.assertIn("is for torch 2.15.0, and this is torch 2.11.0", said)
            said = run(TRY, {"MILLPOND_SHIM": str(source)}, version="2.11.0")
            self.assertIn("the shim does not load into torch 2.11.0", said)

    def test_the_configuration_is_that_of_the_environment(self):
        code = "import millpond.torch; print(millpond.torch.conf())"
        self.assertEqual(run(code, {"PYTORCH_CUDA_ALLOC_CONF": "policy:classic, max_split_size_mb:64"}).strip(),
                         "policy:classic,max_split_size_mb:64")
        code = "import millpond.torch\ntry: millpond.torch.conf()\nexcept millpond.torch.Error as error: print(error)"
        said = run(code, {"MILLPOND_CONF": "policy:best"})
        self.assertIn("MILLPOND_CONF", said)
        self.assertIn("`best`", said)

    def test_what_needs_it_enabled_says_so(self):
        code = "import millpond.torch\ntry: {}\nexcept millpond.torch.Error as error: print(error)"
        self.assertIn("a process cannot go back", run(code.format("millpond.torch.disable()")))
        self.assertIn("call millpond.torch.enable()", run(code.format("millpond.torch.stats()"), version="2.11.0"))

    def test_the_wheel_has_the_licences_of_all_that_is_in_it(self) -> None:
        package = importlib.metadata.distribution("millpond")
        self.assertEqual(package.metadata["License-Expression"], "MIT OR Apache-2.0")
        named = package.metadata.get_all("License-File") or []
        self.assertLessEqual({"LICENSE-MIT", "LICENSE-APACHE"}, set(named))
        folder = pathlib.Path(str(package.locate_file(f"millpond-{package.version}.dist-info"))) / "licenses"
        found = {name: (folder / name).read_text(errors="replace") for name in named}
        self.assertIn("Permission is hereby granted", found["LICENSE-MIT"])
        self.assertIn("Apache License", found["LICENSE-APACHE"])
        # The library is linked with these, whose licences ask for their text to go with it.
        for name in ("serde_json", "zstd-sys", "parking_lot", "cudarc"):
            texts = [text for path, text in found.items() if path.startswith(f"third-party/{name}-")]
            self.assertTrue(texts and all(texts), name)
        self.assertTrue(any("Facebook" in text or "Meta Platforms" in text for text in found.values()), "that of zstd in C")

    def test_torch_finds_the_entry_point(self) -> None:
        points = [point for point in importlib.metadata.entry_points(group="torch.backends") if point.name == "millpond"]
        self.assertEqual(len(points), 1)
        code = f"from {points[0].module} import {points[0].attr} as load\ntry: load(); print('loaded')\n" \
               "except Exception as error: print(error)"
        self.assertIn("loaded", run(code))
        self.assertIn("loaded", run(code, {"MILLPOND_TORCH": "0"}))
        self.assertIn("must be 1 or 0", run(code, {"MILLPOND_TORCH": "yes"}))
        self.assertIn("is not supported", run(code, {"MILLPOND_TORCH": "1"}, version="2.1.0"))

    def test_python_knows_the_table_as_the_header_has_it(self):
        from millpond import _library

        header = pathlib.Path(_library.__file__).parent / "shim" / "millpond_core.h"
        table = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.DOTALL).split("typedef struct millpond_core_v1 {")[1]
        entries = re.findall(r"\(\*(\w+)\)\(", table.split("} millpond_core_v1;")[0])
        known = [name for name, _ in _library._Table._fields_][2:]
        self.assertEqual(known, entries[:len(known)])


if __name__ == "__main__":
    unittest.main(verbosity=2)
