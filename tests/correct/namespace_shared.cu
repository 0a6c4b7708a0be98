// Shared memory declared outside of the kernel: static in a namespace, and dynamic.

// /// gemm
// block = [16, 16]
// grid  = ["cdiv(N, 16)", "cdiv(M, 16)"]
// shared_mem = "4 * 16 * 16"
// ///

namespace tiles {
__shared__ float As[16][16];
extern __shared__ float Bs[];
}  // namespace tiles

__global__ void namespace_shared(const float* A, const float* B, float* C, int M, int N, int K)
{
    using namespace tiles;
    const int ty = threadIdx.y, tx = threadIdx.x;
    const int row = blockIdx.y * 16 + ty, col = blockIdx.x * 16 + tx;
    float acc = 0.0f;
    for (int k0 = 0; k0 < K; k0 += 16) {
        As[ty][tx] = row < M && k0 + tx < K ? A[row * K + k0 + tx] : 0.0f;
        Bs[ty * 16 + tx] = k0 + ty < K && col < N ? B[(k0 + ty) * N + col] : 0.0f;
        __syncthreads();
        for (int k = 0; k < 16; ++k)
            acc += As[ty][k] * Bs[k * 16 + tx];
        __syncthreads();
    }
    if (row < M && col < N)
        C[row * N + col] = acc;
}
