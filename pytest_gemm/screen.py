"""A new session against stored ones: is there anything to look into? See docs/verdict.md."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from pytest_gemm.margin import Expected
from pytest_gemm.stats import (
    Consensus,
    Spread,
    checked_seconds,
    consensus,
    shared_spread,
    student_quantile,
)

ScreenOutcome = Literal["same", "slower", "faster", "inconclusive"]

ALPHA = 0.05
"""Chance that a run of the whole stored suite calls an unchanged benchmark slower."""

CLEAR = 0.99
"""How sure the screen is, both ways, of what it calls clearly fine."""

POWER = 0.9
"""How often ``smallest`` would be found."""

NOISY = 1.5
"""Sessions that scatter by more than this many expected deviations are worth a word."""

UNRULY = 3.0
"""Sessions that scatter by more than this many expected deviations contradict each other."""

LEAST_DF = 10
"""From so many degrees of freedom on, of all series together, a device's own spread is known."""


@dataclass(frozen=True, slots=True)
class Screen:
    """A new session against stored ones, on log seconds: see ``screen``.

    ``outcome`` stands where no duet can be had; ``suspicious`` says that one should decide.
    ``change`` is from the stored ``centre``, give or take ``reach``; ``slower`` is a change above
    ``threshold``. A slowdown of ``smallest`` is found with ``POWER``. ``spread`` is the moderated
    deviation of the ``used`` sessions; those at the indices ``odd`` and those before ``start``
    do not count.
    """

    outcome: ScreenOutcome
    suspicious: bool
    centre: float
    change: float
    reach: float
    threshold: float
    smallest: float
    spread: float
    used: int
    odd: tuple[int, ...]
    start: int


def screen(
    seconds: float,
    stored: Sequence[float],
    *,
    expected: Expected,
    margin: float,
    benchmarks: int,
    prior: Spread | None = None,
    alpha: float = ALPHA,
    excess: float = 0.0,
) -> Screen:
    """Decide from medians alone: a new session's, and the stored ones' (seconds, oldest first).

    With centre c and moderated spread s of the S stored logarithms (``stats.consensus``) and t(p)
    the p quantile of Student's t with d0 + S - 1 degrees of freedom, the new one is off c by
    D, with the standard error ``e = sqrt(s^2 (1 + 1/S) + excess^2)``; ``excess`` is what the new
    median's standard error has beyond the stored ones'.

    Clearly fine is a change that the margin explains, and a slowdown worth finding does not:
    ``D <= log(1 + margin) + t(CLEAR) e`` and ``D <= log((1 + margin)(1 + gap)) - t(CLEAR) e``.
    Anything else is suspicious, and so is a clear gain: where the machine is what became faster,
    it may hide a slower kernel.

    Where no duet can be had, ``slower`` is ``D > log(1 + margin) + t(1 - alpha/benchmarks) e``,
    and ``faster`` the same downwards. Noise never buys a pass: a change that the spread expected of
    the kind alone would have called slower is ``inconclusive`` where only a larger spread or a
    larger error excuses it, and so is everything that is neither slower nor faster where the spread
    is above ``UNRULY`` times the expected one.

    ``prior`` is the device's own spread where it is known (``device_spread``). Raises ValueError
    for times that are not finite and above 0, and for a count below 1.
    """
    if benchmarks < 1:
        raise ValueError(f"{benchmarks} stored benchmarks: there is at least this one")
    if not 0 < alpha < 1 or not 0 <= excess < math.inf:
        raise ValueError(f"alpha = {alpha} or excess = {excess} cannot be used")
    (new,) = checked_seconds([seconds])
    logs = [math.log(s) for s in checked_seconds(stored)]
    usual = expected.session
    known = prior or usual
    # A failure that no duet confirms does not rest on a device that seems quiet.
    cautious = max(usual, known, key=lambda spread: spread.sd)
    base = consensus(logs, cautious)
    change = math.log(new) - base.centre
    widening = math.sqrt(1 + 1 / base.n)
    error = math.hypot(base.sd * widening, excess)
    t = student_quantile(1 - alpha / benchmarks, base.df)
    tolerated = math.log1p(margin)
    threshold = tolerated + t * error
    outcome: ScreenOutcome = "same"
    if change > threshold:
        outcome = "slower"
    elif change < -threshold:
        outcome = "faster"
    elif change > tolerated + t * usual.sd * widening or base.sd > UNRULY * usual.sd:
        outcome = "inconclusive"
    return Screen(
        outcome=outcome,
        suspicious=outcome != "same"
        or not _is_clear(math.log(new), consensus(logs, known), tolerated, expected.gap, excess),
        centre=base.centre,
        change=change,
        reach=t * error,
        threshold=threshold,
        smallest=threshold + student_quantile(POWER, base.df) * error,
        spread=base.sd,
        used=base.n,
        odd=base.odd,
        start=base.start,
    )


def _is_clear(new: float, base: Consensus, tolerated: float, gap: float, excess: float) -> bool:
    """Whether the margin explains the change, and a slowdown worth finding does not."""
    error = math.hypot(base.sd * math.sqrt(1 + 1 / base.n), excess)
    doubt = student_quantile(CLEAR, base.df) * error
    return new - base.centre <= tolerated + min(doubt, math.log1p(gap) - doubt)


def device_spread(series: Iterable[Sequence[float]], expected: Expected) -> Spread:
    """The spread of sessions on a device, from all its stored series (log seconds, oldest first).

    From the stored alone, so that it is the same for every item of a run, whichever are selected.
    Each series counts with the deviation of the sessions that agree (``stats.consensus``); where
    all together have fewer than ``LEAST_DF`` degrees of freedom, what is expected of the kind of
    device stands.
    """
    agreed = (consensus(values, expected.session) for values in series if len(values) > 1)
    scatters = [(found.scatter, found.n - 1) for found in agreed if found.n > 1]
    if len(scatters) < 2 or sum(df for _, df in scatters) < LEAST_DF:
        return expected.session
    return shared_spread(scatters, expected.least_session_sd)
