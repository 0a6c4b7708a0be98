from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_gemm.margin import (
    EXPECTED,
    Calibration,
    calibrated,
    duet_spread,
    expected,
    margin_of,
)
from pytest_gemm.stats import Spread

DATE = "2025-01-01T00:00:00Z"


def calibration(**changes: Any) -> Calibration:
    numbers: dict[str, Any] = {"duets": 8, "bias": 0.004, "sd": 0.001, "df": 40}
    return Calibration(**{"device": "gpu-x", "date": DATE} | numbers | changes)


def test_the_margin_is_the_kinds_least_or_three_and_a_half_biases() -> None:
    assert margin_of("cuda") == 0.003
    assert margin_of("host") == 0.03
    assert margin_of("cuda", calibration(bias=0.0005)) == 0.003
    assert margin_of("cuda", calibration(bias=0.004)) == pytest.approx(math.expm1(0.014))
    assert margin_of("host", calibration(bias=0.02)) == pytest.approx(math.expm1(0.07))


def test_what_is_given_stands_before_what_is_measured() -> None:
    measured = calibration()

    assert margin_of("cuda", measured, [None, None]) == margin_of("cuda", measured)
    assert margin_of("cuda", measured, [None, 0.05, 0.1]) == 0.05
    assert margin_of("cuda", measured, [0.0, 0.05]) == 0.0


@pytest.mark.parametrize("wrong", [-0.01, math.nan, math.inf])
def test_refuses_a_margin_that_cannot_be(wrong: float) -> None:
    with pytest.raises(ValueError, match="margin"):
        margin_of("cuda", given=[wrong])


def test_refuses_a_kind_that_is_not_known() -> None:
    with pytest.raises(ValueError, match="none of host, cuda"):
        expected("tpu")


def test_a_calibration_only_ever_widens_the_duets_spread() -> None:
    usual = EXPECTED["cuda"].duet

    assert duet_spread("cuda") == usual
    assert duet_spread("cuda", calibration(sd=0.0)) == usual
    assert duet_spread("cuda", calibration(sd=0.01)) == Spread(0.01, usual.df)


def test_a_calibration_finds_the_bias_beyond_the_workers_noise() -> None:
    rng = np.random.default_rng(0)
    biases = 0.01 * rng.standard_normal((400, 1))

    biased = calibrated("x", DATE, (biases + 0.004 * rng.standard_normal((400, 6))).tolist())
    noisy = calibrated("x", DATE, (0.004 * rng.standard_normal((400, 6))).tolist())

    assert biased.bias == pytest.approx(0.01, rel=0.1)
    assert biased.sd == pytest.approx(0.004, rel=0.05)
    assert (biased.duets, biased.df) == (400, 2000)
    assert noisy.bias < 0.001


def test_a_calibration_of_exact_repeats_has_no_bias() -> None:
    found = calibrated("x", DATE, [[0.0, 0.0, 0.0]] * 5)

    assert (found.bias, found.sd) == (0.0, 0.0)
    assert margin_of("cuda", found) == 0.003


@pytest.mark.parametrize("duets", [[], [[0.0, 0.1]] * 4, [[0.0, 0.1]] * 5 + [[0.0]]])
def test_too_few_duets_are_no_calibration(duets: list[list[float]]) -> None:
    with pytest.raises(ValueError, match="5 duets of 2 workers"):
        calibrated("x", DATE, duets)


@pytest.mark.parametrize(
    "wrong",
    [{"bias": -1e-3}, {"bias": math.nan}, {"sd": math.inf}, {"df": 0}, {"duets": 4},
     {"sd": -1e-3}, {"df": math.nan}],
    ids=str,
)  # fmt: skip
def test_refuses_numbers_that_no_calibration_gives(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="calibration"):
        calibration(**wrong)


def test_the_table_of_the_docs_is_the_codes() -> None:
    text = (Path(__file__).parents[1] / "docs" / "verdict.md").read_text(encoding="utf-8")
    named = {"host": "host (thread CPU time)", "cuda": "GPU (graph replays)"}

    for kind, of in EXPECTED.items():
        spreads = (f"{100 * s.sd:g} %, {s.df:g}" for s in (of.session, of.duet))
        margin, gap, drift = (f"{100 * x:g} %" for x in (of.margin, of.gap, of.drift))
        assert f"| {named[kind]} | {' | '.join((margin, gap, *spreads, drift))} |\n" in text
