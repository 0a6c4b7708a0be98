"""What is said of a timed case: the stored sessions are asked first, then the stored kernel.

Unless it is to be measured against another kernel: then that alone decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from pytest_gemm.against import NoOpponent, Opponents
from pytest_gemm.baselines import BaselineStore, Series, Session, epoch, source_hash
from pytest_gemm.case import Case
from pytest_gemm.conditions import differences, withhold_reason
from pytest_gemm.duet import Duet, Finding, order_of
from pytest_gemm.errors import BaselineError, ConfigError, GemmError
from pytest_gemm.executor import Executor
from pytest_gemm.function import Function, Runnable
from pytest_gemm.kernelspec import Kernel
from pytest_gemm.margin import expected
from pytest_gemm.pipeline import BUILD, TIMED_RECIPE
from pytest_gemm.result import Result
from pytest_gemm.revival import stored_kernel
from pytest_gemm.screen import device_spread
from pytest_gemm.stats import Spread, median
from pytest_gemm.tolerance import Tolerance
from pytest_gemm.verdict import Verdict, held_against_anchor, judge

METHOD = "rounds of 8 in fresh allocations"
"""How times are taken; times of another method are not compared."""

SURE = frozenset({"duet", "program"})
"""Grounds on which a verdict rests without the stored times."""

Weigh = partial[Verdict]
"""``verdict.judge`` of one case, without what tells of duets."""


class Judge:
    """Judges results against a store; duets are run by the executor.

    ``tolerance`` is None for the devices' own margins. ``opponents``, where there are any,
    take the place of what is stored; ``forced``: the stored kernel is measured again even where
    the stored times are sure. ``cases`` counts those of the project, for where none is stored.
    """

    def __init__(
        self,
        store: BaselineStore,
        executor: Executor,
        tolerance: Tolerance | None,
        opponents: Opponents | None = None,
        *,
        forced: bool = False,
        cases: Callable[[], int] = lambda: 1,
    ) -> None:
        self._store = store
        self._executor = executor
        self._tolerance = tolerance or Tolerance(store.calibration_path)
        self._opponents = opponents
        self._forced = forced
        self._cases = cases
        self._spreads: dict[str, Spread] = {}

    def verdict(
        self, case: Case, function: Function | None, result: Result, *, duets: bool = True
    ) -> Verdict:
        """Judge a timed result. Stored facts or settings that cannot be read withhold the verdict.

        ``duets``: whether one is worth its time. Raises DeviceBusyError.
        """
        try:
            if self._opponents is not None:
                return self._against(self._opponents, case, function, result)
            return self._verdict(case, function, result, duets and self._executor.can_duet)
        except (BaselineError, ConfigError) as error:
            return Verdict("withheld", notes=(str(error),))

    def _verdict(
        self, case: Case, function: Function | None, result: Result, duets: bool
    ) -> Verdict:
        now = session_of(case, result, datetime.now(UTC), commit=None)
        reference = self._store.reference(now.device, now.kernel, now.benchmark)
        stored = self._store.benchmarks(now.device)
        kind = result.device["kind"]
        if reference is None:
            return _new(now, stored, self._store.devices(kind), result)
        weigh = partial(
            judge,
            now,
            reference,
            kind=kind,
            benchmarks=max(1, len(stored)),
            margin=self._tolerance.margin(case.kernel, kind, now.device),
            prior=self._spread(now.device, kind),
        )
        same_program = not case.kernel.is_python and _is_same_binary(now, reference.newest)
        verdict = weigh(duets=duets, same_program=same_program and not self._forced)
        if (verdict.suspicious or self._forced) and duets:
            verdict = self._dueled(weigh, case, function, now, reference)
        if verdict.decided_by not in SURE:
            baseline = [session.environment for session in reference.sessions]
            verdict = _withheld(verdict, disturbance(result, baseline))
        verdict = self._drifted(weigh, verdict, now)
        if verdict.fails():
            notes = differences(reference.newest.environment, now.environment)
            verdict = replace(verdict, notes=(*verdict.notes, *notes))
        return verdict

    def _drifted(self, weigh: Weigh, verdict: Verdict, now: Session) -> Verdict:
        """The verdict, or ``drifted`` where accepted steps have added up since the anchor."""
        anchor = self._store.anchor(now.device, now.kernel, now.benchmark)
        if anchor is None:
            return verdict
        same = {key: weigh.keywords[key] for key in ("kind", "benchmarks", "prior")}
        return held_against_anchor(verdict, now, anchor, **same)

    def _spread(self, device: str, kind: str) -> Spread:
        """How much sessions scatter on a device, from all that is stored for it."""
        if device not in self._spreads:
            series = ([*map(math.log, medians)] for medians in self._store.medians(device))
            self._spreads[device] = device_spread(series, expected(kind))
        return self._spreads[device]

    def _dueled(
        self,
        weigh: Weigh,
        case: Case,
        function: Function | None,
        now: Session,
        reference: Series,
    ) -> Verdict:
        """The verdict where the sessions are not sure: what the two kernels do side by side."""
        try:
            old = Runnable(self._stored(case, reference.newest))
            finding, _ = self._measured(weigh, old, Runnable(case, function), now)
        except GemmError as error:
            alone = weigh(duets=False)
            reason = f"no duet: {_first_line(error)}"
            if self._forced and not alone.fails():
                return _withheld(alone, reason)
            return replace(alone, notes=(*alone.notes, reason))
        against = f"the kernel stored on {reference.newest.date[:10]}" if self._forced else ""
        return weigh(finding=finding, against=against)

    def _against(
        self, opponents: Opponents, case: Case, function: Function | None, result: Result
    ) -> Verdict:
        """What a duet with the opponent says; nothing stored takes part."""
        now = session_of(case, result, datetime.now(UTC), commit=None)
        kind = result.device["kind"]
        weigh = partial(
            judge,
            now,
            None,
            kind=kind,
            # Fixed, whatever is selected.
            benchmarks=len(self._store.benchmarks(now.device)) or max(1, self._cases()),
            margin=self._tolerance.margin(case.kernel, kind, now.device),
            against=opponents.name,
        )
        try:
            opponent = opponents.find(case, function)
            if _is_same_program(opponent.case, case):
                note = f"source and launch are those of {opponents.name}"
                return Verdict("same", decided_by="program", notes=(note,), against=opponents.name)
            new = Runnable(case, function)
            finding, seconds = self._measured(weigh, opponent, new, now)
        except NoOpponent as error:
            return Verdict(error.outcome, notes=(str(error),), against=opponents.name)
        except GemmError as error:
            note = f"no duet against {opponents.name}: {_first_line(error)}"
            return Verdict("withheld", notes=(note,), against=opponents.name)
        verdict = weigh(finding=finding)
        notes = (*opponent.notes, *verdict.notes)
        return replace(verdict, baseline_median=seconds, notes=notes)

    def _measured(
        self, weigh: Weigh, old: Runnable, new: Runnable, now: Session
    ) -> tuple[Finding, float]:
        """What a duet finds, and the old kernel's median seconds in it. Raises GemmError."""
        kind = weigh.keywords["kind"]
        duet = Duet.on(
            kind,
            margin=weigh.keywords["margin"],
            benchmarks=weigh.keywords["benchmarks"],
            seconds=now.estimate.median,
            calibration=self._tolerance.calibration(now.device),
        )
        seconds: list[float] = []
        while round_ := duet.next_round:
            workers = self._executor.duet(old, new, round_)
            duet = duet.with_round(workers)
            seconds += (
                time
                for placements in workers
                for blocks in placements
                for i, block in enumerate(blocks)
                for letter, time in zip(order_of(i), block, strict=True)
                if letter == "A"
            )
        return duet.finding, median(seconds)

    def _stored(self, case: Case, session: Session) -> Case:
        source = "" if case.kernel.is_python else self._store.source(session.source)
        return replace(case, kernel=stored_kernel(case.kernel, session.launch, source))


