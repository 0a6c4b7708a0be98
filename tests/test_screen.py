from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gemm.margin import EXPECTED, Expected
from pytest_gemm.screen import Screen, device_spread, screen
from pytest_gemm.stats import Spread

HOST, CUDA = EXPECTED["host"], EXPECTED["cuda"]


def screened(seconds: float, stored: list[float], expected: Expected, **changes: Any) -> Screen:
    options: dict[str, Any] = {"margin": expected.margin, "benchmarks": 21}
    return screen(seconds, stored, expected=expected, **options | changes)


def test_the_threshold_is_students_prediction_interval() -> None:
    medians = [1e-3, 1.01e-3, 1.02e-3]
    result = screened(1e-3, medians, HOST, prior=Spread(0.03, 6), margin=0.01, benchmarks=10)

    logs = [math.log(m) for m in medians]
    mean = sum(logs) / 3
    variance = (6 * 0.03**2 + sum((x - mean) ** 2 for x in logs)) / 8
    t = 3.3554  # 0.995 quantile with 8 degrees of freedom, from a printed table
    expected = math.log1p(0.01) + t * math.sqrt(variance * (1 + 1 / 3))
    assert result.threshold == pytest.approx(expected, rel=1e-4)


def test_clearly_fine_is_within_the_margin_and_short_of_what_is_to_be_found() -> None:
    """On either side of both bounds, with 0.99 quantiles from a printed table."""
    bounds = {
        # 8 + 20 - 1 degrees of freedom, a spread so small that the margin's side decides.
        20: (Spread(0.0005, 8), math.log(1.003) + 2.4727 * 0.0005 * (8 / 27) ** 0.5 * 1.05**0.5),
        # 8 degrees of freedom: the side of 1 % decides.
        1: (Spread(0.002, 8), math.log(1.003 * 1.007) - 2.8965 * 0.002 * 2**0.5),
    }
    for stored, (prior, bound) in bounds.items():
        for nudge, suspicious in ((-1e-6, False), (1e-6, True)):
            now = 1e-3 * math.exp(bound + nudge)
            found = screened(now, [1e-3] * stored, CUDA, prior=prior)
            assert found.suspicious == suspicious


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0, -1e-3])
def test_refuses_values_that_are_not_times(bad: float) -> None:
    with pytest.raises(ValueError, match="not a time"):
        screened(1e-3, [1e-3, bad], HOST)
    with pytest.raises(ValueError, match="not a time"):
        screened(bad, [1e-3], HOST)
    with pytest.raises(ValueError, match="no time"):
        screened(1e-3, [], HOST)


@pytest.mark.parametrize(
    "wrong", [{"benchmarks": 0}, {"alpha": 0.0}, {"alpha": math.nan}, {"excess": math.inf}]
)
def test_refuses_what_cannot_be_asked(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"stored benchmarks|cannot be used"):
        screened(1e-3, [1e-3], HOST, **wrong)


@pytest.mark.parametrize("outcome", ["slower", "inconclusive"])
def test_what_would_not_pass_is_always_suspicious(outcome: str) -> None:
    stored = [1e-3] * 3 if outcome == "slower" else [1e-3, 1.5e-3, 2.2e-3]

    found = screened(3e-3, stored, HOST)

    assert (found.outcome, found.suspicious) == (outcome, True)


stored_times = st.lists(st.floats(0.9e-3, 1.1e-3), min_size=1, max_size=20)


@given(st.floats(0.8e-3, 1.3e-3), stored_times, st.floats(1e-4, 1e3))
def test_the_unit_of_time_changes_nothing(new: float, stored: list[float], unit: float) -> None:
    seconds = screened(new, stored, HOST)
    others = screened(new * unit, [x * unit for x in stored], HOST)

    assert others.change == pytest.approx(seconds.change, abs=1e-9)
    assert others.reach == pytest.approx(seconds.reach)
    assert others.odd == seconds.odd


