// /// gemm
// block = [64]
// grid = ["cdiv(M * N, 64)"]
// ///
#include "tools.h"

__global__ void mul(const float* A, const float* B, float* C, int M, int N, int K)
{
    int index = blockIdx.x * blockDim.x + threadIdx.x;
    int steps = tools::cdiv(K, 4);
    if (!tools::inside(index, M * N)) return;
    float sum = 0;
    for (int step = 0; step < steps; ++step)
        for (int k = 4 * step; k < min(4 * step + 4, K); ++k)
            sum += A[index / N * K + k] * B[k * N + index % N];
    C[index] = sum;
}

int main()
{
    auto A = tools::random_matrix(64, 64);
    tools::check(cudaSetDevice(0));
    mul<<<tools::cdiv(64 * 64, 64), 64>>>(A.data(), nullptr, nullptr, 64, 64, 64);
}
