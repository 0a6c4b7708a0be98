"""What the cases of one run share: the back end and the stored facts, and how a case passes."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property

from pytest_gemm import backends
from pytest_gemm.against import open_opponents
from pytest_gemm.backends.base import Backend, Device
from pytest_gemm.backends.choice import choose_backend
from pytest_gemm.baselines import BaselineStore
from pytest_gemm.case import Case
from pytest_gemm.collection import Collection
from pytest_gemm.errors import BaselineError, ConfigError, GemmError
from pytest_gemm.exact import changes
from pytest_gemm.executor import open_executor
from pytest_gemm.function import Function
from pytest_gemm.judging import SURE, Judge, disturbance
from pytest_gemm.limiting import within_limits
from pytest_gemm.options import BASELINE, Options
from pytest_gemm.record import Record
from pytest_gemm.report.verdict import explain
from pytest_gemm.result import Result
from pytest_gemm.static.gate import held_against_stored, since_opponent, since_stored
from pytest_gemm.tolerance import Tolerance
from pytest_gemm.verdict import Verdict

SUSPICIOUS = frozenset({"slower", "inconclusive"})
"""Outcomes that are not taken from one attempt."""

NOT_COMPARED = (
    "its bits may differ from run to run (deterministic = false) and it is not timed, so that "
    "nothing of it can be compared: time it with --gemm-bench, or set deterministic = true if "
    "they never do"
)


class GemmSession:
    """Has cases run and holds them against what is stored.

    ``project`` gives all its kernels and cases. ``shared``: other processes take part in the same
    run, as under pytest-xdist. Raises ConfigError where the options contradict each other.
    """

    def __init__(
        self,
        options: Options,
        progress: Callable[[str], None],
        project: Callable[[], Collection],
        *,
        shared: bool = False,
    ) -> None:
        self.options = options
        self.choice = choose_backend(options.device)
        self.store = BaselineStore(options.baselines)
        self.executor = open_executor(options, self.choice, progress, shared=shared)
        kind = self.choice.kind
        self._opponents = open_opponents(options, kind, lambda: project().registry)
        tolerance = Tolerance(
            self.store.calibration_path, run=options.margin, project=options.project_margin
        )
        self._judge = Judge(
            self.store,
            self.executor,
            tolerance,
            self._opponents,
            forced=options.against == BASELINE,
            cases=lambda: sum(case.settings.timed for case in project().cases.values()),
        )
        self._progress = progress

    @cached_property
    def backend(self) -> Backend:
        """A back end in this process, for what a test does itself. Raises ConfigError."""
        if self.choice.ssh:
            raise ConfigError(
                f"--gemm-device={self.options.device}: gemm_device is memory of this machine"
            )
        gpu = self.choice.gpus[0] if self.choice.gpus else 0
        return backends.open_backend(self.choice.kind, self._progress, gpu)

    def close(self) -> None:
        """End what runs cases, and give back the devices."""
        self.executor.close()
        if self._opponents:
            self._opponents.close()

    def header(self) -> list[str]:
        """What stands above the tests: devices, compiler, baseline. Raises DeviceBusyError."""
        try:
            devices = self.executor.devices()
        except GemmError as error:
            return [f"gemm: {error}"]
        lines = [_described(device) for device in devices]
        for name in dict.fromkeys(device.name for device in devices):
            stored = len(self.store.benchmarks(name))
            lines.append(f"gemm: baseline {self.options.baseline}: {stored} stored for {name}")
        if revision := self.options.revision:
            now = "the working tree, with uncommitted changes," if revision.is_dirty else "this"
            lines.append(f"gemm: {now} is measured against {revision}")
        if self.options.architectures and self.options.check != "full":
            names = ", ".join(self.options.architectures)
            lines.append(f"gemm: machine code for {names} is inspected with --gemm-check=full only")
        return [*lines, f"gemm: {self.choice.hint}"] if self.choice.hint else lines

    def expect(self, cases: Sequence[tuple[Case, Function | None]]) -> None:
        """Say what will be checked, in order. Raises DeviceBusyError."""
        with suppress(GemmError):  # each case says so itself
            self.executor.expect(cases)

    def check(self, case: Case, function: Function | None = None, target: str = "") -> Record:
        """Verify a case, time it if that is asked for, and hold it against what is stored.

        ``function`` is a Python kernel's callable, ``target`` what pytest is told to run the case
        again. Errors of the kernel, the back end and the stored files end up in the record. A
        suspicious time that no duet can look into is taken twice, and the faster attempt counts:
        what else the machine did may have slowed the other one. Raises DeviceBusyError.
        """
        record = self._attempt(case, function, target)
        decided = record.verdict is not None and record.verdict.decided_by in SURE
        if record.gate not in SUSPICIOUS or decided:
            return record
        again = self._attempt(case, function, target)
        if again.result.estimate is None or record.result.estimate is None:
            return again
        return min(record, again, key=_median)

    def _attempt(self, case: Case, function: Function | None, target: str) -> Record:
        try:
            result = self.executor.run(case, function)
        except GemmError as error:
            return Record(case, Result("failed", str(error)), "failed", message=str(error))
        if case.settings.architecture:
            mode, accept = self.options.baseline, self._accept(target)
            return held_against_stored(case, result, self.store, mode=mode, accept=accept)
        if result.outcome != "passed":
            return self._unfinished(case, result)
        record = self._held_against_stored(case, function, result, target)
        return within_limits(record, strict=self.options.baseline == "strict")

    def _unfinished(self, case: Case, result: Result) -> Record:
        """A case that failed or was skipped; under strict, one with a baseline must not skip."""
        if result.outcome == "skipped" and self.options.baseline == "strict":
            device = result.device["name"]
            try:
                stored = self.store.reference(device, case.kernel.id, case.id)
                reason = "but a baseline is stored" if stored else ""
            except BaselineError as error:
                reason = f"and what is stored cannot be read: {error}"
            if reason:
                message = f"{case.title}: skipped ({result.message}), {reason}"
                return Record(case, result, "failed", message=message)
        return Record(case, result, result.outcome, message=result.message)

    def _held_against_stored(
        self, case: Case, function: Function | None, result: Result, target: str
    ) -> Record:
        mode = self.options.baseline
        timed = result.estimate is not None
        if mode == "off":
            return Record(case, result, "passed", "ungated" if timed else "")
        duets = mode != "update"
        verdict = self._judge.verdict(case, function, result, duets=duets) if timed else None
        if mode == "update":
            # What was disturbed would be a baseline that hides slowdowns.
            gate = "withheld" if disturbance(result) else "stored"
            return Record(case, result, "passed", gate if timed else "", verdict=verdict)
        messages = []
        try:
            messages += self._changed_facts(case, result, self._accept(target))
        except BaselineError as error:
            # A regression stays one; otherwise nothing is said while a fact is unreadable.
            if verdict is None or not verdict.fails():
                verdict = Verdict("withheld", notes=(str(error),))
        if verdict and verdict.fails(strict=mode == "strict"):
            commands = self._repeat(target), self._accept(target)
            messages.append(explain(case, result, verdict, *commands))
            if verdict.fails():
                messages += filter(None, [self._changed_code(case, function, result)])
        gate = verdict.outcome if verdict else ""
        if mode == "strict" and verdict is None and not result.digest:
            # Its traffic is the kernel's, and says nothing of this problem.
            gate = "ungated"
            messages.append(f"{case.title}: ungated: {NOT_COMPARED}")
        message = "\n".join(messages)
        return Record(case, result, _outcome(message), gate, message, verdict)

    def _changed_facts(self, case: Case, result: Result, accept: str) -> list[str]:
        strict = self.options.baseline == "strict"
        return [
            f"{case.title}: {change}; accept with: {accept}"
            for change in changes(case, result, self.store, strict=strict)
        ]

    def _changed_code(self, case: Case, function: Function | None, result: Result) -> str:
        if self._opponents is None:
            return since_stored(case, result, self.store)
        return since_opponent(self._opponents.find(case, function).case.kernel, case, result)

    def _accept(self, target: str) -> str:
        """The command that stores what this case measures."""
        return self._repeat(target, "--gemm-baseline=update")

    def _repeat(self, target: str, instead: str = "") -> str:
        """The command that runs just this case again, or does something else ``instead``."""
        options = self.options
        against = f"--gemm-against={options.against}" if options.against else ""
        words = ["pytest", *["--gemm-bench"] * options.bench]
        words += [f"--gemm-size={size}" for size in options.sizes]
        words += ["--gemm-cache=cold"] * options.cold
        words += ["--gemm-check=full"] * (options.check == "full")
        words += [f"--gemm-margin={100 * m:g}" for m in (options.margin,) if m is not None]
        return shlex.join([*words, target, *filter(None, [instead or against])])


def _described(device: Device) -> str:
    named = {key: device.environment.get(key) for key in ("compiler", "driver", "nvrtc", "uuid")}
    versions = ", ".join(f"{key} {value}" for key, value in named.items() if value)
    return f"gemm: {device.kind}: {device.description}; {versions}"


def _median(record: Record) -> float:
    assert record.result.estimate is not None
    return record.result.estimate.median


def _outcome(message: str) -> str:
    return "failed" if message else "passed"
