"""Kernels that are Python callables: they get CuPy arrays and the stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pytest_gemm.backends.base import (
    Argument,
    LaunchConfig,
    Matrix,
    PythonProgram,
    exception_fault,
    name_of,
)
from pytest_gemm.backends.cuda.api import Api
from pytest_gemm.backends.cuda.memory import DeviceBuffer
from pytest_gemm.backends.cuda.queue import Queue
from pytest_gemm.bits import visible
from pytest_gemm.errors import CompileError


class PythonExecutable:
    """A callable, ready to be launched with our stream as CuPy's current one."""

    facts: Mapping[str, Any] = {}

    def __init__(self, api: Api, queue: Queue, program: PythonProgram) -> None:
        self._api = api
        self._queue = queue
        self._function = program.function
        self._parameters = program.parameters
        self.name = name_of(program.function)

    def prepare(self, config: LaunchConfig, arguments: Sequence[Argument]) -> Callable[[], None]:
        """A callable that calls the function once; it raises KernelFault for its exceptions."""
        if len(arguments) != len(self._parameters):
            raise CompileError(
                f"{self.name} takes {len(self._parameters)} arguments "
                f"({', '.join(self._parameters)}) and was given {len(arguments)}"
            )
        with self._queue.guarded():
            values = [self._value(argument) for argument in arguments]
        function, stream, errors = self._function, self._queue.cupy_stream, self._api.errors

        def launch() -> None:
            try:
                with stream:
                    function(*values)
            except errors:
                raise
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                raise exception_fault(error, function) from error

        return launch

    def _value(self, argument: Argument) -> Any:
        if isinstance(argument, Matrix):
            return self._array(argument)
        return self._queue.cupy_stream if argument is None else argument

    def _array(self, matrix: Matrix) -> Any:
        """A view into the buffer: writing to it writes the matrix."""
        buffer = matrix.buffer
        assert isinstance(buffer, DeviceBuffer)
        cupy = self._api.cupy
        memory = cupy.cuda.UnownedMemory(buffer.address, buffer.nbytes, buffer)
        pointer = cupy.cuda.MemoryPointer(memory, matrix.offset)
        dtype = visible(matrix.dtype)
        shape, steps = matrix.view
        strides = tuple(step * dtype.itemsize for step in steps)
        return cupy.ndarray(shape, dtype, memptr=pointer, strides=strides)
