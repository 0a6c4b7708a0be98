"""Reads the TOML that declares kernels: comment blocks in a ``.cu`` and sidecar files.

A block follows the grammar of PEP 723 with C++ comments::

    // /// gemm
    // block = [16, 16]
    // ///

Every error names the line of the file, not that of the TOML inside it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NoReturn

from pytest_gemm.errors import SpecError

OPEN = "// /// gemm"
CLOSE = "// ///"

MAX_LINES = 2000
"""Most lines of one block or sidecar."""

_FENCE = re.compile(r"// /// ([A-Za-z0-9-]+)")
_NEAR_OPEN = re.compile(r"\s*/{2,}\s*/*\s*gemm\s*:?\s*", re.IGNORECASE)
_NEAR_CLOSE = re.compile(r"\s*//\s*/{2,4}\s*(?:end)?\s*", re.IGNORECASE)
_LOOKS_LIKE_KEY = re.compile(r"\s*//+\s*[A-Za-z_][\w.]*\s*=")
_MERGED = re.compile(r"""["'\]}\w]\s+[A-Za-z_][\w.]*\s*=\s*["'\[{\w]|["'\]}\w]\s+///""")
_REFLOWED = (
    "; clang-format breaks comment lines longer than 80 columns and joins them to the next: put "
    "the block between '// clang-format off' and '// clang-format on', or use a sidecar *.gemm.toml"
)


@dataclass(frozen=True)
class Table:
    """One kernel's TOML table; ``line`` is where it starts in its file."""

    data: Mapping[str, Any]
    line: int
    lines: Mapping[tuple[str, ...], int]

    def line_of(self, *keys: str) -> int:
        """The line of ``params.BM`` for ``("params", "BM")``; of what encloses it if unknown."""
        while keys:
            if keys in self.lines:
                return self.lines[keys]
            keys = keys[:-1]
        return self.line


@dataclass(frozen=True)
class _Block:
    start: int  # index of the opening line
    stop: int  # index of the closing line


def read_front_matter(text: str, path: str) -> tuple[Table, ...]:
    """The ``gemm`` blocks of a ``.cu`` file, in order. Raises SpecError with the file's line."""
    file_lines = _lines(text)
    tables = []
    for block in _blocks(file_lines, path):
        body = file_lines[block.start + 1 : block.stop]
        toml = [_uncomment(line, block.start + 2 + i, path) for i, line in enumerate(body)]
        hint = _REFLOWED if _looks_reflowed(body) else ""
        data = _load(toml, block.start + 1, path, hint)
        lines = {
            tuple(map(str, key)): line for key, line in _key_lines(toml, block.start + 2).items()
        }
        tables.append(Table(data, block.start + 1, lines))
    return tuple(tables)


def strip_front_matter(text: str, *, keep_lines: bool = False) -> str:
    """The text without its blocks: what a change of the declaration alone leaves as it is.

    With ``keep_lines`` the blocks become empty lines.
    """
    file_lines = _lines(text)
    try:
        blocks = list(_blocks(file_lines, ""))
    except SpecError:  # a source that a sidecar declares may hold anything
        return text
    for block in reversed(blocks):
        blank = [""] * (block.stop + 1 - block.start) if keep_lines else []
        file_lines[block.start : block.stop + 1] = blank
    return "\n".join(file_lines)


