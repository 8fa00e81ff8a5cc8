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

import stand_ins
from millpond import _library

STUB = """
__version__ = {version!r}
class version:
    cuda, hip, git_version = {cuda!r}, {hip!r}, {git!r}
class cuda:
    @staticmethod
    def memory_stats(): return {{}}
before = dict(cuda.__dict__)
"""

# A library with a table of which everything behind the size is no function.
TABLE = """
#include <stdint.h>
#include <string.h>
static struct {{ uint32_t abi, size; unsigned char rest[4096]; }} table;
const char *millpond_version(void) {{ return "{version}"; }}
void *millpond_core_get(uint32_t abi) {{
    memset(&table, 0x41, sizeof table);
    table.abi = {abi};
    table.size = {size};
    return abi == 1 ? &table : 0;
}}
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


def run(code: str, environment: dict[str, str] | None = None, **stub: str | None) -> str:
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
    def test_the_library_loads_and_has_the_version_of_the_package(self) -> None:
        said = run("import millpond; print(millpond.__version__)")
        self.assertEqual(said.strip(), importlib.metadata.version("millpond"))

    def test_without_torch_there_is_nothing_to_serve(self) -> None:
        said = run(TRY.split("import torch\n")[0])
        self.assertIn("Error: millpond: there is no PyTorch to serve", said)

    def test_a_torch_that_cannot_be_served_is_refused_and_left_as_it_was(self) -> None:
        cases: list[tuple[dict[str, str | None], str]] = [
            ({"version": "2.10.0+cu128"}, "torch 2.10.0+cu128 is not supported"),
            ({"version": "2.16.0"}, "releases 2.11 to 2.15"),
            ({"version": "2.12.0a0+git123"}, "is not supported"),
            ({"version": "3.0.0"}, "is not supported"),
            ({"cuda": None}, "built without CUDA"),
            ({"hip": "6.4"}, "for ROCm"),
            ({}, "the package has no shim for torch 2.11.0+cu130 (commit 000000000000)"),
        ]
        for stub, part in cases:
            self.assertIn(part, run(TRY, None, **{"version": "2.11.0+cu130", **stub}), stub)

    def test_a_shim_for_another_torch_is_refused(self) -> None:
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

    def test_the_configuration_is_that_of_the_environment(self) -> None:
        code = "import millpond.torch; print(millpond.torch.conf())"
        self.assertEqual(run(code, {"PYTORCH_CUDA_ALLOC_CONF": "policy:classic, max_split_size_mb:64"}).strip(),
                         "policy:classic,max_split_size_mb:64")
        code = "import millpond.torch\ntry: millpond.torch.conf()\nexcept millpond.torch.Error as error: print(error)"
        said = run(code, {"MILLPOND_CONF": "policy:best"})
        self.assertIn("MILLPOND_CONF", said)
        self.assertIn("`best`", said)

    def test_what_needs_it_enabled_says_so(self) -> None:
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
        # The library and the command are linked with these, whose licences ask for their text to go with them.
        for name in ("serde_json", "zstd-sys", "parking_lot", "cudarc", "clap", "nvml-wrapper"):
            texts = [text for path, text in found.items() if path.startswith(f"third-party/{name}-")]
            self.assertTrue(texts and all(texts), name)
        self.assertFalse([path for path in found if "gpu-allocator" in path or "third-party/ash-" in path], "no Vulkan")
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

    def test_python_knows_the_table_as_the_header_has_it(self) -> None:
        header = pathlib.Path(_library.__file__).parent / "shim" / "millpond_core.h"
        table = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.DOTALL).split("typedef struct millpond_core_v1 {")[1]
        entries = re.findall(r"\(\*(\w+)\)\(", table.split("} millpond_core_v1;")[0])
        known = [field[0] for field in _library._Table._fields_][2:]
        self.assertEqual(known, entries[:len(known)])


# Libraries that are not the package's own: C, a part of the error, and whether the package knows their version.
OTHERS = [
    # The table ends behind the entry that is read here, or in front of it.
    (TABLE.format(version="0.0.9", size="8 + 3 * sizeof(void *)", abi=1), "has a table of version 1 and 32 bytes", True),
    (TABLE.format(version="0.0.9", size="8", abi=1), "version 1 and 8 bytes", True),
    (TABLE.format(version="0.0.9", size="0", abi=1), "version 1 and 0 bytes", True),
    (TABLE.format(version="9.0.0", size="4096", abi=2), "a table of version 2", True),
    ("#include <stdint.h>\nconst char *millpond_version(void) { return \"0.0.1\"; }\n"
     "void *millpond_core_get(uint32_t abi) { return (void *)(uintptr_t)(abi - 1); }\n", "has no table of version 1", True),
    ("const char *millpond_version(void) { return \"0.0.1\"; }\n", "has no function millpond_core_get", True),
    ("int nothing_of_millpond;\n", "has no function millpond_version", False),
]

ASK = """
import millpond.torch
from millpond import _pond
for call in (millpond.torch.conf, lambda: _pond.of(0), millpond.torch.enable):
    try: call()
    except millpond.torch.Error as error: print(error)
