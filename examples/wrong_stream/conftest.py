"""What must not be done: work that is put on the default stream instead of the given one.

It would run beside what times it. ``pytest --gemm-bench`` fails these three.
"""

import os

import cupy
import torch

import pytest_gemm

os.environ.setdefault("NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS", "0")  # small problems are meant
from numba import cuda

SIZES = ["1024"]


@pytest_gemm.kernel(backend="cuda", sizes=SIZES)
def cupy_default_stream(A, B, C):
    with cupy.cuda.Stream.null:
        cupy.matmul(A, B, out=C)


@pytest_gemm.kernel(backend="cuda", sizes=SIZES)
def torch_default_stream(A, B, C):
    torch.mm(torch.from_dlpack(A), torch.from_dlpack(B), out=torch.from_dlpack(C))


@cuda.jit
def multiply(A, B, C):
    col, row = cuda.grid(2)
    if row < C.shape[0] and col < C.shape[1]:
        C[row, col] = 0
        for k in range(A.shape[1]):
            C[row, col] += A[row, k] * B[k, col]


@pytest_gemm.kernel(backend="cuda", sizes=SIZES)
def numba_default_stream(A, B, C, M, N):
    a, b, c = (cuda.as_cuda_array(matrix, sync=False) for matrix in (A, B, C))
    multiply[(-(-N // 16), -(-M // 16)), (16, 16)](a, b, c)
