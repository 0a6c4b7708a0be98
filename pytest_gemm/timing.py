"""Sampling: how many launches make a sample, and when there are enough samples."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

from pytest_gemm.errors import BackendError
from pytest_gemm.stats import relative_width

TimeLaunches = Callable[[int], float]
"""Launch that many times and return the seconds of them all (``Backend.time``, bound)."""

Place = Callable[[], TimeLaunches]
"""Put the operands elsewhere, and give the function that times launches on them there."""

ROUND = 8
"""Samples in one allocation: where the operands lie moves the time more than anything else does
from sample to sample, so further samples belong to further allocations."""

MOST_LAUNCHES = 10_000
"""A bound on the launches of one sample, whatever the clock says."""


@dataclass(frozen=True)
class SamplingPlan:
    """When to stop.

    After ``rounds`` allocations at least, once the median's 95 % interval is narrower than
    ``precision`` of it, or after ``cap`` seconds of sampling. A sample lasts ``least_sample``
    seconds or longer, and has ``least_launches`` or more: two on a GPU, where a single launch is
    timed with the host's part in it. The warm-up lasts ``warmup`` seconds at least, and until
    times fall no longer, for at most ten times as long.
    """

    precision: float
    cap: float
    rounds: int
    least_sample: float
    warmup: float
    least_launches: int = 1


PLANS: Mapping[str, SamplingPlan] = {
    "host": SamplingPlan(precision=0.01, cap=0.5, rounds=2, least_sample=200e-6, warmup=0.02),
    "cuda": SamplingPlan(
        precision=0.002, cap=0.5, rounds=8, least_sample=1e-3, warmup=0.03, least_launches=2
    ),
}
"""The default plan for each kind of device."""

LONG = 20e-3
"""Launches longer than this get ``LONG_CAP`` times the cap, for a few samples of each round."""

LONG_CAP = 4


@dataclass(frozen=True)
class Samples:
    """Seconds per launch, each the mean over ``launches`` launches, in ``rounds`` allocations."""

    seconds: tuple[float, ...]
    launches: int
    rounds: int


def take_samples(
    placements: AbstractContextManager[Place],
    plan: SamplingPlan,
    clock: Callable[[], float] = time.perf_counter,
) -> Samples:
    """Warm up, choose the launches of a sample, then sample round by round until the plan is met.

    One round is always finished; whatever was placed is given back at the end. Raises BackendError
    for a time that cannot be true (zero, negative, NaN, infinite).
    """
    with placements as place:
        return _sample(place, plan, clock)


def _sample(place: Place, plan: SamplingPlan, clock: Callable[[], float]) -> Samples:
    launches = warm_up(place(), plan, clock)
    seconds: list[float] = []
    spent, rounds, cap = 0.0, 0, plan.cap
    while rounds == 0 or spent < cap:
        time_launches = place()
        seconds_per_launch(time_launches, launches)
        start = clock()
        seconds += [seconds_per_launch(time_launches, launches) for _ in range(ROUND)]
        spent += clock() - start
        rounds += 1
        if rounds == 1 and min(seconds) > LONG:
            cap *= LONG_CAP
        if rounds >= plan.rounds and relative_width(seconds) <= plan.precision:
            break
    return Samples(tuple(seconds), launches, rounds)


def warm_up(
    time_launches: TimeLaunches,
    plan: SamplingPlan,
    clock: Callable[[], float] = time.perf_counter,
) -> int:
    """Launch until the clocks have settled, and return the launches of one sample."""
    fastest = min(seconds_per_launch(time_launches, 1) for _ in range(2))
    launches = _launches(plan, fastest)
    start = clock()
    earlier = float("inf")
    while True:
        batch_start = clock()
        batch = [seconds_per_launch(time_launches, launches)]
        while clock() - batch_start < plan.warmup / 2:
            batch.append(seconds_per_launch(time_launches, launches))
        now = sorted(batch)[len(batch) // 2]
        elapsed = clock() - start
        is_falling = now < earlier * (1 - plan.precision)
        if elapsed >= 10 * plan.warmup or (elapsed >= plan.warmup and not is_falling):
            return _launches(plan, now)
        earlier = now


def _launches(plan: SamplingPlan, seconds: float) -> int:
    wanted = math.ceil(round(plan.least_sample / seconds, 6))
    return max(plan.least_launches, min(MOST_LAUNCHES, wanted))


def seconds_per_launch(time_launches: TimeLaunches, launches: int) -> float:
    """Seconds per launch, if they can be true."""
    seconds = time_launches(launches)
    if not 0 < seconds < float("inf"):
        raise BackendError(f"the device reported {seconds!r} s for {launches} launches")
    return seconds / launches
