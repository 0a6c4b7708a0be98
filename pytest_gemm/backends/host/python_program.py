"""Kernels that are Python callables: they get NumPy views of the operands."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_gemm.backends.base import Argument, Matrix, PythonProgram, exception_fault, name_of
from pytest_gemm.backends.host.memory import HostBuffer
from pytest_gemm.bits import visible
from pytest_gemm.errors import CompileError

_calls: Iterator[int] = iter(())


def _no_more_calls() -> None:
    deque(_calls, maxlen=0)


# A process that a kernel forks must not go on where the kernel returns.
os.register_at_fork(after_in_child=_no_more_calls)


class PythonExecutable:
    """A callable, ready to be launched."""

    facts: Mapping[str, Any] = {}

    def __init__(self, program: PythonProgram) -> None:
        self._program = program

    def time(self, arguments: Sequence[Argument], launches: int) -> float:
        """The process' CPU seconds of all calls.

        Raises KernelFault for whatever the callable raises, except KeyboardInterrupt, which is
        not its own.
        """
        global _calls
        function, parameters = self._program.function, self._program.parameters
        if len(arguments) != len(parameters):
            raise CompileError(
                f"{name_of(function)} takes {len(parameters)} arguments ({', '.join(parameters)}) "
                f"and was given {len(arguments)}"
            )
        values = [_array(a) if isinstance(a, Matrix) else a for a in arguments]
        process, _calls = os.getpid(), iter(range(launches))
        started = time.process_time()
        try:
            for _ in _calls:
                function(*values)
            return time.process_time() - started
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise exception_fault(error, function) from error
        finally:
            if os.getpid() != process:
                _end_forked(name_of(function))


def _array(matrix: Matrix) -> npt.NDArray[Any]:
    """A view into the buffer: writing to it writes the matrix."""
    assert isinstance(matrix.buffer, HostBuffer)
    dtype = visible(matrix.dtype)
    shape, steps = matrix.view
    strides = tuple(step * dtype.itemsize for step in steps)
    return np.ndarray(shape, dtype, matrix.buffer.bytes.data, matrix.offset, strides)


def _end_forked(name: str) -> None:
    if error := sys.exception():
        traceback.print_exception(error)
    print(f"{name} forked a process, which did not end: it was ended", file=sys.stderr, flush=True)
    os._exit(1)
