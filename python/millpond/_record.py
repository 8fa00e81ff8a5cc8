"""Recordings of programs as traces, and the page that shows one."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

from millpond import _library
from millpond._library import Error

# The devices that are being recorded.
_recorded = set()


def stem(path):
    """Returns the name of a file without what tells its format."""
    name = pathlib.Path(path).name
    for suffix in (".zst", ".gz", ".trace", ".pickle", ".pkl", ".pt", ".json"):
        name = name.removesuffix(suffix)
    return name or "recording"


class Recording:
    """What a program asks of the allocator of one device, from ``start`` to ``stop``, as a trace in a file."""

    def __init__(self, path, device, facts):
        self.path, self._device, self._facts = pathlib.Path(path), device, facts
        self._number = self._began = None

    def start(self):
        """Begins to record. Raises ``Error`` if the device is being recorded already. Returns the recording."""
        number = self._device()
        if number in _recorded:
            raise Error(f"millpond: device {number} is being recorded already")
        folder = self.path.parent
        if not folder.is_dir():
            raise Error(f"millpond: there is no folder {folder} to write {self.path.name} into")
        _library.call("record_start", number)
        _recorded.add(number)
        self._number, self._began = number, time.monotonic()
        return self

    def stop(self):
        """Ends the recording, and writes the file. Raises ``Error`` if that was not begun, or cannot be written."""
        if self._number is None:
            raise Error("millpond: the recording was not started")
        number, self._number = self._number, None
        facts = {**self._facts(number), "seconds": round(time.monotonic() - self._began, 6)}
        _recorded.discard(number)
        try:
            _library.call("record_stop", number, os.fsencode(self.path), json.dumps(facts).encode())
        except Error:
            _library.drop_recording(number)
            raise

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, error, trace):
        # What an error ended is worth looking at, too.
        self.stop()


def _command():
    """Returns the path of the command ``millpond``."""
    found = os.environ.get("MILLPOND_COMMAND") or shutil.which("millpond")
    if found is None:
        raise Error(
            "millpond: a report is made by the command `millpond`, which is not on the PATH: install it with "
            "`cargo install millpond-cli`, or let MILLPOND_COMMAND name it; or take the file to a machine that has it: "
            "`millpond report FILE`"
        )
    return found


def _run(arguments):
    try:
        done = subprocess.run(arguments, capture_output=True, text=True)
    except OSError as error:
        raise Error(f"millpond: the command does not start: {error}") from error
    if done.returncode != 0:
        shown = " ".join(map(str, arguments[:2]))
        raise Error(f"millpond: `{shown}` has failed with exit code {done.returncode}: {done.stderr.strip()}")


def report(path, out=None, policies=("classic", "paged"), options=()):
    """Writes the page of a recording; see ``millpond.torch.report``."""
    path = pathlib.Path(path)
    out = path.with_name(stem(path) + ".html") if out is None else pathlib.Path(out)
    if not path.is_file():
        raise Error(f"millpond: there is no file {path}")
    command = _command()
    with tempfile.TemporaryDirectory() as folder:
        if path.suffix in (".pickle", ".pkl", ".pt", ".json"):
            imported = pathlib.Path(folder, path.stem + ".trace.zst")
            _run([command, "import", path, "-o", imported])
            path = imported
        _run([command, "report", path, "-o", out, "--policy", ",".join(policies), *options])
    return out
