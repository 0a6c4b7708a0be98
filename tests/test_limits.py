from __future__ import annotations

import math

import pytest

from pytest_gemm.limits import LimitCheck, Limits, check_limits

MS, FLOPS = 1e-3, 2_000_000_000
"""1 ms for 2 GFLOP: 1000 us and 2000 GFLOP/s."""


def test_nothing_asked_is_nothing_broken() -> None:
    assert check_limits(Limits(), seconds=MS, flops=FLOPS) == LimitCheck()


@pytest.mark.parametrize(
    ("limits", "phrase"),
    [
        (Limits(max_us=999.99), "1000 us is above max_us = 999.99"),
        (Limits(min_gflops=2000.1), "2000 GFLOP/s is below min_gflops = 2000.1"),
        (
            Limits(min_percent_of_cublas=90),
            "89.9 % of cuBLAS is below min_percent_of_cublas = 90",
        ),
    ],
)
def test_a_broken_limit_is_named_with_both_numbers(limits: Limits, phrase: str) -> None:
    found = check_limits(limits, seconds=MS, flops=FLOPS, percent_of_cublas=89.9)

    assert found == LimitCheck(broken=(phrase,))


def test_a_limit_that_is_just_met_is_kept() -> None:
    limits = Limits(max_us=1000, min_gflops=2000, min_percent_of_cublas=90)

    found = check_limits(limits, seconds=MS, flops=FLOPS, percent_of_cublas=90.0)

    assert found == LimitCheck(
        kept=("max_us = 1000", "min_gflops = 2000", "min_percent_of_cublas = 90")
    )


def test_all_broken_limits_are_named() -> None:
    limits = Limits(max_us=1, min_gflops=1e6, min_percent_of_cublas=99)

    assert len(check_limits(limits, seconds=MS, flops=FLOPS, percent_of_cublas=1).broken) == 3


@pytest.mark.parametrize("percent", [None, math.nan])
def test_what_was_not_measured_is_neither_kept_nor_broken(percent: float | None) -> None:
    limits = Limits(min_percent_of_cublas=90)

    found = check_limits(limits, seconds=MS, flops=FLOPS, percent_of_cublas=percent)

    assert found.broken == ()
    assert found.unchecked == ("min_percent_of_cublas = 90: cuBLAS was not timed here",)


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize("name", ["max_us", "min_gflops", "min_percent_of_cublas"])
def test_refuses_a_limit_that_cannot_be(name: str, wrong: float) -> None:
    with pytest.raises(ValueError, match=f"{name} = "):
        Limits(**{name: wrong})


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.nan, math.inf])
def test_refuses_what_is_not_a_time(wrong: float) -> None:
    with pytest.raises(ValueError, match="not a time"):
        check_limits(Limits(max_us=1), seconds=wrong, flops=1)
