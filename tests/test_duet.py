from __future__ import annotations

import math
import statistics
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gemm.duet import (
    SHORT,
    USUAL,
    Duet,
    Round,
    WorkerTimes,
    block_ratio,
    order_of,
    worker_ratio,
)
from pytest_gemm.margin import EXPECTED, Calibration
from pytest_gemm.stats import Spread

SIZE = Round(1, workers=6, placements=2, blocks=4)
PRIOR = Spread(0.002, 4)


def duet(**changes: Any) -> Duet:
    options: dict[str, Any] = {"size": SIZE, "margin": 0.003, "benchmarks": 100, "prior": PRIOR}
    return Duet(**options | changes)


def times(ratio: float, drift: float = 0.0, fourth: float = 0.0, seconds: float = 1e-3) -> Any:
    """A worker's times where B takes that log ratio longer than A.

    The logarithm of all times climbs by ``drift`` from launch to launch; the fourth launch of
    every block takes ``fourth`` longer.
    """
    launch, placements = 0, []
    for _ in range(SIZE.placements):
        blocks = []
        for i in range(SIZE.blocks):
            block = []
            for place, kernel in enumerate(order_of(i)):
                extra = ratio * (kernel == "B") + drift * launch + fourth * (place == 3)
                block.append(seconds * math.exp(extra))
                launch += 1
            blocks.append(block)
        placements.append(blocks)
    return placements


def measured(found: Duet, *ratios: float) -> Duet:
    return found.with_round([times(ratio) for ratio in ratios])


NOISE = (0.001, -0.001, 0.0005, -0.0005, 0.0015, -0.0015)


def rounds_of(ratio: float, count: int, **changes: Any) -> Duet:
    found = duet(**changes)
    for _ in range(count):
        found = measured(found, *(ratio + x for x in NOISE))
    return found


def test_orders_alternate_and_hold_each_kernel_twice() -> None:
    assert [order_of(i) for i in range(4)] == ["ABBA", "BAAB", "ABBA", "BAAB"]
    for size in (USUAL, SHORT):
        assert size.blocks % 2 == 0


@pytest.mark.parametrize("ratio", [0.0, 0.01, -0.3])
def test_a_block_is_new_over_old_in_either_order(ratio: float) -> None:
    old, new = 2e-3, 2e-3 * math.exp(ratio)

    assert block_ratio([old, new, new, old], "ABBA") == pytest.approx(ratio)
    assert block_ratio([new, old, old, new], "BAAB") == pytest.approx(ratio)


@given(st.floats(-0.5, 0.5), st.floats(-0.01, 0.01), st.floats(-0.2, 0.2), st.floats(1e-7, 1e1))
def test_neither_a_steady_drift_nor_a_slow_place_in_the_block_moves_a_worker(
    ratio: float, drift: float, fourth: float, seconds: float
) -> None:
    assert worker_ratio(times(ratio, drift, fourth, seconds)) == pytest.approx(ratio, abs=1e-9)


def test_disturbed_blocks_do_not_move_a_worker() -> None:
    disturbed = times(0.01)
    disturbed[0][1][2] *= 50
    disturbed[1] = [[x * (1 + 9 * (i == 0)) for i, x in enumerate(b)] for b in disturbed[1][:1]]

    assert worker_ratio(disturbed) == pytest.approx(0.01)


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        [[]],
        [[[1e-3, 1e-3, 1e-3]]],
        [[[1e-3] * 5]],
        [[[1e-3, 0.0, 1e-3, 1e-3]]],
        [[[1e-3, -1e-3, 1e-3, 1e-3]]],
        [[[1e-3, math.nan, 1e-3, 1e-3]]],
        [[[1e-3, math.inf, 1e-3, 1e-3]]],
    ],
    ids=["empty", "no-block", "three", "five", "zero", "negative", "nan", "infinite"],
)
def test_refuses_what_is_no_measurement(wrong: WorkerTimes) -> None:
    with pytest.raises(ValueError, match=r"no block|a block of|not a time"):
        duet().with_round([wrong])


def test_what_to_measure_next() -> None:
    start = duet()
    assert start.next_round == SIZE
    assert rounds_of(0.0, 1).next_round is None
    assert rounds_of(-0.1, 1).next_round is None
    assert rounds_of(0.004, 1).next_round == replace(SIZE, number=2)
    assert rounds_of(0.004, 2).next_round is None
    with pytest.raises(ValueError, match="decided already"):
        measured(rounds_of(0.0, 1), 0.0)


@pytest.mark.parametrize("kind", ["host", "cuda"])
def test_a_duet_starts_with_what_is_expected_of_the_kind(kind: str) -> None:
    calibration = Calibration("x", "2025-01-01T00:00:00Z", duets=5, bias=0.0, sd=0.02, df=25)

    plain = Duet.on(kind, margin=0.01, benchmarks=7, seconds=1e-3)
    long = Duet.on(kind, margin=0.01, benchmarks=7, seconds=0.1)
    calibrated = Duet.on(kind, margin=0.01, benchmarks=7, seconds=1e-3, calibration=calibration)

    assert plain.next_round == USUAL
    assert long.next_round == SHORT
    assert (plain.margin, plain.benchmarks) == (0.01, 7)
    assert plain.prior == EXPECTED[kind].duet
    assert calibrated.prior.sd == 0.02


