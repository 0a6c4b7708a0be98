"""Which source line an instruction comes from: a reader of the line tables in a shared library.

Reads what ``-g1 -gdwarf-4`` writes into a 64-bit little-endian ELF file, no more: the line number
program and the functions that were inlined (DWARF 4, sections 6.2, 7.5 and 2.17.3).
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

_INLINED = 0x1D
_LOW_PC, _HIGH_PC, _RANGES, _CALL_FILE, _CALL_LINE, _STMT_LIST = 0x11, 0x12, 0x55, 0x58, 0x59, 0x10
_ADDRESS_FORM = 0x01


@dataclass(frozen=True)
class SourceLine:
    """``file`` as the compiler was told it, by ``#line`` too; ``line`` from 1."""

    file: str
    line: int


class DebugLines:
    """The line tables of one library. Nothing is read until it is asked for.

    A file without them, or with others than those described above, knows no line.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def frames(self, offset: int) -> list[SourceLine]:
        """The source lines of the instruction at ``offset`` in the library.

        The first is its own, those that follow called the inlined function before them.
        """
        for unit in self._units:
            if found := unit.frames(offset):
                return found
        return []

    @cached_property
    def _units(self) -> list[_Unit]:
        try:
            sections = _sections(self._path.read_bytes())
            return list(_read_units(sections))
        except (OSError, KeyError, IndexError, ValueError, struct.error):
            return []


@dataclass(frozen=True)
class _Inlined:
    ranges: list[tuple[int, int]]
    depth: int
    call: SourceLine


@dataclass(frozen=True)
class _Unit:
    """``rows`` by address: each holds until the next; None where a sequence ends."""

    addresses: list[int]
    rows: list[SourceLine | None]
    inlined: list[_Inlined]

    def frames(self, offset: int) -> list[SourceLine]:
        index = bisect_right(self.addresses, offset) - 1
        row = self.rows[index] if index >= 0 else None
        if row is None:
            return []
        around = [i for i in self.inlined if any(low <= offset < high for low, high in i.ranges)]
        around.sort(key=lambda inlined: -inlined.depth)
        return [row, *(inlined.call for inlined in around)]


class _Reader:
    """A cursor over bytes."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at

    def integer(self, size: int, *, signed: bool = False) -> int:
        value = int.from_bytes(self.data[self.at : self.at + size], "little", signed=signed)
        self.at += size
        return value

    def uleb(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def sleb(self) -> int:
        start = self.at
        value = self.uleb()
        bits = 7 * (self.at - start)
        return value - (1 << bits) if value >> (bits - 1) else value

    def string(self) -> str:
        end = self.data.index(b"\0", self.at)
        text = self.data[self.at : end].decode(errors="replace")
        self.at = end + 1
        return text


def _sections(data: bytes) -> dict[str, bytes]:
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF file")
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count, names = struct.unpack_from("<HHH", data, 58)
    headers = [struct.unpack_from("<IIQQQQ", data, table + i * size) for i in range(count)]
    _, _, _, _, names_at, names_size = headers[names]
    texts = data[names_at : names_at + names_size]
    return {
        _Reader(texts, name).string(): data[at : at + length]
        for name, _, _, _, at, length in headers
    }


def _read_units(sections: dict[str, bytes]) -> Iterator[_Unit]:
    info = _Reader(sections[".debug_info"])
    while info.at < len(info.data):
        length = info.integer(4)
        end = info.at + length
        if info.integer(2) == 4:
            abbreviations = _abbreviations(sections[".debug_abbrev"], info.integer(4))
            info.integer(1)
            yield _read_unit(info, end, abbreviations, sections)
        info.at = end


_Abbreviation = tuple[int, bool, list[tuple[int, int]]]


def _abbreviations(data: bytes, at: int) -> dict[int, _Abbreviation]:
    reader = _Reader(data, at)
    found: dict[int, _Abbreviation] = {}
    while code := reader.uleb():
        tag, has_children = reader.uleb(), bool(reader.integer(1))
        attributes = []
        while (pair := (reader.uleb(), reader.uleb())) != (0, 0):
            attributes.append(pair)
        found[code] = (tag, has_children, attributes)
    return found


def _read_unit(
    info: _Reader, end: int, abbreviations: dict[int, _Abbreviation], sections: dict[str, bytes]
) -> _Unit:
    files: list[str] = []
    addresses: list[int] = []
    rows: list[SourceLine | None] = []
    inlined: list[_Inlined] = []
    base = depth = 0
    is_first = True
    while info.at < end:
        code = info.uleb()
        if code == 0:
            depth -= 1
            continue
        tag, has_children, attributes = abbreviations[code]
        values = {name: _value(info, form) for name, form in attributes}
        if is_first:
            is_first = False
            base = values.get(_LOW_PC, 0)
            if _STMT_LIST in values:
                line_table = _LineTable(sections[".debug_line"], values[_STMT_LIST])
                files, (addresses, rows) = line_table.files, line_table.rows()
        elif tag == _INLINED and 0 <= values.get(_CALL_FILE, -1) < len(files):
            call = SourceLine(files[values[_CALL_FILE]], values.get(_CALL_LINE, 0))
            ranges = _ranges(values, dict(attributes), sections, base)
            inlined.append(_Inlined(ranges, depth, call))
        depth += has_children
    return _Unit(addresses, rows, inlined)


def _ranges(
    values: dict[int, int], forms: dict[int, int], sections: dict[str, bytes], base: int
) -> list[tuple[int, int]]:
    if _RANGES not in values:
        low, high = values.get(_LOW_PC, 0), values.get(_HIGH_PC, 0)
        return [(low, high if forms.get(_HIGH_PC) == _ADDRESS_FORM else low + high)]
    reader = _Reader(sections[".debug_ranges"], values[_RANGES])
    found = []
    while (pair := (reader.integer(8), reader.integer(8))) != (0, 0):
        if pair[0] == 2**64 - 1:
            base = pair[1]
        else:
            found.append((base + pair[0], base + pair[1]))
    return found


def _fixed(size: int) -> Callable[[_Reader], int]:
    return lambda reader: reader.integer(size)


def _skipped(size_of_length: int) -> Callable[[_Reader], int]:
    def skip(reader: _Reader) -> int:
        length = reader.integer(size_of_length) if size_of_length else reader.uleb()
        reader.at += length
        return 0

    return skip


def _skip_string(reader: _Reader) -> int:
    reader.string()
    return 0


_FORMS: dict[int, Callable[[_Reader], int]] = {
    _ADDRESS_FORM: _fixed(8),
    0x03: _skipped(2),
    0x04: _skipped(4),
    0x05: _fixed(2),
    0x06: _fixed(4),
    0x07: _fixed(8),
    0x08: _skip_string,
    0x09: _skipped(0),
    0x0A: _skipped(1),
    0x0B: _fixed(1),
    0x0C: _fixed(1),
    0x0D: _Reader.sleb,
    0x0E: _fixed(4),
    0x0F: _Reader.uleb,
    0x10: _fixed(4),
    0x11: _fixed(1),
    0x12: _fixed(2),
    0x13: _fixed(4),
    0x14: _fixed(8),
    0x15: _Reader.uleb,
    0x17: _fixed(4),
    0x18: _skipped(0),
    0x19: lambda _: 1,
    0x20: _fixed(8),
}


def _value(reader: _Reader, form: int) -> int:
    return _FORMS[form](reader)


class _LineTable:
    """One unit's line number program (DWARF 4, section 6.2)."""

    def __init__(self, data: bytes, at: int) -> None:
        self._program = reader = _Reader(data, at)
        length = reader.integer(4)
        self._end = reader.at + length
        if reader.integer(2) != 4:
            raise ValueError("not a line table of version 4")
        header = reader.integer(4)
        start = reader.at + header
        self._unit = reader.integer(1)
        reader.integer(2)
        self._line_base = reader.integer(1, signed=True)
        self._line_range = reader.integer(1)
        self._opcode_base = reader.integer(1)
        self._operands = [0, *(reader.integer(1) for _ in range(self._opcode_base - 1))]
        folders = [""]
        while folder := reader.string():
            folders.append(folder)
        self.files = [""]
        while name := reader.string():
            self.files.append(str(Path(folders[reader.uleb()]) / name))
            reader.uleb(), reader.uleb()
        reader.at = start

    def rows(self) -> tuple[list[int], list[SourceLine | None]]:
        """Addresses in ascending order, and what each begins."""
        found: list[tuple[int, int, SourceLine | None]] = []
        sequence = 0
        for address, file, line, is_end in self._run():
            if is_end:
                found.append((address, -1, None))
                sequence += 1
            elif line:  # 0: of no line, so still of the one before
                found.append((address, sequence, SourceLine(self.files[file], line)))
        found.sort(key=lambda row: (row[0], row[1] >= 0))
        return [address for address, _, _ in found], [row for _, _, row in found]

    def _run(self) -> Iterator[tuple[int, int, int, bool]]:
        reader = self._program
        address, file, line = 0, 1, 1
        while reader.at < self._end:
            opcode = reader.integer(1)
            if opcode >= self._opcode_base:
                opcode -= self._opcode_base
                address += opcode // self._line_range * self._unit
                line += self._line_base + opcode % self._line_range
                yield address, file, line, False
            elif opcode == 0:
                length = reader.uleb()
                after = reader.at + length
                extended = reader.integer(1)
                if extended == 1:
                    yield address, file, line, True
                    address, file, line = 0, 1, 1
                elif extended == 2:
                    address = reader.integer(8)
                reader.at = after
            elif opcode == 1:
                yield address, file, line, False
            elif opcode == 2:
                address += reader.uleb() * self._unit
            elif opcode == 3:
                line += reader.sleb()
            elif opcode == 4:
                file = reader.uleb()
            elif opcode == 8:
                address += (255 - self._opcode_base) // self._line_range * self._unit
            elif opcode == 9:
                address += reader.integer(2)
            else:
                for _ in range(self._operands[opcode]):
                    reader.uleb()
