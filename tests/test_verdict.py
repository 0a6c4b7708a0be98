from __future__ import annotations

import json
import math
import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_gemm.baselines import Series, Session
from pytest_gemm.stats import Estimate
from pytest_gemm.verdict import PRIORS, Prior, Verdict, judge, screen

SIMULATION = Path(__file__).parents[1] / "benchmarks" / "simulate_verdict.py"


def estimate(median: float = 1e-3, n: int = 50, width: float = 0.002) -> Estimate:
    low, high = median * (1 - width / 2), median * (1 + width / 2)
    return Estimate(n, median, low, high, median * width, (median,) * 9)


def session(median: float = 1e-3, **changes: Any) -> Session:
    fields: dict[str, Any] = {
        "device": "host-x",
        "kernel": "tiled",
        "benchmark": "tiled-64x64x64-float32",
        "date": "2025-01-01T00:00:00Z",
        "estimate": estimate(median),
        "launches": 1,
        "seed": 0,
        "recipe": "normal-1",
        "source": "",
        "launch": {"block": [16, 16, 1]},
        "environment": {"compiler": "g++ 12.2", "load": 0.1},
        "settings": {"dtype": "float32", "metric": "thread CPU time"},
    }
    return Session(**fields | changes)


def series(*medians: float, **changes: Any) -> Series:
    return Series(
        tuple(
            session(median, date=f"2025-01-{day:02}T00:00:00Z", **changes)
            for day, median in enumerate(medians, start=1)
        )
    )


def verdict(now: Session, reference: Series | None, **changes: Any) -> Verdict:
    options: dict[str, Any] = {"kind": "host", "benchmarks": 21}
    return judge(now, reference, **options | changes)


@pytest.mark.parametrize("kind", ["host", "cuda"])
@pytest.mark.parametrize("stored", [1, 2, 3, 5, 20])
def test_the_same_time_is_the_same(kind: str, stored: int) -> None:
    found = verdict(session(), series(*[1e-3] * stored), kind=kind)

    assert found.outcome == "same"
    assert found.change == pytest.approx(0)
    assert found.baseline_median == pytest.approx(1e-3)
    assert found.sessions == stored
    assert found.provisional == (stored < 3)
    assert found.decided_by == ("prior" if stored < 3 else "sessions")
    assert not found.fails(strict=True)


def test_thirty_percent_on_a_host_is_found_with_one_stored_session() -> None:
    found = verdict(session(1.3e-3), series(1e-3))

    assert found.outcome == "slower"
    assert found.fails()
    assert found.change == pytest.approx(0.3)
    assert found.threshold is not None
    assert found.threshold < 0.2
    assert found.smallest_slowdown is not None
    assert found.threshold < found.smallest_slowdown < 0.3


def test_five_percent_on_a_gpu_is_found_with_one_stored_session() -> None:
    assert verdict(session(1.05e-3), series(1e-3), kind="cuda").outcome == "slower"


@pytest.mark.parametrize("stored", [1, 2, 3, 10])
def test_a_gain_asks_to_be_stored_and_never_fails(stored: int) -> None:
    found = verdict(session(0.5e-3), series(*[1e-3] * stored))

    assert found.outcome == "faster"
    assert not found.fails(strict=True)
    assert "--gemm-baseline update" in found.notes[-1]


def test_slower_is_where_the_whole_interval_lies_beyond_the_margin() -> None:
    stored = series(1e-3, 1.01e-3, 0.99e-3, 1.02e-3)
    at_threshold = verdict(session(), stored).threshold
    assert at_threshold is not None
    centre = verdict(session(), stored).baseline_median
    assert centre is not None

    below = verdict(session(centre * (1 + at_threshold) * 0.9999), stored)
    above = verdict(session(centre * (1 + at_threshold) * 1.0001), stored)

    margin = PRIORS["host"].margin
    assert (below.outcome, above.outcome) == ("same", "slower")
    assert below.low is not None
    assert above.low is not None
    assert below.low < margin < above.low


