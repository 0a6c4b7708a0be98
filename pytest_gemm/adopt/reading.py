"""One way to launch a kernel: what a declaration would say, and how it is written down."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

_WIDTH = 80


@dataclass(frozen=True)
class Reading:
    """What is declared of a kernel; the fields are keys of front matter.

    ``entry`` is empty where the file has but one. ``args`` are always given here, and written only
    where ``by_name`` is false. ``more`` are further keys with their values.
    """

    entry: str = ""
    args: tuple[str, ...] = ()
    block: tuple[str, ...] = ()
    grid: tuple[str, ...] = ()
    shared_mem: str = "0"
    params: tuple[tuple[str, int], ...] = ()
    requires: tuple[str, ...] = ()
    more: tuple[tuple[str, Any], ...] = ()
    by_name: bool = False

    def table(self) -> dict[str, Any]:
        """The keys of a declaration, all of them."""
        table: dict[str, Any] = dict(self.more)
        if self.entry:
            table["entry"] = self.entry
        table |= {"args": [*self.args], "block": _numbers(self.block), "grid": _numbers(self.grid)}
        if self.shared_mem != "0":
            table["shared_mem"] = _number(self.shared_mem)
        if self.params:
            table["params"] = dict(self.params)
        if self.requires:
            table["requires"] = [*self.requires]
        return table

    def toml(self, **first: str) -> list[str]:
        """The lines of the declaration; ``first`` are keys that come before the others."""
        table = {**first, **self.table()}
        if self.by_name:
            del table["args"]
        params = table.pop("params", {})
        table |= {f"params.{name}": value for name, value in params.items()}
        width = max(map(len, table))
        return [line for key, value in table.items() for line in _lines(f"{key:{width}}", value)]

    def with_grid(self, *grid: str) -> Reading:
        return replace(self, grid=grid)


def _number(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


def _numbers(texts: tuple[str, ...]) -> list[int | str]:
    return [_number(text) for text in texts]


def _lines(key: str, value: Any) -> Iterator[str]:
    """A key and its value; a list that is too long goes over several lines."""
    line = f"{key} = {_toml(value)}"
    if len(line) + 3 <= _WIDTH or not isinstance(value, list):
        yield line
        return
    yield f"{key} = ["
    row = "   "
    for item in value:
        text = f" {_toml(item)},"
        if len(row) + len(text) + 3 > _WIDTH and row.strip():
            yield row
            row = "   "
        row += text
    yield row
    yield "]"


def _toml(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    assert not isinstance(value, Mapping)
    return json.dumps(value)
