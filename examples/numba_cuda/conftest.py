"""Numba: the operands by ``__cuda_array_interface__``, and the stream by its address.

``sync=False``: Numba would wait for the stream otherwise, which cannot be captured.
"""

import os

import numpy as np

import pytest_gemm

os.environ.setdefault("NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS", "0")  # small problems are meant
from numba import cuda

SIDE = 16


@cuda.jit
def multiply(A, B, C):
    col, row = cuda.grid(2)
    if row < C.shape[0] and col < C.shape[1]:
        acc = np.float32(0)
        for k in range(A.shape[1]):
            acc += A[row, k] * B[k, col]
        C[row, col] = acc


@pytest_gemm.kernel(backend="cuda", sizes=["1024", "67x45x33"])
def numba_naive(A, B, C, M, N, stream):
    grid = (-(-N // SIDE), -(-M // SIDE))
    a, b, c = (cuda.as_cuda_array(matrix, sync=False) for matrix in (A, B, C))
    multiply[grid, (SIDE, SIDE), cuda.external_stream(stream.ptr)](a, b, c)
