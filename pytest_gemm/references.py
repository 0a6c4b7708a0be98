"""What the vendor's own routines reach on a problem: the yardstick beside a kernel's rate."""

from __future__ import annotations

from pytest_gemm.backends import reference_programs
from pytest_gemm.backends.base import Backend
from pytest_gemm.case import Case
from pytest_gemm.errors import GemmError
from pytest_gemm.kernelspec import Kernel
from pytest_gemm.pipeline import time_reference
from pytest_gemm.problem import Problem
from pytest_gemm.reuse import Reuse


class References:
    """Measures each problem once per run, when a case of it was timed."""

    def __init__(self, backend: Backend, reuse: Reuse) -> None:
        self._backend = backend
        self._reuse = reuse
        self._programs = reference_programs(backend.kind)
        self._rates: dict[tuple[Problem, bool], float] = {}

    def fraction(self, case: Case, seconds: float) -> dict[str, float]:
        """The kernel's rate over the reference's, by name: ``percent_of_cublas``.

        Empty where the device has no such routine, or it failed.
        """
        if case.problem.op not in self._programs:
            return {}
        name, program_for, work = self._programs[case.problem.op]
        key = (case.problem, case.settings.cold)
        if key not in self._rates:
            program = program_for(case.problem)
            kernel = Kernel(name, op=case.problem.op, args=program.parameters, callable=name)
            try:
                taken = time_reference(
                    *(kernel, program.function, case.problem),
                    *(self._backend, case.settings, self._reuse),
                )
            except GemmError:
                taken = float("inf")
            self._rates[key] = work(case.problem) / taken
        if not self._rates[key]:
            return {}
        own = case.problem.bytes if case.problem.op == "add" else case.problem.flops
        return {f"percent_of_{name}": 100 * own / seconds / self._rates[key]}
