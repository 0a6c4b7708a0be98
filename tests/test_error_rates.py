"""How often the verdict errs, simulated and on recorded sessions: docs/verdict.md has more.

Fixed seeds: a rate that changes has changed with the code.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_gemm.margin import EXPECTED, calibrated, margin_of

ROOT = Path(__file__).parents[1]
DATA = ROOT / "tests" / "data"
SCRIPT = ROOT / "benchmarks" / "simulate_verdict.py"


@pytest.fixture(scope="module")
def sim() -> Any:
    spec = importlib.util.spec_from_file_location("simulate_verdict", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up.
    sys.modules["simulate_verdict"] = module
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        del sys.modules["simulate_verdict"]


WORLDS = [
    "sessions 0.2 %",
    "sessions 0.5 %",
    "0.2 %, heavy tails",
    "0.2 %, bimodal",
    "0.2 %, one session in 50 is 10-60 % slow",
    "CPU: sessions 2.5 %",
    "CPU: one session in 50 is 10-60 % slow",
]


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("stored", [1, 2, 3, 5])
def test_unchanged_suites_do_not_alarm(sim: Any, name: str, stored: int) -> None:
    tally = sim.simulate(sim.WORLDS[name], 50, stored, 40)

    assert tally.alarms == 0
    # The machine may be called faster than a disturbed baseline, never unclear for many.
    assert tally.outcomes["inconclusive"] <= 0.01 * tally.outcomes.total()


def test_the_bound_of_an_unchanged_suite_is_below_two_percent(sim: Any) -> None:
    tally = sim.simulate(sim.WORLDS["sessions 0.2 %"], 20, 3, 200)

    assert tally.alarms == 0
    assert tally.bound == pytest.approx(1 - 0.05 ** (1 / 200))
    assert tally.bound < 0.02


@pytest.mark.parametrize("stored", [1, 2, 3, 5, 20])
@pytest.mark.parametrize("shape", ["normal", "heavy", "bimodal"])
def test_one_and_two_percent_are_found_where_duets_repeat_to_a_fifth_of_a_percent(
    sim: Any, stored: int, shape: str
) -> None:
    world = replace(sim.WORLDS["sessions 0.2 %"], draw=getattr(sim, shape))

    one, two, five = (sim.simulate(world, 100, stored, 5, slowdown=x) for x in (0.01, 0.02, 0.05))

    assert one.found >= 0.9
    assert two.found >= 0.99
    assert five.found == 1.0


@pytest.mark.parametrize("stored", [1, 3, 10])
def test_ten_and_twenty_percent_are_found_on_a_cpu(sim: Any, stored: int) -> None:
    world = sim.WORLDS["CPU: sessions 2.5 %"]

    ten, twenty = (sim.simulate(world, 50, stored, 10, slowdown=x) for x in (0.1, 0.2))

    assert ten.found >= 0.95
    assert twenty.found >= 0.99


@pytest.mark.parametrize("duet_sd", [0.004, 0.008])
def test_duets_noisier_than_expected_become_inconclusive_not_false(
    sim: Any, duet_sd: float
) -> None:
    world = replace(sim.WORLDS["sessions 0.5 %"], duet_sd=duet_sd)

    tally = sim.simulate(world, 100, 1, 20)

    assert tally.alarms == 0
    assert tally.outcomes["inconclusive"] > 0


def test_a_quiet_device_with_a_baseline_needs_few_duets(sim: Any) -> None:
    world = replace(sim.WORLDS["sessions 0.2 %"], session_sd=0.001)

    tally = sim.simulate(world, 100, 5, 20)

    assert tally.duets <= 0.05 * tally.outcomes.total()


@pytest.mark.parametrize(("kind", "benchmarks"), [("host", 21), ("cuda", 100)])
@pytest.mark.parametrize("stored", [1, 3])
def test_without_duets_unchanged_suites_do_not_alarm(
    sim: Any, kind: str, benchmarks: int, stored: int
) -> None:
    sd = {"host": 0.025, "cuda": 0.004}[kind]
    world = sim.World(kind, session_sd=sd, varied=0.0)

    tally = sim.simulate(world, benchmarks, stored, 100, duets=False, device_wide=False)

    assert tally.alarms <= 2
    assert tally.outcomes["same"] >= 0.998 * tally.outcomes.total()


def test_without_duets_a_device_that_seems_quiet_costs_no_alarms(sim: Any) -> None:
    """Benchmarks that differ in their noise: the device's own spread must not be trusted alone."""
    tally = sim.simulate(sim.WORLDS["sessions 0.2 %"], 100, 3, 100, duets=False, attempts=2)

    assert tally.alarms <= 1


