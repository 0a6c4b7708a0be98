"""A line plot as SVG, without a library: a picture for a page, not for exploring."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 720, 440
"""Of the plot; its legend is below, a line for each series."""

LEFT, RIGHT, TOP, BOTTOM = 78, 18, 40, 52

LINE = 18

FEW = range(3, 9)
APART = 1.5
"""So many measured sizes, each at least so many times the one before, stand at their axis."""

# Okabe and Ito: told apart by people who see few colours, and by their markers.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")


@dataclass(frozen=True)
class Series:
    """Points joined by lines; ``smooth``: a curve without markers, such as a fit."""

    name: str
    points: Sequence[tuple[float, float]]
    smooth: bool = False


@dataclass(frozen=True)
class _Axis:
    """From values to pixels."""

    low: float
    high: float
    start: float
    end: float
    log: bool
    measured: tuple[float, ...] = ()

    def __call__(self, value: float) -> float:
        low, high, at = self.low, self.high, value
        if self.log:
            low, high, at = math.log(low), math.log(high), math.log(at)
        return self.start + (at - low) / ((high - low) or 1.0) * (self.end - self.start)

    def ticks(self) -> list[float]:
        if self.measured:
            return list(self.measured)
        return _log_ticks(self.low, self.high) if self.log else _ticks(self.low, self.high)


def plot(title: str, x: str, y: str, series: Sequence[Series], *, log: bool) -> str:
    """An SVG document; ``log``: both axes are logarithmic, and all values above 0.

    Raises ValueError where there is no point.
    """
    points = [point for one in series for point in one.points]
    if not points:
        raise ValueError("a plot takes at least one point")
    xs = [p[0] for p in points]
    across = replace(_axis(xs, LEFT, WIDTH - RIGHT, log=log), measured=_few(xs) if log else ())
    up = _axis([p[1] for p in points], HEIGHT - BOTTOM, TOP, log=log)
    lines = [
        *_frame(title, x, y, across, up, HEIGHT + LINE * len(series) + 8),
        *(part for index, one in enumerate(series) for part in _drawn(one, index, across, up)),
        *_legend(series),
    ]
    return "\n".join([*lines, "</svg>", ""])


def _axis(values: Sequence[float], start: float, end: float, *, log: bool) -> _Axis:
    low, high = min(values), max(values)
    if log:
        room = (high / low) ** 0.03 if high > low else 2.0
        return _Axis(low / room, high * room, start, end, log)
    low = min(low, 0.0)
    return _Axis(low, (high + 0.05 * (high - low)) if high > low else low + 1, start, end, log)


def _few(values: Sequence[float]) -> tuple[float, ...]:
    """The values, each once, if all of them can stand at a logarithmic axis."""
    found = sorted(set(values))
    apart = all(b >= APART * a for a, b in pairwise(found))
    return tuple(found) if len(found) in FEW and apart else ()


def _frame(title: str, x: str, y: str, across: _Axis, up: _Axis, height: int) -> Iterator[str]:
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'font-family="sans-serif" font-size="13" fill="#222">'
    )
    yield f"<title>{escape(title)}</title>"
    yield f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>'
    yield f'<text x="{LEFT}" y="22" font-size="15" font-weight="bold">{escape(title)}</text>'
    for value in across.ticks():
        at = across(value)
        yield _line(at, TOP, at, HEIGHT - BOTTOM, "#ddd")
        yield _text(at, HEIGHT - BOTTOM + 18, _number(value), "middle")
    for value in up.ticks():
        at = up(value)
        yield _line(LEFT, at, WIDTH - RIGHT, at, "#ddd")
        yield _text(LEFT - 6, at + 4, _number(value), "end")
    yield _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, x, "middle")
    middle = (TOP + HEIGHT - BOTTOM) / 2
    yield (
        f'<text x="16" y="{middle:.0f}" text-anchor="middle" '
        f'transform="rotate(-90 16 {middle:.0f})">{escape(y)}</text>'
    )
    yield _line(LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT, HEIGHT - BOTTOM, "#222")
    yield _line(LEFT, TOP, LEFT, HEIGHT - BOTTOM, "#222")


def _drawn(series: Series, index: int, across: _Axis, up: _Axis) -> Iterator[str]:
    colour = COLOURS[index % len(COLOURS)]
    places = [(across(x), up(y)) for x, y in sorted(series.points)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dashes = ' stroke-dasharray="6 4"' if series.smooth else ""
    yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.8"{dashes}/>'
    if not series.smooth:
        yield from (_marker(x, y, index) for x, y in places)


def _marker(x: float, y: float, index: int) -> str:
    colour = COLOURS[index % len(COLOURS)]
    corners = {1: "-4,-4 4,-4 4,4 -4,4", 2: "0,-5 5,4 -5,4", 3: "0,-5 5,0 0,5 -5,0"}.get(index % 4)
    if corners is None:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>'
    move = f"translate({x:.1f} {y:.1f})"
    return f'<polygon points="{corners}" transform="{move}" fill="{colour}"/>'


def _legend(series: Sequence[Series]) -> Iterator[str]:
    for index, one in enumerate(series):
        y = HEIGHT + LINE * index
        colour = COLOURS[index % len(COLOURS)]
        dashes = ' stroke-dasharray="6 4"' if one.smooth else ""
        yield (
            f'<line x1="{LEFT}" y1="{y}" x2="{LEFT + 24}" y2="{y}" stroke="{colour}" '
            f'stroke-width="1.8"{dashes}/>'
        )
        if not one.smooth:
            yield _marker(LEFT + 12, y, index)
        yield _text(LEFT + 32, y + 4, one.name, "start")


def _line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{colour}"/>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _ticks(low: float, high: float) -> list[float]:
    """Five or so round values."""
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= rough)
    first = math.ceil(low / step - 1e-9)
    return [step * k for k in range(first, math.floor(high / step + 1e-9) + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten; also 2 and 5 times these where there are few."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    few = math.log10(high / low) < 3
    values = [m * 10.0**p for p in powers for m in ((1, 2, 5) if few else (1,))]
    return [value for value in values if low <= value <= high]


def _number(value: float) -> str:
    """``0.001``, ``20000`` or ``1e-05``."""
    return f"{value:.6g}"
