"""``python -m millpond doctor`` in the installed package, with modules in the place of torch. scripts/python.sh runs it."""

import ctypes
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

WORKS, NOTED, FAILS = "enable() works here", "enable() works here, but read the notes", "enable() does not work here"


class Doctor(unittest.TestCase):
    def setUp(self) -> None:
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def ask(self, torch: str | None, **environment: str) -> tuple[int, list[str]]:
        """Returns the exit code and the lines, with a module in the place of torch, or none."""
        ours = re.compile("(MILLPOND|PYTORCH|TORCH|CUDA|CXX)")
        clean = {name: value for name, value in os.environ.items() if not ours.match(name)}
        if torch is not None:
            (self.folder / "torch.py").write_text(torch)
            clean["PYTHONPATH"] = str(self.folder)
        command = [sys.executable, "-m", "millpond", "doctor"]
        done = subprocess.run(command, capture_output=True, text=True, env={**clean, **environment}, timeout=100)
        self.assertNotIn("Traceback", done.stderr)
        lines = done.stdout.splitlines()
        noted = NOTED if [line for line in lines if line.startswith("note: ")] else WORKS
        self.assertEqual(lines[-1], FAILS if done.returncode else noted)
        return done.returncode, lines

    def shim(self) -> str:
        """Returns the path of a shim that does nothing, compiled."""
        compiler, source, shim = shutil.which("cc"), self.folder / "shim.c", self.folder / "shim.so"
        if compiler is None:
            self.skipTest("there is no C compiler")
        source.write_text(stand_ins.SHIM)
        subprocess.run([compiler, "-w", "-shared", "-fPIC", source, "-o", shim], check=True)
        return str(shim)

    def problems(self, lines: list[str]) -> list[str]:
        return [line for line in lines if line.startswith("PROBLEM: ")]

    def test_it_takes_no_arguments(self) -> None:
        command = [sys.executable, "-m", "millpond", "doctor", "--help"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100)
        self.assertEqual((done.returncode, done.stderr), (1, "millpond: doctor takes no arguments\n"))

    def test_without_torch_it_says_what_is_there_and_what_to_install(self) -> None:
        code, lines = self.ask(None)
        self.assertEqual((code, lines[0].split()[0]), (1, "millpond:"))
        self.assertEqual(lines[1], f"library: {_library.path()}")
        self.assertRegex(lines[2], r"^system: Linux on x86_64, glibc 2\.\d+, Python 3\.\d+\.\d+ in ")
        self.assertIn("torch: none", lines)
        self.assertIn("configuration: policy:auto, the default", lines)
        self.assertIn("command: /some/millpond", self.ask(None, MILLPOND_COMMAND="/some/millpond")[1])
        # The package's own, whatever the PATH has.
        [command] = [line for line in self.ask(None, PATH="/no/folder")[1] if line.startswith("command: ")]
        self.assertEqual(command, f"command: {stand_ins.own_command()}")
        [problem] = self.problems(lines)
        self.assertRegex(problem, "there is no PyTorch for .*: install 2.11 to 2.15 with CUDA")

    def test_libraries_that_can_be_on_millpond_are_named_with_their_versions(self) -> None:
        self.assertFalse([line for line in self.ask(None)[1] if line.startswith(("cupy: ", "rmm: "))])
        (self.folder / "cupy").mkdir()
        (self.folder / "cupy" / "__init__.py").write_text("")
        known = self.folder / "cupy_cuda13x-14.1.0.dist-info"
        known.mkdir()
        (known / "METADATA").write_text("Metadata-Version: 2.1\nName: cupy-cuda13x\nVersion: 14.1.0\n")
        (known / "top_level.txt").write_text("cupy\n")
        lines = self.ask(None, PYTHONPATH=str(self.folder))[1]
        self.assertIn("cupy: cupy-cuda13x 14.1.0, on Millpond after millpond.cupy.enable()", lines)

    def test_a_torch_that_is_not_served_is_a_problem(self) -> None:
        other, cpu = stand_ins.TORCH.replace("2.11.0+cu130", "2.10.0+cu128"), stand_ins.TORCH.replace("+cu130", "+cpu")
        cases = [
            (other, "torch 2.10.0+cu128 is not supported"),
            (cpu.replace('"13.0", None', "None, None"), "2.11.0+cpu is built without CUDA"),
            (stand_ins.TORCH.replace('"13.0", None', '"13.0", "6.4"'), "is for ROCm"),
            ("raise OSError('libcudart.so.13: cannot open it')", "PyTorch does not load: OSError: libcudart.so.13"),
        ]
        for torch, part in cases:
            code, lines = self.ask(torch)
            [problem] = self.problems(lines)
            self.assertEqual(code, 1)
            self.assertIn(part, problem)
            self.assertFalse([line for line in lines if line.startswith("shim:")], "nothing more is said of it")

    def test_enable_is_tried_with_a_shim(self) -> None:
        shim = self.shim()
        code, lines = self.ask(stand_ins.TORCH, MILLPOND_SHIM=shim)
        self.assertEqual((code, self.problems(lines)), (0, []), lines)
        self.assertIn(f"torch: 2.11.0+cu130, commit 000000000000, in {self.folder}", lines)
        self.assertIn(f"shim: {shim}, as MILLPOND_SHIM names it", lines)
        self.assertIn(f"environment: MILLPOND_SHIM={shim}", lines)
        code, lines = self.ask(stand_ins.TORCH.replace("2.11.0", "2.12.0"), MILLPOND_SHIM=shim)
        self.assertEqual(code, 1)
        self.assertIn("is for torch 2.11.0, and this is torch 2.12.0", self.problems(lines)[0])
        code, lines = self.ask(stand_ins.TORCH, MILLPOND_SHIM=shim, LD_PRELOAD="/no/torch_memory_saver.so")
        self.assertEqual(code, 0)
        self.assertTrue([line for line in lines if line.startswith("note: torch_memory_saver's hooks are loaded")], lines)

    def test_without_a_shim_it_says_what_compiles_one_or_what_lacks(self) -> None:
        code, lines = self.ask(stand_ins.TORCH, PATH="/no/folder", CUDA_HOME="/no/toolkit")
        [problem] = self.problems(lines)
        self.assertEqual(code, 1)
        for part in ("TORCHES=2.11.0 scripts/wheel.sh", "install g++", "pip install ninja", "let CUDA_HOME name"):
            self.assertIn(part, problem)
        for name in ("c++", "ninja"):
            (self.folder / name).write_text("#!/bin/sh\n")
            (self.folder / name).chmod(0o755)
        (self.folder / "include").mkdir()
        (self.folder / "include" / "cuda_runtime_api.h").write_text("")
        code, lines = self.ask(stand_ins.TORCH, PATH=str(self.folder), CUDA_HOME=str(self.folder))
        self.assertEqual((code, self.problems(lines)), (0, []))
        [line] = [line for line in lines if line.startswith("shim: ")]
        self.assertIn(f"the first enable() compiles one, in a minute, with {self.folder / 'c++'}", line)
        for lacking in ("c++", "ninja", "include/cuda_runtime_api.h"):
            (self.folder / lacking).rename(self.folder / "away")
            code, lines = self.ask(stand_ins.TORCH, PATH=str(self.folder), CUDA_HOME=str(self.folder))
            self.assertEqual((code, len(self.problems(lines))), (1, 1), lacking)
            (self.folder / "away").rename(self.folder / lacking)

    def test_the_configuration_is_that_which_enable_takes(self) -> None:
        shim = self.shim()
        cases = [
            ("MILLPOND_CONF", "policy:classic", "policy:classic", "classic"),
            ("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64", "policy:auto,max_split_size_mb:64", "paged on devices with"),
            ("PYTORCH_NO_CUDA_MEMORY_CACHING", "1", "policy:direct", "direct"),
        ]
        for name, value, conf, policy in cases:
            for more in ({"MILLPOND_SHIM": shim}, {}):
                _, lines = self.ask(stand_ins.TORCH, **{name: value}, **more)
                self.assertIn(f"configuration: {conf}, from {name}", lines)
                self.assertTrue([line for line in lines if line.startswith(f"policy: {policy}")], lines)
                self.assertIn(f"environment: {name}={value}", lines)
        for more in ({"MILLPOND_SHIM": shim}, {}):
            code, lines = self.ask(stand_ins.TORCH, MILLPOND_CONF="policy:best", **more)
            self.assertEqual(code, 1)
            self.assertIn("configuration: has a mistake", lines)
            self.assertEqual(len([line for line in self.problems(lines) if "`best`" in line]), 1, lines)

    def test_a_wish_that_torch_would_refuse_is_a_problem(self) -> None:
        shim = self.shim()
        for wish, code in (("1", 0), ("0", 0), ("yes", 1)):
            found, lines = self.ask(stand_ins.TORCH, MILLPOND_SHIM=shim, MILLPOND_TORCH=wish)
            self.assertEqual((found, len(self.problems(lines))), (code, code))
            self.assertIn(f"environment: MILLPOND_TORCH={wish}", lines)

    def test_without_a_driver_nothing_can_be_allocated(self) -> None:
        code, lines = self.ask(stand_ins.TORCH, MILLPOND_SHIM=self.shim())
        if "driver: no CUDA driver that can be used" not in lines:
            self.skipTest("there is a driver here")
        self.assertEqual(code, 0)
        self.assertTrue([line for line in lines if line.startswith("note: nothing can be allocated here: ")], lines)

    @unittest.skipUnless(stand_ins.driver(), "MILLPOND_TEST_DRIVER does not name the simulated driver")
    def test_the_devices_are_those_of_the_driver(self) -> None:
        driver = stand_ins.driver() or ""
        _, lines = self.ask(stand_ins.TORCH, LD_PRELOAD=driver)
        [version] = [line for line in lines if line.startswith("driver: CUDA ")]
        devices = [line for line in lines if line.startswith("device ")]
        memory = [line for line in lines if line.startswith("memory of device ")]
        self.assertEqual(len(memory), 2, lines)
        for ordinal, line in enumerate(memory):
            self.assertRegex(line, rf"^memory of device {ordinal}: \d+\.\d GiB free of \d+\.\d GiB$")
            self.assertIn(line.split(" of ")[-1], devices[ordinal])
        self.assertEqual(len(devices), 2)
        facts = r"\d+\.\d GiB, compute capability \d+\.\d, virtual memory"
        self.assertRegex(devices[1], f"^device 1: Millpond CUDA simulator 1, {facts}$")
        major = int(version.removeprefix("driver: CUDA ").split(".")[0])
        notes = [line for line in lines if line.startswith("note: the driver knows CUDA")]
        self.assertEqual(len(notes), int(major < 13), lines)
        _, lines = self.ask(stand_ins.TORCH.replace('"13.0"', '"12.8"'), LD_PRELOAD=driver)
        self.assertFalse([line for line in lines if line.startswith("note: the driver knows CUDA")], lines)
        # Without a word it says what is installed, and the devices.
        command = [sys.executable, "-m", "millpond"]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "LD_PRELOAD": driver})
        self.assertEqual((done.returncode, done.stdout.splitlines()[-2:]), (0, devices))

    @unittest.skipUnless(stand_ins.driver(), "MILLPOND_TEST_DRIVER does not name the simulated driver")
    def test_free_memory_is_what_the_driver_says_or_why_not(self) -> None:
        code = stand_ins.DRIVER + """
from millpond import _doctor
free, total = _doctor.memory_bytes(0)
taken = ctypes.c_uint64()
check(driver.cuMemAlloc_v2(ctypes.byref(taken), 1 << 30))
print(_doctor.memory_bytes(0) == (free - (1 << 30), total), free >= 1 << 30)
current = ctypes.c_void_p()
check(driver.cuCtxGetCurrent(ctypes.byref(current)))
print(current.value == context.value)
print(*_doctor.memory_line(7))
"""
        said = stand_ins.run(code, {}, {"LD_PRELOAD": stand_ins.driver() or ""}).splitlines()
        self.assertEqual(said[:2], ["True True", "True"], "the context of the program stays its current one")
        why = "cuDeviceGet has failed with CUDA_ERROR_INVALID_DEVICE (101)"
        self.assertEqual(said[2], f"memory of device 7 not known: {why}")

    def test_without_a_driver_free_memory_is_not_known(self) -> None:
        try:
            ctypes.CDLL("libcuda.so.1")
        except OSError:
            said = stand_ins.run("from millpond import _doctor; print(*_doctor.memory_line(0))", {})
            self.assertIn("memory of device 0 not known: the driver does not load: libcuda.so", said)
        else:
            self.skipTest("there is a driver here")


if __name__ == "__main__":
    unittest.main(verbosity=2)
