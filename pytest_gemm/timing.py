"""Sampling: how many launches make a sample, and when there are enough samples."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pytest_gemm.errors import BackendError
from pytest_gemm.stats import relative_width

TimeLaunches = Callable[[int], float]
"""Launch that many times and return the seconds of them all (``Backend.time``, bound)."""

LEAST_SAMPLE = 200e-6
"""Seconds that a sample should last, so that reading the clock does not count."""

LEAST_SAMPLES = 7
"""The fewest samples whose extremes hold the median with more than 98 %."""

MOST_LAUNCHES = 10_000
"""A bound on the launches of one sample, whatever the clock says."""


@dataclass(frozen=True)
class SamplingPlan:
    """When to stop: a relative width of the median's 95 % interval, or seconds of wall time."""

    precision: float = 0.01
    cap: float = 0.5


@dataclass(frozen=True)
class Samples:
    """Seconds per launch, each the mean over ``launches`` launches."""

    seconds: tuple[float, ...]
    launches: int


def take_samples(
    time_launches: TimeLaunches,
    plan: SamplingPlan,
    clock: Callable[[], float] = time.perf_counter,
) -> Samples:
    """Warm up, choose the launches of a sample, then sample until the plan is met.

    At least ``LEAST_SAMPLES`` are taken, even beyond the cap. Raises BackendError for a time that
    cannot be true (zero, negative, NaN, infinite).
    """
    launches = _warm_up(time_launches, clock, clock() + plan.cap / 10)
    seconds: list[float] = []
    deadline = clock() + plan.cap
    wanted = LEAST_SAMPLES
    while len(seconds) < wanted or not _is_met(plan, seconds):
        seconds.append(_believable(time_launches(launches), launches))
        if len(seconds) >= LEAST_SAMPLES and clock() >= deadline:
            break
        if len(seconds) > wanted:
            # Looking after every sample would cost more than sampling.
            wanted = len(seconds) + len(seconds) // 8
    return Samples(tuple(seconds), launches)


def _is_met(plan: SamplingPlan, seconds: Sequence[float]) -> bool:
    return relative_width(seconds) <= plan.precision


def _warm_up(time_launches: TimeLaunches, clock: Callable[[], float], until: float) -> int:
    """Launch until ``until`` (at least twice) and return the launches of one sample."""
    fastest = min(_believable(time_launches(1), 1) for _ in range(2))
    launches = max(1, min(MOST_LAUNCHES, round(LEAST_SAMPLE / fastest)))
    while clock() < until:
        _believable(time_launches(launches), launches)
    return launches


def _believable(seconds: float, launches: int) -> float:
    if not 0 < seconds < float("inf"):
        raise BackendError(f"the device reported {seconds!r} s for {launches} launches")
    return seconds / launches
