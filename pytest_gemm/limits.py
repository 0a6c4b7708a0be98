"""What may be asked of a kernel: limits on times and rates, and how large a margin can be."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields


def margin_of_percent(percent: float) -> float:
    """A declared margin, at least 0, as a fraction. Raises ValueError from 100 percent on."""
    if percent >= 100:
        raise ValueError(
            "a margin is below 100 percent, or what takes twice its time would pass: give less, or "
            "compare nothing with --gemm-baseline=off"
        )
    return percent / 100


@dataclass(frozen=True)
class Limits:
    """The slowest that a kernel may be on one problem; None where nothing is asked.

    ``max_us`` in microseconds per launch, ``min_gflops`` in 10^9 operations per second,
    ``min_percent_of_cublas`` in percent of the rate of cuBLAS on the same problem and device.
    """

    max_us: float | None = None
    min_gflops: float | None = None
    min_percent_of_cublas: float | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for a limit that is not finite and above 0."""
        for f in fields(self):
            value = getattr(self, f.name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{f.name} = {value} is no limit: it is finite and above 0")

    @property
    def asked(self) -> dict[str, float]:
        """The limits that there are, by name."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True)
class LimitCheck:
    """Which limits are kept, which are broken and which could not be checked, a phrase each."""

    kept: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """``broken: 1012 us is above max_us = 900``, or ``kept``; empty where nothing is asked."""
        phrases = {"broken": self.broken, "not checked": self.unchecked}
        words = [f"{word}: {'; '.join(own)}" for word, own in phrases.items() if own]
        return ", ".join(words) or ("kept" if self.kept else "")


def check_limits(
    limits: Limits, *, seconds: float, flops: int, percent_of_cublas: float | None = None
) -> LimitCheck:
    """Hold a median (seconds per launch, of ``flops`` operations) against the limits.

    A limit says what is required of the figure that is reported, so no noise is allowed for: leave
    room when choosing it. Raises ValueError for a time that is not finite and above 0.
    """
    if not 0 < seconds < math.inf:
        raise ValueError(f"{seconds} is not a time: seconds are finite and above 0")
    found = {
        "max_us": (1e6 * seconds, "us"),
        "min_gflops": (flops / seconds / 1e9, "GFLOP/s"),
        "min_percent_of_cublas": (percent_of_cublas, "% of cuBLAS"),
    }
    kept, broken, unchecked = [], [], []
    for name, limit in limits.asked.items():
        figure, unit = found[name]
        side = "above" if name.startswith("max_") else "below"
        if figure is None or not math.isfinite(figure):
            unchecked.append(f"{name} = {limit:g}: cuBLAS was not timed here")
        elif figure > limit if side == "above" else figure < limit:
            broken.append(f"{figure:.6g} {unit} is {side} {name} = {limit:g}")
        else:
            kept.append(f"{name} = {limit:g}")
    return LimitCheck(tuple(kept), tuple(broken), tuple(unchecked))
