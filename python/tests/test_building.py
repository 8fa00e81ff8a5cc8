"""What builds the wheel: how libraries are linked for an old Linux and checked. scripts/python.sh runs it."""

import io
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from building import elf, floor, headers, symbols

PYTHON = pathlib.Path(floor.__file__).resolve().parents[1]

# In glibc 2.34 these moved into another library, with new versions. Nothing in C++ here is older than its GCC.
NEW = "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <sys/stat.h>\n" \
      "void *use(struct stat64 *out) { stat64(\"/\", out); return dlsym(0, \"x\"); }\n"
PLUS = "#include <sstream>\n" \
       "std::string use(int *p) { std::ostringstream out; out << *new int[*p]; return std::move(out).str(); }\n"


def run(module: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a part of the building as scripts/wheel.sh does."""
    command = [sys.executable, "-B", "-m", f"building.{module}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=PYTHON, env={**os.environ, **environment})


@unittest.skipIf(shutil.which("g++") is None, "there is no g++")
class Floor(unittest.TestCase):
    def setUp(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self.addCleanup(self._folder.cleanup)
        self.folder = pathlib.Path(self._folder.name)

    def compiled(self, name: str, text: str, *options: str, language: str = "c") -> elf.Library:
        """Returns a library, compiled from a text."""
        path = self.folder / name
        path.with_suffix(".txt").write_text(text)
        source = str(path.with_suffix(".txt"))
        command = ["g++", "-O1", "-shared", "-fPIC", "-x", language, source, "-x", "none", "-o", str(path)]
        subprocess.run([*command, *options], check=True)
        return elf.Library(path)

    def test_what_is_linked_for_the_old_linux_keeps_to_it(self) -> None:
        floor.link(self.folder)
        link = [str(self.folder / "old.o"), f"-L{self.folder}", "-nodefaultlibs"]
        old = self.compiled("old.so", NEW, *link, "-Wl,--no-as-needed", "-lpthread", "-ldl", "-lc", "-Wl,-z,defs")
        self.assertEqual(floor.too_new(old), [])
        self.assertLessEqual({"libpthread.so.0", "libdl.so.2", "libc.so.6"}, set(old.needs))
        self.assertIn(("dlsym", "GLIBC_2.2.5"), [(symbol.name, symbol.version) for symbol in old.symbols])
        self.assertEqual(floor.glibc([old]), (2, 28))
        # It works here, too.
        code = f"import ctypes; ctypes.CDLL({str(old.path)!r}).use(ctypes.create_string_buffer(500)); print('yes')"
        self.assertEqual(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout, "yes\n")

    def test_a_program_that_is_linked_for_the_old_linux_keeps_to_it(self) -> None:
        floor.link(self.folder)
        source, program = self.folder / "program.c", self.folder / "program"
        source.write_text(NEW + "#include <stdio.h>\n"
                          "int main(void) { struct stat64 out; use(&out); return puts(\"yes\") < 0; }\n")
        link = [str(self.folder / "old.o"), f"-L{self.folder}", "-Wl,--no-as-needed", "-lpthread", "-ldl",
                "-l:ld-linux-x86-64.so.2", "-Wl,--allow-shlib-undefined"]
        subprocess.run(["g++", "-O1", "-x", "c", str(source), "-x", "none", "-o", str(program), *link], check=True)
        done = run("floor", "check", str(program))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        starts = [symbol.version for symbol in elf.Library(program).symbols if symbol.name == "__libc_start_main"]
        self.assertEqual(starts, ["GLIBC_2.2.5"])
        self.assertEqual(subprocess.run([str(program)], capture_output=True, text=True).stdout, "yes\n")

    def test_the_archive_of_libstdcxx_fills_in_what_an_old_one_lacks(self) -> None:
        floor.link(self.folder)
        link = [str(self.folder / "old.o"), f"-L{self.folder}", "-nodefaultlibs", "-lstdc++", "-lc"]
        archive = ["-Wl,--exclude-libs,libstdc++.a", "-l:libstdc++.a", "-lgcc_s", "-lgcc", "-lc"]
        plus = self.compiled("plus.so", PLUS, *link, *archive, language="c++")
        self.assertEqual(floor.too_new(plus), [])
        self.assertIn("libstdc++.so.6", plus.needs)
        throws = [symbol for symbol in plus.symbols if symbol.name == "_ZSt28__throw_bad_array_new_lengthv"]
        self.assertEqual(throws, [], "it is linked in, and hidden")

    def test_a_library_that_is_newer_fails(self) -> None:
        source = "int newer(void); int use(void) { return newer(); }\n"
        script = self.folder / "versions.map"
        for version, is_old in [("GLIBC_2.28", True), ("GLIBC_2.29", False), ("GLIBC_2.3", True), ("GLIBCXX_3.4.25", False),
                                ("CXXABI_1.3.11", True), ("CXXABI_1.3.12", False), ("GLIBC_ABI_DT_RELR", False)]:
            script.write_text(f"{version} {{ global: newer; }};\n")
            self.compiled("libnewer.so", "int newer(void) { return 1; }\n", f"-Wl,--version-script,{script}")
            library = self.compiled("use.so", source, f"-L{self.folder}", "-lnewer")
            wrong = [line for line in floor.too_new(library) if "newer" in line]
            self.assertEqual(wrong, [] if is_old else [f"newer of version {version}"])
            done = run("floor", "check", str(library.path))
            self.assertEqual(version in done.stderr, not is_old, done.stderr)
            if not is_old:
                self.assertEqual(done.returncode, 1)
        script.write_text("GLIBC_2.31 { global: newer; };\n")
        self.compiled("libnewer.so", "int newer(void) { return 1; }\n", f"-Wl,--version-script,{script}")
        self.assertGreaterEqual(floor.glibc([self.compiled("use.so", source, f"-L{self.folder}", "-lnewer")]), (2, 31))

    def test_symbols_that_torch_does_not_have_are_found(self) -> None:
        site = self.folder / "site"
        for folder in ("torch/lib", "nvidia/cu13/lib"):
            (site / folder).mkdir(parents=True)
        shim = self.compiled("shim.so", "int a(), b(), c(), d(), e() __attribute__((weak));\n"
                             "int use() { return a() + b() + c() + d() + (e ? e() : 0); }\n")
        self.assertIsNone(symbols.missing(shim, site), "a folder without the libraries tells nothing")
        parts = {"torch/lib/libc10.so": "int a() { return 1; }\n", "torch/lib/libc10_cuda.so": "int x;\n",
                 "nvidia/cu13/lib/libcudart.so.13": "int b() { return 2; }\n",
                 "torch/lib/libtorch_python.so": "int c(); int take() { return c(); }\n"}
        for name, text in parts.items():
            self.compiled("part.so", text).path.rename(site / name)
        self.assertEqual(symbols.missing(shim, site), ["d"])
        done = run("symbols", str(shim.path), str(site))
        self.assertEqual((done.returncode, done.stderr.splitlines()[-1]), (1, "d"))

    def test_a_file_that_is_no_library_is_named(self) -> None:
        path = self.folder / "text.so"
        for data in (b"", b"#!/bin/sh\n", b"\x7fELF\x01\x01" + bytes(100)):
            path.write_bytes(data)
            with self.assertRaisesRegex(elf.NotElf, "text.so"):
                elf.Library(path)


class Answer:
    """What an index sends."""

    def __init__(self, data: bytes, size: int, status_code: int) -> None:
        self.raw, self.headers, self.status_code = io.BytesIO(data), {"Content-Length": str(size)}, status_code

    def raise_for_status(self) -> None:
        pass

    def close(self) -> None:
        pass


class Index:
    """A connection to an index with one file."""

    def __init__(self, data: bytes, sends_parts: bool = True) -> None:
        self.data, self.sends_parts, self.sent = data, sends_parts, 0

    def head(self, url: str, headers: dict[str, str]) -> Answer:
        return Answer(b"", len(self.data), 200)

    def get(self, url: str, headers: dict[str, str], stream: bool) -> Answer:
        if not self.sends_parts:
            return Answer(self.data, len(self.data), 200)
        start, end = (int(number) for number in headers["Range"].removeprefix("bytes=").split("-"))
        self.sent += end + 1 - start
        return Answer(self.data[start:end + 1], len(self.data), 206)


class Headers(unittest.TestCase):
    def wheel(self) -> bytes:
        # Large parts in between, which nobody wants.
        data, large = io.BytesIO(), bytes(3 << 20)
        with zipfile.ZipFile(data, "w") as wheel:
            for name, content in [("torch/version.py", b"x = 1"), ("torch/lib/libtorch_cpu.so", large),
                                  ("torch/include/c10/a.h", b"int a;"), ("torch/lib/libc10.so", b"elf"),
                                  ("torch/lib/libtorch_cuda.so", large), ("torch-1.dist-info/RECORD", b"")]:
                wheel.writestr(name, content)
        return data.getvalue()

    def fetch(self, index: Any) -> tuple[dict[str, bytes], int]:
        with tempfile.TemporaryDirectory() as folder:
            file = headers.Parts(index, "https://index.invalid/torch.whl")
            headers.members(file, headers.OF_TORCH, pathlib.Path(folder))
            found = sorted(path for path in pathlib.Path(folder).rglob("*") if path.is_file())
            return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}, file.fetched

    def test_only_parts_of_a_wheel_are_fetched(self) -> None:
        index = Index(self.wheel())
        found, fetched = self.fetch(index)
        wanted = {"torch/include/c10/a.h": b"int a;", "torch/lib/libc10.so": b"elf", "torch/version.py": b"x = 1"}
        self.assertEqual(found, wanted)
        self.assertEqual(fetched, index.sent)
        self.assertLess(fetched, 200_000)

    def test_an_index_that_sends_no_parts_or_others_is_an_error(self) -> None:
        with self.assertRaisesRegex(headers.Missing, "does not send parts"):
            self.fetch(Index(self.wheel(), sends_parts=False))
        damaged = bytearray(self.wheel())
        damaged[damaged.index(b"int a;")] ^= 1
        with self.assertRaisesRegex(zipfile.BadZipFile, "a.h"):
            self.fetch(Index(bytes(damaged)))

    def test_a_release_that_is_not_there_says_what_to_do(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            done = run("headers", folder, "2.11.0", PIP_NO_INDEX="1", PIP_FIND_LINKS=folder)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn("pip download --no-deps --dest wheels torch==2.11.0", done.stderr)
            self.assertIn("TORCHES=2.11.0 scripts/wheel.sh", done.stderr)
            self.assertEqual(list(pathlib.Path(folder).iterdir()), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
