"""Programs that say what the GPU can do: a copy of memory, and cuBLAS."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from pytest_gemm.backends.base import PythonProgram
from pytest_gemm.backends.cuda.cublas import load_cublas
from pytest_gemm.errors import BackendError


def copy_program() -> PythonProgram:
    """``C = A`` from device to device; moves twice the bytes of A."""
    return PythonProgram(_copy, ("A", "C", "stream"))


def cublas_program() -> PythonProgram:
    """``C = A B`` by cuBLAS in float32. Raises BackendError where TF32 was asked for."""
    for name in ("CUPY_TF32", "NVIDIA_TF32_OVERRIDE"):
        if os.environ.get(name, "0") not in ("", "0"):
            raise BackendError(f"{name} is set: cuBLAS would not compute in float32; unset it")
    return PythonProgram(_multiply, ("A", "B", "C", "stream"))


def _copy(A: Any, C: Any, stream: Any) -> None:
    if A.flags.c_contiguous and C.flags.c_contiguous:
        C.data.copy_from_device_async(A.data, A.nbytes, stream)
    else:
        C[...] = A


def _multiply(A: Any, B: Any, C: Any, stream: Any) -> None:
    if cublas := load_cublas(A.device.id):
        cublas.multiply(A, B, C, stream.ptr)
    else:  # right, but CuPy lets nothing of cuBLAS be captured
        import_module("cupy").matmul(A, B, out=C)