SEVERITY = ["faster", "same", "inconclusive", "slower"]


@given(st.lists(st.floats(0.5e-3, 3e-3), min_size=2, max_size=5), stored_times)
def test_a_longer_time_never_is_judged_better(times: list[float], stored: list[float]) -> None:
    found = [screened(x, stored, CUDA) for x in sorted(times)]

    severities = [SEVERITY.index(f.outcome) for f in found]
    assert severities == sorted(severities)
    passing = [f.suspicious for f in found if f.outcome != "faster"]
    assert passing == sorted(passing)
    assert all(f.suspicious for f in found if f.outcome == "faster")


@given(st.floats(-0.02, 0.02), stored_times)
def test_what_is_to_be_found_passes_no_screen_by_noise(change: float, stored: list[float]) -> None:
    """The largest change that is clearly fine is short of it by the doubt, whatever is stored."""
    found = screened(stored[-1] * math.exp(change), stored, CUDA)

    worth = math.log((1 + CUDA.margin) * (1 + CUDA.gap))
    assert found.suspicious or found.change < worth


def test_a_noisy_device_widens_the_interval_but_passes_nothing() -> None:
    """Sessions known to scatter by 6 %: a change that 2.5 % would call slower is not the same."""
    stored = [1e-3, 1.06e-3, 0.94e-3, 1.03e-3]
    noisy = Spread(0.06, 30)

    assert screened(1.25e-3, stored, HOST).outcome == "slower"
    assert screened(1.25e-3, stored, HOST, prior=noisy).outcome == "inconclusive"
    assert screened(1.25e-3, stored, HOST, prior=noisy).suspicious


def test_a_device_is_known_from_ten_degrees_of_freedom_on() -> None:
    two, three = [0.0, 0.0005], [0.0, 0.0005, -0.0005]

    for few in ([], [[0.0]] * 50, [two] * 9, [three] * 4, [three * 10]):
        assert device_spread(few, CUDA) == CUDA.session
    for enough in ([two] * 10, [three] * 5):
        found = device_spread(enough, CUDA)
        assert found.sd < CUDA.session.sd
        assert found.df <= 10


def test_odd_sessions_and_earlier_levels_are_no_spread_of_the_device() -> None:
    quiet = [0.0, 0.0005, -0.0005, 0.0003]
    disturbed = [[*quiet, math.log(10)], [1.0, 1.0001, 1.0002, *quiet], quiet, quiet, quiet]

    assert device_spread(disturbed, CUDA).sd < 0.002


# Medians in microseconds of six processes on one H200, graph replays: add 256, add 1024,
# tiled 256, register-blocked 512, add 4096, tiled 1024, register-blocked 2048.
H200_SESSIONS = (
    (1.1728, 1.1808, 1.1808, 1.1776, 1.1824, 1.1808),
    (3.4544, 3.4560, 3.4904, 3.4696, 3.4592, 3.4640),
    (7.5296, 7.5152, 7.5408, 7.5296, 7.5224, 7.5632),
    (42.286, 42.300, 42.142, 42.188, 42.146, 42.332),
    (60.731, 60.722, 60.800, 60.642, 60.793, 60.819),
    (276.04, 275.99, 275.88, 276.00, 276.04, 276.20),
    (922.13, 921.76, 921.74, 922.00, 921.80, 922.08),
)


@pytest.mark.parametrize("stored", [1, 2, 3, 5])
@pytest.mark.parametrize("slowdown", [0.0, 0.03, 0.05])
def test_sessions_measured_on_a_gpu_are_judged_right(stored: int, slowdown: float) -> None:
    outcomes = []
    for medians in H200_SESSIONS:
        for i, median in enumerate(medians):
            others = [m for j, m in enumerate(medians) if j != i][:stored]
            now = median * (1 + slowdown)
            outcomes.append(screened(now, others, CUDA, benchmarks=7).outcome)

    assert set(outcomes) == {"slower" if slowdown else "same"}
