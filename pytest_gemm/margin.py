"""What is expected of a kind of device, and the slowdown that is tolerated on top of noise."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pytest_gemm.stats import Spread, mean_and_sd

BIASES = 3.5
"""The margin is this many standard deviations of the bias that a calibration measured: what moves
a version of a kernel for good, such as where its code happens to lie."""

LEAST_DUETS = 5
"""A calibration takes at least so many duets of equal kernels."""


@dataclass(frozen=True)
class Expected:
    """A kind of device before anything is known of the one at hand. Fractions and log seconds.

    ``session`` is the spread of one process' log-median, below ``least_session_sd`` for no device;
    ``duet`` that of one worker's log ratio. ``margin`` is the least slowdown that is tolerated;
    one that is larger by the factor 1 + ``gap`` is to be found. ``drift`` is tolerated against
    the anchor.
    """

    session: Spread
    least_session_sd: float
    duet: Spread
    margin: float
    gap: float
    drift: float


EXPECTED: Mapping[str, Expected] = {
    "host": Expected(
        session=Spread(0.025, 8),
        least_session_sd=0.01,
        duet=Spread(0.01, 4),
        margin=0.03,
        gap=0.068,
        drift=0.1,
    ),
    "cuda": Expected(
        session=Spread(0.004, 8),
        least_session_sd=0.001,
        duet=Spread(0.002, 4),
        margin=0.003,
        gap=0.007,
        drift=0.05,
    ),
}


@dataclass(frozen=True)
class Calibration:
    """What duets of a kernel against itself, built another way, say of one device.

    ``bias`` is the standard deviation of what such a pair differs by for good, ``sd`` that of one
    worker's log ratio around it, with ``df`` degrees of freedom; ``duets`` is how many there
    were. ``date`` is UTC.
    """

    device: str
    date: str
    duets: int
    bias: float
    sd: float
    df: float

    def __post_init__(self) -> None:
        """Raises ValueError for numbers that no measurement gives."""
        if self.duets < LEAST_DUETS:
            raise ValueError(f"a calibration of {self.duets} duets: {LEAST_DUETS} are needed")
        if not (0 <= self.bias < math.inf and 0 <= self.sd < math.inf and 0 < self.df < math.inf):
            raise ValueError(f"{self} is no calibration: its numbers are finite and not negative")


def calibrated(device: str, date: str, duets: Iterable[Sequence[float]]) -> Calibration:
    """Make a calibration from duets of equal kernels, each its workers' log ratios.

    A duet's mean scatters around 0 by the bias, and by its workers' spread: the bias' variance is
    what the mean of the squared means has beyond that, 0 where it has less. Raises ValueError for
    fewer than ``LEAST_DUETS`` duets, or two workers in one.
    """
    known = [(*mean_and_sd(ratios), len(ratios)) for ratios in duets]
    if len(known) < LEAST_DUETS or min(n for *_, n in known) < 2:
        raise ValueError(
            f"a calibration takes {LEAST_DUETS} duets of 2 workers or more; there are {len(known)}"
        )
    df = sum(n - 1 for *_, n in known)
    within = math.fsum((n - 1) * sd**2 for _, sd, n in known) / df
    between = math.fsum(mean**2 - within / n for mean, _, n in known) / len(known)
    bias = math.sqrt(max(0.0, between))
    return Calibration(device, date, len(known), bias, math.sqrt(within), df)


def expected(kind: str) -> Expected:
    """What a kind of device (``host`` or ``cuda``) is like. Raises ValueError for another."""
    if kind not in EXPECTED:
        raise ValueError(f"{kind!r} is none of {', '.join(EXPECTED)}")
    return EXPECTED[kind]


def margin_of(
    kind: str, calibration: Calibration | None = None, given: Iterable[float | None] = ()
) -> float:
    """The tolerated slowdown, a fraction: the first that is given, else the device's.

    Given are, the most particular first, what the command line, the kernel and the project say.
    The device's is the kind's least, or ``BIASES`` times the bias of a calibration if that is
    larger. Raises ValueError for one that is not finite, or negative.
    """
    for margin in given:
        if margin is not None:
            return checked_margin(margin)
    least = expected(kind).margin
    return max(least, math.expm1(BIASES * calibration.bias)) if calibration else least


def duet_spread(kind: str, calibration: Calibration | None = None) -> Spread:
    """The spread of a worker's log ratio: the kind's, or a calibration's if that is larger."""
    usual = expected(kind).duet
    return Spread(max(usual.sd, calibration.sd), usual.df) if calibration else usual


def checked_margin(margin: float) -> float:
    """The margin itself. Raises ValueError where it cannot be used."""
    if not 0 <= margin < math.inf:
        raise ValueError(f"a margin of {margin} cannot be used: it is a fraction of at least 0")
    return margin
