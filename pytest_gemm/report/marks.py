"""Parts of figures, as Vega-Lite wants them: https://vega.github.io/vega-lite/docs/

Colours are those of the page, by name: dark and light are its business.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Spec = dict[str, Any]
Row = Mapping[str, Any]

SERIES = 8
"""Most series of a figure: more cannot be told apart by colour and shape."""

SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down",
          "triangle-left", "triangle-right")  # fmt: skip

INK, FAINT = "var(--ink-2)", "var(--axis)"


@dataclass(frozen=True)
class Figure:
    """A figure of the page. ``text`` says what it shows, ``rows`` are its data.

    Where there are more ``series`` than ``SERIES``, readers choose among them by ``choice``, a
    field of the rows. ``notes`` are sentences below.
    """

    id: str
    title: str
    text: str
    spec: Spec
    rows: tuple[Row, ...]
    choice: str = ""
    series: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    height: int = 320

    def to_dict(self) -> dict[str, Any]:
        """What the page's script takes."""
        return {
            "id": self.id,
            "spec": self.spec,
            "rows": self.rows,
            "choice": self.choice,
            "series": self.series,
            "height": self.height,
        }


@dataclass(frozen=True)
class Axis:
    """An axis: its field, what it says, and how it is scaled: by logarithms to a base, or not."""

    name: str
    title: str
    base: int | None = None
    zero: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> Spec:
        """The channel's definition."""
        scale: Spec = {"zero": self.zero}
        if self.base:
            scale = {"type": "log", "base": self.base, "nice": False, "padding": 10}
        elif self.zero:
            scale["nice"] = True
        axis = {"title": self.title, **self.options}
        return {"field": self.name, "type": "quantitative", "scale": scale, "axis": axis}


def decades(values: Iterable[float]) -> dict[str, Any]:
    """Ticks of a logarithmic axis: powers of ten, with twos and fives where those are few."""
    known = [value for value in values if value > 0]
    low, high = min(known), max(known)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    digits = (1,) if math.log10(high / low) > 3 else (1, 2, 5)
    ticks = [digit * 10.0**power for power in powers for digit in digits]
    return {"values": [t for t in ticks if low <= t <= high] or [low, high], "labelOverlap": True}


def series(field: str, names: Sequence[str]) -> Spec:
    """Colour by a field; ``shapes`` goes with it. Their legends are one, as they are alike."""
    colours = [f"var(--series-{i + 1})" for i in range(len(names[:SERIES]))]
    return {"color": _by(field, names, colours)}


def shapes(field: str, names: Sequence[str]) -> Spec:
    """Shape by a field, for the layer of the points: a line would have points of its own."""
    return {"shape": _by(field, names, SHAPES[: len(names)])}


def _by(field: str, names: Sequence[str], values: Sequence[str]) -> Spec:
    legend = {"title": None} if len(names) > 1 else None
    scale = {"domain": list(names[:SERIES]), "range": list(values)}
    return {"field": field, "type": "nominal", "legend": legend, "sort": None, "scale": scale}


def tooltip(**titles: str) -> list[Spec]:
    """What is said of a point: fields of its row that are texts, by title."""
    return [{"field": field, "title": title, "type": "nominal"} for field, title in titles.items()]


def whisker(axis: Spec, low: str, high: str) -> Spec:
    """An interval in y, on the axis of the points."""
    return {
        "mark": {"type": "rule", "strokeWidth": 1.5, "aria": False},
        "encoding": {"y": {**axis, "field": low}, "y2": {"field": high}},
    }


def line(order: str) -> Spec:
    """A line through the points of a series."""
    encoding: Spec = {"order": {"field": order, "type": "quantitative"}}
    return {"mark": {"type": "line", "strokeWidth": 2, "aria": False}, "encoding": encoding}


def points(tips: Sequence[Spec], own: Spec | None = None) -> Spec:
    """The points themselves, with what is said of each, and encodings of their ``own``."""
    mark = {"type": "point", "filled": True, "size": 64, "opacity": 1}
    return {"mark": mark, "encoding": {"tooltip": list(tips), **(own or {})}}


def layered(encoding: Spec, *layers: Spec) -> Spec:
    """Layers that share an encoding, as wide as the page allows."""
    return {"width": "container", "encoding": encoding, "layer": list(layers)}
