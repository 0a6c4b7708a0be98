"""Makes a kernel's source self-contained: local files that it includes are put in their place.

What is compiled, hashed and stored is then one text. ``#line`` directives let compilers, faults
and the errors of a declaration name the file and line that the author knows. This is no
preprocessor: a file that a condition may leave out is put in as well, and the condition stays.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, NoReturn

from pytest_gemm.cuda_source import locate, strip
from pytest_gemm.errors import SpecError
from pytest_gemm.frontmatter import strip_front_matter

MAX_LEVELS = 32
"""How deep includes may nest."""
MAX_SIZE = 1_000_000
"""Most characters of a source with everything that it includes."""

_SPACE = r"(?:[ \t]|\\\n)*"
_DIRECTIVE = re.compile(rf"^[ \t]*(?P<text>#{_SPACE}(?P<word>\w+)(?:\\\n|[^\n])*)", re.MULTILINE)
_INCLUDE = re.compile(rf'#{_SPACE}include{_SPACE}"(?P<name>[^"\n]*)"')
_ONCE = re.compile(rf"#{_SPACE}pragma{_SPACE}once")
_GUARD = re.compile(
    r"\s*#[ \t]*(?:ifndef\b|if[ \t]*![ \t]*defined\b)[ \t(]*(?P<name>\w+)[ \t)]*\n"
    r"\s*#[ \t]*define[ \t]+(?P=name)\b"
)
# No system header has such a name outside a folder of its own.
_OWN_NAME = re.compile(r"\.{1,2}/.*|[^/]*\.cuh?")


def is_file(path: Path) -> bool:
    """Whether a path that a text names is a file; also of names that no file can have."""
    try:
        return path.is_file()
    except (OSError, ValueError):  # such as one that is too long
        return False


def read_text(path: Path, shown: str) -> str:
    """A file that an author wrote, with Unix line ends. Raises SpecError."""
    if path.is_fifo():  # reading would wait for whoever writes
        raise SpecError("cannot be read: it is a pipe", path=shown)
    try:
        return path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise SpecError("is not UTF-8: save the file as UTF-8", path=shown, line=line) from None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise SpecError(f"cannot be read: {reason}", path=shown) from None


def expand(source: str, path: Path, shown: str) -> str:
    """A kernel's source with each ``#include "..."`` of a file that exists replaced by that file.

    Files are looked for beside the one that includes them, then beside the kernel's (``path``);
    others are left to the compiler. ``shown`` is what errors and ``#line`` call the kernel's file;
    included ones are called by their way from it. A source without local includes is returned as
    it is.

    Raises SpecError, with file and line of the include, for files that include each other without
    end, nest deeper than ``MAX_LEVELS`` or exceed ``MAX_SIZE``, and for a ``.cuh`` that does not
    exist; with the line of the included file where that is not UTF-8.
    """
    return _Expander(_File(path, shown, source)).text()


def unnumbered(source: str, shown: str) -> str:
    """An expanded source without the line numbers of the kernel's own file."""
    own = re.escape(_quoted(shown))
    return re.sub(rf"^#line \d+ {own}\n", "", source, flags=re.MULTILINE)


class _Directive(NamedTuple):
    """``start`` and ``end`` are offsets of its code, without what surrounds it."""

    word: str
    start: int
    end: int


@dataclass(frozen=True)
class _File:
    path: Path
    shown: str
    text: str
    has_pragma_once: bool = False

    @cached_property
    def key(self) -> Path:
        return self.path.resolve()

    @cached_property
    def code(self) -> str:
        return strip(self.text)

    @cached_property
    def has_guard(self) -> bool:
        """Whether all of it lies within ``#ifndef X``, ``#define X`` and ``#endif``."""
        depth = 0
        for word, _, end in _directives(self.code) if _GUARD.match(self.code) else ():
            if depth == 1 and word.startswith("el"):
                break
            depth += _nesting(word)
            if depth == 0:
                return not self.code[end:].strip()
        return False

    def line(self, position: int) -> int:
        return self.text.count("\n", 0, position) + 1

    def numbered(self, position: int) -> str:
        """The directive that gives the text from ``position`` on its line."""
        file, line = locate(self.text, self.line(position))
        return f"#line {line} {_quoted(file or self.shown)}\n"

    def fail(self, position: int, message: str) -> NoReturn:
        raise SpecError(message, path=self.shown, line=self.line(position))


