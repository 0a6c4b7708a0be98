"""Programs that say what the GPU can do: a copy of memory, and cuBLAS."""

from __future__ import annotations

import os
from typing import Any

from pytest_gemm.backends.base import PythonProgram
from pytest_gemm.errors import BackendError


def copy_program() -> PythonProgram:
    """``C = A`` from device to device; moves twice the bytes of A."""
    return PythonProgram(_copy, ("A", "C", "stream"))


def cublas_program() -> PythonProgram:
    """``C = A B`` by cuBLAS in float32. Raises BackendError where CuPy was told to use TF32."""
    if os.environ.get("CUPY_TF32", "0") not in ("", "0"):
        raise BackendError("CUPY_TF32 is set: cuBLAS would not compute in float32; unset it")
    return PythonProgram(_matmul, ("A", "B", "C"))


def _copy(A: Any, C: Any, stream: Any) -> None:
    if A.flags.c_contiguous and C.flags.c_contiguous:
        C.data.copy_from_device_async(A.data, A.nbytes, stream)
    else:
        C[...] = A


def _matmul(A: Any, B: Any, C: Any) -> None:
    from importlib import import_module

    import_module("cupy").matmul(A, B, out=C)
