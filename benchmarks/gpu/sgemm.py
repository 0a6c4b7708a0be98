"""cuBLAS called directly, so that it can be captured in a graph: CuPy refuses to."""

from __future__ import annotations

import ctypes
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from pytest_gemm.backends.base import PythonProgram

_NOT_TRANSPOSED = 0
_ONE, _ZERO = ctypes.c_float(1), ctypes.c_float(0)


def sgemm_program() -> PythonProgram:
    """``C = A B`` by ``cublasSgemm`` in float32, for rows without gaps."""
    return PythonProgram(_sgemm, ("A", "B", "C", "stream"))


def _sgemm(A: Any, B: Any, C: Any, stream: Any) -> None:
    library, handle = _cublas()
    _check(library.cublasSetStream_v2(handle, ctypes.c_void_p(stream.ptr)))
    (M, K), N = A.shape, B.shape[1]
    # By columns, as cuBLAS reads them, these are the transposed matrices: C^T = B^T A^T.
    status = library.cublasSgemm_v2(
        *(handle, _NOT_TRANSPOSED, _NOT_TRANSPOSED, N, M, K, ctypes.byref(_ONE)),
        *(ctypes.c_void_p(B.data.ptr), N, ctypes.c_void_p(A.data.ptr), K),
        *(ctypes.byref(_ZERO), ctypes.c_void_p(C.data.ptr), N),
    )
    _check(status)


@cache
def _cublas() -> tuple[Any, ctypes.c_void_p]:
    """The library that CuPy loads, and a handle of our own."""
    import_module("cupy.cuda.device").get_cublas_handle()
    lines = Path("/proc/self/maps").read_text().splitlines()
    library = ctypes.CDLL(next(line.split()[-1] for line in lines if "/libcublas.so" in line))
    handle = ctypes.c_void_p()
    _check(library.cublasCreate_v2(ctypes.byref(handle)))
    return library, handle


def _check(status: int) -> None:
    if status:
        raise RuntimeError(f"cuBLAS failed with status {status}")
