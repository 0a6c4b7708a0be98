"""Launching one kernel on operands in a back end's memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from random import Random

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
from pytest_gemm.timing import Place

LEAST_PADDING, MOST_PADDING = 2**21, 2**23
"""Bytes that are left between one place and the next: a GPU maps memory in pages of 2 MiB."""

MOST_HELD = 2**26
"""Bytes that earlier places may take: more would not be elsewhere any better."""


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
        arguments = arguments_of(self.kernel, workspace)
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


@contextmanager
def placements(launcher: Launcher, problem: Problem, data: Operands, seed: int) -> Iterator[Place]:
    """The launcher's times on operands at another place at each call: see ``workspaces``."""
    with workspaces(launcher.backend, problem, data, seed) as elsewhere:
        yield lambda: partial(launcher.time, elsewhere())


@contextmanager
def workspaces(
    backend: Backend, problem: Problem, data: Operands, seed: int
) -> Iterator[Callable[[], Workspace]]:
    """Operands at another place of the memory at each call, the same places in every run.

    Earlier places stay taken for a while, as an allocator likes to give again what was freed last.
    At the end all is freed.
    """
    random = Random(seed)
    contents = Workspace(backend, problem)
    contents.put(data)
    held: deque[tuple[int, ExitStack]] = deque()

    with ExitStack() as everything:

        def elsewhere() -> Workspace:
            padding = ALIGNMENT * random.randint(
                LEAST_PADDING // ALIGNMENT, MOST_PADDING // ALIGNMENT
            )
            nbytes = padding + contents.nbytes
            while held and nbytes + sum(taken for taken, _ in held) > MOST_HELD:
                held.popleft()[1].close()
            memory = everything.enter_context(ExitStack())
            memory.enter_context(_padding(backend, padding))
            workspace = memory.enter_context(contents.elsewhere())
            workspace.upload()
            held.append((nbytes, memory))
            return workspace

        yield elsewhere


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


def arguments_of(kernel: Kernel, workspace: Workspace) -> list[Argument]:
    """What a launch is given. Raises SpecError."""
    return [_argument(workspace, value) for value in kernel.arguments(workspace.problem)]


def _argument(workspace: Workspace, value: str | int | float) -> Argument:
    if not isinstance(value, str):
        return value
    return workspace.matrix(value) if value in BUFFERS else None


def program_of(kernel: Kernel, function: Callable[..., object] | None) -> Program:
    """What a back end compiles; ``function`` is the callable of a Python kernel."""
    if function is not None:
        return PythonProgram(function, kernel.args)
    return CudaProgram(*kernel.program_fields)
