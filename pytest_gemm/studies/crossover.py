"""From which size on one way of computing is faster than another, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

Kind = Literal["found", "none", "always"]

DRAWS = 4000
INTERVAL = (2.5, 97.5)
"""Percentiles of the draws that bound the interval."""


class Uncertain(Protocol):
    """A time in seconds and the standard error of its logarithm, as ``stats.Estimate`` is."""

    @property
    def median(self) -> float: ...

    @property
    def log_error(self) -> float: ...


@dataclass(frozen=True)
class Crossover:
    """Where a device becomes faster than a baseline, for good as far as was measured.

    ``kind``: ``found``; ``none`` where the device is not faster at the largest size; ``always``
    where it is at every size. For ``found``, ``size`` is where the curves cross, ``low`` and
    ``high`` bound it (95 % of what the noise of the times makes of it; None where it may lie
    outside of what was measured), and it lies ``between`` these two measured sizes. ``first`` and
    ``last`` are the smallest and largest size of both curves.
    """

    kind: Kind
    first: float
    last: float
    size: float | None = None
    low: float | None = None
    high: float | None = None
    between: tuple[float, float] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    def __str__(self) -> str:
        if self.kind == "none":
            return f"none in range ({self.first:g} ... {self.last:g})"
        if self.kind == "always":
            return f"below {self.first:g}, the smallest size"
        assert self.size is not None
        assert self.between is not None
        low = f"below {self.first:g}" if self.low is None else f"{self.low:.3g}"
        high = f"above {self.last:g}" if self.high is None else f"{self.high:.3g}"
        a, b = self.between
        return f"{self.size:.3g} ({low} ... {high}; measured at {a:g} and {b:g})"


def crossover(
    sizes: Sequence[float],
    baseline: Sequence[Uncertain],
    device: Sequence[Uncertain],
    seed: int = 0,
) -> Crossover:
    """Find the size from which on the device takes less time than the baseline.

    The logarithm of their ratio is taken as linear in the logarithm of the size between measured
    sizes, and the LAST change of sign counts. The interval comes from ``DRAWS`` pairs of curves
    whose every median is moved by its own standard error, so it holds what
    the samples of these sessions scatter by, not what another process would do. ``sizes`` ascend.
    Raises ValueError for curves of different lengths, or none.
    """
    if not sizes or not len(sizes) == len(baseline) == len(device):
        raise ValueError("a crossover takes two times for each size, and at least one size")
    if list(sizes) != sorted(set(sizes)):
        raise ValueError("sizes must ascend")
    advantage = np.array(
        [math.log(b.median / d.median) for b, d in zip(baseline, device, strict=True)]
    )
    first, last = sizes[0], sizes[-1]
    found = _last_crossing(np.log(sizes), advantage[None, :])[0]
    if math.isinf(found):
        return Crossover("none" if found > 0 else "always", first, last)
    errors = np.array([_error(b, d) for b, d in zip(baseline, device, strict=True)])
    noise = np.random.Generator(np.random.PCG64(seed)).normal(size=(DRAWS, len(sizes)))
    draws = np.sort(_last_crossing(np.log(sizes), advantage + errors * noise))
    # Not interpolated: a draw may be infinite.
    low, high = (float(draws[round(p / 100 * (DRAWS - 1))]) for p in INTERVAL)
    above = next(index for index, size in enumerate(sizes) if math.log(size) >= found)
    return Crossover(
        "found",
        first,
        last,
        math.exp(found),
        None if math.isinf(low) else math.exp(low),
        None if math.isinf(high) else math.exp(high),
        (sizes[max(above - 1, 0)], sizes[above]),
    )


def _error(baseline: Uncertain, device: Uncertain) -> float:
    """Standard error of the logarithm of a ratio; a time of one sample is taken as it is."""
    errors = [e.log_error for e in (baseline, device)]
    return math.hypot(*(0.0 if math.isinf(error) else error for error in errors))


def _last_crossing(
    log_sizes: npt.NDArray[np.float64], advantage: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """By curve: the logarithm of the size where the advantage rises above 0 for the last time.

    Infinite where it ends at 0 or below, minus infinity where it is above 0 throughout.
    """
    behind = advantage <= 0
    last = advantage.shape[1] - 1
    # The last size at which the device is not ahead.
    at = np.where(behind.any(axis=1), last - behind[:, ::-1].argmax(axis=1), -1)
    left = np.clip(at, 0, max(last - 1, 0))
    right = np.minimum(left + 1, last)
    rows = np.arange(len(advantage))
    a, b = advantage[rows, left], advantage[rows, right]
    with np.errstate(divide="ignore", invalid="ignore"):
        between = log_sizes[left] - a / (b - a) * (log_sizes[right] - log_sizes[left])
    return np.where(at < 0, -np.inf, np.where(at == last, np.inf, between))
