from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from pytest_gemm.baselines import Series, Session
from pytest_gemm.duet import Duet, DuetOutcome, Finding, order_of
from pytest_gemm.margin import EXPECTED
from pytest_gemm.screen import device_spread
from pytest_gemm.stats import Estimate
from pytest_gemm.verdict import Outcome, Verdict, held_against_anchor, judge


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

    margin = EXPECTED["host"].margin
    assert (below.outcome, above.outcome) == ("same", "slower")
    assert below.low is not None
    assert above.low is not None
    assert below.low < margin < above.low


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


def test_the_smallest_slowdown_that_can_be_seen_never_grows_unsaid() -> None:
    quiet = verdict(session(), series(*[1e-3] * 4))
    noisy = verdict(session(), series(0.92e-3, 0.97e-3, 1.04e-3, 1.09e-3))

    assert noisy.smallest_slowdown is not None
    assert noisy.smallest_slowdown > 1.3 * (quiet.smallest_slowdown or 0)
    assert quiet.notes == ()
    assert "sessions scatter by 4." in noisy.notes[0]


def test_a_margin_may_be_a_part_of_a_percent() -> None:
    stored = series(*[1e-3] * 20)

    for margin, outcome in ((0.005, "slower"), (0.0085, "same")):
        found = verdict(session(1.0135e-3), stored, kind="cuda", margin=margin)
        assert found.outcome == outcome


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


def test_refuses_an_unknown_kind_and_no_benchmarks() -> None:
    with pytest.raises(ValueError, match="none of host, cuda"):
        verdict(session(), series(1e-3), kind="tpu")
    with pytest.raises(ValueError, match="0 stored"):
        verdict(session(), series(1e-3), benchmarks=0)


def test_nothing_stored_is_new() -> None:
    found = verdict(session(), None, benchmarks=0)

    assert found.outcome == "new"
    assert found.change is None
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


def finding(outcome: str = "same", change: float = 0.0, **changes: Any) -> Finding:
    logs: dict[str, Any] = {"change": change, "low": change - 0.002, "high": change + 0.002}
    counts = {"workers": 12, "odd": 0, "rounds": 2, "df": 15.0}
    spread = {"smallest": 0.006, "error": 0.0005}
    return Finding(outcome=outcome, **logs | counts | spread | changes)  # type: ignore[arg-type]


def test_a_suspicious_change_is_the_duets_to_decide() -> None:
    stored, now = series(*[1e-3] * 5), session(1.1e-3)

    alone = verdict(now, stored, duets=True)
    slower = verdict(now, stored, finding=finding("slower", math.log(1.08)))
    same = verdict(now, stored, finding=finding("same", 0.001))

    assert alone.suspicious
    assert (slower.outcome, slower.decided_by, slower.suspicious) == ("slower", "duet", False)
    assert slower.fails()
    assert slower.change == pytest.approx(0.08)
    assert slower.stored_change == pytest.approx(0.1)
    assert slower.smallest_slowdown == pytest.approx(math.expm1(0.006))
    assert slower.threshold == pytest.approx(1.03 * math.exp(0.002) - 1)
    assert (slower.workers, slower.rounds, slower.sessions) == (12, 2, 5)
    assert same.outcome == "same"
    assert not same.fails(strict=True)
    assert "+10.0% against the stored sessions" in same.notes[-1]


@pytest.mark.parametrize(
    ("kernel", "machine", "outcome", "rounds"),
    [
        (1.0, 1.0, "same", 0),
        (1.0, 1.06, "same", 1),
        (1.1, 1.0, "slower", 2),
        (1.1, 1.2, "slower", 2),
        (0.5, 1.2, "faster", 1),
        (0.5, 2.0, "same", 0),
        (1.0, 0.6, "same", 1),
        (1.1, 0.6, "slower", 2),
    ],
)
def test_the_whole_way_from_a_session_to_a_verdict(
    kernel: float, machine: float, outcome: str, rounds: int
) -> None:
    """A kernel that takes ``kernel`` times as long, on a machine that does."""
    reference = series(*[1e-3 * (1 + 0.01 * x) for x in (-1, 0, 1, 0)])
    now, reached = session(1e-3 * kernel * machine), 0

    found = verdict(now, reference, duets=True)
    if found.suspicious:
        duet = Duet.on("host", margin=0.03, benchmarks=21, seconds=now.estimate.median)
        while wanted := duet.next_round:
            old, new = 1e-3 * machine, 1e-3 * machine * kernel
            block = {"A": old, "B": new}
            placement = [[block[k] for k in order_of(i)] for i in range(wanted.blocks)]
            duet = duet.with_round([[placement] * wanted.placements] * wanted.workers)
            reached = wanted.number
        found = verdict(now, reference, finding=duet.finding)

    assert (found.outcome, reached, found.rounds) == (outcome, rounds, rounds)
    if rounds:
        assert found.change == pytest.approx(kernel - 1)
        assert found.stored_change == pytest.approx(kernel * machine - 1, abs=0.01)


