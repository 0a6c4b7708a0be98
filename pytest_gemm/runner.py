"""Runs cases one after another on one back end, and keeps what they share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pytest_gemm.backends.base import Backend
from pytest_gemm.case import Case
from pytest_gemm.pipeline import run_case
from pytest_gemm.references import References
from pytest_gemm.result import Result
from pytest_gemm.reuse import Reuse


class Runner:
    """A kernel's exact suite and a problem's reference rate are run once, operands are kept."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self._reuse = Reuse()
        self._references = References(backend, self._reuse)

    def run(self, case: Case, function: Callable[..., object] | None = None) -> Result:
        """``pipeline.run_case``, with the part of the reference's rate among the counters.

        Raises BackendError where the device cannot be used at all.
        """
        result = run_case(case, self.backend, function, self._reuse)
        if result.estimate is None:
            return result
        fraction = self._references.fraction(case, result.estimate.median)
        return replace(result, counters={**result.counters, **fraction})
