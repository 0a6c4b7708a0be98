"""The launches ``kernel<16><<<grid, block>>>(...)`` in a file, as hints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytest_gemm.adopt.host_code import HostCode
from pytest_gemm.cuda_items import WORD, Code
from pytest_gemm.cuda_source import locate


@dataclass(frozen=True)
class LaunchCode:
    """One launch of a kernel: what stands in it, as tokens of ``host``.

    ``template``, ``grid`` and ``block`` hold one to three expressions each (``template`` any
    number, None for a name without ``<``); ``shared_mem`` may be empty.
    """

    host: HostCode
    name: str
    at: int
    line: int
    template: tuple[range, ...] | None
    grid: tuple[range, ...]
    block: tuple[range, ...]
    shared_mem: range
    arguments: tuple[range, ...]

    def names(self) -> list[str]:
        """What each argument is called, or an empty text where it is more than a name."""
        return [self._name(tokens) for tokens in self.arguments]

    def number(self, position: int) -> int | None:
        """The value of an argument, where the file says it as a number."""
        tokens = self.arguments[position : position + 1]
        text = self.host.text(tokens[0], lambda name: None) if tokens else None
        return int(text) if text and text.isdecimal() else None

    def is_literal(self, position: int) -> bool:
        """Whether an argument is written as a number."""
        tokens = self.arguments[position : position + 1]
        return bool(tokens) and [self.host.code.texts[at].isdecimal() for at in tokens[0]] == [True]

    @property
    def has_equal_sizes(self) -> bool:
        """Whether one name is passed several times: then its meaning in the grid is open."""
        names = [name for name in self.names() if name]
        return len({*names}) < len(names)

    def _name(self, tokens: range) -> str:
        words = [
            self.host.code.texts[at] for at in tokens if WORD.fullmatch(self.host.code.texts[at])
        ]
        casts = ("float", "const", "int", "thrust", "raw_pointer_cast", "data", "get")
        own = [word for word in words if word not in casts]
        return own[0] if len(own) == 1 else ""


def find_launches(code: Code, source: str) -> Iterator[LaunchCode]:
    """Every launch of a source, in its order; what cannot be read is left out."""
    host = HostCode(code)
    for at in range(1, len(code.texts) - 1):
        if not code.starts(at, "<<", "<"):
            continue
        launch = _launch(host, at, source)
        if launch is not None:
            yield launch


def _launch(host: HostCode, at: int, source: str) -> LaunchCode | None:
    code = host.code
    name_at, template = at - 1, None
    if code.texts[name_at] == ">":
        opening = _opening(code, name_at)
        if opening < 1:
            return None
        template = tuple(host.split(range(opening + 1, name_at)))
        name_at = opening - 1
    end = at + 2
    while end < len(code.texts) and not code.starts(end, ">", ">", ">"):
        if code.texts[end] in (";", "}"):
            return None
        end = code.closers.get(end, end) + 1
    if not code.starts(end + 3, "("):
        return None
    config = host.split(range(at + 2, end))
    if len(config) < 2 or not WORD.fullmatch(code.texts[name_at]):
        return None
    line = source.count("\n", 0, code.tokens[name_at].start) + 1
    return LaunchCode(
        host,
        code.texts[name_at],
        at,
        locate(source, line)[1],
        template,
        tuple(host.dimensions(config[0], at)),
        tuple(host.dimensions(config[1], at)),
        config[2] if len(config) > 2 else range(0),
        tuple(host.split(range(end + 4, code.closers[end + 3]))),
    )


def _opening(code: Code, closing: int) -> int:
    """The ``<`` of a ``>``."""
    depth, at = 0, closing
    while at > 0 and code.texts[at] not in (";", "{", "}"):
        depth += (code.texts[at] == ">") - (code.texts[at] == "<")
        if depth == 0:
            return at
        at -= 1
    return 0


def launches_of(name: str, launches: Sequence[LaunchCode]) -> list[LaunchCode]:
    """Those of one kernel, whose name may be qualified."""
    own = name.rpartition("::")[2]
    return [launch for launch in launches if launch.name == own]
