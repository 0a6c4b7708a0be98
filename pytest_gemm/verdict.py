"""Slower, or only noise? Data in, data out: no file, no clock, no other benchmark of this run.

``judge`` screens a new session against the stored ones, or puts in what a duet found;
``held_against_anchor`` looks for slow drift then. Everything is decided on
natural logarithms of seconds; a ``Verdict`` holds relative changes: 0.05 is 5 % slower.
``docs/verdict.md`` gives the rules, their sources and the error rates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from operator import attrgetter
from typing import Any, Literal

from pytest_gemm.baselines import Series, Session, differing, epoch
from pytest_gemm.baselines.records import EPOCH_KEYS
from pytest_gemm.duet import Finding
from pytest_gemm.margin import Expected, checked_margin, expected, margin_of
from pytest_gemm.screen import ALPHA, NOISY, Screen, screen
from pytest_gemm.stats import Spread, checked_seconds, consensus, student_quantile

Outcome = Literal[
    "same", "slower", "faster", "drifted", "new", "withheld", "inconclusive", "ungated"
]

LEAST_SAMPLES = 6
"""Fewer samples have no 95 % interval of their median: nothing is decided."""

FULL_BASELINE = 3
"""Below so many stored sessions a verdict is provisional."""

FAILS = frozenset({"slower", "drifted"})
FAILS_STRICTLY = frozenset({"new", "withheld", "inconclusive"})

_AS_CONDITIONS = attrgetter("device", "benchmark", "seed", "recipe", "settings")
"""What ``Session.conditions`` is made of."""

DRIFTS = frozenset({"same", "inconclusive"})
"""Outcomes that drift against the anchor replaces."""


@dataclass(frozen=True)
class Verdict:
    """What is said of one benchmark, and on what grounds.

    ``change`` is the median over the baseline's, less 1, with its interval ``low`` to ``high``,
    which holds for all stored benchmarks together; ``threshold`` is the change above which the
    outcome is ``slower``; ``smallest_slowdown`` is found 9 times in 10. ``decided_by`` is
    ``sessions``, ``prior`` (too few sessions to know their spread), ``duet`` (of ``workers``
    processes in ``rounds`` rounds, with ``odd_workers`` left out), ``program`` (both are the
    same), ``anchor``, ``conditions`` or empty. ``baseline_median`` is in seconds, of ``sessions``
    stored sessions; ``stored_change`` is the change from it, from which a duet's may differ;
    ``drift`` that from the pinned anchor. ``against`` is what a duet was asked for with, in words:
    empty where it was the verdict's own choice; of another kernel than the stored one,
    ``baseline_median`` is what the duet measured. Where ``suspicious``, a duet should decide if
    one can be had. ``slow_baseline``: it is the ``same`` kernel, yet clearly faster than the stored
    sessions. Numbers are None where nothing was compared.
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
    suspicious: bool = False
    stored_change: float | None = None
    workers: int = 0
    odd_workers: int = 0
    rounds: int = 0
    drift: float | None = None
    against: str = ""
    slow_baseline: bool = False

    def fails(self, strict: bool = False) -> bool:
        """Whether the benchmark's item fails. A gain never does."""
        return self.outcome in FAILS or (strict and self.outcome in FAILS_STRICTLY)

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


def judge(
    now: Session,
    reference: Series | None,
    *,
    kind: str,
    benchmarks: int,
    margin: float | None = None,
    prior: Spread | None = None,
    alpha: float = ALPHA,
    duets: bool = False,
    same_program: bool = False,
    finding: Finding | None = None,
    against: str = "",
) -> Verdict:
    """Compare a session with the series that ``BaselineStore.reference`` gives for it.

    ``kind`` is the device's (``host`` or ``cuda``), ``benchmarks`` the number that is STORED for
    it, whatever was selected now: alpha is divided by it. ``margin`` (a fraction) and ``prior``
    (``device_spread``) replace those of the kind. ``duets``: one can be had where the verdict
    turns out ``suspicious``; judge again with its ``finding``, which then decides.
    ``same_program``: it would run the same machine code twice, which decides instead. Both kernels
    of a duet ran on this machine now, so what differs from the stored sessions' conditions, or
    what the machine has become since, plays no part in it. ``against``: the verdict's.

    Raises ValueError for times that are not finite and above 0, and for an unknown kind or a
    count below 1.
    """
    usual = expected(kind)
    margin = margin_of(kind, given=[margin])
    checked_seconds([now.estimate.median, now.estimate.low, now.estimate.high])
    if reference is None and against:
        verdict = Verdict("new")
    elif reference is None:
        verdict = Verdict("new", notes=("nothing is stored for it on this device",))
    else:
        verdict = _screened(now, reference, usual, margin, benchmarks, prior, alpha)
    gain = verdict.outcome == "faster"
    if finding is not None:
        verdict = replace(_of_duet(verdict, finding, margin), against=against)
    elif duets and verdict.change is not None:
        # The screen flags whatever is worth finding: noise costs duets, not sight.
        verdict = replace(verdict, smallest_slowdown=(1 + margin) * (1 + usual.gap) - 1)
        if verdict.suspicious and same_program:
            verdict = replace(verdict, outcome="same", decided_by="program", suspicious=False)
    verdict = replace(verdict, slow_baseline=gain and verdict.outcome == "same")
    notes = _outcome_notes(verdict, usual)
    return replace(verdict, notes=(*verdict.notes, *notes)) if notes else verdict


