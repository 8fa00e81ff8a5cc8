"""What a library needs of others and gives to them: its dynamic symbols with their versions, read from the file.

Knows files for x86-64 alone, and nothing of what the symbols mean.
"""

import pathlib
import struct
from dataclasses import dataclass

# Kinds of sections.
_DYNAMIC, _SYMBOLS, _DEFINED, _NEEDED, _VERSIONS = 6, 11, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF
_WEAK = 2
_OBJECT = 1


class NotElf(ValueError):
    """A file that is no library of this kind."""


@dataclass(frozen=True)
class Symbol:
    """A dynamic symbol. Its version is ``""`` without one; ``is_default`` is what a program gets that is linked now."""

    name: str
    version: str
    is_defined: bool
    is_default: bool
    is_weak: bool
    is_object: bool
    size_bytes: int


class Library:
    """The dynamic symbols of a library, and the libraries that it needs."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self._data = data = path.read_bytes()
        if data[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<H", data, 18) != (62,):
            raise NotElf(f"{path} is no library for x86-64")
        (at,), (size, count) = struct.unpack_from("<Q", data, 40), struct.unpack_from("<HH", data, 58)
        # Of a section: kind, where it begins, its bytes, the section that it goes with.
        headers = (struct.unpack_from("<IIQQQQII", data, at + size * number) for number in range(count))
        self._sections = [(kind, start, length, link) for _, kind, _, _, start, length, link, _ in headers]
        self.needs = self._needs()
        self.symbols = self._symbols()

    def _of(self, kind: int) -> tuple[int, int, int]:
        """Returns where the section of a kind begins, its bytes, and where its texts begin; nothing if it is not there."""
        for found, start, length, link in self._sections:
            if found == kind:
                return start, length, self._sections[link][1]
        return 0, 0, 0

    def _text(self, at: int) -> str:
        return self._data[at:self._data.index(b"\0", at)].decode()

    def _needs(self) -> list[str]:
        start, length, texts = self._of(_DYNAMIC)
        entries = (struct.unpack_from("<QQ", self._data, at) for at in range(start, start + length, 16))
        return [self._text(texts + value) for tag, value in entries if tag == 1]

    def _versions(self) -> dict[int, str]:
        """Returns the names of the versions, those that are needed and those that are defined."""
        names = {0: "", 1: ""}
        at, length, texts = self._of(_NEEDED)
        while length:
            _, count, _, first, following = struct.unpack_from("<HHIII", self._data, at)
            entry = at + first
            for _ in range(count):
                _, _, number, name, step = struct.unpack_from("<IHHII", self._data, entry)
                names[number & 0x7FFF] = self._text(texts + name)
                entry += step
            if following == 0:
                break
            at += following
        at, length, texts = self._of(_DEFINED)
        while length:
            _, flags, number, _, _, first, following = struct.unpack_from("<HHHHIII", self._data, at)
            # The first one is the name of the library itself.
            if not flags & 1:
                names[number & 0x7FFF] = self._text(texts + struct.unpack_from("<I", self._data, at + first)[0])
            if following == 0:
                break
            at += following
        return names

    def _symbols(self) -> list[Symbol]:
        start, length, texts = self._of(_SYMBOLS)
        versions, _, _ = self._of(_VERSIONS)
        names = self._versions()
        found = []
        for number in range(1, length // 24):
            name, info, _, section, _, size = struct.unpack_from("<IBBHQQ", self._data, start + 24 * number)
            version = struct.unpack_from("<H", self._data, versions + 2 * number)[0] if versions else 1
            found.append(Symbol(
                name=self._text(texts + name),
                version=names.get(version & 0x7FFF, ""),
                is_defined=section != 0,
                is_default=not version & 0x8000,
                is_weak=info >> 4 == _WEAK,
                is_object=info & 15 == _OBJECT,
                size_bytes=size,
            ))
        return found
