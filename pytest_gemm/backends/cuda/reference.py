"""Programs that say what the GPU can do: a copy of memory, and cuBLAS."""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from typing import Any

from pytest_gemm.backends.base import PythonProgram
from pytest_gemm.backends.cuda.cublas import PLAIN, load_cublas
from pytest_gemm.errors import BackendError
from pytest_gemm.problem import Problem

LARGE = 1 << 29
"""Bytes from which on a kernel copies. A graph's own copy of so much takes 1.55 times as long for
some sizes, and not for others, on an H200 (``benchmarks/gpu/copies.py``)."""

VECTOR, THREADS = 16, 256
"""Bytes of a ``float4``; threads of a block."""

_COPY = """
extern "C" __global__ void copy(const float4* A, float4* C, long long count)
{
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) C[i] = A[i];
}
"""


def copy_program() -> PythonProgram:
    """``C = A`` from device to device; moves twice the bytes of A."""
    return PythonProgram(_copy, ("A", "C", "stream"))


def cublas_program(problem: Problem = PLAIN) -> PythonProgram:
    """A product like the problem's by cuBLAS, whatever its sizes.

    For types other than float32 with tensor cores, where it sees fit. Raises BackendError where
    TF32 was asked for float32.
    """
    for name in ("CUPY_TF32", "NVIDIA_TF32_OVERRIDE"):
        if problem.dtype == "float32" and os.environ.get(name, "0") not in ("", "0"):
            raise BackendError(f"{name} is set: cuBLAS would not compute in float32; unset it")

    def multiply(A: Any, B: Any, C: Any, stream: Any) -> None:
        if cublas := load_cublas(A.device.id):
            cublas.multiply(A, B, C, stream.ptr, problem)
        elif problem.label.endswith("-float32"):
            # Right, but CuPy lets nothing of cuBLAS be captured.
            import_module("cupy").matmul(A, B, out=C)
        else:
            raise BackendError(f"cuBLAS cannot be loaded for {problem.label}")

    return PythonProgram(multiply, ("A", "B", "C", "stream"))


def _copy(A: Any, C: Any, stream: Any) -> None:
    if not (A.flags.c_contiguous and C.flags.c_contiguous):
        C[...] = A
        return
    vectors = A.nbytes // VECTOR
    if A.nbytes < LARGE or (A.data.ptr | C.data.ptr) % VECTOR:
        vectors = 0
    if vectors:
        blocks = -(-vectors // THREADS)
        _copier()((blocks,), (THREADS,), (A, C, vectors), stream=stream)
    if rest := A.nbytes - vectors * VECTOR:
        start = vectors * VECTOR
        (C.data + start).copy_from_device_async(A.data + start, rest, stream)


@cache
def _copier() -> Any:
    return import_module("cupy").RawKernel(_COPY, "copy")
