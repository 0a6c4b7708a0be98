"""Launching one kernel on operands in a back end's memory."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
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
from pytest_gemm.device import ALIGNMENT, Workspace
from pytest_gemm.errors import KernelFault
from pytest_gemm.kernelspec import BUFFERS, Kernel
from pytest_gemm.matrices import Operands
from pytest_gemm.problem import Problem
from pytest_gemm.timing import TimeLaunches

MOST_PADDING = 4096
"""Operands are placed anew behind up to so many times ``ALIGNMENT`` bytes."""


@dataclass(frozen=True)
class Launcher:
    """Launches one executable on the matrices of a workspace, whatever their problem."""

    kernel: Kernel
    backend: Backend
    executable: Executable
    timeout: float
    cold: bool = False

    def once(self, workspace: Workspace) -> None:
        self.time(workspace, 1)

    def time(self, workspace: Workspace, launches: int) -> float:
        """Seconds of that many launches. Raises SpecError, KernelFault, CompileError."""
        problem = workspace.problem
        arguments: list[Argument] = [
            _argument(workspace, value) for value in self.kernel.arguments(problem)
        ]
        try:
            return self.backend.time(
                self.executable,
                LaunchConfig(*self.kernel.launch(problem)),
                arguments,
                launches=launches,
                cold=self.cold,
                timeout=self.timeout,
            )
        except KernelFault as fault:
            raise fault.titled(f"{self.kernel.id} on {problem.id}") from fault


def placements(
    launcher: Launcher, problem: Problem, data: Operands, seed: int
) -> Callable[[], AbstractContextManager[TimeLaunches]]:
    """Operands at another place of the memory each time, the same places in every run."""
    paddings = random.Random(seed)

    @contextmanager
    def place() -> Iterator[TimeLaunches]:
        with (
            _padding(launcher.backend, ALIGNMENT * paddings.randint(1, MOST_PADDING)),
            loaded(launcher.backend, problem, data) as workspace,
        ):
            yield partial(launcher.time, workspace)

    return place


@contextmanager
def _padding(backend: Backend, nbytes: int) -> Iterator[None]:
    buffer = backend.allocate(nbytes)
    try:
        yield
    finally:
        backend.free(buffer)


@contextmanager
def loaded(backend: Backend, problem: Problem, data: Operands) -> Iterator[Workspace]:
    """A workspace that holds the operands."""
    with Workspace(backend, problem) as workspace:
        workspace.load(data)
        yield workspace


def _argument(workspace: Workspace, value: str | int | float) -> Argument:
    if not isinstance(value, str):
        return value
    return workspace.matrix(value) if value in BUFFERS else None


def program_of(kernel: Kernel, function: Callable[..., object] | None) -> Program:
    """What a back end compiles; ``function`` is the callable of a Python kernel."""
    if function is not None:
        return PythonProgram(function, kernel.args)
    return CudaProgram(*kernel.program_fields)
