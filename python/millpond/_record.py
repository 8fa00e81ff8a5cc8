"""Recordings of programs as traces, and the page that shows one."""

import contextlib
import importlib.metadata
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from millpond import _facts, _library
from millpond._library import BadValue, Error

# What names a file, as in Python's own functions.
Path: TypeAlias = str | bytes | os.PathLike[str] | os.PathLike[bytes]

# The devices that are being recorded.
_recorded: set[int] = set()


def stem(path: Path) -> str:
    """Returns the name of a file without what tells its format, as a text that can be shown."""
    name = os.fsencode(os.path.basename(os.fsdecode(path))).decode(errors="replace")
    for suffix in (".zst", ".gz", ".trace", ".pickle", ".pkl", ".pt", ".json"):
        name = name.removesuffix(suffix)
    return name or "recording"


def resolved(path: Path) -> pathlib.Path:
    """Returns where a file will be, whatever folder is the current one then.

    Raises ``TypeError`` for what is no path, and ``Error`` for one where no file can be.
    """
    name = os.fsdecode(path)
    if "\0" in name:
        raise BadValue(f"millpond: the path {name!r} has an embedded null byte")
    if not name:
        raise BadValue("millpond: the path is empty")
    full = pathlib.Path(os.path.abspath(name))
    # A link stays, and what it leads to is written.
    target = pathlib.Path(os.path.realpath(full))
    try:
        if target.is_dir() or name.endswith(os.sep):
            raise Error(f"millpond: {full} is a directory, and a file is to be written there")
        if not target.parent.is_dir():
            raise Error(f"millpond: there is no folder {target.parent} to write {target.name} into")
        needed = [target] if _is_special(target) else [target.parent, *([target] if target.exists() else [])]
    except OSError as error:
        raise Error(f"millpond: {full} may not be written: {error.strerror}") from error
    for path in needed:
        if not os.access(path, os.W_OK):
            raise Error(f"millpond: {full} may not be written: the permissions of {path} do not let this user")
    return full


def _is_special(path: pathlib.Path) -> bool:
    """Returns whether a path names a device or a pipe, which is written to and not replaced."""
    return path.exists() and not path.is_file()


class Recording:
    """What a program asks of the allocator of one device, from ``start`` to ``stop``, as a trace in a file."""

    def __init__(self, path: Path, device: Callable[[], int], facts: Callable[[int], Mapping[str, object]]) -> None:
        self.path = path
        self._device, self._facts_of = device, facts
        self._facts: dict[str, _facts.Fact] = {}
        # The device while it is being recorded, and what was recorded from then on until it is written.
        self._number: int | None = None
        self._taken: int | None = None
        self._began, self._process = 0.0, 0

    def start(self) -> "Recording":
        """Begins to record. Returns the recording.

        Raises ``Error``, and records nothing, if the device is being recorded already, and if the file cannot be written
        or a fact is not one: then it is also a ``ValueError`` or a ``TypeError``.
        """
        if self._taken is not None:
            kept = os.fsdecode(self.path)
            raise Error(f"millpond: the recording was not written to {kept}: call stop() again before it is started anew")
        path = resolved(self.path)
        number = self._device()
        facts = _facts.checked(self._facts_of(number))
        if number in _recorded:
            raise Error(f"millpond: device {number} is being recorded already")
        _library.call("record_start", number)
        _recorded.add(number)
        self.path, self._facts = path, facts
        self._number, self._began, self._process = number, time.monotonic(), os.getpid()
        return self

    def stop(self, path: Path | None = None) -> None:
        """Ends the recording, and writes the file: ``path``, or the one that was named at first.

        Raises ``Error`` if that was not begun, or cannot be written. What was recorded is kept then, and the next call
        writes it.
        """
        if self._number is not None:
            number, self._number = self._number, None
            _recorded.discard(number)
            self._facts["seconds"] = round(time.monotonic() - self._began, 6)
            self._taken = _library.take_recording(number)
        if self._taken is None:
            raise Error("millpond: the recording was not started, or is written")
        named = self.path if path is None else path
        try:
            target = resolved(named)
            # The library writes beside the file and renames, so that it appears whole or not at all.
            _library.call("recording_write", self._taken, os.fsencode(target), _facts.header(self._facts))
        except (OSError, Error) as error:
            said = str(error).removeprefix("millpond: ")
            raise Error(
                f"millpond: the recording is not written to {os.fsdecode(named)}: {said}. It is kept: call stop() again, or "
                "stop(path) for another place"
            ) from error
        self._drop()
        self.path = target

    def _drop(self) -> None:
        if self._taken is not None:
            _library.drop_recording(self._taken)
            self._taken = None

    def __enter__(self) -> "Recording":
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        # What an error ended is worth looking at, too. In a child of `fork` it is the parent's.
        if self._process == os.getpid() and (self._number is not None or self._taken is not None):
            self.stop()

    def __del__(self) -> None:
        # The program can no longer stop it.
        number, self._number = self._number, None
        if number is not None and self._process == os.getpid():
            said = f"the recording {os.fsdecode(self.path)} is dropped: it was not stopped"
            warnings.warn(said, ResourceWarning, source=self)
            _recorded.discard(number)
            with contextlib.suppress(Error):
                self._taken = _library.take_recording(number)
        self._drop()


def _own() -> str | None:
    """Returns the path of the command that was installed with this package, wherever the installer put it."""
    try:
        files = importlib.metadata.files("millpond") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    paths = [os.path.realpath(str(file.locate())) for file in files if file.parts[-2:] == ("bin", "millpond")]
    return next((path for path in paths if os.access(path, os.X_OK)), None)


def command() -> str:
    """Returns the path of the command ``millpond``: what MILLPOND_COMMAND names, else the package's own, which fits its
    library, else the one on the PATH. Raises ``Error`` if there is none."""
    found = os.environ.get("MILLPOND_COMMAND") or _own() or shutil.which("millpond")
    if found is None:
        raise Error(
            "millpond: a report is made by the command `millpond`, which is neither installed with this package nor on the "
            "PATH: install the wheel again, or let MILLPOND_COMMAND name the command; or take the file to a machine that "
            "has it: `millpond report FILE`"
        )
    return found


def _run(arguments: Sequence[str | os.PathLike[str]]) -> None:
    try:
        done = subprocess.run(arguments, capture_output=True, text=True)
    except OSError as error:
        raise Error(f"millpond: the command does not start: {error}") from error
    if done.returncode != 0:
        shown = " ".join(map(str, arguments[:2]))
        raise Error(f"millpond: `{shown}` has failed with exit code {done.returncode}: {done.stderr.strip()}")


def report(path: Path, out: Path | None, policies: Sequence[str], options: Sequence[str]) -> pathlib.Path:
    """Writes the page of a recording; see ``millpond.torch.report``."""
    path = pathlib.Path(os.fsdecode(path))
    out = path.with_name(stem(path) + ".html") if out is None else pathlib.Path(os.fsdecode(out))
    if not path.is_file():
        raise Error(f"millpond: there is no file {path}")
    found = command()
    with tempfile.TemporaryDirectory() as folder:
        if path.suffix in (".pickle", ".pkl", ".pt", ".json"):
            imported = pathlib.Path(folder, path.stem + ".trace.zst")
            _run([found, "import", path, "-o", imported])
            path = imported
        _run([found, "report", path, "-o", out, "--policy", ",".join(policies), "--allow-oom", *options])
    return out