@pytest.mark.parametrize(
    ("kind", "benchmarks", "stored", "slowdown", "found"),
    [
        ("host", 21, 1, 0.30, 0.95),
        ("host", 21, 3, 0.30, 0.99),
        ("cuda", 21, 1, 0.05, 0.99),
        ("cuda", 100, 3, 0.05, 0.99),
    ],
)
def test_without_duets_large_slowdowns_are_found(
    sim: Any, kind: str, benchmarks: int, stored: int, slowdown: float, found: float
) -> None:
    sd = {"host": 0.025, "cuda": 0.004}[kind]
    world = sim.World(kind, session_sd=sd, varied=0.0)

    tally = sim.simulate(world, benchmarks, stored, 20, slowdown=slowdown, duets=False)

    assert tally.found >= found


def test_odd_stored_sessions_cost_no_alarms_and_hide_little(sim: Any) -> None:
    world = sim.World("host", session_sd=0.025, varied=0.0, odd_stored=0.1)

    same = sim.simulate(world, 21, 5, 100, duets=False)
    slow = sim.simulate(world, 21, 5, 50, duets=False, slowdown=0.5)

    assert same.alarms <= 2
    assert slow.found >= 0.98
    assert slow.outcomes["same"] <= 0.002 * slow.outcomes.total()


def test_without_duets_a_second_attempt_settles_disturbances_of_the_new_session(
    sim: Any,
) -> None:
    world = sim.World("host", session_sd=0.025, varied=0.0, disturbed=0.02)

    once = sim.simulate(world, 21, 3, 100, duets=False)
    twice = sim.simulate(world, 21, 3, 100, duets=False, attempts=2)
    slow = sim.simulate(world, 21, 3, 20, duets=False, attempts=2, slowdown=0.3)

    assert once.alarms >= 10
    assert twice.alarms <= 2
    assert slow.found >= 0.98


def test_the_usual_rules_err_on_the_same_samples(sim: Any) -> None:
    world = replace(sim.WORLDS["sessions 0.5 %"], varied=0.0)

    same = sim.simulate_others(world, 100, 10, 10)
    slow = sim.simulate_others(world, 100, 10, 5, slowdown=0.02)

    for rule in ("pytest-benchmark `mean:5%`", "pytest-benchmark `median:5%`"):
        assert same[rule].alarms == 0
        assert slow[rule].found <= 0.02
    for rule in ("Mann-Whitney, launches pooled", "NVBench, noise", "NVBench, gap of intervals"):
        assert same[rule].alarms == 10
        assert slow[rule].found >= 0.8


@pytest.mark.parametrize(
    ("name", "stored"),
    [("replays", 1), ("replays", 2), ("replays", 5), ("placements", 1), ("placements", 3)],
)
def test_recorded_sessions_of_a_gpu_are_judged_right(sim: Any, name: str, stored: int) -> None:
    """Any recorded process is the new one, any others are stored."""
    recording = sim.recorded(f"h200_{name}.npz")

    same, others = sim.resample(recording, stored, 20)
    slow = {x: sim.resample(recording, stored, 5, slowdown=x)[0] for x in (0.01, 0.02, 0.05)}

    assert same.outcomes["same"] == same.outcomes.total()
    assert slow[0.01].found >= 0.9
    assert slow[0.02].found == slow[0.05].found == 1.0
    assert others["Mann-Whitney, launches pooled"].alarms >= 15
    assert others["NVBench, noise"].alarms >= 5


@pytest.mark.parametrize("name", ["replays", "placements"])
def test_workers_of_a_gpu_repeat_better_than_is_expected_of_them(sim: Any, name: str) -> None:
    """What two builds of a kernel add is not in samples of one."""
    rng = np.random.default_rng(0)

    for case in sim.recorded(f"h200_{name}.npz").sessions.values():
        ratios = [sim.resampled_ratio(process, rng, 0.0) for process in case for _ in range(20)]
        assert np.std(ratios) < EXPECTED["cuda"].duet.sd * 0.6


def test_launches_timed_one_by_one_alarm_no_suite(sim: Any) -> None:
    """Sessions that scatter by up to 30 %, of which the usual rules make alarms."""
    events = sim.recorded("h200_events.npz")

    same, others = sim.resample(events, 3, 5)

    assert same.alarms == 0
    assert others["pytest-benchmark `mean:5%`"].alarms >= 3
    assert others["pytest-benchmark `median:5%`"].alarms >= 3


