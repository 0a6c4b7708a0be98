"""Sampling with a scripted clock: no real time is asserted anywhere."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from pytest_gemm.errors import BackendError
from pytest_gemm.timing import (
    LONG_CAP,
    PLANS,
    ROUND,
    Place,
    SamplingPlan,
    TimeLaunches,
    take_samples,
)

PLAN = SamplingPlan(precision=0.01, cap=1.0, rounds=2, least_sample=200e-6, warmup=0.02)


class ScriptedDevice:
    """Launches that take as long as the script says, on a clock that only they move.

    The script gets the number of the call and of the allocation.
    """

    def __init__(self, per_launch: Callable[[int, int], float]) -> None:
        self.now = 0.0
        self.calls: list[int] = []
        self.allocations = 0
        self.ended = False
        self._per_launch = per_launch

    @contextmanager
    def placements(self) -> Iterator[Place]:
        yield self.place
        self.ended = True

    def place(self) -> TimeLaunches:
        self.allocations += 1
        return self.time

    def time(self, launches: int) -> float:
        seconds = self._per_launch(len(self.calls), self.allocations) * launches
        self.calls.append(launches)
        self.now += seconds
        return seconds

    def clock(self) -> float:
        return self.now


def test_a_steady_kernel_needs_the_fewest_rounds() -> None:
    device = ScriptedDevice(lambda *_: 0.001)
    samples = take_samples(device.placements(), PLAN, device.clock)
    assert samples.seconds == pytest.approx([0.001] * 2 * ROUND)
    assert (samples.launches, samples.rounds) == (1, 2)
    assert device.ended


def test_short_launches_share_a_sample() -> None:
    device = ScriptedDevice(lambda *_: 1e-6)
    samples = take_samples(device.placements(), PLAN, device.clock)
    assert samples.launches == 200
    assert samples.seconds[0] == pytest.approx(1e-6)


def test_a_plan_may_ask_for_more_launches_a_sample() -> None:
    device = ScriptedDevice(lambda *_: 0.01)
    samples = take_samples(device.placements(), replace(PLAN, least_launches=2), device.clock)
    assert samples.launches == 2
    assert samples.seconds[0] == pytest.approx(0.01)
    assert PLANS["cuda"].least_launches == 2


def test_every_round_has_its_own_allocation_and_a_launch_to_warm_it() -> None:
    def cold_first(call: int, allocation: int, seen: set[int] = set()) -> float:  # noqa: B006
        first = allocation not in seen
        seen.add(allocation)
        return 0.5 if first else 0.001

    device = ScriptedDevice(cold_first)
    samples = take_samples(device.placements(), replace(PLAN, rounds=5), device.clock)
    assert samples.rounds == 5
    assert device.allocations == 6
    assert max(samples.seconds) == pytest.approx(0.001)


def test_a_noisy_kernel_is_sampled_until_the_cap() -> None:
    noise = itertools.cycle([0.010, 0.013, 0.011, 0.015])
    device = ScriptedDevice(lambda *_: next(noise))
    samples = take_samples(device.placements(), replace(PLAN, precision=1e-6), device.clock)
    assert 1.0 <= sum(samples.seconds) <= 1.0 + ROUND * 0.015


def test_allocations_that_differ_ask_for_more_rounds() -> None:
    device = ScriptedDevice(lambda _, allocation: 0.001 * (1 + 0.05 * (allocation % 2)))
    samples = take_samples(device.placements(), PLAN, device.clock)
    assert samples.rounds > 2


def test_a_long_kernel_gets_a_longer_cap_and_one_round_in_any_case() -> None:
    noise = itertools.cycle([0.021, 0.03])
    device = ScriptedDevice(lambda *_: next(noise))
    samples = take_samples(device.placements(), replace(PLAN, precision=1e-6), device.clock)
    assert sum(samples.seconds) >= LONG_CAP * PLAN.cap
    slow = ScriptedDevice(lambda *_: 30.0)
    assert take_samples(slow.placements(), PLAN, slow.clock).rounds == 1


def test_the_warm_up_goes_on_while_times_fall() -> None:
    """As when a GPU's clock climbs: the samples must not begin on the slope."""
    device = ScriptedDevice(lambda call, _: max(0.001, 0.006 * 0.97**call))
    samples = take_samples(device.placements(), PLAN, device.clock)
    assert max(samples.seconds) < 0.00103


def test_the_warm_up_ends_for_times_that_fall_for_ever() -> None:
    device = ScriptedDevice(lambda call, _: 0.001 * 0.9**call + 1e-9)
    plan = replace(PLAN, cap=0.01)
    assert take_samples(device.placements(), plan, device.clock).rounds >= 1


@pytest.mark.parametrize("lie", [0.0, -1e-3, float("nan"), float("inf")])
def test_a_time_that_cannot_be_true_is_refused(lie: float) -> None:
    device = ScriptedDevice(lambda call, _: lie if call == 30 else 0.001)
    with pytest.raises(BackendError, match="reported"):
        take_samples(device.placements(), PLAN, device.clock)
