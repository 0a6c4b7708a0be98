"""What a program does without CUDA: plain C functions, and Python functions on NumPy arrays.

Memory, checks and sampling are those of the host back end; only what is launched differs.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pytest_gemm.backends.base import (
    Argument,
    CudaProgram,
    Device,
    Executable,
    LaunchConfig,
    Matrix,
    Program,
    PythonProgram,
)
from pytest_gemm.backends.host import HostBackend
from pytest_gemm.backends.host.compiler import Compiler, find_compiler
from pytest_gemm.backends.host.memory import HostBuffer
from pytest_gemm.errors import BackendError, CompileError
from pytest_gemm.scratch import scratch

FLAGS = ("-O2", "-std=gnu11", "-fPIC", "-x", "c")
"""What people build with: nothing that names a CPU, nothing that loosens arithmetic."""

# The call goes through a pointer that the compiler cannot see through: each launch is done.
_LOOP = """
#include <time.h>
double gemm_seconds(const float *A, const float *B, float *C, int M, int N, int K, long launches)
{
    void (*volatile function)(const float *, const float *, float *, int, int, int) = %s;
    struct timespec start, end;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
    for (long launch = 0; launch < launches; ++launch)
        function(A, B, C, M, N, K);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    return (double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec);
}
"""

Seconds = Callable[..., float]


class SerialExecutable:
    """A C function ``void (const float *A, const float *B, float *C, int M, int N, int K)``."""

    facts: Mapping[str, Any] = {}

    def __init__(self, seconds: Seconds) -> None:
        self.seconds = seconds


class SerialBackend(HostBackend):
    """Times C functions by the thread's CPU time, Python functions by the clock on the wall.

    A library that Python calls may use every core: what one waits for is what counts then.
    """

    @property
    def device(self) -> Device:
        """This machine's CPU. Raises BackendError where no compiler works."""
        device = super().device
        return replace(device, environment={**device.environment, "flags": " ".join(FLAGS)})

    def compile(self, program: Program) -> Executable:
        """Build ``entry`` of a C source. Raises CompileError, BackendError."""
        if isinstance(program, PythonProgram):
            return super().compile(program)
        return SerialExecutable(_build(program, find_compiler(self._wanted_compiler)))

    def time(
        self,
        executable: Executable,
        config: LaunchConfig,
        arguments: Sequence[Argument],
        *,
        launches: int = 1,
        cold: bool = False,
        timeout: float = 60.0,
    ) -> float:
        """Seconds of that many calls; the grid is not looked at, and ``timeout`` does not end one.

        Raises KernelFault for what a Python function raises, BackendError for a cold launch.
        """
        if isinstance(executable, SerialExecutable) and not cold:
            return executable.seconds(*map(_value, arguments), launches)
        started = time.perf_counter()
        super().time(executable, config, arguments, launches=launches, cold=cold, timeout=timeout)
        return time.perf_counter() - started


def _value(argument: Argument) -> Any:
    if isinstance(argument, Matrix):
        assert isinstance(argument.buffer, HostBuffer)
        return argument.buffer.bytes.ctypes.data + argument.offset
    return argument


def _build(program: CudaProgram, compiler: Compiler) -> Seconds:
    with scratch() as folder:
        source = program.source + _LOOP % program.entry
        (folder / "serial.c").write_text(source, encoding="utf-8")
        done = replace(compiler, flags=FLAGS, links_apart=True).build(
            folder, ["serial.c"], "serial.so"
        )
        if done.returncode != 0:
            raise CompileError(
                f"{program.filename}: {compiler.name} cannot build it\n{done.stdout}"
            )
        try:
            library = ctypes.CDLL(str(folder / "serial.so"))
        except OSError as error:
            raise BackendError(f"a compiled C function cannot be loaded: {error}") from error
    function = library.gemm_seconds
    function.argtypes = [*[ctypes.c_void_p] * 3, *[ctypes.c_int] * 3, ctypes.c_long]
    function.restype = ctypes.c_double
    return function