PAIRS = json.loads((DATA / "host_duets.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("pair", PAIRS)
def test_duets_recorded_on_a_busy_cpu_are_judged_right(sim: Any, pair: str) -> None:
    """Any six of the processes are the first round, any other six the second."""
    rng = np.random.default_rng(0)
    ratios = PAIRS[pair]["log_ratios"]

    outcomes = set()
    for _ in range(100):
        processes = iter(rng.permutation(ratios).tolist())
        draw = lambda count: [next(processes) for _ in range(count)]  # noqa: B023, E731
        outcomes.add(sim.dueted("host", len(PAIRS), draw)[0])

    assert outcomes == {"slower" if "plus" in pair else "same"}


RECORDED = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ("tests/data/*duet_pairs.json", "benchmarks/gpu/results/*/duet_pairs.json")
    for path in ROOT.glob(pattern)
)


@pytest.mark.parametrize("path", RECORDED)
def test_recorded_duets_find_what_is_to_be_found_where_they_repeat_as_expected(
    sim: Any, path: str
) -> None:
    recording = sim.recorded_duets(ROOT / path)
    expected = EXPECTED[recording.kind].duet.sd
    little, more = {"cuda": (0.01, 0.02), "host": (0.1, 0.2)}[recording.kind]

    assert len(recording.ratios) >= 9
    assert recording.processes >= 12
    for case, ratios in recording.ratios.items():
        assert sim.judged(recording, case, 100, 0.0).found == 0, case
        if ratios.std(ddof=1) <= expected:
            assert sim.judged(recording, case, 100, little).found >= 0.9, case
            assert sim.judged(recording, case, 100, more).found >= 0.99, case


@pytest.mark.parametrize("path", RECORDED)
def test_suites_of_recorded_duets_do_not_alarm(sim: Any, path: str) -> None:
    """Sessions, duets and the samples that other rules see are all of the same processes."""
    ours, others = sim.resample(sim.recorded_duets(ROOT / path), 3, 150)

    assert ours.alarms == 0
    assert ours.bound < 0.02
    assert ours.outcomes["inconclusive"] <= 0.01 * ours.outcomes.total()
    assert others["Mann-Whitney, launches pooled"].alarms > 75


def test_recorded_ratios_keep_their_mean_and_their_variance(sim: Any) -> None:
    d = np.array([0.01, -0.01, 0.03, 0.0])
    recording = sim.Recording("cuda", {"case": np.ones((4, 1, 8))}, {"case": d})

    drawn = recording.worker_ratios("case", np.random.default_rng(0), 0.02)(100_000)

    assert np.mean(drawn) == pytest.approx(d.mean() + np.log(1.02), abs=2e-4)
    assert np.std(drawn) == pytest.approx(d.std(ddof=1), rel=0.01)


def test_the_sessions_of_recorded_duets_are_the_old_builds_times(sim: Any, tmp_path: Path) -> None:
    blocks = [[1.0, 2.0, 3.0, 1.5], [4.0, 1.25, 1.75, 5.0]] * 2
    path = tmp_path / "duet_pairs.json"
    path.write_text(json.dumps({"kind": "cuda", "cases": {"add": [[blocks] * 4] * 3}}))

    recording = sim.recorded_duets(path)

    assert recording.sessions["add"].shape == (3, 4, 8)
    assert recording.sessions["add"][0, 0].tolist() == [1.0, 1.5, 1.25, 1.75] * 2
    first, second = np.log(2 * 3 / (1 * 1.5)) / 2, np.log(4 * 5 / (1.25 * 1.75)) / 2
    assert recording.ratios["add"] == pytest.approx([(first + second) / 2] * 3)


def test_a_calibration_of_the_same_duets_keeps_the_least_margin() -> None:
    unchanged = [found["log_ratios"] for pair, found in PAIRS.items() if "padded" in pair]

    found = calibrated("host-x", "2025-01-01T00:00:00Z", unchanged)

    assert found.bias < 0.002
    assert found.sd == pytest.approx(EXPECTED["host"].duet.sd, rel=0.2)
    assert margin_of("host", found) == EXPECTED["host"].margin


def test_a_clock_that_ramps_fools_only_those_who_measure_one_after_the_other(sim: Any) -> None:
    for climb in (0.02, 0.1):
        assert sim.ramp("interleaved", climb, 10).found == 0
        assert sim.ramp("interleaved", climb, 10, slowdown=0.02).found == 1
        assert sim.ramp("one after the other", climb, 10).found == 1