def held_against_anchor(
    verdict: Verdict,
    now: Session,
    anchor: Series,
    *,
    kind: str,
    benchmarks: int,
    prior: Spread | None = None,
    drift: float | None = None,
    alpha: float = ALPHA,
) -> Verdict:
    """Turn ``same`` into ``drifted`` where accepted steps have added up against the pinned anchor.

    The distance is that of the stored baseline from the anchor's sessions, and the change that
    the verdict found on top. Drifted is a distance whose lower bound is above ``drift`` (a
    fraction, else that of the kind), with the error of all sessions that it rests on. An anchor
    measured under other conditions or another compiler says nothing, which is noted.
    """
    if verdict.change is None or verdict.baseline_median is None:
        return verdict
    found = comparable(now, anchor)
    if found.outcome is not None:
        why = "; ".join(found.notes)
        return replace(verdict, notes=(*verdict.notes, f"the anchor cannot be compared: {why}"))
    usual = expected(kind)
    tolerated = math.log1p(usual.drift if drift is None else checked_margin(drift))
    base = consensus([math.log(s.estimate.median) for s in found.sessions], prior or usual.session)
    distance = math.log(verdict.baseline_median) + math.log1p(verdict.change) - base.centre
    # A duet's change does not rest on the new session.
    sessions = 1 / base.n + (1 / verdict.sessions if verdict.decided_by == "duet" else 1)
    reach = base.sd * math.sqrt(sessions) * student_quantile(1 - alpha / benchmarks, base.df)
    verdict = replace(verdict, drift=math.expm1(distance))
    if verdict.outcome not in DRIFTS or distance - reach <= tolerated:
        return verdict
    since = found.sessions[-1].date
    note = (
        f"{math.expm1(distance):.1%} slower than the anchor of {since}, "
        f"{math.expm1(tolerated):.1%} is tolerated: pin another anchor to accept that"
    )
    return replace(verdict, outcome="drifted", decided_by="anchor", notes=(*verdict.notes, note))


def _screened(
    now: Session,
    reference: Series,
    usual: Expected,
    margin: float,
    benchmarks: int,
    prior: Spread | None,
    alpha: float,
) -> Verdict:
    against = comparable(now, reference)
    notes = [*against.notes, *_program_notes(now, reference.newest)]
    if against.outcome is not None:
        # Only a changed program can be slower; what else changed is no fault of the kernel.
        changed = now.program != reference.program
        return Verdict(
            against.outcome, decided_by="conditions", notes=tuple(notes), suspicious=changed
        )
    if now.estimate.n < LEAST_SAMPLES:
        notes.append(f"{now.estimate.n} samples are too few: {LEAST_SAMPLES} are needed")
        return Verdict("withheld", decided_by="conditions", notes=tuple(notes))
    result = screen(
        now.estimate.median,
        [session.estimate.median for session in against.sessions],
        expected=usual,
        margin=margin,
        benchmarks=benchmarks,
        prior=prior,
        alpha=alpha,
        excess=_excess_error(now, against.sessions),
    )
    notes += _odd_notes(now, against.sessions, result)
    if result.spread > NOISY * usual.session.sd:
        notes.append(
            f"sessions scatter by {result.spread:.1%}, where {usual.session.sd:.1%} is expected: "
            "only larger slowdowns can be seen without a duet"
        )
    provisional = result.used < FULL_BASELINE
    change = math.expm1(result.change)
    return Verdict(
        result.outcome,
        change=change,
        low=math.expm1(result.change - result.reach),
        high=math.expm1(result.change + result.reach),
        threshold=math.expm1(result.threshold),
        decided_by="prior" if provisional else "sessions",
        baseline_median=math.exp(result.centre),
        sessions=result.used,
        provisional=provisional,
        smallest_slowdown=math.expm1(result.smallest),
        notes=tuple(notes),
        suspicious=result.suspicious,
        stored_change=change,
    )


