"""Limits that a kernel must keep whatever is stored: times and rates in its front matter."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields


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


@dataclass(frozen=True)
class LimitCheck:
    """Which limits are broken and which could not be checked, a phrase each."""

    broken: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()


def check_limits(
    limits: Limits, *, seconds: float, flops: int, percent_of_cublas: float | None = None
) -> LimitCheck:
    """Hold a median (seconds per launch, of ``flops`` operations) against the limits.

    A limit says what is required of the figure that is reported, so no noise is allowed for: leave
    room when choosing it. Raises ValueError for a time that is not finite and above 0.
    """
    if not 0 < seconds < math.inf:
        raise ValueError(f"{seconds} is not a time: seconds are finite and above 0")
    us, gflops = 1e6 * seconds, flops / seconds / 1e9
    broken, unchecked = [], []
    if limits.max_us is not None and us > limits.max_us:
        broken.append(f"{us:.6g} us is above max_us = {limits.max_us:g}")
    if limits.min_gflops is not None and gflops < limits.min_gflops:
        broken.append(f"{gflops:.6g} GFLOP/s is below min_gflops = {limits.min_gflops:g}")
    if (least := limits.min_percent_of_cublas) is not None:
        if percent_of_cublas is None or not math.isfinite(percent_of_cublas):
            unchecked.append(f"min_percent_of_cublas = {least:g}: cuBLAS was not timed here")
        elif percent_of_cublas < least:
            broken.append(
                f"{percent_of_cublas:.6g} % of cuBLAS is below min_percent_of_cublas = {least:g}"
            )
    return LimitCheck(tuple(broken), tuple(unchecked))
