"""Fits over the side of a block, as figures show them: a curve, and a sentence on how good it is.

``fit`` is a ``fits.Fit`` as plain values.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pytest_gemm.report.marks import Spec

POINTS = 80
"""Of a curve."""


def curve(
    fit: Mapping[str, Any] | None, sides: Sequence[float], x: str, y: str, scale: float
) -> list[Spec]:
    """The layer that draws a fit, in units of ``scale``; none where there is no fit.

    ``x`` and ``y`` are the figure's fields. The sides are above 0.
    """
    if fit is None or fit["reason"]:
        return []
    low, high = min(sides), max(sides)
    at = [low * (high / low) ** (i / (POINTS - 1)) for i in range(POINTS)]
    rows = [{x: s, y: value_at(fit, s) / scale} for s in at]
    mark = {"type": "line", "stroke": "var(--series-8)", "strokeWidth": 2, "aria": False}
    return [{"data": {"values": rows}, "mark": mark, "encoding": {"color": None}}]


def value_at(fit: Mapping[str, Any], x: float) -> float:
    """What an exponential or a logarithmic fit is at ``x``, which is above 0."""
    c = fit["coefficients"]
    if fit["model"] == "exponential":
        value: float = c["floor"] + c["height"] * math.exp(-c["rate"] * x)
    else:
        value = c["offset"] + c["slope"] * math.log(x)
    return value


def goodness(fit: Mapping[str, Any] | None) -> Iterator[str]:
    """One sentence on a fit, or why there is none."""
    if fit is None:
        return
    if fit["reason"]:
        yield f"No {fit['model']} fit: {fit['reason']}."
        return
    residual = f"{100 * fit['residual']:.2g} %"
    yield f"The {fit['model']} fit: R^2 = {fit['r_squared']:.4f}, rms residual {residual}."
