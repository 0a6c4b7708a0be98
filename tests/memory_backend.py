"""A back end for tests: buffers are NumPy arrays, kernels are Python functions on views of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from pytest_gemm.backends.base import (
    Argument,
    Backend,
    Buffer,
    Bytes,
    Device,
    Executable,
    LaunchConfig,
    Matrix,
    Program,
    PythonProgram,
)
from pytest_gemm.bits import visible
from pytest_gemm.device import Workspace
from pytest_gemm.errors import BackendError, CompileError, KernelFault
from pytest_gemm.matrices import Float32


@dataclass(eq=False)
class MemoryBuffer:
    data: Bytes

    @property
    def nbytes(self) -> int:
        return self.data.nbytes


@dataclass
class MemoryExecutable:
    program: PythonProgram
    facts: Mapping[str, Any] = field(default_factory=dict)


class MemoryBackend(Backend):
    """Keeps its live buffers in ``buffers``; refuses to hold more than ``capacity`` bytes."""

    kind = "memory"

    def __init__(self, capacity: int = 2**30) -> None:
        self.capacity = capacity
        self.buffers: list[MemoryBuffer] = []

    @property
    def device(self) -> Device:
        return Device("memory", "memory", "NumPy arrays")

    def compile(self, program: Program) -> MemoryExecutable:
        if not isinstance(program, PythonProgram):
            raise CompileError("the memory back end runs Python functions only")
        return MemoryExecutable(program)

    def allocate(self, nbytes: int) -> MemoryBuffer:
        if sum(b.nbytes for b in self.buffers) + nbytes > self.capacity:
            raise BackendError(f"no memory for {nbytes} bytes")
        raw = np.zeros(nbytes + 256, np.uint8)
        start = -raw.ctypes.data % 256
        buffer = MemoryBuffer(raw[start : start + nbytes])
        self.buffers.append(buffer)
        return buffer

    def free(self, buffer: Buffer) -> None:
        assert isinstance(buffer, MemoryBuffer)
        self.buffers.remove(buffer)

    def upload(self, buffer: Buffer, data: Bytes) -> None:
        assert buffer in self.buffers
        assert data.shape == (buffer.nbytes,)
        _data(buffer)[:] = data

    def download(self, buffer: Buffer) -> Bytes:
        assert buffer in self.buffers
        return _data(buffer).copy()

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
        assert isinstance(executable, MemoryExecutable)
        values = [view(a) if isinstance(a, Matrix) else a for a in arguments]
        start = time.perf_counter()
        for _ in range(launches):
            try:
                executable.program.function(*values)
            except Exception as error:
                raise KernelFault("exception", repr(error)) from error
        return time.perf_counter() - start

    def conditions(self) -> Mapping[str, Any]:
        return {}


def view(matrix: Matrix) -> Any:
    """The matrix in its buffer, writable, as a Python kernel is given it."""
    values = _data(matrix.buffer)[matrix.offset :].view(visible(matrix.dtype))
    shape, steps = matrix.view
    return as_strided(values, shape, [step * values.itemsize for step in steps])


def surroundings(matrix: Matrix, before: int = 0) -> Float32:
    """All that follows the matrix's start (or ``before`` elements ahead of it), as a pointer."""
    return _data(matrix.buffer)[matrix.offset - 4 * before :].view(np.float32)


def _data(buffer: Buffer) -> Bytes:
    assert isinstance(buffer, MemoryBuffer)
    return buffer.data


def launching(function: Callable[..., object]) -> Callable[[Workspace], None]:
    """Run ``function(A, B, C)`` on a workspace: arrays, or Matrix where it annotates them so."""
    raw = "Matrix" in str(function.__annotations__)

    def run(workspace: Workspace) -> None:
        matrices = [workspace.matrix(name) for name in "ABC"]
        function(*(matrices if raw else map(view, matrices)))

    return run