def test_nothing_is_found_before_anything_is_measured() -> None:
    with pytest.raises(ValueError, match="no worker"):
        _ = duet().finding
    assert duet().with_round([]).rounds == ((),)


@pytest.mark.parametrize(
    ("ratio", "after_one", "after_two"),
    [
        (0.0, "same", None),
        (0.001, "same", None),
        (-0.002, "same", None),
        (-0.02, "faster", None),
        (0.004, "inconclusive", "inconclusive"),
        (0.01, "inconclusive", "slower"),
        (0.02, "inconclusive", "slower"),
        (0.5, "inconclusive", "slower"),
    ],
)
def test_outcomes(ratio: float, after_one: str, after_two: str | None) -> None:
    """What fails a test is never said after one round."""
    assert rounds_of(ratio, 1).finding.outcome == after_one
    if after_two is not None:
        found = rounds_of(ratio, 2).finding
        assert found.outcome == after_two
        assert (found.workers, found.rounds) == (12, 2)


def test_the_interval_is_students_with_the_moderated_spread() -> None:
    found = rounds_of(0.01, 2, benchmarks=2).finding

    ratios = [0.01 + x for x in NOISE] * 2
    variance = (4 * 0.002**2 + sum((x - 0.01) ** 2 for x in ratios)) / 15
    error = math.sqrt(variance / 12)
    assert found.change == pytest.approx(0.01)
    assert found.df == 15
    assert found.error == pytest.approx(error)
    # The 0.995 and 0.9 quantiles with 15 degrees of freedom, from a printed table.
    assert found.high - found.change == pytest.approx(2.9467 * error, rel=1e-4)
    assert found.change - found.low == pytest.approx(2.9467 * error, rel=1e-4)
    assert found.smallest == pytest.approx(math.log(1.003) + (2.9467 + 1.3406) * error, rel=1e-4)


def test_the_prior_never_makes_a_duet_look_steadier_than_it_was() -> None:
    wild = [0.02 + 10 * x for x in NOISE] * 2

    found = measured(measured(duet(), *wild[:6]), *wild[6:]).finding

    assert found.error == pytest.approx(statistics.stdev(wild) / math.sqrt(12))
    assert found.df == 15


def test_slower_is_where_the_whole_interval_lies_beyond_the_margin() -> None:
    reach = (f := rounds_of(0.01, 2).finding).high - f.change
    edge = math.log(1.003) + reach

    assert rounds_of(edge + 1e-6, 2).finding.outcome == "slower"
    assert rounds_of(edge - 1e-6, 2).finding.outcome == "inconclusive"


def test_more_stored_benchmarks_ask_for_more_evidence() -> None:
    reaches = [
        (f := rounds_of(0.01, 2, benchmarks=n).finding).high - f.change
        for n in (1, 21, 100, 10_000)
    ]

    assert reaches == sorted(reaches)
    assert reaches[0] < reaches[-1] / 2


def test_the_margin_is_tolerated() -> None:
    assert rounds_of(0.02, 1, margin=0.05).finding.outcome == "same"
    assert rounds_of(0.02, 2, margin=0.0).finding.outcome == "slower"


def test_one_odd_worker_hides_no_slowdown_and_makes_none() -> None:
    slow = [0.01 + x for x in NOISE]
    hidden = measured(measured(duet(), *slow[:5], -0.5), *slow)
    calm = measured(duet(), *NOISE[:5], 0.5)

    assert (hidden.finding.outcome, hidden.finding.odd, hidden.finding.workers) == ("slower", 1, 11)
    assert (calm.finding.outcome, calm.finding.odd) == ("same", 1)


@pytest.mark.parametrize("slow", [6, 8, 10])
def test_workers_of_two_levels_are_no_slowdown(slow: int) -> None:
    """Several that agree are not left out, though they are the fewer: all count."""
    levels = [0.008] * slow + [-0.008] * (12 - slow)
    mixed = levels[::2] + levels[1::2]

    found = measured(measured(duet(), *mixed[:6]), *mixed[6:]).finding

    assert found.odd == 0
    assert found.outcome == "inconclusive"


def test_two_workers_decide_nothing() -> None:
    found = measured(measured(duet(), 0.5), 0.5)

    assert found.finding.outcome == "inconclusive"
    assert found.next_round is None


def test_a_round_may_lose_workers() -> None:
    found = measured(measured(duet(), *(0.02 + x for x in NOISE)), 0.02, 0.021)

    assert (found.finding.outcome, found.finding.workers) == ("slower", 8)


@pytest.mark.parametrize(
    "wrong", [{"margin": -0.1}, {"margin": math.nan}, {"benchmarks": 0}, {"alpha": 1.0}]
)
def test_refuses_rules_that_cannot_be(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"margin|no duet"):
        duet(**wrong)