def test_the_threshold_is_students_prediction_interval() -> None:
    medians = [1e-3, 1.01e-3, 1.02e-3]
    result = screen(1e-3, medians, prior=Prior(0.02, 6, 0.01), benchmarks=10)

    logs = [math.log(m) for m in medians]
    mean = sum(logs) / 3
    variance = (6 * 0.02**2 + sum((x - mean) ** 2 for x in logs)) / 8
    t = 3.3554  # 0.995 quantile with 8 degrees of freedom, from a printed table
    expected = math.log1p(0.01) + t * math.sqrt(variance * (1 + 1 / 3))
    assert result.threshold == pytest.approx(expected, rel=1e-4)


def test_more_stored_benchmarks_ask_for_more_evidence() -> None:
    thresholds = [
        verdict(session(), series(1e-3, 1e-3, 1e-3), benchmarks=n).threshold or 0
        for n in (1, 21, 100, 10_000)
    ]

    assert thresholds == sorted(thresholds)
    assert thresholds[0] < thresholds[-1] / 2


def test_the_margin_can_be_set() -> None:
    stored = series(1e-3, 1e-3, 1e-3)

    assert verdict(session(1.3e-3), stored, margin=0.5).outcome == "same"
    with pytest.raises(ValueError, match="margin"):
        verdict(session(), stored, margin=math.nan)


@pytest.mark.parametrize("stored", [2, 3, 5, 10])
def test_a_stored_session_ten_times_slow_does_not_hide_a_threefold_slowdown(stored: int) -> None:
    medians = [1e-3] * stored
    medians[stored // 2] = 10e-3

    found = verdict(session(3e-3), series(*medians))

    assert found.outcome == "slower"
    assert found.sessions == stored - 1
    assert f"2025-01-{stored // 2 + 1:02}T00:00:00Z is odd (10.00 of the others)" in found.notes[0]
    assert verdict(session(1e-3), series(*medians)).outcome == "same"


def test_storing_an_unchanged_kernel_twice_accepts_its_new_time() -> None:
    old = (1e-3,) * 5
    now = session(1.5e-3)

    once, twice = series(*old, 1.5e-3), series(*old, 1.5e-3, 1.52e-3)

    assert verdict(now, once).outcome == "slower"
    assert "store it too" in verdict(now, once).notes[-1]
    accepted = verdict(now, twice)
    assert (accepted.outcome, accepted.sessions) == ("same", 2)
    assert "5 sessions before 2025-01-06T00:00:00Z had another level" in accepted.notes[0]
    assert verdict(session(2e-3), twice).outcome == "slower"


def test_noise_above_what_is_expected_never_passes_a_slowdown() -> None:
    scattered = series(1e-3, 1.5e-3, 2.2e-3)

    found = verdict(session(3e-3), scattered)

    assert found.outcome == "inconclusive"
    assert found.fails(strict=True)
    assert not found.fails()
    assert "above the 2.5% expected" in found.notes[-1]


def test_sessions_that_contradict_each_other_pass_nothing() -> None:
    assert verdict(session(1.5e-3), series(1e-3, 2e-3, 4e-3)).outcome == "inconclusive"
    assert verdict(session(1.0e-3), series(0.96e-3, 1e-3, 1.04e-3)).outcome == "same"


def test_scattered_samples_of_the_new_session_do_not_pass_it_either() -> None:
    noisy = session(estimate=Estimate(7, 1.3e-3, 0.9e-3, 1.9e-3, 1e-4, (1.3e-3,) * 9))

    assert verdict(noisy, series(1e-3, 1e-3, 1e-3)).outcome == "inconclusive"
    assert verdict(noisy, series(1.3e-3, 1.3e-3)).outcome == "same"


def test_unequal_sample_counts_do_not_make_a_difference_significant() -> None:
    few = session(estimate=estimate(1.02e-3, n=7))

    assert verdict(few, series(*[1e-3] * 3)).outcome == "same"


@pytest.mark.parametrize("n", [1, 2, 5])
def test_too_few_samples_are_withheld(n: int) -> None:
    found = verdict(session(estimate=estimate(1.3e-3, n=n)), series(1e-3))

    assert found.outcome == "withheld"
    assert found.fails(strict=True)
    assert f"{n} samples are too few" in found.notes[-1]


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0, -1e-3])
@pytest.mark.parametrize("place", ["median", "low", "high"])
def test_refuses_what_is_not_a_time(bad: float, place: str) -> None:
    values: dict[str, Any] = {place: bad}
    with pytest.raises(ValueError, match="not a time"):
        verdict(session(estimate=replace(estimate(), **values)), series(1e-3))


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0, -1e-3])
def test_refuses_stored_values_that_are_not_times(bad: float) -> None:
    with pytest.raises(ValueError, match="not a time"):
        screen(1e-3, [1e-3, bad], prior=PRIORS["host"], benchmarks=1)
    with pytest.raises(ValueError, match=r"not a time"):
        screen(bad, [1e-3], prior=PRIORS["host"], benchmarks=1)
    with pytest.raises(ValueError, match="no time"):
        screen(1e-3, [], prior=PRIORS["host"], benchmarks=1)