def disturbance(result: Result, baseline: Sequence[Mapping[str, Any]] = ()) -> str:
    """Why this result's times cannot be used, or an empty text."""
    before, after = (result.conditions.get(when, {}) for when in ("before", "after"))
    return withhold_reason(before, after, baseline)


def session_of(case: Case, result: Result, when: datetime, commit: str | None) -> Session:
    """What of a timed result is stored for its device."""
    kernel = case.kernel
    assert result.estimate is not None
    return Session(
        device=result.device["name"],
        kernel=kernel.id,
        benchmark=case.id,
        date=when.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z",
        estimate=result.estimate,
        launches=result.launches,
        seed=case.settings.seed,
        recipe=TIMED_RECIPE,
        source=source_of(kernel),
        launch={
            "entry": kernel.entry,
            "params": dict(kernel.params),
            "args": list(kernel.args),
            "block": list(kernel.block),
            "grid": list(kernel.grid),
            "shared_mem": kernel.shared_mem,
        },
        environment={
            **result.environment,
            **{name: result.counters[name] for name in BUILD if name in result.counters},
            **result.conditions.get("after", {}),
        },
        settings={"method": METHOD},
        commit=commit,
    )


def source_of(kernel: Kernel) -> str:
    """What names a kernel's source in a session; empty where there is none."""
    code = kernel.code
    return source_hash(code) if code else ""


def _new(now: Session, stored: Sequence[str], others: Sequence[str], result: Result) -> Verdict:
    note = "nothing is stored for it on this device"
    if not stored and others:
        note = f"stored for {', '.join(others)}, this is {now.device}"
    return _withheld(Verdict("new", notes=(note,)), disturbance(result))


def _withheld(verdict: Verdict, reason: str) -> Verdict:
    if not reason:
        return verdict
    return replace(verdict, outcome="withheld", notes=(reason, *verdict.notes))


def _is_same_binary(now: Session, before: Session) -> bool:
    return now.program == before.program and epoch(now.environment) == epoch(before.environment)


def _is_same_program(old: Case, new: Case) -> bool:
    """Whether two cases launch the same, both compiled here; of Python not even the text tells."""
    kernels = old.kernel, new.kernel
    return not new.kernel.is_python and kernels[0].source_hash == kernels[1].source_hash


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
