"""Describe samples and sessions with numbers that one odd value cannot move.

Standard library only: this module is imported when pytest starts. Nothing here knows of files,
kernels or devices.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

CONFIDENCE = 0.95
"""Wanted coverage of the interval that ``summarize`` gives for a median."""

MAD_TO_SD = 1.4826
"""A normal distribution's standard deviation is this many median absolute deviations."""

ODD_CUT = 4.0
"""A session further than this many standard deviations from the centre is left out."""

MOST_DF = 30.0
"""What series share is worth no more degrees of freedom, however many and alike they are."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A distribution of seconds per launch, described.

    ``low`` and ``high`` are order statistics that enclose the median, whatever the distribution;
    ``mad`` is the median absolute deviation from the median, unscaled; ``deciles`` are the nine
    values that cut the samples into tenths. All in seconds.
    """

    n: int
    median: float
    low: float
    high: float
    mad: float
    deciles: tuple[float, ...]

    @property
    def log_error(self) -> float:
        """Standard error of log(median), read off its interval (infinite for one sample).

        The interval is log(high/low) long and covers what +-z standard errors of a normal
        distribution cover.
        """
        if self.n < 2:
            return math.inf
        return math.log(self.high / self.low) / (2 * _normal_reach(self.n))


@dataclass(frozen=True, slots=True)
class Spread:
    """A standard deviation, and how many degrees of freedom it is worth."""

    sd: float
    df: float

    def __post_init__(self) -> None:
        """Raises ValueError unless both are finite and above 0."""
        if not (0 < self.sd < math.inf and 0 < self.df < math.inf):
            raise ValueError(f"{self.sd} with {self.df} degrees of freedom is no spread")

    def moderate(self, sd: float, df: int) -> float:
        """What to believe of a deviation that was measured with few degrees of freedom.

        ``sqrt((d0 s0^2 + d s^2) / (d0 + d))`` (Smyth 2004, Statistical Applications in Genetics and
        Molecular Biology 3(1), article 3).
        """
        return math.sqrt((self.df * self.sd**2 + df * sd**2) / (self.df + df))


@dataclass(frozen=True, slots=True)
class Consensus:
    """What a few sessions agree on: see ``consensus``.

    ``centre`` is that of one session's value, ``sd`` its moderated deviation with ``df`` degrees
    of freedom, ``scatter`` the deviation of the ``n`` sessions used alone. Those at the indices
    ``odd`` were not used, and neither were those before ``start``, which had settled at another
    level.
    """

    centre: float
    sd: float
    df: float
    scatter: float
    n: int
    odd: tuple[int, ...]
    start: int = 0


def summarize(samples: Iterable[float]) -> Estimate:
    """Describe samples in seconds.

    Raises ValueError where there is none, or one that is not a number, infinite or not above 0.
    """
    values = sorted(checked_seconds(samples))
    n = len(values)
    centre = _median(values)
    i, j = median_interval(n)
    return Estimate(
        n=n,
        median=centre,
        low=values[i],
        high=values[j],
        mad=_median(sorted(abs(v - centre) for v in values)),
        deciles=tuple(_quantile(values, tenth / 10) for tenth in range(1, 10)),
    )


def relative_width(samples: Iterable[float]) -> float:
    """Length of the median's interval, as a fraction of the median. Raises as ``summarize``."""
    values = sorted(checked_seconds(samples))
    i, j = median_interval(len(values))
    return (values[j] - values[i]) / _median(values)


def checked_seconds(values: Iterable[float]) -> list[float]:
    """Return the values as floats. Raises ValueError unless each is finite and above 0."""
    seconds = [float(value) for value in values]
    if not seconds:
        raise ValueError("no time to describe")
    for value in seconds:
        if not (0 < value < math.inf):
            raise ValueError(f"{value} is not a time: seconds are finite and above 0")
    return seconds


