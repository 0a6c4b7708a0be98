"""CuPy's ElementwiseKernel, for ``C = A + B``."""

import cupy

import pytest_gemm

add = cupy.ElementwiseKernel("float32 a, float32 b", "float32 c", "c = a + b", "add")


@pytest_gemm.kernel(op="add", backend="cuda", sizes=["1024", "67x45"])
def elementwise(A, B, C):
    add(A, B, C)
