"""cuBLAS as a kernel, for others to be measured against.

The column ``of ref`` and ``min_percent_of_cublas`` need none of this: they hold every ``gemm``
against cuBLAS. As a kernel it also stands in the table, and other kernels can be ``derived_from``
it, or measured side by side with it: ``pytest --gemm-bench --gemm-against=kernel:cublas``.

CuPy does not let its calls of cuBLAS be captured in a graph: they are queued one by one, and the
gaps between them count. PyTorch's (``../torch_op``) are captured.
"""

import cupy

import pytest_gemm


@pytest_gemm.kernel(backend="cuda", sizes=["1024", "67x45x33"])
def cublas(A, B, C):
    cupy.matmul(A, B, out=C)
