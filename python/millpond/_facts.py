"""Facts about a program, as the header of a trace has them: JSON, checked before anything is recorded."""

import json
import math
import numbers
import os
from collections.abc import Mapping
from typing import TypeAlias

from millpond import _library
from millpond._library import BadType, BadValue

# What JSON has, with values of any depth.
Fact: TypeAlias = None | bool | int | float | str | list["Fact"] | dict[str, "Fact"]

# Readers of JSON have a bound on this.
_DEEPEST = 50


def _text(key: str, value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise BadValue(f"millpond: the fact {key!r} is no Unicode: {error}") from error
    return value


def _number(key: str, value: object) -> int | float | None:
    """Returns a number, ``None`` for what is none."""
    if isinstance(value, numbers.Integral):
        whole = int(value)
        if not -(2**63) <= whole < 2**64:
            raise BadValue(f"millpond: the fact {key!r} is {whole}, and a trace has whole numbers of 64 bits")
        return whole
    if isinstance(value, numbers.Real):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise BadValue(f"millpond: the fact {key!r} is {number}, which JSON does not have")
        return number
    return None


def _plain(key: str, value: object, depth: int) -> Fact:
    """Returns a value as JSON has it. Paths are texts, and numbers of NumPy are numbers."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(key, str(value))
    if (number := _number(key, value)) is not None:
        return number
    if isinstance(value, os.PathLike):
        return _text(key, os.fsdecode(value))
    if type(value).__module__ == "numpy" and getattr(value, "shape", None) == ():
        return _plain(key, getattr(value, "item")(), depth)
    if depth == _DEEPEST:
        raise BadValue(f"millpond: the fact {key!r} is deeper than {_DEEPEST} lists, or contains itself")
    if isinstance(value, (list, tuple)):
        return [_plain(key, each, depth + 1) for each in value]
    if isinstance(value, dict):
        for name in value:
            if not isinstance(name, str):
                raise BadType(f"millpond: the fact {key!r} has the name {name!r}, and names in JSON are texts")
        return {_text(key, name): _plain(key, each, depth + 1) for name, each in value.items()}
    raise BadType(
        f"millpond: the fact {key!r} is of type {type(value).__name__}, and a trace has texts, numbers, true, false, null, "
        "lists and dicts"
    )


def checked(facts: Mapping[str, object]) -> dict[str, Fact]:
    """Returns facts as JSON has them. Raises ``BadType`` or ``BadValue``, which names the fact, if that cannot be."""
    found: dict[str, Fact] = {}
    for key, value in facts.items():
        if key == "seconds":
            raise BadValue("millpond: the fact 'seconds' is measured: give what you have another name")
        found[_text(key, key)] = _plain(key, value, 0)
        try:
            _library.call("header_check", header({key: found[key]}))
        except _library.Error as error:
            said = str(error).removeprefix("millpond: ")
            raise BadValue(f"millpond: the fact {key!r} is not taken: {said}") from error
    _library.call("header_check", header(found))
    return found


def header(facts: Mapping[str, Fact]) -> bytes:
    """Returns facts as the library takes them."""
    return json.dumps(facts, allow_nan=False).encode()
