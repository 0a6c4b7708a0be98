"""Sampling with a scripted clock: no real time is asserted anywhere."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from pytest_gemm.errors import BackendError
from pytest_gemm.timing import LEAST_SAMPLES, SamplingPlan, take_samples


class ScriptedDevice:
    """Launches that take as long as the script says, on a clock that only they move."""

    def __init__(self, per_launch: Callable[[int], float]) -> None:
        self.now = 0.0
        self.calls: list[int] = []
        self._per_launch = per_launch

    def time(self, launches: int) -> float:
        seconds = self._per_launch(len(self.calls)) * launches
        self.calls.append(launches)
        self.now += seconds
        return seconds

    def clock(self) -> float:
        return self.now


def test_a_steady_kernel_needs_the_fewest_samples() -> None:
    device = ScriptedDevice(lambda _: 0.001)
    samples = take_samples(device.time, SamplingPlan(cap=10.0), device.clock)
    assert samples.seconds == pytest.approx([0.001] * LEAST_SAMPLES)
    assert samples.launches == 1


def test_short_launches_share_a_sample() -> None:
    device = ScriptedDevice(lambda _: 1e-6)
    samples = take_samples(device.time, SamplingPlan(), device.clock)
    assert samples.launches == 200
    assert samples.seconds[0] == pytest.approx(1e-6)


def test_a_noisy_kernel_is_sampled_until_the_cap() -> None:
    noise = itertools.cycle([0.010, 0.013, 0.011, 0.015])
    device = ScriptedDevice(lambda _: next(noise))
    samples = take_samples(device.time, SamplingPlan(precision=1e-6, cap=1.0), device.clock)
    assert 75 <= len(samples.seconds) <= 85


def test_a_long_kernel_gets_its_fewest_samples_beyond_the_cap() -> None:
    device = ScriptedDevice(lambda _: 3.0)
    samples = take_samples(device.time, SamplingPlan(cap=0.5), device.clock)
    assert len(samples.seconds) == LEAST_SAMPLES


def test_the_warm_up_is_not_in_the_samples() -> None:
    device = ScriptedDevice(lambda call: 0.5 if call < 2 else 0.001)
    samples = take_samples(device.time, SamplingPlan(), device.clock)
    assert max(samples.seconds) == pytest.approx(0.001)


@pytest.mark.parametrize("lie", [0.0, -1e-3, float("nan"), float("inf")])
def test_a_time_that_cannot_be_true_is_refused(lie: float) -> None:
    device = ScriptedDevice(lambda call: lie if call == 6 else 0.001)
    with pytest.raises(BackendError, match="reported"):
        take_samples(device.time, SamplingPlan(), device.clock)
