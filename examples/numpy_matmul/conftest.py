"""NumPy: the library's own product, and one of ours that walks K in panels.

NumPy's BLAS has threads of its own, whose seconds would be added up: run this with
``OPENBLAS_NUM_THREADS=1``.
"""

import numpy as np

import pytest_gemm

SIZES = ["128", "67x45x33"]


@pytest_gemm.kernel(backend="host", sizes=SIZES)
def blas(A, B, C):
    np.matmul(A, B, out=C)


@pytest_gemm.kernel(
    backend="host",
    sizes=SIZES,
    sweep={"panel": [16, 64]},
    derived_from="blas",
    change="K in panels",
)
def panels(A, B, C, K, panel):
    C[:] = 0
    for k in range(0, K, panel):
        C += A[:, k : k + panel] @ B[k : k + panel]
