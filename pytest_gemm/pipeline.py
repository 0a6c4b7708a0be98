"""How one case is run: the page to read first.

operands -> compile -> verify exactly -> verify on the timed data -> sample -> verify again
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from pytest_gemm.backends.base import (
    Argument,
    Backend,
    CudaProgram,
    Executable,
    LaunchConfig,
    Program,
    PythonProgram,
)
from pytest_gemm.case import Case
from pytest_gemm.correctness import check_exactly, check_timed, exact_problems
from pytest_gemm.device import Workspace
from pytest_gemm.errors import GemmError
from pytest_gemm.kernelspec import Kernel
from pytest_gemm.matrices import operands
from pytest_gemm.result import Result
from pytest_gemm.stats import summarize
from pytest_gemm.timing import SamplingPlan, take_samples

TIMED_RECIPE = "uniform"
"""The recipe of the operands that are timed, and whose C is digested."""

Function = Callable[..., object]


def run_case(case: Case, backend: Backend, function: Function | None = None) -> Result:
    """Run one case; what the kernel or the device does wrong is in the result.

    ``function`` is the callable of a Python kernel. Raises BackendError where the device cannot
    be used at all.
    """
    device = backend.device
    if reason := case.kernel.skip_reason(case.problem):
        result = Result("skipped", f"{case.kernel.id} on {case.problem.id}: {reason}")
    else:
        try:
            result = _verify_and_time(case, backend, function)
        except GemmError as error:
            result = Result("failed", _titled(case, str(error)))
    about = {"kind": device.kind, "name": device.name, "description": device.description}
    return replace(result, device=about, environment=dict(device.environment))


def _verify_and_time(case: Case, backend: Backend, function: Function | None) -> Result:
    kernel, problem, settings = case.kernel, case.problem, case.settings
    executable = backend.compile(_program(kernel, function))
    launcher = _Launcher(kernel, backend, executable, settings.launch_timeout)

    suite = exact_problems(kernel.op, kernel.scalars, kernel.uses_ld)
    small = [exact for exact in suite if not kernel.skip_reason(exact)]
    for exact in small or [problem]:
        check_exactly(launcher.once, backend, exact, settings.seed, kernel=kernel.id)

    data = operands(problem, settings.seed, TIMED_RECIPE)
    with Workspace(backend, problem) as workspace:
        workspace.load(data)
        check = partial(
            check_timed,
            launcher.once,
            workspace,
            data,
            kernel=kernel.id,
            deterministic=kernel.deterministic,
        )
        before = check()
        if not settings.timed:
            return Result("passed", digest=before.digest)
        plan = SamplingPlan(settings.precision, settings.time_cap)
        samples = take_samples(lambda launches: launcher.time(workspace, launches), plan)
        check(verified=before)
    return Result(
        "passed",
        digest=before.digest,
        samples=samples.seconds,
        launches=samples.launches,
        estimate=summarize(samples.seconds),
    )


@dataclass(frozen=True)
class _Launcher:
    """Launches one executable on the matrices of a workspace, whatever their problem."""

    kernel: Kernel
    backend: Backend
    executable: Executable
    timeout: float

    def once(self, workspace: Workspace) -> None:
        self.time(workspace, 1)

    def time(self, workspace: Workspace, launches: int) -> float:
        """Seconds of that many launches. Raises SpecError, KernelFault, CompileError."""
        problem = workspace.problem
        grid, block, shared_mem = self.kernel.launch(problem)
        arguments: list[Argument] = [
            workspace.matrix(value) if isinstance(value, str) else value
            for value in self.kernel.arguments(problem)
        ]
        return self.backend.time(
            self.executable,
            LaunchConfig(grid, block, shared_mem),
            arguments,
            launches=launches,
            timeout=self.timeout,
        )


def _program(kernel: Kernel, function: Function | None) -> Program:
    if function is not None:
        return PythonProgram(function, kernel.args)
    return CudaProgram(*kernel.program_fields)


def _titled(case: Case, text: str) -> str:
    """The text, with the kernel and the shape in its first line if they are not there yet."""
    title = f"{case.kernel.id} on "
    return text if text.startswith(title) else f"{title}{case.problem.id}: {text}"
