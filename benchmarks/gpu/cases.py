"""The nine cases of the method's measurements, ready to be launched, on the CPU too.

The shipped kernels, and cuBLAS as the references have it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pytest_gemm.backends.base import Backend, LaunchConfig, PythonProgram
from pytest_gemm.case import Settings
from pytest_gemm.kernelspec import Kernel
from pytest_gemm.launching import Launcher, arguments_of, loaded, program_of
from pytest_gemm.matrices import Operands, operands
from pytest_gemm.pipeline import TIMED_RECIPE
from pytest_gemm.problem import Problem
from pytest_gemm.registry import Registry, load_registry

ROOT = Path(__file__).parents[2]

NINE = (
    "add 256",
    "add 1024",
    "tiled 256",
    "cublas 256",
    "register_blocked 512",
    "cublas 1024",
    "add 4096",
    "tiled 1024",
    "register_blocked 2048",
)
"""A kernel and the size of a square problem, the quickest first."""


@dataclass(frozen=True)
class Prepared:
    """A compiled case with its operands in the host's memory; seconds of what that took."""

    name: str
    launcher: Launcher
    problem: Problem
    data: Operands
    compile_s: float
    operands_s: float

    @contextmanager
    def queueing(self) -> Iterator[Callable[[], None]]:
        """A callable that queues one launch on a CUDA back end's stream, and does not wait."""
        launcher, problem = self.launcher, self.problem
        executable: Any = launcher.executable
        config = LaunchConfig(*launcher.kernel.launch(problem))
        with loaded(launcher.backend, problem, self.data) as workspace:
            yield executable.prepare(config, arguments_of(launcher.kernel, workspace))


def prepare(backend: Backend, names: Sequence[str], most: int | None = None) -> list[Prepared]:
    """Compile the cases and make their operands; sizes are cut to ``most``, for a rehearsal."""
    return [_prepare(backend, name, most) for name in names]


def _prepare(backend: Backend, name: str, most: int | None) -> Prepared:
    kernel_name, size = name.split()
    kernel, function = _kernel(backend.kind, kernel_name)
    problem = Problem.parse(str(min(int(size), most or int(size))), kernel.op)
    started = time.perf_counter()
    executable = backend.compile(program_of(kernel, function))
    compiled = time.perf_counter()
    data = operands(problem, 0, TIMED_RECIPE)
    made = time.perf_counter()
    launcher = Launcher(kernel, backend, executable, Settings().launch_timeout)
    return Prepared(name, launcher, problem, data, compiled - started, made - compiled)


def _kernel(kind: str, name: str) -> tuple[Kernel, Callable[..., object] | None]:
    if name != "cublas":
        return next(k for k in _registry().kernels(kind) if k.id == name), None
    program = _library(kind)
    return Kernel(name, op="gemm", args=program.parameters, callable=name), program.function


def _library(kind: str) -> PythonProgram:
    if kind != "cuda":
        return PythonProgram(_matmul, ("A", "B", "C"))
    from pytest_gemm.backends.cuda.reference import cublas_program

    return cublas_program()


@cache
def _registry() -> Registry:
    return load_registry((ROOT / "kernels",), ROOT)


def _matmul(A: Any, B: Any, C: Any) -> None:
    C[...] = A @ B
