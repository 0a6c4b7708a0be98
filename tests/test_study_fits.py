"""Fits recover what they were made from; crossovers lie where curves were made to cross."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from pytest_gemm.fits import exponential, is_told, leading_ratio, logarithmic, polynomial
from pytest_gemm.stats import Estimate, summarize
from pytest_gemm.studies.crossover import Crossover, crossover

SIZES = [10, 14, 20, 28, 40, 56, 80, 112, 160, 224, 320, 448, 640, 896, 1280]


def noisy(values: Sequence[float], sd: float, seed: int) -> list[float]:
    factors = 1 + sd * np.random.Generator(np.random.PCG64(seed)).normal(size=len(values))
    return [float(v * f) for v, f in zip(values, factors, strict=True)]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("degree", "c"), [(2, (2e-7, 1e-9, 3e-10)), (3, (5e-6, 0, 1e-9, 8e-12))])
def test_a_polynomial_is_recovered_within_its_errors(
    degree: int, c: tuple[float, ...], seed: int
) -> None:
    times = noisy([sum(v * n**p for p, v in enumerate(c)) for n in SIZES], 0.02, seed)
    fit = polynomial(SIZES, times, degree)
    assert not fit.reason
    assert fit.n == 15
    name = f"c{degree}"
    assert fit.errors[name] < 0.1 * c[-1]
    # 4 standard errors of t with 11 degrees of freedom or more: one in 500.
    assert abs(fit.coefficients[name] - c[-1]) < 4 * fit.errors[name]
    assert fit.r_squared > 0.99
    assert 0.005 < fit.residual < 0.04


def test_the_error_of_a_coefficient_is_what_it_scatters_by() -> None:
    times = [1e-6 + 1e-11 * n**3 for n in SIZES]
    fits = [polynomial(SIZES, noisy(times, 0.03, seed), 3) for seed in range(200)]
    found = np.array([fit.coefficients["c3"] for fit in fits])
    said = np.median([fit.errors["c3"] for fit in fits])
    assert found.std() == pytest.approx(said, rel=0.25)
    assert found.mean() == pytest.approx(1e-11, rel=0.005)


def test_a_polynomial_without_noise_is_exact() -> None:
    fit = polynomial([1, 2, 3, 4, 5], [3 + 2 * x**2 for x in range(1, 6)], 2)
    assert list(fit.coefficients.values()) == pytest.approx([3, 0, 2], abs=1e-9)
    assert fit.r_squared == pytest.approx(1)
    assert fit.to_dict()["model"] == "polynomial of degree 2"


def test_too_few_points_are_no_fit() -> None:
    fit = polynomial([1, 2, 3], [1, 4, 9], 2)
    assert fit.reason == "3 points are too few: it takes 4"
    assert fit.to_dict()["r_squared"] is None
    assert exponential([1], [1]).reason == "1 point is too few: it takes 4"
    assert exponential([], []).reason
    assert leading_ratio(fit, fit) is None


def test_the_ratio_of_leading_coefficients_has_both_errors() -> None:
    slow = polynomial(SIZES, noisy([4e-10 * n**2 + 1e-8 for n in SIZES], 0.02, 1), 2)
    fast = polynomial(SIZES, noisy([4e-12 * n**2 + 1e-9 for n in SIZES], 0.02, 2), 2)
    ratio = leading_ratio(slow, fast)
    assert ratio is not None
    assert abs(ratio.value - 100) < 4 * ratio.error
    relative = [f.errors["c2"] / f.coefficients["c2"] for f in (slow, fast)]
    assert ratio.error / ratio.value == pytest.approx(math.hypot(*relative))


def test_a_coefficient_that_is_not_told_from_zero_has_no_ratio() -> None:
    steep = polynomial(SIZES, noisy(powers(1e-11, 3), 0.02, 1), 3)
    # No cube is in it, and the noise is large.
    flat = polynomial(SIZES, noisy(powers(1e-9, 1, 1e-6), 0.4, 2), 3)
    assert not flat.reason
    assert is_told(steep.coefficients["c3"], steep.errors["c3"])
    assert not is_told(flat.coefficients["c3"], flat.errors["c3"])
    assert leading_ratio(steep, steep) is not None
    assert leading_ratio(steep, flat) is leading_ratio(flat, steep) is None


@pytest.mark.parametrize("seed", range(10))
def test_an_exponential_fall_is_recovered(seed: int) -> None:
    sides = range(1, 33)
    noise = 1e-5 * np.random.Generator(np.random.PCG64(seed)).normal(size=32)
    times = [3e-4 + 9e-3 * math.exp(-0.6 * s) + e for s, e in zip(sides, noise, strict=True)]
    fit = exponential(list(sides), times)
    assert not fit.reason
    for name, value in {"floor": 3e-4, "height": 9e-3, "rate": 0.6}.items():
        assert abs(fit.coefficients[name] - value) < 4 * fit.errors[name]
    assert fit.r_squared > 0.99


@pytest.mark.parametrize("seed", range(10))
def test_a_logarithmic_rise_is_recovered(seed: int) -> None:
    sides = range(1, 33)
    noise = 1e11 * np.random.Generator(np.random.PCG64(seed)).normal(size=32)
    rates = [2e11 + 1.5e12 * math.log(s) + e for s, e in zip(sides, noise, strict=True)]
    fit = logarithmic(list(sides), rates)
    assert not fit.reason
    for name, value in {"offset": 2e11, "slope": 1.5e12}.items():
        assert abs(fit.coefficients[name] - value) < 4 * fit.errors[name]


@pytest.mark.parametrize("fit", [exponential, logarithmic])
@pytest.mark.parametrize("sd", [0, 0.001, 0.1])
def test_a_flat_curve_is_no_fit(fit: object, sd: float) -> None:
    assert callable(fit)
    found = fit(list(range(1, 33)), noisy([2e-3] * 32, sd, 5))
    assert found.reason


def test_a_steady_change_of_one_percent_is_called_flat() -> None:
    rates = [1e9 * (1 + 0.003 * math.log(s)) for s in range(1, 33)]
    assert logarithmic(list(range(1, 33)), rates).reason == "flat: it changes by 1.0 % in all"


# Crossovers


def estimates(times: Sequence[float], sd: float = 0.01, seed: int = 0) -> list[Estimate]:
    random = np.random.Generator(np.random.PCG64(seed))
    return [summarize(t * (1 + sd * random.normal(size=40))) for t in times]


def powers(factor: float, power: float, floor: float = 0.0) -> list[float]:
    return [floor + factor * n**power for n in SIZES]


@pytest.mark.parametrize("at", [12, 35, 91, 640, 1200])
def test_a_crossover_is_found_where_it_was_put(at: float) -> None:
    # Both are powers of n, so the interpolation is exact and only noise is left.
    found = crossover(SIZES, estimates(powers(1e-9, 3)), estimates(powers(1e-9 * at, 2), seed=1))
    assert found.kind == "found"
    assert found.size is not None
    assert found.low is not None
    assert found.high is not None
    assert found.between is not None
    assert found.size == pytest.approx(at, rel=0.02)
    assert found.low < found.size < found.high
    assert found.high / found.low < 1.05
    assert found.between[0] <= found.size <= found.between[1]


def test_the_interval_holds_the_crossover_as_often_as_it_says() -> None:
    held = 0
    for seed in range(100):
        slow, fast = powers(1e-9, 3), powers(91e-9, 2)
        found = crossover(SIZES, estimates(slow, 0.1, seed), estimates(fast, 0.1, 1000 + seed))
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 91 <= found.high
    assert 88 <= held <= 100


def test_what_moves_the_whole_of_a_case_widens_the_interval() -> None:
    held, errors = 0, 1e-3
    for seed in range(100):
        # Samples agree within a case; its median is off by 20 %.
        slow = estimates(noisy(powers(1e-9, 3), 0.2, seed), errors, seed)
        found = crossover(SIZES, slow, estimates(powers(91e-9, 2), errors))
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 91 <= found.high
    assert 88 <= held <= 100


def test_a_bend_is_no_scatter() -> None:
    # A launch costs the same at every size until the work counts.
    found = crossover(SIZES, estimates(powers(1e-9, 3), 1e-9), estimates(powers(1e-12, 3, 1e-6), 0))
    assert found.size == pytest.approx(10, rel=0.01)
    assert found.scatter < 0.03


def test_there_may_be_none_in_range() -> None:
    found = crossover(SIZES, estimates(powers(1e-9, 2)), estimates(powers(1e-9, 2, 1.0)))
    assert found == Crossover("none", 10, 1280)
    assert str(found) == "none in range (10 ... 1280)"


def test_a_device_that_is_faster_throughout_has_its_crossover_below() -> None:
    found = crossover(SIZES, estimates(powers(1e-9, 2)), estimates(powers(1e-10, 2)))
    assert found == Crossover("always", 10, 1280)
    assert str(found) == "below 10, the smallest size"


def test_the_last_crossing_counts() -> None:
    # Ahead at 1, behind at 2, ahead from between 2 and 4 on.
    found = crossover([1, 2, 4], estimates([2, 1, 2], 1e-6), estimates([1, 2, 1], 1e-6))
    assert found.size == pytest.approx(math.sqrt(8), rel=1e-3)
    assert found.between == (2, 4)
    late = crossover([1, 2], estimates([2, 1]), estimates([1, 2]))
    assert late.kind == "none"


def test_a_crossing_near_the_edge_may_lie_outside() -> None:
    slow, fast = powers(1e-9, 3), powers(1e-9 * 1270, 2)
    found = crossover(SIZES, estimates(slow, 0.2), estimates(fast, 0.2, 1))
    assert found.kind == "found"
    assert found.high is None
    assert "above 1280" in str(found)


def test_one_sample_says_nothing_of_the_noise() -> None:
    slow, fast = ([summarize([t]) for t in times] for times in ([1, 4], [2, 2]))
    found = crossover([1, 2], slow, fast)
    assert found.low == found.size == found.high == pytest.approx(math.sqrt(2))


@pytest.mark.parametrize("sizes", [[], [1, 2, 3], [2, 1], [1, 1]])
def test_curves_must_match_their_sizes(sizes: list[float]) -> None:
    with pytest.raises(ValueError, match="size"):
        crossover(sizes, estimates([1, 2]), estimates([1, 2]))