class _Expander:
    def __init__(self, main: _File) -> None:
        self.main = main
        self.stack: list[_File] = []  # from the kernel's file to the one that is being read
        self.size = 0
        self.done: set[Path] = set()  # what is in the text, and would add nothing a second time
        self.once: dict[Path, str] = {}  # macros in the place of ``#pragma once``

    def text(self) -> str:
        return self._expanded(self.main, always=True)

    def _expanded(self, file: _File, *, always: bool) -> str:
        """The file with its includes; ``always``: it is included under no condition."""
        self.stack.append(file)
        self.size += len(file.text)
        parts: list[str] = []
        position = depth = 0
        has_grown = False  # since the outermost condition began
        for word, start, end in _directives(file.code):
            depth = max(0, depth + _nesting(word))
            if has_grown and (word.startswith("el") or word == "endif"):
                # Compilers skip the #line directives of what a condition leaves out.
                parts += [file.text[position:end], "\n", file.numbered(end)]
                position = end
                has_grown = depth > 0
            elif match := _INCLUDE.match(file.code, start, end):
                name = file.text[match.start("name") : match.end("name")]
                text = self._included(file, start, name, always and depth <= int(file.has_guard))
                if text is not None:
                    parts += [file.text[position:start], text]
                    position = match.end()
                if text:
                    parts.append(file.numbered(position))
                    has_grown = depth > 0
        self.stack.pop()
        return "".join(parts) + file.text[position:]

    def _included(self, file: _File, at: int, name: str, always: bool) -> str | None:
        """The text in the place of an include; None: it is left to the compiler."""
        header = self._find(file, name)
        if header is None:
            if always and _OWN_NAME.fullmatch(name):
                missing = _beside(file.shown, name)
                file.fail(at, f"{missing} does not exist: correct the #include")
            return None
        is_single = header.has_pragma_once or header.has_guard
        keys = [outer.key for outer in self.stack]
        if header.key in keys and not is_single:
            way = [outer.shown for outer in self.stack[keys.index(header.key) + 1 :]]
            by_way = f" by way of {', '.join(way)}" if way else ""
            file.fail(at, f"{header.shown} includes itself{by_way}: give it an include guard")
        if header.key in keys or header.key in self.done:
            return ""
        if len(self.stack) > MAX_LEVELS:
            file.fail(at, f"includes nest deeper than {MAX_LEVELS} levels: include less")
        if self.size + len(header.text) > MAX_SIZE:
            text = f"with {header.shown} the source exceeds {MAX_SIZE} characters: include less"
            file.fail(at, text)
        text = header.numbered(0) + self._expanded(header, always=always)
        if header.has_pragma_once:
            macro = self.once.setdefault(header.key, f"PYTEST_GEMM_ONCE_{len(self.once) + 1}")
            text = f"#ifndef {macro}\n#define {macro}\n{text}#endif\n"
        if is_single and always:
            self.done.add(header.key)
        return text

    def _find(self, file: _File, name: str) -> _File | None:
        for owner in (file, self.main):
            path = owner.path.parent / name
            if is_file(path):
                return _read(path, _beside(owner.shown, name))
        return None


def _read(path: Path, shown: str) -> _File:
    """An included file; blocks that declare it as a kernel say nothing of the one including it."""
    text = strip_front_matter(read_text(path, shown), keep_lines=True)
    text = text.rstrip("\\\n") + "\n"  # or it would run into what follows
    for _, start, end in _directives(strip(text)):
        if _ONCE.fullmatch(strip(text), start, end):
            return _File(path, shown, text[:start] + text[end:], has_pragma_once=True)
    return _File(path, shown, text)


def _directives(code: str) -> Iterator[_Directive]:
    for match in _DIRECTIVE.finditer(code):
        start = match.start("text")
        yield _Directive(match["word"], start, start + len(match["text"].rstrip()))


def _nesting(word: str) -> int:
    return {"if": 1, "ifdef": 1, "ifndef": 1, "endif": -1}.get(word, 0)


def _beside(shown: str, name: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(shown), name))


def _quoted(shown: str) -> str:
    escaped = shown.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