def test_a_duet_that_cannot_tell_fails_only_under_strict() -> None:
    found = verdict(session(1.1e-3), series(1e-3), finding=finding("inconclusive", 0.004))

    assert found.fails(strict=True)
    assert not found.fails()
    assert "12 workers of the duet do not agree" in found.notes[-1]
    assert not found.provisional


def test_a_duet_decides_with_nothing_stored() -> None:
    found = verdict(session(), None, finding=finding("faster", -0.2), benchmarks=1)

    assert (found.outcome, found.sessions, found.stored_change) == ("faster", 0, None)
    assert "--gemm-baseline update" in found.notes[-1]


def test_a_changed_kernel_under_a_new_compiler_is_for_a_duet() -> None:
    stored = series(1e-3, 1e-3)
    compiler = {"compiler": "g++ 13.1"}

    unchanged = verdict(session(2e-3, environment=compiler), stored)
    changed = verdict(session(2e-3, environment=compiler, source="b" * 64), stored)

    assert (unchanged.outcome, unchanged.suspicious) == ("new", False)
    assert (changed.outcome, changed.suspicious) == ("new", True)


@pytest.mark.parametrize("stored", [1, 3, 20])
@pytest.mark.parametrize(("kind", "worth"), [("host", 0.1), ("cuda", 0.01)])
def test_where_duets_can_be_had_what_is_worth_finding_is_flagged(
    stored: int, kind: str, worth: float
) -> None:
    """However much or little is stored: noise costs duets, not sight."""
    reference = series(*[1e-3] * stored)

    found = verdict(session(), reference, kind=kind, duets=True)

    assert found.smallest_slowdown == pytest.approx(worth, abs=1e-3)
    assert verdict(session((1 + worth) * 1e-3), reference, kind=kind).suspicious


@pytest.mark.parametrize(
    ("duel", "slow_baseline"),
    [("same", True), ("faster", False), ("slower", False), ("inconclusive", False)],
)
def test_a_gain_is_of_the_kernel_only_where_a_duet_says_so(
    duel: DuetOutcome, slow_baseline: bool
) -> None:
    reference = series(1e-3, 1e-3, 1e-3)
    assert verdict(session(0.5e-3), reference, duets=True).suspicious

    found = verdict(session(0.5e-3), reference, finding=finding(duel, 0.0))

    assert (found.outcome, found.slow_baseline) == (duel, slow_baseline)
    asked = [note for note in found.notes if "--gemm-baseline update" in note]
    assert len(asked) == (duel in ("same", "faster"))


def test_a_gain_of_the_same_program_is_the_machines() -> None:
    reference = series(1e-3, 1e-3, 1e-3)
    found = verdict(session(0.5e-3), reference, duets=True, same_program=True)

    assert (found.outcome, found.decided_by, found.slow_baseline) == ("same", "program", True)
    assert not found.suspicious
    assert "slower than this one, and would hide a slowdown" in found.notes[-1]
    alone = verdict(session(0.5e-3), reference, same_program=True)
    assert (alone.outcome, alone.decided_by) == ("faster", "sessions")


