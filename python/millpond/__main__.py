"""``python -m millpond``: what is installed, and the command ``millpond``."""

import os
import sys

from millpond import __version__, _doctor, _library, _record, _shim

USAGE = """usage: python -m millpond                   what is installed here, and the devices
       python -m millpond doctor            what enable() would use; exit code 1 if it would not work, with what to do
       python -m millpond --version         the version of the library
       python -m millpond COMMAND [...]     runs the command `millpond`, such as `report program.trace`
"""


def installed() -> str:
    """Returns what there is: the library, the shims for PyTorch, the command, and the devices."""
    shims = [shim.stem for shim in _shim.shims()]
    try:
        command = _record.command()
    except _library.Error:
        command = "none: install the wheel again, which has it, or let MILLPOND_COMMAND name one"
    try:
        devices = [f"{name}: {text}" for name, text in _doctor.device_lines(_doctor.machine())] or ["devices: none"]
    except _library.Error as error:
        devices = [f"devices: none: {str(error).removeprefix('millpond: ')}"]
    return "\n".join([
        f"millpond {__version__}",
        f"library: {_library.path()}",
        f"shims for torch: {', '.join(shims) or 'none; one is compiled by the first enable()'}",
        f"command: {command}",
        *devices,
    ])


def main(arguments: list[str]) -> int | str:
    """Runs a command line. Returns the exit code, or the text of an error."""
    if not arguments:
        print(installed())
    elif arguments[0] == "doctor":
        if len(arguments) > 1:
            return "millpond: doctor takes no arguments"
        report = _doctor.examine()
        print(report.text())
        return 1 if report.problems else 0
    elif arguments[0] == "--version":
        print(f"millpond {__version__}")
    elif arguments[0] in ("-h", "--help"):
        print(USAGE, end="")
    else:
        try:
            command = _record.command()
            sys.stdout.flush()
            # In its place, so that signals and the exit code are the command's own.
            os.execv(command, ["millpond", *arguments])
        except _library.Error as error:
            return str(error)
        except OSError as error:
            return f"millpond: the command does not start: {error}"
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
