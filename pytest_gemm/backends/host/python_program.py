"""Kernels that are Python callables: they get NumPy views of the operands."""

from __future__ import annotations

import time
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_gemm.backends.base import Argument, Matrix, PythonProgram
from pytest_gemm.backends.host.memory import HostBuffer
from pytest_gemm.errors import CompileError, KernelFault


class PythonExecutable:
    """A callable, ready to be launched."""

    facts: Mapping[str, Any] = {}

    def __init__(self, program: PythonProgram) -> None:
        self._program = program

    def time(self, arguments: Sequence[Argument], launches: int) -> float:
        """The process' CPU seconds of all calls. Raises KernelFault for an exception of theirs."""
        function, parameters = self._program.function, self._program.parameters
        if len(arguments) != len(parameters):
            raise CompileError(
                f"{_name(function)} takes {len(parameters)} arguments ({', '.join(parameters)}) "
                f"and was given {len(arguments)}"
            )
        values = [_array(a) if isinstance(a, Matrix) else a for a in arguments]
        started = time.process_time()
        try:
            for _ in range(launches):
                function(*values)
        except (Exception, SystemExit) as error:
            raise _fault(error, _name(function)) from error
        return time.process_time() - started


def _array(matrix: Matrix) -> npt.NDArray[Any]:
    """A view of ``rows`` x ``columns`` into the buffer: writing to it writes the matrix."""
    assert isinstance(matrix.buffer, HostBuffer)
    dtype = np.dtype(matrix.dtype)
    strides = (matrix.ld * dtype.itemsize, dtype.itemsize)
    shape = (matrix.rows, matrix.columns)
    return np.ndarray(shape, dtype, matrix.buffer.bytes.data, matrix.offset, strides)


def _fault(error: BaseException, name: str) -> KernelFault:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{frame.filename}:{frame.lineno}"
    return KernelFault("exception", f"{where}: {name} raised {type(error).__name__}: {error}")


def _name(function: object) -> str:
    return getattr(function, "__name__", None) or repr(function)
