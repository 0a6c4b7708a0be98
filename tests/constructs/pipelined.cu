// /// gemm
// block = [16, 4]
// grid = ["cdiv(N, 16)", "cdiv(M, 4)"]
// requires = ["K % 4 == 0"]
// ///
#include <cuda_pipeline.h>

// Two tiles of A in flight: the next is copied while the last is used.
__global__ void mul(const float* A, const float* B, float* C, int M, int N, int K)
{
    __shared__ __align__(16) float As[2][4][16];
    const int row = blockIdx.y * 4 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
    auto load = [&](int stage, int k0) {
        const int k = k0 + 4 * threadIdx.x;
        if (threadIdx.x < 4 && k0 < K) {
            const bool is_inside = row < M && k < K;
            __pipeline_memcpy_async(&As[stage][threadIdx.y][4 * threadIdx.x],
                                    is_inside ? A + row * K + k : A, 16, is_inside ? 0 : 16);
        }
        __pipeline_commit();
    };
    float sum = 0.0f;
    load(0, 0);
    for (int k0 = 0, stage = 0; k0 < K; k0 += 16, stage ^= 1) {
        load(stage ^ 1, k0 + 16);
        __pipeline_wait_prior(1);
        __syncthreads();
        for (int k = 0; k < 16 && k0 + k < K; ++k)
            if (col < N) sum += As[stage][threadIdx.y][k] * B[(k0 + k) * N + col];
        __syncthreads();
    }
    if (row < M && col < N) C[row * N + col] = sum;
}
