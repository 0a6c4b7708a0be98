"""cuBLAS called directly, so that its launches can be captured in a graph: CuPy refuses to."""

from __future__ import annotations

import ctypes
from functools import cache
from importlib import import_module
from typing import Any

from pytest_gemm.errors import BackendError

WORKSPACE = 2**25
"""Bytes of scratch memory: what NVIDIA recommends for Hopper, and more than older GPUs use."""

PLACES, PAGE = 16, 2**21
"""Where the scratch memory of a launch may begin: a page further for each new C."""

_NOT_TRANSPOSED = 0
_DEFAULT_MATH = 0  # float32; tensor cores would have to be asked for
_ONE, _ZERO = ctypes.c_float(1), ctypes.c_float(0)


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

    def multiply(self, A: Any, B: Any, C: Any, stream: int) -> None:
        """Queue ``C = A B`` for float32 arrays whose rows have no gaps within.

        Raises BackendError for a status that is no success.
        """
        # A new stream takes the workspace away, so that comes second.
        self._call("cublasSetStream_v2", self._handle, ctypes.c_void_p(stream))
        place = self._places.setdefault(C.data.ptr, len(self._places) % PLACES)
        scratch = ctypes.c_void_p(self._memory.ptr + place * PAGE)
        size = ctypes.c_size_t(WORKSPACE)
        self._call("cublasSetWorkspace_v2", self._handle, scratch, size)
        (M, K), N = A.shape, B.shape[1]
        lda, ldb, ldc = (array.strides[0] // array.itemsize for array in (A, B, C))
        a, b, c = (ctypes.c_void_p(array.data.ptr) for array in (A, B, C))
        # By columns, as cuBLAS reads them, these are the transposed matrices: C^T = B^T A^T.
        self._call(
            *("cublasSgemm_v2", self._handle, _NOT_TRANSPOSED, _NOT_TRANSPOSED, N, M, K),
            *(ctypes.byref(_ONE), b, ldb, a, lda, ctypes.byref(_ZERO), c, ldc),
        )

    def _call(self, name: str, *arguments: Any) -> None:
        if status := getattr(self._library, name)(*arguments):
            raise BackendError(f"{name} failed with status {status}")


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
