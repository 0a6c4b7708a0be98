"""A process that launches readings of a kernel, so that none of them can harm the one that asks.

Requests and answers are lines of JSON. ``["source", path, text, name]`` says what is read, and is
answered with ``"ready"``. ``["try", table, problem, timeout]`` launches once with every access
watched, and is answered with the fields of an ``Attempt``; ``["check", table, timeout]`` is what
pytest would do, and is answered with the failure, or an empty text. A reading that the project's
own rules forbid, or that does not compile, is an answer too; ``{"refused": text}`` says why nothing
can be launched here.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt

from pytest_gemm.adopt.attempt import Attempt, Extent, Seen
from pytest_gemm.backends.base import CudaProgram, LaunchConfig
from pytest_gemm.backends.host import HostBackend
from pytest_gemm.backends.host.check import Finding
from pytest_gemm.bits import rounded
from pytest_gemm.checking import Checker
from pytest_gemm.correctness import check_timed, exact_suite
from pytest_gemm.declaration import read_kernel
from pytest_gemm.device import poisons
from pytest_gemm.errors import BackendError, CompileError, GemmError
from pytest_gemm.frontmatter import Table
from pytest_gemm.kernelspec import SCALARS, Kernel
from pytest_gemm.launching import Launcher, arguments_of, loaded
from pytest_gemm.matrices import Operands, operands, reference
from pytest_gemm.problem import STRIDES, Problem

PR_SET_PDEATHSIG = 1

SEED = 0
LEAST_FITTED = 8
"""How many different results must lie on a line for its slope to be alpha."""
READY = "ready"


@dataclass
class Trial:
    """Launches readings of one source."""

    backend: HostBackend = field(default_factory=HostBackend)
    path: str = ""
    text: str = ""
    name: str = ""

    def answer(self, what: str, *wanted: Any) -> Any:
        if what == "source":
            self.path, self.text, self.name = wanted
            return READY
        return self.attempt(*wanted) if what == "try" else self.check(*wanted)

    def attempt(
        self, table: Mapping[str, Any], problem: Mapping[str, Any], timeout: float
    ) -> dict[str, Any]:
        """Launch once; see ``Attempt``."""
        try:
            kernel = self._kernel(table)
            return asdict(self._launched(kernel, _problem(kernel, problem), timeout))
        except BackendError:
            raise
        except GemmError as error:
            text = str(error).splitlines()[0]
            compiles = not isinstance(error, CompileError)
            return asdict(Attempt(impossible=text, does_not_compile=not compiles))

    def check(self, table: Mapping[str, Any], timeout: float) -> str:
        """What the whole check says: nothing, or a text whose first line is complete in itself."""
        try:
            kernel = self._kernel(table)
            checked = Checker(self.backend, "full", SEED, timeout).check(kernel)
            failure = checked.failure or checked.unchecked
            if not failure and kernel.dtype != "int8":
                self._check_rounded(kernel, timeout)
        except BackendError:
            raise
        except GemmError as error:
            return str(error)
        return failure

    def _check_rounded(self, kernel: Kernel, timeout: float) -> None:
        """Raise WrongResultError where sums of numbers that are not whole err by too much.

        Whole numbers do not tell in which type a kernel computes.
        """
        suite = exact_suite(kernel)
        if not suite:
            return
        problem = max(suite, key=lambda problem: problem.K)
        executable = self.backend.compile(CudaProgram(*kernel.program_fields))
        launcher = Launcher(kernel, self.backend, executable, timeout)
        data = operands(problem, SEED, "uniform")
        with loaded(self.backend, problem, data) as workspace:
            check_timed(
                launcher.once,
                workspace,
                data,
                kernel=kernel.id,
                deterministic=kernel.deterministic,
            )

    def _kernel(self, table: Mapping[str, Any]) -> Kernel:
        spec = read_kernel(
            Table(table, 1, {}),
            path=self.path,
            source=self.text,
            filename=self.path,
            default_name=self.name,
        )
        return spec.kernels("host")[0]

    def _launched(self, kernel: Kernel, problem: Problem, timeout: float) -> Attempt:
        program, config = CudaProgram(*kernel.program_fields), LaunchConfig(*kernel.launch(problem))
        data, expected = _prepared(problem)
        with loaded(self.backend, problem, data) as workspace:
            if not problem.reads_c:
                # A finite number that no result comes near.
                workspace.fill(poisons(problem.out_dtype)[1])
            before = workspace.read().astype(np.float64)
            report = self.backend.check(
                program,
                config,
                arguments_of(kernel, workspace),
                timeout=timeout,
                names=dict(enumerate(kernel.args, start=1)),
            )
            after = workspace.read().astype(np.float64)
            strays = workspace.violations()
        seen = tuple(map(_seen, report.findings))
        if strays and not seen:
            seen = tuple(
                Seen("stray", str(stray), 0, 1 + kernel.args.index(stray.buffer))
                for stray in strays
            )
        changed, wrong = after != before, after != expected
        perhaps = changed | (expected == before)
        alpha, beta = 1.0, 0.0
        if changed.any() and wrong.any() and not problem.reads_c:
            for a, b in ((1.0, 1.0), _scalars(expected[changed], before[changed], after[changed])):
                scaled = rounded(a * expected + b * before, problem.out_dtype)
                if a and (after == scaled)[changed].all():
                    alpha, beta = a, b
                    perhaps |= scaled == before
                    break
        return Attempt(
            fault=str(report.fault or ""),
            seen=seen,
            wrong=int(wrong.sum()),
            wrong_written=int((wrong & changed).sum()),
            alpha=alpha,
            beta=beta,
            extent=_extent(changed, perhaps),
        )


def _problem(kernel: Kernel, fields: Mapping[str, Any]) -> Problem:
    """The problem as the kernel declares it, with what it takes of scalars, batch and strides."""
    taken = {*kernel.scalars, *kernel.uses_batch}
    problem = kernel.of_kind(Problem(**fields))
    batch = fields["batch"] if kernel.uses_batch else 1
    own = {name: fields[name] for name in (*SCALARS, *STRIDES) if name in taken}
    return replace(problem, **{**dict.fromkeys(STRIDES, 0), **own}, batch=batch)


def _scalars(
    product: npt.NDArray[np.float64],
    before: npt.NDArray[np.float64],
    after: npt.NDArray[np.float64],
) -> tuple[float, float]:
    """alpha and beta of ``after = alpha product + beta before`` by two of the elements; zeros where
    these few prove nothing. ``before`` is one number throughout."""
    if len(np.unique(product)) < LEAST_FITTED or not np.isfinite(after).all():
        return 0.0, 0.0
    low, high = product.argmin(), product.argmax()
    alpha = (after[high] - after[low]) / (product[high] - product[low])
    return float(alpha), float((after[low] - alpha * product[low]) / before[low])


@lru_cache(maxsize=32)
def _prepared(problem: Problem) -> tuple[Operands, npt.NDArray[np.float64]]:
    data = operands(problem, SEED, "integers")
    exact = reference(problem, data)
    return data, np.asarray(rounded(exact, problem.out_dtype), np.float64)


def _seen(finding: Finding) -> Seen:
    return Seen(finding.kind, str(finding), finding.line, finding.argument or 0)


def _extent(changed: npt.NDArray[np.bool_], perhaps: npt.NDArray[np.bool_]) -> Extent:
    """Where C changed; ``perhaps`` has the elements that a launch may write without a change."""
    if not changed.any():
        return Extent()
    rows, columns = (np.flatnonzero(changed.any(axis=axis)) for axis in (1, 0))
    first_row, last_row = int(rows[0]), int(rows[-1]) + 1
    first_column, last_column = int(columns[0]), int(columns[-1]) + 1
    block = perhaps[first_row:last_row, first_column:last_column]
    return Extent(
        (first_row, last_row),
        (first_column, last_column),
        float(block.mean()),
        _run(changed, perhaps),
        _run(changed.T, perhaps.T),
    )


def _run(changed: npt.NDArray[np.bool_], perhaps: npt.NDArray[np.bool_]) -> int:
    last = int(np.flatnonzero(changed.ravel())[-1]) + 1
    return last if perhaps.ravel()[:last].all() else 0


def main(requests: TextIO, answers: TextIO) -> None:
    """Answer requests until there are no more."""
    trial = Trial()
    for line in requests:
        try:
            answer = trial.answer(*json.loads(line))
        except BackendError as error:
            answer = {"refused": str(error)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # What a kernel prints is no answer.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    main(sys.stdin, answers)
