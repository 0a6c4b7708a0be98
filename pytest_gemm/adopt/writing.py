"""Where a declaration goes: into the file, or into a sidecar beside it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_gemm.adopt.reading import Reading
from pytest_gemm.adopt.source import Source
from pytest_gemm.baselines.files import write_text
from pytest_gemm.cuda_source import strip
from pytest_gemm.errors import ConfigError, SpecError
from pytest_gemm.frontmatter import CLOSE, OPEN, Table, read_front_matter, read_sidecar
from pytest_gemm.includes import read_text
from pytest_gemm.registry import SIDECAR_SUFFIX


@dataclass(frozen=True)
class InFile:
    """A block of comments before the kernel; ``first`` are keys that come before the others."""

    path: Path
    line: int
    first: Mapping[str, str]

    def lines(self, reading: Reading) -> list[str]:
        return [OPEN, *(f"// {line}" for line in reading.toml(**self.first)), CLOSE]

    def write(self, reading: Reading) -> str:
        """Put the block before the line. Raises ConfigError where the file cannot be written."""
        data = self.path.read_bytes().decode("utf-8")
        mark = "\ufeff" * data.startswith("\ufeff")  # which must stay first
        data = data.removeprefix(mark)
        end = "\r\n" if "\r\n" in data else "\n"
        rows = data.split(end)
        rows[self.line - 1 : self.line - 1] = self.lines(reading)
        write_text(self.path, mark + end.join(rows))
        return f"written into {self.path}, line {self.line}"


@dataclass(frozen=True)
class InSidecar:
    """A table in ``NAME.gemm.toml`` beside the source."""

    path: Path
    first: Mapping[str, str]
    why: str = ""

    def lines(self, reading: Reading) -> list[str]:
        return ["[[kernel]]", *reading.toml(**self.first)]

    def write(self, reading: Reading) -> str:
        """Add the table to the file. Raises ConfigError where it cannot be written."""
        before = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
        gap = "" if not before else "\n" if before.endswith("\n") else "\n\n"
        write_text(self.path, before + gap + "\n".join(self.lines(reading)) + "\n")
        because = f" ({self.why})" if self.why else ""
        return f"written into {self.path}{because}"


Place = InFile | InSidecar


def place_for(source: Source, *, sidecar: bool) -> Place:
    """Where the declaration of a source's kernel belongs.

    Raises ConfigError where it has one.
    """
    path = source.path
    text = read_text(path, source.shown)
    try:
        declared = [*_declarations(path, text, source.shown)]
    except SpecError as error:
        raise ConfigError(f"{error}; mend or remove that first") from None
    name = source.function.unqualified
    for shown, table in declared:
        entry = str(table.data.get("entry", ""))
        if not entry or entry.partition("<")[0].rpartition("::")[2].strip() == name:
            raise ConfigError(
                f"{shown}:{table.line}: {name} is declared here already: remove that to have it "
                "found anew"
            )
    named = {"name": source.name} if source.name else {}
    first = {"source": path.name, **named}
    own = path.parent / (path.name.partition(".")[0] + SIDECAR_SUFFIX)
    if sidecar:
        return InSidecar(own, first)
    if path.suffix != ".cu":
        return InSidecar(own, first, f"only .cu files hold front matter, not {path.name}")
    if path.exists() and not os.access(path, os.W_OK):
        return InSidecar(own, first, f"{path.name} cannot be written")
    return InFile(path, _line_before(source, text), named)


def _declarations(path: Path, text: str, shown: str) -> Iterator[tuple[str, Table]]:
    """What declares a file's kernels, its own blocks and the sidecars beside it, and where."""
    yield from ((shown, table) for table in read_front_matter(text, shown))
    for sidecar in sorted(path.parent.glob("*" + SIDECAR_SUFFIX)):
        place = sidecar.as_posix()
        for table in read_sidecar(read_text(sidecar, place), place):
            if (path.parent / str(table.data.get("source"))).resolve() == path.resolve():
                yield place, table


def _line_before(source: Source, text: str) -> int:
    """The line, from 1, of the kernel's declaration: where ``template`` or ``__global__`` stands.

    The first of the file where that is in an included one, or within a macro.
    """
    if source.function.file not in ("", source.shown):
        return 1
    code, rows = strip(text).split("\n"), text.split("\n")
    line = source.function.line
    while line > 1 and _continues(code[line - 2]):
        line -= 1
    return 1 if line > 1 and rows[line - 2].rstrip().endswith("\\") else line


def _continues(code: str) -> bool:
    """Whether what a line of code begins goes on in the next one."""
    code = code.strip()
    return bool(code) and not code.startswith("#") and not code.endswith((";", "{", "}", ":"))