"""


class OtherLibraries(unittest.TestCase):
    def test_a_library_that_does_not_fit_is_an_error_and_no_crash(self) -> None:
        compiler = shutil.which("cc")
        if compiler is None:
            self.skipTest("there is no C compiler")
        with tempfile.TemporaryDirectory() as folder:
            source, library = pathlib.Path(folder, "other.c"), pathlib.Path(folder, "other.so")
            shim = pathlib.Path(folder, "shim.so")
            source.write_text(stand_ins.SHIM)
            subprocess.run([compiler, "-w", "-shared", "-fPIC", source, "-o", shim], check=True)
            for text, part, loads in OTHERS:
                source.write_text(text)
                subprocess.run([compiler, "-shared", "-fPIC", source, "-o", library], check=True)
                environment = {"MILLPOND_LIBRARY": str(library), "MILLPOND_SHIM": str(shim)}
                if not loads:
                    with self.assertRaisesRegex(AssertionError, part):
                        run("import millpond", environment)
                    continue
                said = run(ASK, environment, version="2.11.0").splitlines()
                self.assertEqual(len(said), 3, said)
                for line, expected in zip(said, (part, "has no function millpond_abi", part)):
                    self.assertIn(expected, line)
                    self.assertIn(str(library), line)

    def test_a_library_that_is_not_there_is_named(self) -> None:
        for name in ("/no/such/library.so", os.devnull, __file__):
            with self.assertRaisesRegex(AssertionError, "Error: millpond: the library does not load: .*" + re.escape(name)):
                run("import millpond", {"MILLPOND_LIBRARY": name})


# What `python -m millpond` runs, where nothing says which files were installed.
ALONE = """
import importlib.metadata, runpy
importlib.metadata.files = lambda name: None
runpy.run_module("millpond", run_name="__main__")
"""


class Command(unittest.TestCase):
    """``python -m millpond``."""

    def ask(self, *arguments: str, is_alone: bool = False, **environment: str) -> tuple[int, str, str]:
        """Returns the exit code, the output and the errors. If it ``is_alone``, the package has no command of its own."""
        clean = {key: value for key, value in os.environ.items() if not key.startswith("MILLPOND_")}
        command = [sys.executable, *(["-c", ALONE] if is_alone else ["-m", "millpond"]), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, env={**clean, **environment}, timeout=100)
        return done.returncode, done.stdout, done.stderr

    def test_it_says_what_is_installed(self) -> None:
        version = importlib.metadata.version("millpond")
        self.assertEqual(self.ask("--version"), (0, f"millpond {version}\n", ""))
        code, said, _ = self.ask(PATH="")
        self.assertEqual((code, said.splitlines()[0]), (0, f"millpond {version}"))
        self.assertIn(_library.path(), said)
        self.assertIn(f"command: {stand_ins.own_command()}", said.splitlines())
        self.assertIn("command: none: install the wheel again", self.ask(is_alone=True, PATH="")[1])
        for option in ("-h", "--help"):
            code, said, _ = self.ask(option)
            self.assertEqual((code, said.split()[:4]), (0, ["usage:", "python", "-m", "millpond"]))

    def test_it_runs_the_command(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            command = pathlib.Path(folder, "millpond")
            command.write_text('#!/bin/sh\necho "$@"\nexit 7\n')
            command.chmod(0o755)
            self.assertEqual(self.ask("report", "a b", MILLPOND_COMMAND=str(command)), (7, "report a b\n", ""))
            path = f"{folder}:{os.environ['PATH']}"
            self.assertEqual(self.ask("replay", "-h", is_alone=True, PATH=path), (7, "replay -h\n", ""))
            # The package's own fits its library. It comes before one that is on the PATH.
            code, said, _ = self.ask("replay", "-h", PATH=path)
            self.assertEqual(code, 0)
            self.assertIn("Usage: millpond replay", said)
            code, said, error = self.ask("report", "x", is_alone=True, PATH="")
            self.assertEqual((code, said), (1, ""))
            self.assertIn("install the wheel again", error)
            code, said, error = self.ask("report", "x", MILLPOND_COMMAND=folder)
            self.assertEqual((code, said), (1, ""))
            self.assertIn("does not start", error)

    def test_the_environment_has_the_command_which_makes_a_first_report(self) -> None:
        own, version = stand_ins.own_command(), importlib.metadata.version("millpond")
        said = subprocess.run([own, "--version"], capture_output=True, text=True, check=True).stdout
        self.assertEqual(said.split(), ["millpond", version])
        for start in ([own], [sys.executable, "-m", "millpond"]):
            with tempfile.TemporaryDirectory() as folder:
                done = subprocess.run([*start, "report"], capture_output=True, text=True, cwd=folder, timeout=100)
                self.assertEqual(done.returncode, 0, done.stderr)
                page = pathlib.Path(folder, "report.html").read_text()
                self.assertIn("<!doctype html>", page)
                self.assertIn("gpt2_train", page)


if __name__ == "__main__":
    unittest.main(verbosity=2)
