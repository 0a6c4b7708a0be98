"""cuBLAS called directly, so that its launches can be captured in a graph: CuPy refuses to."""

from __future__ import annotations

import ctypes
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from pytest_gemm.bits import encode
from pytest_gemm.errors import BackendError
from pytest_gemm.problem import Problem

WORKSPACE = 2**25
"""Bytes of scratch memory: what NVIDIA recommends for Hopper, and more than older GPUs use."""

PLACES, PAGE = 16, 2**21
"""Where the scratch memory of a launch may begin: a page further for each new C."""

_DEFAULT_MATH = 0  # sums of float32 in float32: there, tensor cores would have to be asked for
_DEFAULT_ALGORITHM = -1
_TRANSPOSITIONS = {"N": 0, "T": 1}

# cudaDataType, and cublasComputeType_t.
_TYPES = {"float32": 0, "float64": 1, "float16": 2, "int8": 3, "int32": 10, "bfloat16": 14}
_COMPUTE = {"float16": 64, "float32": 68, "float64": 70, "int32": 72}

PLAIN = Problem("gemm", 1, 1, 1)
"""What is computed where nothing else is said: ``C = A B``, row-major, in float32."""


class Cublas:
    """A handle of the library on the current device.

    ``library`` has C functions that return a status; ``memory`` is ``WORKSPACE + PLACES * PAGE``
    bytes on the device, as CuPy's ``Memory``. Without scratch memory of our own, captured launches
    would allocate some; at one place only, it would give each process a time of its own.
    """

    def __init__(self, library: Any, memory: Any) -> None:
        self._library = library
        self._memory = memory
        self._places: dict[int, int] = {}
        self._handle = ctypes.c_void_p()
        self._call("cublasCreate_v2", ctypes.byref(self._handle))
        self._call("cublasSetMathMode", self._handle, _DEFAULT_MATH)

    def multiply(self, A: Any, B: Any, C: Any, stream: int, problem: Problem = PLAIN) -> None:
        """Queue a product like the problem's, of the sizes that the arrays have.

        They are what a Python kernel is given. Raises BackendError for a status that is no
        success, as where cuBLAS has no routine for such a product.
        """
        # A new stream takes the workspace away, so that comes second.
        self._call("cublasSetStream_v2", self._handle, ctypes.c_void_p(stream))
        place = self._places.setdefault(C.data.ptr, len(self._places) % PLACES)
        scratch = ctypes.c_void_p(self._memory.ptr + place * PAGE)
        size = ctypes.c_size_t(WORKSPACE)
        self._call("cublasSetWorkspace_v2", self._handle, scratch, size)
        by_columns = problem.layout == "column-major"
        M, N = C.shape[-2:]
        K = A.shape[-1 if problem.transa == "N" else -2]
        first, second = _Operand(A, problem, "A"), _Operand(B, problem, "B")
        if not by_columns:
            # By columns, as cuBLAS reads them, these are the transposed matrices: C^T = B^T A^T.
            M, N, first, second = N, M, second, first
        result = _Operand(C, problem, "C")
        alpha, beta = (
            ctypes.byref(_scalar(value, problem.acc_dtype))
            for value in (problem.alpha, problem.beta)
        )
        kind = _COMPUTE[problem.acc_dtype]
        if problem.dtype == "float32" and problem.batch == 1:
            name, form, how = "cublasSgemm_v2", "plain", []
        elif problem.batch == 1:
            name, form, how = "cublasGemmEx", "typed", [kind, _DEFAULT_ALGORITHM]
        else:
            name, form = "cublasGemmStridedBatchedEx", "strided"
            how = [problem.batch, kind, _DEFAULT_ALGORITHM]
        a, b, c = (getattr(operand, form) for operand in (first, second, result))
        transpositions = (first.transposition, second.transposition)
        self._call(name, self._handle, *transpositions, M, N, K, alpha, *a, *b, beta, *c, *how)

    def _call(self, name: str, *arguments: Any) -> None:
        if status := getattr(self._library, name)(*arguments):
            raise BackendError(f"{name} failed with status {status}")


class _Operand:
    """An array as cuBLAS' functions take it: ``plain``, ``typed`` and ``strided`` arguments."""

    def __init__(self, array: Any, problem: Problem, name: str) -> None:
        steps = [step // array.itemsize for step in array.strides]
        ld = steps[-1 if problem.layout == "column-major" else -2]
        pointer = ctypes.c_void_p(array.data.ptr)
        self.transposition = _TRANSPOSITIONS[
            {"A": problem.transa, "B": problem.transb}.get(name, "N")
        ]
        self.plain = (pointer, ld)
        self.typed = (pointer, _TYPES[problem.types[name].name], ld)
        self.strided = (*self.typed, ctypes.c_longlong(steps[0]))


def _scalar(value: float, dtype: str) -> Any:
    """Alpha or beta in the type in which cuBLAS computes."""
    if dtype == "float16":
        return ctypes.c_uint16(int(encode(np.array(value), dtype)))
    if dtype == "int32":
        return ctypes.c_int32(int(value))
    return (ctypes.c_double if dtype == "float64" else ctypes.c_float)(value)


@cache
def load_cublas(device: int) -> Cublas | None:
    """The library that CuPy uses, on that device, which is the current one.

    None where it cannot be loaded. Raises BackendError where it does not start.
    """
    cuda = import_module("cupy.cuda")
    try:
        import_module("cupy.cuda.device").get_cublas_handle()
        # CuPy has loaded it by now, from wherever it lies; loaded again by name, it is the same.
        library = ctypes.CDLL(f"libcublas.so.{cuda.runtime.runtimeGetVersion() // 1000}")
    except (ImportError, OSError):
        return None
    return Cublas(library, cuda.Memory(WORKSPACE + PLACES * PAGE))
