"""Slower, or only noise? Data in, data out: no file, no clock, no other benchmark of this run.

Everything is decided on natural logarithms of seconds; a ``Verdict`` holds relative changes:
0.05 is 5 % slower. ``docs/baselines.md`` gives the formulas, their sources and the error rates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from typing import Any, Literal

from pytest_gemm.baselines import Series, Session, differing, epoch
from pytest_gemm.stats import checked_seconds, consensus

Outcome = Literal["same", "slower", "faster", "new", "withheld", "inconclusive", "ungated"]

ALPHA = 0.05
"""Chance that a run of the whole stored suite calls an unchanged benchmark slower."""

LEAST_SAMPLES = 6
"""Fewer samples have no 95 % interval of their median: nothing is decided."""

FULL_BASELINE = 3
"""Below so many stored sessions a verdict is provisional."""

POWER = 0.9
"""How often ``smallest_slowdown`` would be found."""

UNRULY = 3.0
"""Sessions that scatter by more than this many prior deviations contradict each other."""

FAILS_STRICTLY = frozenset({"new", "withheld", "inconclusive"})


@dataclass(frozen=True)
class Prior:
    """What is expected of a kind of device before anything is stored.

    ``sd`` is that of one session's log-median, worth ``df`` observations; ``margin`` is the
    relative slowdown that is tolerated on top of noise.
    """

    sd: float
    df: float
    margin: float


PRIORS: Mapping[str, Prior] = {
    "host": Prior(sd=0.025, df=8, margin=0.03),
    "cuda": Prior(sd=0.004, df=8, margin=0.003),
}


@dataclass(frozen=True)
class Verdict:
    """What is said of one benchmark, and on what grounds.

    ``change`` is the median over the baseline's, less 1, with its interval ``low`` to ``high``,
    which holds for all stored benchmarks together; ``threshold`` is the change above which the
    outcome is ``slower``; ``smallest_slowdown`` is found with ``POWER``. ``decided_by`` is
    ``sessions``, ``prior`` (too few sessions to know their spread), ``conditions`` or empty.
    ``baseline_median`` is in seconds, of ``sessions`` stored sessions. Numbers are None where
    nothing was compared.
    """

    outcome: Outcome
    change: float | None = None
    low: float | None = None
    high: float | None = None
    threshold: float | None = None
    decided_by: str = ""
    baseline_median: float | None = None
    sessions: int = 0
    provisional: bool = False
    smallest_slowdown: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def has_baseline(self) -> bool:
        """Whether there was something to compare with."""
        return self.change is not None

    def fails(self, strict: bool = False) -> bool:
        """Whether the benchmark's item fails. A gain never does."""
        return self.outcome == "slower" or (strict and self.outcome in FAILS_STRICTLY)

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, dicts, strings and numbers."""
        return asdict(self) | {"notes": list(self.notes)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Verdict:
        """The reverse of ``to_dict``, also after JSON."""
        known = {f.name: data[f.name] for f in fields(cls) if f.name in data}
        return cls(**known | {"notes": tuple(data.get("notes", ()))})


@dataclass(frozen=True)
class Comparable:
    """The stored sessions that a new one may be compared with, or why there are none."""

    sessions: tuple[Session, ...]
    outcome: Outcome | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Screen:
    """A new session against stored ones, on log seconds: see ``screen``."""

    outcome: Outcome
    centre: float
    change: float
    reach: float
    threshold: float
    smallest: float
    used: int
    odd: tuple[int, ...]
    start: int


def judge(
    now: Session,
    reference: Series | None,
    *,
    kind: str,
    benchmarks: int,
    margin: float | None = None,
    alpha: float = ALPHA,
    prior: Prior | None = None,
) -> Verdict:
    """Compare a session with the series that ``BaselineStore.reference`` gives for it.

    ``kind`` is the device's (``host`` or ``cuda``), ``benchmarks`` the number that is STORED for
    it, whatever was selected now: alpha is divided by it. ``margin`` (a fraction) and ``prior``
    replace those of the kind. Raises ValueError for times that are not finite and above 0, and
    for an unknown kind or a count below 1.
    """
    prior = _prior(kind, prior, margin)
    checked_seconds([now.estimate.median, now.estimate.low, now.estimate.high])
    if reference is None:
        return Verdict("new", notes=("nothing is stored for it on this device",))
    against = comparable(now, reference)
    notes = [*against.notes, *_program_notes(now, reference.newest)]
    if against.outcome is not None:
        return Verdict(against.outcome, decided_by="conditions", notes=tuple(notes))
    if now.estimate.n < LEAST_SAMPLES:
        notes.append(f"{now.estimate.n} samples are too few: {LEAST_SAMPLES} are needed")
        return Verdict("withheld", decided_by="conditions", notes=tuple(notes))
    result = screen(
        now.estimate.median,
        [session.estimate.median for session in against.sessions],
        prior=prior,
        benchmarks=benchmarks,
        alpha=alpha,
        excess=_excess_error(now, against.sessions),
    )
    notes += _odd_notes(now, against.sessions, result)
    notes += _screen_notes(result, prior)
    provisional = result.used < FULL_BASELINE
    return Verdict(
        result.outcome,
        change=math.expm1(result.change),
        low=math.expm1(result.change - result.reach),
        high=math.expm1(result.change + result.reach),
        threshold=math.expm1(result.threshold),
        decided_by="prior" if provisional else "sessions",
        baseline_median=math.exp(result.centre),
        sessions=result.used,
        provisional=provisional,
        smallest_slowdown=math.expm1(result.smallest),
        notes=tuple(notes),
    )


def screen(
    seconds: float,
    stored: Sequence[float],
    *,
    prior: Prior,
    benchmarks: int,
    alpha: float = ALPHA,
    excess: float = 0.0,
) -> Screen:
    """Decide from medians alone: a new session's, and the stored ones' (seconds, oldest first).

    With centre c and spread s of the stored logarithms (``stats.consensus``), d0 the prior's
    degrees of freedom and S sessions used, the new value lies within ``reach = t sqrt(s^2 (1 +
    1/S) + excess^2)`` of c, t being the 1 - alpha/benchmarks quantile of Student's t with
    d0 + S - 1 degrees of freedom; ``slower`` is a change above ``threshold = log(1 + margin) +
    reach``. ``excess`` is the standard error that the new median has beyond the stored ones'.

    Noise never buys a pass: a change that the prior's spread alone would have called slower is
    ``inconclusive`` where only a larger spread or a larger error excuses it, and so is everything
    that is neither slower nor faster where the spread is above ``UNRULY`` times the prior's.

    Raises ValueError for times that are not finite and above 0, and for a count below 1.
    """
    if benchmarks < 1:
        raise ValueError(f"{benchmarks} stored benchmarks: there is at least this one")
    if not 0 < alpha < 1 or not 0 <= excess < math.inf:
        raise ValueError(f"alpha = {alpha} or excess = {excess} cannot be used")
    (new,) = checked_seconds([seconds])
    base = consensus([math.log(s) for s in checked_seconds(stored)], prior.sd, prior.df)
    change = math.log(new) - base.centre
    error = math.hypot(base.sd * math.sqrt(1 + 1 / base.n), excess)
    expected_error = prior.sd * math.sqrt(1 + 1 / base.n)
    t = student_quantile(1 - alpha / benchmarks, base.df)
    tolerated = math.log1p(prior.margin)
    threshold = tolerated + t * error
    outcome: Outcome = "same"
    if change > threshold:
        outcome = "slower"
    elif change < -threshold:
        outcome = "faster"
    elif change > tolerated + t * expected_error or base.sd > UNRULY * prior.sd:
        outcome = "inconclusive"
    return Screen(
        outcome=outcome,
        centre=base.centre,
        change=change,
        reach=t * error,
        threshold=threshold,
        smallest=threshold + student_quantile(POWER, base.df) * error,
        used=base.n,
        odd=base.odd,
        start=base.start,
    )


def comparable(now: Session, reference: Series) -> Comparable:
    """Choose the sessions of a series that were measured as the new one was.

    Sessions whose device, benchmark, seed, recipe or settings differ are left out; where no other
    is left the verdict is withheld. Of the rest those of the same epoch (compiler, driver) count;
    where there is none the benchmark is new again, because the old time says nothing of this
    kernel under that compiler.
    """
    alike = [s for s in reference.sessions if not differing(s.conditions, now.conditions)]
    if not alike:
        why = _differences(reference.newest.conditions, now.conditions)
        return Comparable((), "withheld", (f"it was stored under other conditions: {why}",))
    notes = []
    if len(alike) < len(reference.sessions):
        count = len(reference.sessions) - len(alike)
        notes.append(f"{count} stored under other conditions are left out")
    current = [s for s in alike if not differing(epoch(s.environment), epoch(now.environment))]
    if not current:
        newest = alike[-1]
        why = _differences(epoch(newest.environment), epoch(now.environment))
        ratio = now.estimate.median / newest.estimate.median - 1
        notes.append(f"new epoch: {why}; the median is {ratio:+.1%} of the one before")
        return Comparable((), "new", tuple(notes))
    if len(current) < len(alike):
        notes.append(f"{len(alike) - len(current)} of earlier epochs are left out")
    return Comparable(tuple(current), notes=tuple(notes))


@lru_cache(maxsize=1024)
def student_quantile(probability: float, df: float) -> float:
    """The quantile of Student's t."""
    from scipy.special import stdtrit

    return float(stdtrit(df, probability))