@lru_cache(maxsize=4096)
def median_interval(n: int, confidence: float = CONFIDENCE) -> tuple[int, int]:
    """Indices into n sorted samples whose values enclose the median with that confidence.

    The number of samples below the median is binomial(n, 1/2) for any continuous distribution,
    so the i-th and (n-1-i)-th smallest (from 0) enclose it with probability
    ``sum(C(n, k) for k in i+1 ... n-1-i) / 2^n`` (David & Nagaraja, Order Statistics, 2003,
    section 7.1). The narrowest such pair; the extremes where even they do not suffice.
    """
    if n < 1:
        raise ValueError("a median needs at least one sample")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}: it lies between 0 and 1")
    i = (n - 1) // 2
    reached = _coin_flips(n, n // 2) if n % 2 == 0 else 0.0
    while reached < confidence and i > 0:
        reached += 2 * _coin_flips(n, i)
        i -= 1
    return i, n - 1 - i


def coverage(n: int, i: int) -> float:
    """Chance that the i-th and (n-1-i)-th smallest of n samples (from 0) enclose the median."""
    return math.fsum(_coin_flips(n, k) for k in range(i + 1, n - i))


def consensus(values: Sequence[float], prior: Spread) -> Consensus:
    """Centre and spread of sessions (logarithms, oldest first), with odd ones left out.

    The spread is moderated by the prior. A session is odd if it lies more than ``ODD_CUT``
    moderated deviations from the low median, the deviation being taken there from the median
    absolute deviation, so that the odd one cannot hide itself. The LOW median, because a disturbed
    session is a slow one: of two that contradict each other the faster stands.

    One odd session is a disturbance; where the two newest or more are odd and agree with each
    other, they are the new level and the sessions before them no longer count.

    Raises ValueError for no values, or one that is not finite.
    """
    if not values or not all(map(math.isfinite, values)):
        raise ValueError("sessions must be finite numbers, and at least one")
    found = _agreement(values, prior)
    start = len(values)
    while start - 1 in found.odd:
        start -= 1
    if len(values) - start >= 2:
        newest = _agreement(values[start:], prior)
        if not newest.odd:
            return replace(newest, start=start)
    return found


def outliers(values: Sequence[float], middle: float, prior: Spread) -> tuple[int, ...]:
    """The indices of values more than ``ODD_CUT`` moderated deviations from the middle."""
    distances = [abs(v - middle) for v in values]
    sd = prior.moderate(MAD_TO_SD * _median_low(distances), len(values) - 1)
    cut = ODD_CUT * sd
    if max(distances) <= cut:
        return ()
    return tuple(i for i, distance in enumerate(distances) if distance > cut)


def mean_and_sd(values: Sequence[float]) -> tuple[float, float]:
    """The mean, and the sample's standard deviation (0 for one value)."""
    n = len(values)
    mean = math.fsum(values) / n
    if n == 1:
        return mean, 0.0
    return mean, math.sqrt(math.fsum([(v - mean) ** 2 for v in values]) / (n - 1))


def median(values: Iterable[float]) -> float:
    """The middle value, or the mean of the two. Raises ValueError where there is none."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("a median needs at least one value")
    return _median(ordered)


def shared_spread(scatters: Iterable[tuple[float, int]], least: float) -> Spread:
    """What many series, each (standard deviation, degrees of freedom), say of a further one.

    Their variances are taken as ``s0^2`` times a scaled F distribution with d and ``d0`` degrees
    of freedom: ``d0`` follows from how much more the logarithms of the variances scatter than
    trigamma(d/2) explains, ``s0`` from their mean (Smyth 2004, section 6.2). Deviations below
    ``least`` count as that much: a series that happens to repeat exactly says nothing. ``d0`` is
    at most ``MOST_DF``, and no more than all series have together. Raises ValueError for fewer
    than two series.
    """
    known = [(max(sd, least), df / 2) for sd, df in scatters]
    if len(known) < 2:
        raise ValueError("what series share takes at least two")
    mean, sd = mean_and_sd([2 * math.log(sd) - _log_chi_square(half) for sd, half in known])
    explained = math.fsum([_trigamma(half) for _, half in known]) / len(known)
    most = min(MOST_DF / 2, math.fsum([half for _, half in known]))
    half = min(_inverse_trigamma(sd**2 - explained), most)
    return Spread(max(math.exp((mean + _log_chi_square(half)) / 2), least), 2 * half)


@lru_cache(maxsize=1024)
def student_quantile(probability: float, df: float) -> float:
    """The quantile of Student's t."""
    from scipy.special import stdtrit

    return float(stdtrit(df, probability))


def _agreement(values: Sequence[float], prior: Spread) -> Consensus:
    odd = outliers(values, _median_low(values), prior)
    kept = [v for i, v in enumerate(values) if i not in odd] if odd else values
    n = len(kept)
    centre, scatter = mean_and_sd(kept)
    sd = prior.moderate(scatter, n - 1)
    return Consensus(centre, sd, prior.df + n - 1, scatter, n, odd)


@lru_cache(maxsize=4096)
def _log_chi_square(half: float) -> float:
    """The mean logarithm of a chi-square variable over its degrees of freedom, 2 half."""
    from scipy.special import digamma

    return float(digamma(half)) - math.log(half)


@lru_cache(maxsize=4096)
def _trigamma(x: float) -> float:
    """The variance of the logarithm of a chi-square variable with 2x degrees of freedom."""
    from scipy.special import polygamma

    return float(polygamma(1, x))


def _inverse_trigamma(value: float) -> float:
    """x with trigamma(x) = value; infinite where the value is not above 0.

    Newton's method on 1/trigamma, which is convex and nearly linear (Smyth 2004, appendix).
    """
    from scipy.special import polygamma

    if value <= 1e-6:
        return math.inf
    x = 0.5 + 1 / value
    for _ in range(50):
        trigamma = _trigamma(x)
        step = trigamma * (1 - trigamma / value) / float(polygamma(2, x))
        x += step
        if abs(step) < 1e-10 * x:
            break
    return x


@lru_cache(maxsize=4096)
def _normal_reach(n: int) -> float:
    """Standard errors on either side that cover as much as the interval of n samples."""
    from statistics import NormalDist

    return NormalDist().inv_cdf((1 + coverage(n, median_interval(n)[0])) / 2)


def _coin_flips(n: int, k: int) -> float:
    """C(n, k) / 2^n, by logarithms: 2^n alone would overflow at n = 1024."""
    return math.exp(
        math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) - n * math.log(2)
    )


def _median(ordered: Sequence[float]) -> float:
    return _quantile(ordered, 0.5)


def _median_low(values: Sequence[float]) -> float:
    return sorted(values)[(len(values) - 1) // 2]


def _quantile(ordered: Sequence[float], fraction: float) -> float:
    """Linear interpolation between the two order statistics around ``fraction (n - 1)``."""
    position = fraction * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    between = ordered[below] + (position - below) * (ordered[above] - ordered[below])
    return min(between, ordered[above])