def test_accepted_steps_add_up_to_a_drift_that_fails() -> None:
    """18 steps of 4 % pass any gate against the run before, and make a kernel twice as slow."""
    anchor = series(*[1e-3] * 3)
    outcomes = []
    for step in range(18):
        stored = series(*[1e-3 * 1.04**step] * 5)
        now = session(1e-3 * 1.04 ** (step + 1))
        found = verdict(now, stored, margin=0.05)
        assert found.outcome == "same"
        found = held_against_anchor(found, now, anchor, kind="host", benchmarks=21)
        assert found.drift == pytest.approx(1.04 ** (step + 1) - 1)
        outcomes.append(found.outcome)

    first = outcomes.index("drifted")
    assert first <= 6
    assert set(outcomes[first:]) == {"drifted"}
    assert found.fails()
    assert found.decided_by == "anchor"
    assert "102.6% slower than the anchor of 2025-01-03T00:00:00Z" in found.notes[-1]
    assert "pin another" in found.notes[-1]


def test_a_slow_machine_is_no_drift_where_a_duet_decided() -> None:
    now, stored = session(1.3e-3), series(*[1e-3] * 3)

    found = verdict(now, stored, finding=finding("same", 0.0))
    found = held_against_anchor(found, now, stored, kind="host", benchmarks=21)

    assert found.outcome == "same"
    assert found.drift == pytest.approx(0)


@pytest.mark.parametrize(
    ("distance", "by_sessions", "by_duet"),
    [(0.12, "same", "same"), (0.17, "same", "drifted"), (0.21, "drifted", "drifted")],
)
def test_drift_must_exceed_the_error_of_all_that_it_rests_on(
    distance: float, by_sessions: str, by_duet: str
) -> None:
    """Beyond log(1.1) = 0.095: 0.093 for one new session, 0.059 for a duet with five stored."""
    anchor, level = series(*[1e-3] * 3), 1e-3 * math.exp(distance)
    now, stored = session(level), series(*[level] * 5)

    for found, outcome in (
        (verdict(now, stored), by_sessions),
        (verdict(now, stored, finding=finding("same", 0.0)), by_duet),
    ):
        held = held_against_anchor(found, now, anchor, kind="host", benchmarks=21)
        assert held.outcome == outcome


def test_drift_hides_no_slowdown_and_no_gain_and_guesses_nothing() -> None:
    anchor = series(*[1e-3] * 3)

    def against(now: Session, stored: Series | None, by: Series = anchor) -> Verdict:
        return held_against_anchor(verdict(now, stored), now, by, kind="host", benchmarks=21)

    assert against(session(3e-3), series(*[2e-3] * 3)).outcome == "slower"
    assert against(session(1.5e-3), series(*[2e-3] * 3)).outcome == "faster"
    assert against(session(2e-3), None).outcome == "new"
    elsewhere = series(1e-3, environment={"compiler": "g++ 9"})
    found = against(session(2e-3), series(2e-3), elsewhere)
    assert found.outcome == "same"
    assert "the anchor cannot be compared: new epoch" in found.notes[-1]
    with pytest.raises(ValueError, match="margin"):
        held_against_anchor(
            verdict(session(), anchor), session(), anchor, kind="host", benchmarks=1, drift=-1
        )


def test_the_spread_comes_from_what_is_stored_for_the_device() -> None:
    medians = 1e-3, 1.0005e-3, 0.9995e-3, 1.0e-3, 1.0005e-3
    quiet = [[*map(math.log, medians)]] * 6

    few, many = (device_spread(logs, EXPECTED["cuda"]) for logs in (quiet[:2], quiet))

    assert few == EXPECTED["cuda"].session
    assert many.sd == pytest.approx(EXPECTED["cuda"].least_session_sd, rel=0.5)
    now, reference = session(1.004e-3), series(*medians)
    unknown = verdict(now, reference, kind="cuda", prior=few)
    known = verdict(now, reference, kind="cuda", prior=many)
    assert (unknown.suspicious, known.suspicious) == (True, False)
    # What fails without a duet never rests on a device that seems quiet.
    assert known.threshold == unknown.threshold


def test_the_docs_name_every_outcome_and_whether_it_fails() -> None:
    text = (Path(__file__).parents[1] / "docs" / "verdict.md").read_text(encoding="utf-8")
    words = {"yes": (True, True), "under `strict`": (False, True), "no": (False, False)}

    for outcome in set(get_args(Outcome)) - {"ungated"}:
        [row] = [line for line in text.splitlines() if line.startswith(f"| `{outcome}` |")][:1]
        found = Verdict(outcome)
        assert (found.fails(), found.fails(strict=True)) == words[row.split("|")[-2].strip()]
