from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from pytest_gemm.stats import (
    MOST_DF,
    Estimate,
    Spread,
    consensus,
    coverage,
    mean_and_sd,
    median,
    median_interval,
    relative_width,
    shared_spread,
    summarize,
)

SPREAD = Spread(0.02, 8)
times = st.floats(min_value=1e-9, max_value=1e3)


def test_describes_a_known_sample() -> None:
    estimate = summarize([float(k) for k in (3, 1, 2, 5, 4, 6, 7, 8, 9, 100)])

    assert estimate.n == 10
    assert estimate.median == 5.5
    # C(10, 0) + C(10, 1) = 11 of 1024 on either side: 97.9 %.
    assert (estimate.low, estimate.high) == (2.0, 9.0)
    assert coverage(estimate.n, median_interval(estimate.n)[0]) == pytest.approx(1 - 22 / 1024)
    assert estimate.mad == 2.5
    assert estimate.deciles == pytest.approx((1.9, 2.8, 3.7, 4.6, 5.5, 6.4, 7.3, 8.2, 18.1))


@pytest.mark.parametrize(
    "samples",
    [[], [0.0], [-1.0], [1.0, math.nan], [1.0, math.inf], [1.0, -math.inf]],
    ids=["empty", "zero", "negative", "nan", "inf", "minus-inf"],
)
def test_refuses_what_is_not_a_time(samples: list[float]) -> None:
    with pytest.raises(ValueError, match=r"time"):
        summarize(samples)
    with pytest.raises(ValueError, match=r"time"):
        relative_width(samples)


@given(st.lists(times, min_size=1, max_size=60))
def test_an_estimate_is_ordered_and_ignores_the_order(samples: list[float]) -> None:
    estimate = summarize(samples)

    assert estimate == summarize(reversed(samples))
    assert min(samples) <= estimate.low <= estimate.median <= estimate.high <= max(samples)
    assert len(estimate.deciles) == 9
    assert list(estimate.deciles) == sorted(estimate.deciles)
    assert estimate.mad >= 0


@given(st.lists(times, min_size=3, max_size=30), st.integers(0, 29))
def test_one_absurd_sample_moves_the_median_to_its_neighbour_at_most(
    samples: list[float], place: int
) -> None:
    disturbed = samples.copy()
    disturbed[place % len(samples)] = 1e9

    moved = summarize(disturbed).median

    assert summarize(samples).median <= moved <= sorted(samples)[len(samples) // 2 + 1]


@pytest.mark.parametrize("n", [1, 2, 5, 6, 7, 9, 10, 25, 100, 101, 999, 5000])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.99])
def test_the_interval_is_the_narrowest_that_covers_the_median(n: int, confidence: float) -> None:
    i, j = median_interval(n, confidence)

    def exact(lower: int) -> float:
        return float(1 - 2 * binom.cdf(lower, n, 0.5)) if 2 * lower < n else 0.0

    assert j == n - 1 - i
    assert coverage(n, i) == pytest.approx(exact(i), abs=1e-10)
    assert exact(i) >= confidence or i == 0
    if i < j:
        assert exact(i + 1) < confidence


def test_few_samples_have_their_extremes_and_the_coverage_they_reach() -> None:
    reached = {n: coverage(n, median_interval(n)[0]) for n in range(1, 8)}

    assert reached == pytest.approx({n: 1 - 2.0 ** (1 - n) for n in range(1, 8)})
    assert median_interval(5) == (0, 4)


def test_the_interval_covers_the_median_in_every_permutation_of_ranks() -> None:
    # All 2^8 ways in which 8 samples fall above or below the true median 0.
    i, j = median_interval(8)
    hits = 0
    for signs in itertools.product((-1, 1), repeat=8):
        ordered = sorted(sign * (k + 1.0) for k, sign in enumerate(signs))
        hits += ordered[i] <= 0 <= ordered[j]

    assert hits / 2**8 == pytest.approx(coverage(8, i))


@pytest.mark.parametrize(("n", "confidence"), [(0, 0.95), (-1, 0.95), (5, 0.0), (5, 1.0)])
def test_refuses_an_interval_that_cannot_be(n: int, confidence: float) -> None:
    with pytest.raises(ValueError, match=r"median needs|confidence is"):
        median_interval(n, confidence)


def test_relative_width_is_that_of_the_estimate() -> None:
    samples = [1.0, 1.1, 1.2, 1.05, 1.15, 1.02, 1.12]
    estimate = summarize(samples)

    assert relative_width(samples) == (estimate.high - estimate.low) / estimate.median
    assert relative_width([2.0] * 7) == 0


def test_the_error_of_a_median_shrinks_with_its_interval() -> None:
    narrow = Estimate(7, 1.0, 0.99, 1.01, 0.005, (1.0,) * 9)
    wide = Estimate(7, 1.0, 0.9, 1.1, 0.05, (1.0,) * 9)

    assert 0 < narrow.log_error < wide.log_error / 5
    assert summarize([1.0]).log_error == math.inf


def test_consensus_of_sessions_that_agree_is_moderated_by_the_prior() -> None:
    found = consensus([0.0, 0.01, 0.02, 0.01], SPREAD)

    variance = (8 * 0.02**2 + 2 * 0.01**2) / (8 + 3)
    assert found.centre == pytest.approx(0.01)
    assert found.sd == pytest.approx(math.sqrt(variance))
    assert (found.df, found.n, found.odd) == (11, 4, ())


