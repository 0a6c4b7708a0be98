"""Markdown: tables, and numbers as they stand in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

NOTHING = "-"
"""In a cell: it was not measured."""


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """A Markdown table and an empty line; columns after the first are aligned to the right."""
    yield _line(heading)
    yield _line([":---", *["---:"] * (len(heading) - 1)])
    for row in rows:
        yield _line(row)
    yield ""


def plain(text: str) -> str:
    """An author's words, as Markdown and HTML leave them, in one line."""
    return "".join(f"&#{ord(c)};" if c in "\\`*[]<>|&" else c for c in " ".join(text.split()))


def code(name: str, *, cell: bool = True) -> str:
    """A name as code, in one line; a cell of a table ends at a bar, and code at a backtick."""
    text = " ".join(name.split()).replace("`", "'")
    return f"`{text.replace('|', '/') if cell else text}`"


def giga(value: float) -> str:
    """10^9 of something, with three digits: ``0.0123``, ``1.23``, ``123``."""
    return digits(value / 1e9)


def digits(value: float) -> str:
    """Three significant digits without an exponent, within reason."""
    if not 1e-4 <= abs(value) < 1e6:
        return f"{value:.3g}"
    decimals = 0
    while decimals < 6 and abs(value) * 10**decimals < 99.95:
        decimals += 1
    return f"{value:.{decimals}f}"


def with_error(value: float, error: float) -> str:
    """``1.234e-09 +- 0.012e-09``: both with the digits that the error leaves."""
    if not value:
        return f"{value:.3g} +- {error:.2g}"
    exponent = int(f"{abs(value):e}".partition("e")[2])
    unit = 10.0**exponent
    decimals = 3
    if error > 0:
        decimals = min(max(0, 1 - int(f"{error / unit:e}".partition("e")[2])), 5)
    return f"({value / unit:.{decimals}f} +- {error / unit:.{decimals}f})e{exponent:+03d}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