def read_sidecar(text: str, path: str) -> tuple[Table, ...]:
    """The ``[[kernel]]`` tables of a ``*.gemm.toml`` file. Raises SpecError with its line."""
    toml = _lines(text)
    data = _load(toml, 0, path, "")
    lines = _key_lines(toml, 1)
    for key in data:
        if key != "kernel":
            _fail(
                f"{key!r} stands outside [[kernel]]: move it into one", path, lines.get((key,), 1)
            )
    tables = data.get("kernel", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        _fail("kernel is no table: write [[kernel]]", path, lines.get(("kernel",), 1))
    if not tables:
        _fail("holds no [[kernel]] table: add one with its source", path, 1)
    result = []
    for index, table in enumerate(tables):
        prefix = ("kernel", index)
        inner = {
            tuple(map(str, key[2:])): line
            for key, line in lines.items()
            if key[:2] == prefix and len(key) > 2
        }
        result.append(Table(table, lines.get(prefix) or lines.get(("kernel",), 1), inner))
    return tuple(result)


def _lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").split("\n")


def _fail(message: str, path: str, line: int) -> NoReturn:
    raise SpecError(message, path=path, line=line)


def _blocks(file_lines: list[str], path: str) -> Iterator[_Block]:
    """The blocks, each checked to be closed. Blocks of other types are left alone."""
    index = 0
    while index < len(file_lines):
        line = file_lines[index].rstrip()
        following = file_lines[index + 1] if index + 1 < len(file_lines) else ""
        index += 1
        if line == OPEN:
            stop = _closing_line(file_lines, index - 1, path)
            yield _Block(index - 1, stop)
            index = stop + 1
        elif _LOOKS_LIKE_KEY.match(following):
            kind = match[1] if (match := _FENCE.fullmatch(line)) else ""
            if _NEAR_OPEN.fullmatch(line) or get_close_matches(kind.lower(), ["gemm"], 1, 0.7):
                _fail(f"{line.strip()!r} opens no block: write {OPEN!r} at the start", path, index)


def _closing_line(file_lines: list[str], start: int, path: str) -> int:
    for index in range(start + 1, len(file_lines)):
        line = file_lines[index].rstrip()
        if line == CLOSE:
            return index
        if _NEAR_CLOSE.fullmatch(line):
            _fail(
                f"{line.strip()!r} closes no block: write {CLOSE!r} at the start", path, index + 1
            )
        if index - start > MAX_LINES:
            _fail(
                f"the block has more than {MAX_LINES} lines: close it with {CLOSE!r}",
                path,
                start + 1,
            )
        if line == OPEN or not line.startswith("//"):
            break
    else:
        index = len(file_lines)
    hint = _REFLOWED if _looks_reflowed(file_lines[start + 1 : index]) else ""
    _fail(
        f"the block that opens here is not closed before line {index + 1}: "
        f"end it with a line {CLOSE!r}" + hint,
        path,
        start + 1,
    )


def _uncomment(line: str, number: int, path: str) -> str:
    line = line.rstrip()
    if line == "//":
        return ""
    if not line.startswith("// "):
        _fail(f"{line!r} lacks the space after //: write '// {line[2:]}'", path, number)
    return line[3:]


def _looks_reflowed(body: list[str]) -> bool:
    return any(len(line) > 80 or _MERGED.search(line) for line in body)


_KEY = re.compile(r"\s*([\w.-]+|\"[^\"]*\"|'[^']*')\s*=")
_AT = re.compile(r" \(at (?:line ([0-9]+), column [0-9]+|end of document)\)$")


def _load(toml: list[str], before: int, path: str, hint: str) -> dict[str, Any]:
    """Parse TOML whose first line is line ``before + 1`` of the file."""
    if len(toml) > MAX_LINES:
        _fail(f"has {len(toml)} lines, more than {MAX_LINES}: split it", path, before + 1)
    try:
        return tomllib.loads("\n".join(toml))
    except RecursionError:
        _fail("the TOML is nested too deeply: the keys of a kernel are flat", path, before + 1)
    except tomllib.TOMLDecodeError as error:
        message = str(error).split("\n")[0]
        place = _AT.search(message)
        line = int(place[1]) if place and place[1] else len(toml)
        message = _AT.sub("", message)
        if message == "Cannot overwrite a value":
            # Found where the value ends, which may be lines after its key.
            line = next((n for n in range(line, 0, -1) if _KEY.match(toml[n - 1])), line)
            if key := _KEY.match(toml[line - 1]):
                _fail(f"{key[1]} is there twice: drop one{hint}", path, before + line)
        _fail(f"not TOML: {message[:1].lower() + message[1:]}{hint}", path, before + line)
    except ValueError:
        _fail("not TOML: a number has too many digits", path, before + 1)


def _key_lines(toml: list[str], first: int) -> dict[tuple[str | int, ...], int]:
    """The line of every key, for TOML that is known to be valid.

    A statement is the shortest run of lines that is valid by itself; parsing each one tells
    its keys without a second grammar.
    """
    result: dict[tuple[str | int, ...], int] = {}
    prefix: tuple[str | int, ...] = ()
    counts: dict[tuple[str | int, ...], int] = {}
    start = 0
    for index in range(len(toml)):
        statement = "\n".join(toml[start : index + 1])
        try:
            data = tomllib.loads(statement)
        except (ValueError, RecursionError):
            continue
        line = first + start
        start = index + 1
        is_header = statement.lstrip().startswith("[")
        path = _keys(data)
        if is_header:
            header = max(path, key=len)
            prefix = _with_counts(header, counts)
            if statement.lstrip().startswith("[["):
                counts[prefix] = counts.get(prefix, -1) + 1
                result.setdefault(prefix, line)
                prefix = (*prefix, counts[prefix])
            result.setdefault(prefix, line)
        else:
            for key in path:
                result.setdefault((*prefix, *key), line)
    return result


def _with_counts(
    header: tuple[str | int, ...], counts: Mapping[tuple[str | int, ...], int]
) -> tuple[str | int, ...]:
    """``kernel.params`` as the table of the last ``[[kernel]]``."""
    result: tuple[str | int, ...] = ()
    for part in header[:-1]:
        result = (*result, part)
        if result in counts:
            result = (*result, counts[result])
    return (*result, header[-1])


def _keys(data: Mapping[str, Any], depth: int = 3) -> list[tuple[str | int, ...]]:
    """The key paths of nested tables, as deep as a kernel's keys go (``sweep.X.host``)."""
    result: list[tuple[str | int, ...]] = []
    for key, value in data.items():
        result.append((key,))
        if isinstance(value, dict) and depth > 1:
            result.extend((key, *rest) for rest in _keys(value, depth - 1))
    return result