def test_one_session_has_the_prior_alone() -> None:
    found = consensus([1.5], SPREAD)

    assert found.sd == pytest.approx(0.02)
    assert (found.centre, found.df, found.n) == (1.5, 8, 1)


@pytest.mark.parametrize("count", [2, 3, 4, 6, 10])
@pytest.mark.parametrize("place", [0, -1])
def test_a_session_ten_times_slow_is_named_and_left_out(count: int, place: int) -> None:
    sessions = [0.001 * k for k in range(count)]
    sessions[place] += math.log(10)

    found = consensus(sessions, SPREAD)

    assert found.odd == (place % count,)
    assert abs(found.centre) < 0.01
    assert found.sd < 0.021


def test_of_two_that_contradict_each_other_the_faster_stands() -> None:
    assert consensus([math.log(3), 0.0], SPREAD).centre == 0.0


def test_sessions_that_scatter_are_not_called_odd() -> None:
    found = consensus([0.0, 0.2, 0.4, 0.6, 0.8], SPREAD)

    assert found.odd == ()
    assert found.sd > 0.15


@pytest.mark.parametrize("sessions", [[], [math.nan], [0.0, math.inf]])
def test_refuses_sessions_that_are_not_numbers(sessions: list[float]) -> None:
    with pytest.raises(ValueError, match="finite"):
        consensus(sessions, SPREAD)


@pytest.mark.parametrize("level", [-0.5, 0.5])
@pytest.mark.parametrize("before", [1, 3, 18])
def test_two_new_sessions_that_agree_are_a_new_level(before: int, level: float) -> None:
    old = [0.001 * k for k in range(before)]

    disturbed = consensus([*old, level], SPREAD)
    settled = consensus([*old, level, level + 0.01], SPREAD)
    later = consensus([*old, level, level + 0.01, level - 0.01, level], SPREAD)

    if before > 1:
        assert abs(disturbed.centre) < 0.02
        assert disturbed.odd == (before,)
    assert settled.centre == pytest.approx(level + 0.005)
    assert later.centre == pytest.approx(level)
    assert later.n == 4


def test_two_new_sessions_that_contradict_each_other_are_no_level() -> None:
    found = consensus([0.0, 0.0, 0.0, 0.0, 1.0, 2.0], SPREAD)

    assert (found.centre, found.odd, found.start) == (0.0, (4, 5), 0)


def test_a_spread_is_moderated_by_its_degrees_of_freedom() -> None:
    assert SPREAD.moderate(0.05, 0) == pytest.approx(0.02)
    assert SPREAD.moderate(0.05, 8) == pytest.approx(math.sqrt((0.02**2 + 0.05**2) / 2))


@pytest.mark.parametrize(("sd", "df"), [(0.0, 1), (1, 0), (math.nan, 1), (1, math.inf), (-1, 3)])
def test_refuses_a_spread_that_cannot_be(sd: float, df: float) -> None:
    with pytest.raises(ValueError, match="no spread"):
        Spread(sd, df)


@pytest.mark.parametrize("df", [2, 4, 9])
def test_series_of_one_deviation_share_it(df: int) -> None:
    """Nothing but sampling noise: the prior is as good as known."""
    rng = np.random.default_rng(0)
    sds = 0.01 * np.sqrt(rng.chisquare(df, 2000) / df)

    found = shared_spread([(sd, df) for sd in sds], 1e-4)

    assert found.sd == pytest.approx(0.01, rel=0.05)
    assert found.df == MOST_DF
    assert shared_spread([(0.01, 2)] * 3, 1e-4).df == 6


@pytest.mark.parametrize("d0", [3.0, 8.0])
def test_series_of_different_deviations_are_worth_less(d0: float) -> None:
    """Variances drawn as the model has them: s0^2 d0 / chi-square(d0), observed with 4 df."""
    rng = np.random.default_rng(0)
    true = 0.01 * np.sqrt(d0 / rng.chisquare(d0, 20_000))
    seen = true * np.sqrt(rng.chisquare(4, 20_000) / 4)

    found = shared_spread([(sd, 4) for sd in seen], 1e-9)

    assert found.sd == pytest.approx(0.01, rel=0.05)
    assert found.df == pytest.approx(d0, rel=0.15)


def test_series_that_repeat_exactly_do_not_make_a_spread_of_nothing() -> None:
    found = shared_spread([(0.0, 4)] * 10, 0.001)

    assert 0.001 <= found.sd < 0.0015
    mixed = shared_spread([(0.0, 4), (0.002, 4)] * 5, 0.001)
    assert 0.001 < mixed.sd < 0.002
    assert mixed.df > 10


def test_what_is_shared_takes_two_series() -> None:
    with pytest.raises(ValueError, match="two"):
        shared_spread([(0.01, 4)], 0.001)


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=20))
def test_the_mean_and_the_deviation_are_those_of_the_textbook(values: list[float]) -> None:
    mean, sd = mean_and_sd(values)

    assert mean == pytest.approx(np.mean(values))
    assert sd == pytest.approx(np.std(values, ddof=1) if len(values) > 1 else 0.0, abs=1e-12)


def test_a_median_needs_a_value() -> None:
    assert median([3.0, 1.0, 2.0, 10.0]) == 2.5
    with pytest.raises(ValueError, match="at least one"):
        median([])
