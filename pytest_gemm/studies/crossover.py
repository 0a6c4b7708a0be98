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

LEAST_SIZES = 5
"""Fewer do not show what a ratio scatters by from size to size."""


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
    ``last`` are the smallest and largest size of both curves; ``scatter`` is what the logarithm of
    their ratio scatters by from size to size.
    """

    kind: Kind
    first: float
    last: float
    size: float | None = None
    low: float | None = None
    high: float | None = None
    between: tuple[float, float] | None = None
    scatter: float = 0.0

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
) -> Crossover:
    """Find the size from which on the device takes less time than the baseline.

    The logarithm of their ratio is taken as linear in the logarithm of the size between measured
    sizes, and the LAST change of sign counts. The interval comes from ``DRAWS`` curves whose every
    ratio is moved by its standard error: that of the two medians, or what the ratio scatters by
    from size to size where that is more. A core that is shared for the whole of one case moves its
    median and not its samples. ``sizes`` ascend. Raises ValueError for curves of different lengths,
    or none.
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
    scatter = _scatter(np.log(sizes), advantage)
    errors = np.array([_error(b, d) for b, d in zip(baseline, device, strict=True)])
    errors = np.maximum(errors, scatter)
    noise = np.random.Generator(np.random.PCG64(0)).normal(size=(DRAWS, len(sizes)))
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
        scatter,
    )


def _scatter(log_sizes: npt.NDArray[np.float64], advantage: npt.NDArray[np.float64]) -> float:
    """Standard deviation about the straight line through each size's two neighbours.

    Robust, from the median of the deviations: a bend of the curve is no scatter.
    """
    if len(log_sizes) < LEAST_SIZES:
        return 0.0
    before, at, after = log_sizes[:-2], log_sizes[1:-1], log_sizes[2:]
    part = (at - before) / (after - before)
    deviations = advantage[1:-1] - (1 - part) * advantage[:-2] - part * advantage[2:]
    # Each holds the errors of three sizes.
    own = np.abs(deviations) / np.sqrt(1 + part**2 + (1 - part) ** 2)
    return 1.4826 * float(np.median(own))


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