def _of_duet(verdict: Verdict, finding: Finding, margin: float) -> Verdict:
    return replace(
        verdict,
        outcome=finding.outcome,
        change=math.expm1(finding.change),
        low=math.expm1(finding.low),
        high=math.expm1(finding.high),
        threshold=math.expm1(math.log1p(margin) + finding.high - finding.change),
        decided_by="duet",
        provisional=False,
        smallest_slowdown=math.expm1(finding.smallest),
        suspicious=False,
        workers=finding.workers,
        odd_workers=finding.odd,
        rounds=finding.rounds,
    )


def comparable(now: Session, reference: Series) -> Comparable:
    """Choose the sessions of a series that were measured as the new one was.

    Sessions whose device, benchmark, seed, recipe or settings differ are left out; where no other
    is left the verdict is withheld. Of the rest those of the same epoch (compiler, driver) count;
    where there is none the benchmark is new again, because the old time says nothing of this
    kernel under that compiler.
    """
    conditions, toolchain = now.conditions, epoch(now.environment)
    # Nearly all are equal: that is seen without building what names the differences.
    same = _AS_CONDITIONS(now)
    alike = [
        s
        for s in reference.sessions
        if _AS_CONDITIONS(s) == same or not differing(s.conditions, conditions)
    ]
    if not alike:
        why = _differences(reference.newest.conditions, now.conditions)
        return Comparable((), "withheld", (f"it was stored under other conditions: {why}",))
    notes = []
    if len(alike) < len(reference.sessions):
        count = len(reference.sessions) - len(alike)
        notes.append(f"{count} stored under other conditions are left out")
    tools = [*map(now.environment.get, EPOCH_KEYS)]
    current = [
        s
        for s in alike
        if [*map(s.environment.get, EPOCH_KEYS)] == tools
        or not differing(epoch(s.environment), toolchain)
    ]
    if not current:
        newest = alike[-1]
        why = _differences(epoch(newest.environment), toolchain)
        ratio = now.estimate.median / newest.estimate.median - 1
        notes.append(f"new epoch: {why}; the median is {ratio:+.1%} of the one before")
        return Comparable((), "new", tuple(notes))
    if len(current) < len(alike):
        notes.append(f"{len(alike) - len(current)} of earlier epochs are left out")
    return Comparable(tuple(current), notes=tuple(notes))


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


def _outcome_notes(verdict: Verdict, usual: Expected) -> list[str]:
    notes = []
    if verdict.provisional:
        notes.append(f"provisional: {verdict.sessions} of {FULL_BASELINE} sessions")
    if verdict.odd_workers:
        notes.append(f"{verdict.odd_workers} workers of the duet are odd and left out")
    if verdict.outcome == "inconclusive":
        notes.append(
            f"{verdict.workers} workers of the duet do not agree well enough to tell"
            if verdict.decided_by == "duet"
            else f"the noise is above the {usual.session.sd:.1%} expected of this kind of device"
        )
    if verdict.decided_by == "duet" and verdict.outcome == "same" and verdict.stored_change:
        notes.append(
            f"{verdict.stored_change:+.1%} against the stored sessions, but not side by side with "
            "the stored kernel: the machine changed, or was disturbed"
        )
    if verdict.decided_by == "program":
        notes.append(
            "source, launch, compiler and driver are those stored last: what changed since is the "
            "machine, or what disturbed it"
        )
    if verdict.slow_baseline:
        notes.append(
            "the stored sessions are slower than this one, and would hide a slowdown: store it "
            "too, with --gemm-baseline update"
        )
    if verdict.outcome == "faster" and not (verdict.against and not verdict.sessions):
        notes.append("store the gain with --gemm-baseline update")
    return notes


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """``compiler 12.2 -> 13.1, seed 0 -> 1``."""
    return ", ".join(f"{key} {before.get(key)} -> {now.get(key)}" for key in differing(before, now))
