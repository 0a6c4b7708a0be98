"""Runs cases one after another on one back end, and keeps what they share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

from pytest_gemm.backends import open_watcher
from pytest_gemm.backends.base import Backend
from pytest_gemm.case import Case, Settings
from pytest_gemm.checking import Checked, Checker
from pytest_gemm.dueling import Times, duet_times
from pytest_gemm.duet import Round
from pytest_gemm.errors import BackendError, GemmError
from pytest_gemm.function import Runnable
from pytest_gemm.pipeline import run_case
from pytest_gemm.references import References
from pytest_gemm.result import Result
from pytest_gemm.reuse import Reuse
from pytest_gemm.static.inspection import Inspector
from pytest_gemm.static.toolchain import find_toolchain


class Runner:
    """Kernels are checked once, references timed once, and operands kept.

    ``progress`` is told of one-time set-up that takes long.
    """

    def __init__(self, backend: Backend, progress: Callable[[str], None]) -> None:
        self.backend = backend
        self._progress = progress
        self._reuse = Reuse()
        self._references = References(backend, self._reuse)
        self._checkers: dict[Settings, Checker] = {}

    def run(self, case: Case, function: Callable[..., object] | None = None) -> Result:
        """Check the kernel on the CPU, then run the case, as ``pipeline.run_case`` does.

        The part of the reference's rate is among the counters. Raises BackendError where the
        device cannot be used at all.
        """
        if case.settings.architecture:
            return self._inspected(case)
        checked = self._check(case)
        if checked.failure:
            return Result("failed", checked.failure).on(self.backend.device)
        result = run_case(case, self.backend, function, self._reuse)
        result = replace(result, traffic=checked.traffic, unchecked=checked.unchecked)
        if result.estimate is None:
            return result
        fraction = self._references.fraction(case, result.estimate.median)
        return replace(result, counters={**result.counters, **fraction})

    def duet(self, old: Runnable, new: Runnable, round_: Round, worker: int) -> Times:
        """``dueling.duet_times`` here. Raises BackendError."""
        return duet_times(old, new, self.backend, round_, worker=worker, reuse=self._reuse)

    def _inspected(self, case: Case) -> Result:
        """What the machine code says, its facts as counters; skipped where nothing compiles."""
        device = self.backend.device
        try:
            code = self._inspector.inspect(case.kernel, case.settings.architecture)
        except BackendError as error:
            return Result("skipped", f"{case.title}: {error}").on(device)
        except GemmError as error:
            return Result("failed", f"{case.title}: {error}").on(device)
        found = Result("passed", digest=code.digest, counters=code.facts).on(device)
        return replace(found, environment={"toolchain": code.toolchain})

    @cached_property
    def _inspector(self) -> Inspector:
        return Inspector(find_toolchain())

    def _check(self, case: Case) -> Checked:
        if case.settings.check == "off" or case.kernel.is_python:
            return Checked()
        try:
            return self._checker(case.settings).check(case.kernel)
        except BackendError as error:
            if self.backend.kind == "host":
                raise
            return Checked(unchecked=str(error))

    def _checker(self, settings: Settings) -> Checker:
        if settings not in self._checkers:
            watcher = open_watcher(self.backend, self._progress)
            self._checkers[settings] = Checker(
                watcher, settings.check, settings.seed, settings.launch_timeout
            )
        return self._checkers[settings]