def _prior(kind: str, prior: Prior | None, margin: float | None) -> Prior:
    if prior is None and kind not in PRIORS:
        raise ValueError(f"{kind!r} is none of {', '.join(PRIORS)}")
    prior = prior or PRIORS[kind]
    margin = prior.margin if margin is None else margin
    if not 0 <= margin < math.inf:
        raise ValueError(f"a margin of {margin} cannot be used")
    return Prior(prior.sd, prior.df, margin)


def _excess_error(now: Session, stored: Sequence[Session]) -> float:
    """What the new median's standard error has beyond the typical stored one (log seconds).

    The spread of sessions holds the sampling error of a stored one already.
    """
    errors = sorted(s.estimate.log_error for s in stored)
    typical = errors[(len(errors) - 1) // 2]
    return math.sqrt(max(0.0, now.estimate.log_error**2 - typical**2))


def _program_notes(now: Session, before: Session) -> list[str]:
    notes = []
    if now.source != before.source:
        notes.append(f"the source changed since {before.date}")
    if differing(before.launch, now.launch):
        notes.append(f"the launch changed: {_differences(before.launch, now.launch)}")
    return notes


def _odd_notes(now: Session, stored: Sequence[Session], result: Screen) -> list[str]:
    centre = math.exp(result.centre)
    notes = [
        f"the session of {stored[i].date} is odd ({stored[i].estimate.median / centre:.2f} of the "
        "others) and left out"
        for i in result.odd
    ]
    if result.start:
        notes.append(
            f"{result.start} sessions before {stored[result.start].date} had another level and "
            "no longer count"
        )
    # Only a second session confirms that the first was no disturbance.
    newest = stored[-1].estimate.median / centre
    likeness = math.log(now.estimate.median / stored[-1].estimate.median)
    if len(stored) - 1 in result.odd and abs(likeness) < abs(math.log(newest)) / 2:
        notes.append("this run is like that one: store it too, and they become the reference")
    return notes


def _screen_notes(result: Screen, prior: Prior) -> list[str]:
    notes = []
    if result.used < FULL_BASELINE:
        notes.append(f"provisional: {result.used} of {FULL_BASELINE} sessions")
    if result.outcome == "inconclusive":
        notes.append(f"the noise is above the {prior.sd:.1%} expected of this kind of device")
    if result.outcome == "faster":
        notes.append("store the gain with --gemm-baseline update")
    return notes


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """``compiler 12.2 -> 13.1, seed 0 -> 1``."""
    return ", ".join(f"{key} {before.get(key)} -> {now.get(key)}" for key in differing(before, now))
