"""Back ends: the ways to run a kernel. ``base`` is the seam, ``choice`` picks one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pytest_gemm.backends.base import Backend, PythonProgram
    from pytest_gemm.backends.host import HostBackend
    from pytest_gemm.problem import Problem


class Reference(NamedTuple):
    """A vendor's routine: ``work`` are the flops (gemm) or bytes (add) that it does.

    ``program`` makes it for products like a problem's.
    """

    name: str
    program: Callable[[Problem], PythonProgram]
    work: Callable[[Problem], int]


def open_backend(kind: str, progress: Callable[[str], None], gpu: int = 0) -> Backend:
    """Make the back end of that kind; ``progress`` is told of one-time set-up that takes long.

    Kinds are those of ``choice``, and ``serial``: see ``serial.SerialBackend``. ``gpu`` counts the
    GPUs that the process sees.
    """
    if kind == "cuda":
        from pytest_gemm.backends.cuda import CudaBackend

        return CudaBackend(gpu, progress)
    if kind == "serial":
        from pytest_gemm.backends.serial import SerialBackend

        return SerialBackend(progress=progress)
    from pytest_gemm.backends.host import HostBackend

    return HostBackend(progress=progress)


def open_watcher(backend: Backend, progress: Callable[[str], None]) -> HostBackend:
    """The CPU's back end, which can watch every access of a launch: this one, if it is that."""
    from pytest_gemm.backends.host import HostBackend

    return backend if isinstance(backend, HostBackend) else HostBackend(progress=progress)


def reference_programs(kind: str) -> Mapping[str, Reference]:
    """The vendor's routines of a kind of device, by operation; none for a CPU."""
    if kind != "cuda":
        return {}
    from pytest_gemm.backends.cuda.reference import copy_program, cublas_program

    def copied(problem: Problem) -> int:
        """A copy reads A and writes C."""
        types = problem.types
        return problem.M * problem.N * (types["A"].itemsize + types["C"].itemsize)

    return {
        "gemm": Reference("cublas", cublas_program, lambda problem: problem.flops),
        "add": Reference("copy", lambda _: copy_program(), copied),
    }