def test_refuses_an_unknown_kind_and_no_benchmarks() -> None:
    with pytest.raises(ValueError, match="none of host, cuda"):
        verdict(session(), series(1e-3), kind="tpu")
    with pytest.raises(ValueError, match="0 stored"):
        verdict(session(), series(1e-3), benchmarks=0)


def test_nothing_stored_is_new() -> None:
    found = verdict(session(), None, benchmarks=0)

    assert found.outcome == "new"
    assert not found.has_baseline
    assert found.fails(strict=True)
    assert not found.fails()


def test_a_changed_source_is_compared_with_the_old_one() -> None:
    found = verdict(session(2e-3, source="b" * 64), series(1e-3, source="a" * 64))

    assert found.outcome == "slower"
    assert found.notes[0] == "the source changed since 2025-01-01T00:00:00Z"


def test_a_changed_launch_is_compared_and_named() -> None:
    now = session(launch={"block": (32, 32, 1)})

    assert "block [16, 16, 1] -> (32, 32, 1)" in verdict(now, series(1e-3)).notes[0]
    assert verdict(session(launch={"block": (16, 16, 1)}), series(1e-3)).notes == (
        "provisional: 1 of 3 sessions",
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"device": "host-y"}, "device host-x -> host-y"),
        ({"benchmark": "tiled-8x8x8-float32"}, "benchmark tiled-64x64x64-float32 -> tiled-8x8x8"),
        ({"seed": 1}, "seed 0 -> 1"),
        ({"recipe": "uniform-1"}, "recipe normal-1 -> uniform-1"),
        (
            {"settings": {"dtype": "float64", "metric": "thread CPU time"}},
            "dtype float32 -> float64",
        ),
        ({"settings": {"dtype": "float32"}}, "metric thread CPU time -> None"),
    ],
    ids=["device", "benchmark", "seed", "recipe", "dtype", "setting-missing"],
)
def test_other_conditions_are_withheld_with_the_reason(
    changes: dict[str, Any], reason: str
) -> None:
    found = verdict(session(5e-3, **changes), series(1e-3, 1e-3))

    assert found.outcome == "withheld"
    assert reason in found.notes[0]
    assert found.fails(strict=True)


def test_only_sessions_of_the_same_conditions_count() -> None:
    mixed = Series((*series(9e-3, 9e-3, seed=7).sessions, session(1e-3)))

    found = verdict(session(1e-3), mixed)

    assert (found.outcome, found.sessions) == ("same", 1)
    assert "2 stored under other conditions" in found.notes[0]


