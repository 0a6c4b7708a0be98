"""CuPy's RawKernel. The stream is CuPy's current one already, so it need not be named."""

import cupy
import numpy as np

import pytest_gemm

multiply = cupy.RawKernel(
    r"""
    extern "C" __global__
    void multiply(const float* A, const float* B, float* C, int M, int N, int K)
    {
        const int row = blockIdx.y * blockDim.y + threadIdx.y;
        const int col = blockIdx.x * blockDim.x + threadIdx.x;
        if (row >= M || col >= N)
            return;
        float acc = 0.0f;
        for (int k = 0; k < K; ++k)
            acc += A[row * K + k] * B[k * N + col];
        C[row * N + col] = acc;
    }
    """,
    "multiply",
)


@pytest_gemm.kernel(backend="cuda", sizes=["1024", "67x45x33"], sweep={"side": [8, 16, 32]})
def raw_kernel(A, B, C, M, N, K, side):
    grid = (-(-N // side), -(-M // side))
    # A Python integer would be passed as 64 bits.
    multiply(grid, (side, side), (A, B, C, np.int32(M), np.int32(N), np.int32(K)))
