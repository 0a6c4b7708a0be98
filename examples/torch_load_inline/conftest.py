"""PyTorch's ``load_inline``: a kernel that is launched on PyTorch's current stream.

``<<<grid, block>>>`` without a stream would be the default stream, which is noticed, and fails.
"""

from functools import cache
from hashlib import sha256

import torch
from torch.utils.cpp_extension import load_inline

import pytest_gemm

DECLARATION = "void gemm(torch::Tensor A, torch::Tensor B, torch::Tensor C);"

SOURCE = r"""
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

__global__ void multiply(const float* A, const float* B, float* C, int M, int N, int K)
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

void gemm(torch::Tensor A, torch::Tensor B, torch::Tensor C)
{
    const int M = A.size(0), K = A.size(1), N = B.size(1);
    const dim3 block(16, 16), grid((N + 15) / 16, (M + 15) / 16);
    multiply<<<grid, block, 0, c10::cuda::getCurrentCUDAStream()>>>(
        A.data_ptr<float>(), B.data_ptr<float>(), C.data_ptr<float>(), M, N, K);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}
"""


@cache
def extension():
    """Built when it is first needed, and kept by PyTorch under this name, one for each source."""
    name = f"gemm_{sha256(SOURCE.encode()).hexdigest()[:16]}"
    return load_inline(name, DECLARATION, SOURCE, functions=["gemm"])


@pytest_gemm.kernel(backend="cuda", sizes=["1024", "67x45x33"])
def load_inline_kernel(A, B, C, stream):
    with torch.cuda.stream(torch.cuda.ExternalStream(stream.ptr)):
        extension().gemm(*(torch.from_dlpack(matrix) for matrix in (A, B, C)))
