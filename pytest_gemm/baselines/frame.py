"""The frame around the lines of a stored file, and the formats that a file may have.

::

    {
      "device": "NVIDIA-H200",
      "format": 2,
      "kernel": "tiled",
      "sessions": [
        {...},
        {...},
        null
      ]
    }

The null at the end is there so that every line ends in a comma: lines that two branches added can
stand under each other in any order, and a file that was cut off is no JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_gemm.baselines.checks import Check, Json, UnusableError, a_list, checked, parsed, shown

FORMAT = 2
"""History. 1: newest session first, no null at the end. 2: oldest first, setup by itself, anchor.
"""

_END = "    null\n  ]\n}\n"
_MARKER = re.compile(r"^(?:<{7}|>{7}|={7}$|\|{7})", re.MULTILINE)


Place = int | str
"""Where an entry stands: the number of its line, or its name where it has no line of its own."""


def placed(place: Place) -> str:
    return f"line {place}" if isinstance(place, int) else place


def parsed_entry(place: Place, text: str) -> Any:
    """An entry's JSON."""
    return parsed(text, place if isinstance(place, int) else 1)


@dataclass(frozen=True)
class Frame:
    """A file taken apart: its names, and the text of each entry with the line that it stands in.

    An entry's text may be anything, as long as it is one line.
    """

    names: Mapping[str, str]
    entries: Iterable[tuple[Place, str]]


def framed(names: Mapping[str, str], entries: str, lines: Iterable[str]) -> str:
    """The file's text. ``entries`` is what the list is called, ``lines`` its entries' texts."""
    fields: dict[str, Any] = {**names, "format": FORMAT}
    head = [f"  {json.dumps(key)}: {json.dumps(fields[key])},\n" for key in sorted(fields)]
    body = [f"    {line},\n" for line in lines]
    return "".join(["{\n", *head, f'  "{entries}": [\n', *body, _END])


def unframed(
    text: str,
    entries: str,
    names: Mapping[str, Check],
    migrations: Mapping[int, Callable[[Json], Json]],
    line_of: Callable[[str, Json], str],
) -> Frame:
    """Take a file's text apart, whatever its format and layout.

    ``line_of`` gives the text of an entry that does not stand in a line of its own. Raises
    UnusableError.
    """
    found = _by_lines(text, entries)
    if found is not None and found[0].pop("format", None) == FORMAT:
        return Frame(checked("the file", found[0], names), found[1])
    if marker := _MARKER.search(text):
        line = text.count("\n", 0, marker.start()) + 1
        raise UnusableError(
            f"line {line} is a conflict marker of git",
            remedy="delete such lines and keep all others",
        )
    data = parsed(text)
    if not isinstance(data, dict):
        raise UnusableError("it is not a JSON object")
    data = _migrated(data.pop("format", None), data, migrations)
    values = checked("the file", data, {**names, entries: a_list})
    *objects, end = values.pop(entries) or [{}]
    if end is not None:
        raise UnusableError(f"{entries} does not end with null")
    found_at = [(f"{entries}[{i}]", value) for i, value in enumerate(objects)]
    return Frame(values, [(place, _text(place, value, line_of)) for place, value in found_at])


def _by_lines(text: str, entries: str) -> tuple[Json, Iterable[tuple[Place, str]]] | None:
    """Header and lines of a file as ``framed`` writes it; None for any other."""
    opening = f'  "{entries}": [\n'
    start = text.find(opening)
    head = text[: max(0, start)]
    if not head.endswith(",\n") or not text.endswith(f",\n{_END}"):
        return None
    try:
        header = parsed(f"{head[:-2]}\n}}")
    except UnusableError:
        return None
    # No text of JSON holds a line break.
    lines = text[start + len(opening) + 4 : -len(_END) - 2].split(",\n    ")
    first = head.count("\n") + 2
    if text.count("\n") != first - 1 + len(lines) + _END.count("\n"):
        return None
    return (header, enumerate(lines, first)) if isinstance(header, dict) else None


def _migrated(version: Any, data: Json, migrations: Mapping[int, Callable[[Json], Json]]) -> Json:
    if type(version) is not int or version < 1:
        raise UnusableError(f"its format is {shown(version)}, which is not a version")
    if version > FORMAT:
        raise UnusableError(f"its format is {shown(version)}, newer than {FORMAT}", newer=True)
    for step in range(version, FORMAT):
        try:
            data = migrations[step](data)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError):
            raise UnusableError(f"it cannot be brought from format {step} to {step + 1}") from None
    return data


def _text(where: str, value: Any, line_of: Callable[[str, Json], str]) -> str:
    if not isinstance(value, dict):
        raise UnusableError(f"{where} is {shown(value)}, not an object")
    return line_of(where, value)
