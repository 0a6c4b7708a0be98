"""Old against new, interleaved in several processes: what to measure next, and what it says.

No clock and no device here. Whoever has them asks ``Duet.next_round``, measures it and goes on
with ``Duet.with_round`` until nothing is left to measure; then ``Duet.finding`` stands. A is the
old kernel, B the new one. docs/verdict.md gives the formulas and the error rates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pytest_gemm.margin import Calibration, checked_margin, duet_spread
from pytest_gemm.stats import (
    Spread,
    checked_seconds,
    mean_and_sd,
    median,
    outliers,
    student_quantile,
)

DuetOutcome = Literal["same", "slower", "faster", "inconclusive"]

ORDERS = ("ABBA", "BAAB")
"""The four launches of a block: a clock that climbs or falls steadily moves A and B alike, and
what is done differently from the first to the fourth is so for both, as the two alternate."""

ROUNDS = 2
"""A second round, in other processes, where the first does not clear the kernel: what fails a test
is never said after one, in which a few processes may have agreed by chance."""

LEAST_WORKERS = 3
"""Fewer workers than that have no spread to speak of: nothing is decided."""

MOST_ODD = 1
"""So many workers of a duet may be left out as odd. If more are, all count: several that agree are
no accident but another level, which some processes have and others do not."""

ALPHA = 0.01
"""Chance that a run of the whole stored suite calls an unchanged benchmark slower."""

SAME_ALPHA = 0.05
"""Chance that a kernel slower by just the margin is called the same in one round."""

POWER = 0.9
"""How often ``Finding.smallest`` would be found."""

WorkerTimes = Sequence[Sequence[Sequence[float]]]
"""Seconds per launch: of each placement its blocks, of each block its four, as measured."""


@dataclass(frozen=True)
class Round:
    """What to measure next, in processes that no earlier round of this duet used.

    Each of ``workers`` processes loads both kernels (in an order of its own), puts the operands
    at ``placements`` places in turn, and measures ``blocks`` blocks at each, block i in the order
    ``order_of(i)``, both kernels on the same operands.
    """

    number: int
    workers: int
    placements: int
    blocks: int


USUAL = Round(1, workers=6, placements=4, blocks=4)
SHORT = Round(1, workers=6, placements=2, blocks=2)

LONG = 20e-3
"""Launches longer than this get the short round: they scatter little, and time is dear."""


@dataclass(frozen=True)
class Finding:
    """What a duet says, in natural logarithms of new over old.

    ``change`` is the estimate, ``error`` its standard error with ``df`` degrees of freedom,
    from the deviation of one worker, moderated upwards; ``low`` to ``high`` hold for all stored
    benchmarks together. A slowdown of ``smallest`` is found with ``POWER``. ``workers``
    were used, ``odd`` were left out.
    """

    outcome: DuetOutcome
    change: float
    low: float
    high: float
    smallest: float
    error: float
    df: float
    workers: int
    odd: int
    rounds: int


@dataclass(frozen=True)
class Duet:
    """A duet so far: the log ratios of the workers, round by round.

    ``margin`` is the tolerated slowdown, a fraction; ``alpha`` the chance that a run of the whole
    suite of ``benchmarks`` stored ones calls an unchanged one slower; ``prior`` the spread of one
    worker's log ratio.
    """

    size: Round
    margin: float
    benchmarks: int
    prior: Spread
    alpha: float = ALPHA
    rounds: tuple[tuple[float, ...], ...] = ()

    def __post_init__(self) -> None:
        """Raises ValueError for a margin, a count or a chance that cannot be used."""
        checked_margin(self.margin)
        if self.benchmarks < 1 or not 0 < self.alpha < 1:
            raise ValueError(f"{self.benchmarks} benchmarks at alpha = {self.alpha}: no duet")

    @classmethod
    def on(
        cls,
        kind: str,
        *,
        margin: float,
        benchmarks: int,
        seconds: float,
        calibration: Calibration | None = None,
    ) -> Duet:
        """A duet of kernels that take about so many seconds, of which nothing is measured yet."""
        size = SHORT if seconds > LONG else USUAL
        return cls(size, margin, benchmarks, duet_spread(kind, calibration))

    @property
    def next_round(self) -> Round | None:
        """What to measure next; None where the duet is decided, or will not be."""
        done = len(self.rounds)
        if done == ROUNDS or (done and self.finding.outcome in ("same", "faster")):
            return None
        return replace(self.size, number=done + 1)

    def with_round(self, workers: Sequence[WorkerTimes]) -> Duet:
        """The duet with one more round, which may have lost some of its workers.

        Raises ValueError where nothing was to be measured, or for what is not a block of four
        times.
        """
        if self.next_round is None:
            raise ValueError("the duet was decided already")
        return replace(self, rounds=(*self.rounds, tuple(map(worker_ratio, workers))))

    @property
    def finding(self) -> Finding:
        """What is known now. Raises ValueError where nothing was measured."""
        ratios = [ratio for found in self.rounds for ratio in found]
        if not ratios:
            raise ValueError("no worker of the duet has measured anything")
        odd = outliers(ratios, median(ratios), self.prior)
        if len(odd) > MOST_ODD:
            odd = ()
        kept = [ratio for i, ratio in enumerate(ratios) if i not in odd]
        change, scatter = mean_and_sd(kept)
        # The prior never makes a duet look steadier than it was.
        sd = max(scatter, self.prior.moderate(scatter, len(kept) - 1))
        df, error = self.prior.df + len(kept) - 1, sd / math.sqrt(len(kept))
        reach = error * student_quantile(1 - self.alpha / self.benchmarks, df)
        tolerated = math.log1p(self.margin)
        outcome: DuetOutcome = "inconclusive"
        if len(kept) >= LEAST_WORKERS:
            if change - reach > tolerated and len(self.rounds) == ROUNDS:
                outcome = "slower"
            elif change + reach < -tolerated:
                outcome = "faster"
            elif change + error * student_quantile(1 - SAME_ALPHA, df) < tolerated:
                outcome = "same"
        return Finding(
            outcome=outcome,
            change=change,
            low=change - reach,
            high=change + reach,
            smallest=tolerated + reach + error * student_quantile(POWER, df),
            error=error,
            df=df,
            workers=len(kept),
            odd=len(odd),
            rounds=len(self.rounds),
        )


def order_of(block: int) -> str:
    """Which kernel each launch of a placement's block (from 0) is: ``ABBA`` or ``BAAB``."""
    return ORDERS[block % len(ORDERS)]


def worker_ratio(times: WorkerTimes) -> float:
    """One worker's log(new / old): the median over its blocks of all placements.

    A block's is the mean logarithm of its two B less that of its two A. Raises ValueError where
    there is no block, or one that is not four times, finite and above 0.
    """
    ratios = [
        block_ratio(block, order_of(i)) for placement in times for i, block in enumerate(placement)
    ]
    if not ratios:
        raise ValueError("a worker of the duet measured no block")
    return median(ratios)


def block_ratio(seconds: Sequence[float], order: str) -> float:
    """log(new / old) of one block of four times in that order."""
    if len(seconds) != len(order):
        raise ValueError(f"a block of {len(seconds)} times: {order} has {len(order)}")
    new = [kernel == "B" for kernel in order]
    logs = [math.log(s) for s in checked_seconds(seconds)]
    return math.fsum(x if is_new else -x for x, is_new in zip(logs, new, strict=True)) / 2