def test_a_new_compiler_opens_a_new_epoch() -> None:
    now = session(2e-3, environment={"compiler": "g++ 13.1"})

    found = verdict(now, series(1e-3, 1e-3, 1e-3))

    assert found.outcome == "new"
    assert "new epoch: compiler g++ 12.2 -> g++ 13.1" in found.notes[0]
    assert "+100.0%" in found.notes[0]


def test_sessions_of_the_current_epoch_are_used() -> None:
    environment = {"compiler": "g++ 13.1"}
    mixed = Series(
        (*series(1e-3, 1e-3).sessions, *series(2e-3, 2e-3, environment=environment).sessions)
    )

    found = verdict(session(2e-3, environment=environment), mixed)

    assert (found.outcome, found.sessions) == ("same", 2)
    assert "2 of earlier epochs" in found.notes[0]


def test_what_is_not_compiler_or_driver_opens_no_epoch() -> None:
    now = session(environment={"compiler": "g++ 12.2", "load": 3.5})

    assert verdict(now, series(1e-3)).outcome == "same"


@pytest.mark.parametrize("reference", [None, series(1e-3, 20e-3)], ids=["new", "compared"])
def test_a_verdict_survives_json(reference: Series | None) -> None:
    found = verdict(session(3e-3), reference)

    assert Verdict.from_dict(json.loads(json.dumps(found.to_dict()))) == found


@pytest.mark.parametrize(("kind", "benchmarks"), [("host", 21), ("cuda", 100)])
@pytest.mark.parametrize("stored", [1, 3])
def test_unchanged_suites_do_not_alarm(kind: str, benchmarks: int, stored: int) -> None:
    simulate = runpy.run_path(str(SIMULATION))["simulate"]

    alarms, outcomes = simulate(kind, benchmarks, stored, 100)

    assert alarms <= 0.02
    assert outcomes["same"] >= 0.998 * 100 * benchmarks


@pytest.mark.parametrize(
    ("kind", "benchmarks", "stored", "slowdown", "found"),
    [
        ("host", 21, 1, 0.30, 0.95),
        ("host", 21, 3, 0.30, 0.99),
        ("cuda", 21, 1, 0.05, 0.99),
        ("cuda", 100, 3, 0.05, 0.99),
    ],
)
def test_slowdowns_are_found(
    kind: str, benchmarks: int, stored: int, slowdown: float, found: float
) -> None:
    simulate = runpy.run_path(str(SIMULATION))["simulate"]

    _, outcomes = simulate(kind, benchmarks, stored, 20, slowdown=slowdown)

    assert outcomes["slower"] >= found * outcomes.total()


def test_odd_stored_sessions_cost_no_alarms_and_hide_little() -> None:
    simulate = runpy.run_path(str(SIMULATION))["simulate"]

    alarms, _ = simulate("host", 21, 5, 100, odd_stored=0.1)
    _, outcomes = simulate("host", 21, 5, 50, odd_stored=0.1, slowdown=0.5)

    assert alarms <= 0.02
    assert outcomes["slower"] >= 0.98 * outcomes.total()
    assert outcomes["same"] <= 0.002 * outcomes.total()


def test_a_second_attempt_settles_disturbances_of_the_new_session() -> None:
    simulate = runpy.run_path(str(SIMULATION))["simulate"]

    once, _ = simulate("host", 21, 3, 100, disturbed=0.02)
    twice, _ = simulate("host", 21, 3, 100, disturbed=0.02, attempts=2)
    _, found = simulate("host", 21, 3, 20, disturbed=0.02, attempts=2, slowdown=0.3)

    assert once >= 0.1
    assert twice <= 0.02
    assert found["slower"] >= 0.98 * found.total()


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
            outcomes.append(screen(now, others, prior=PRIORS["cuda"], benchmarks=7).outcome)

    assert set(outcomes) == {"slower" if slowdown else "same"}
