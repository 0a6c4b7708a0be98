// Columns of the tile are permuted with exclusive or, as against bank conflicts.

// /// gemm
// block = [32, 8]
// grid  = ["cdiv(N, 32)", "cdiv(M, 32)"]
// ///

__global__ void swizzled(const float* A, const float* B, float* C, int M, int N, int K)
{
    __shared__ float As[32 * 32], Bs[32 * 32];
    const int tx = threadIdx.x;
    float acc[4] = {0, 0, 0, 0};
    for (int k0 = 0; k0 < K; k0 += 32) {
        for (int i = threadIdx.y; i < 32; i += 8) {
            const int row = blockIdx.y * 32 + i, col = blockIdx.x * 32 + tx;
            As[i * 32 + (tx ^ i)] = row < M && k0 + tx < K ? A[row * K + k0 + tx] : 0.0f;
            Bs[i * 32 + (tx ^ i)] = k0 + i < K && col < N ? B[(k0 + i) * N + col] : 0.0f;
        }
        __syncthreads();
        for (int k = 0; k < 32; ++k)
            for (int i = 0; i < 4; ++i) {
                const int m = threadIdx.y * 4 + i;
                acc[i] += As[m * 32 + (k ^ m)] * Bs[k * 32 + (tx ^ k)];
            }
        __syncthreads();
    }
    for (int i = 0; i < 4; ++i) {
        const int row = blockIdx.y * 32 + threadIdx.y * 4 + i, col = blockIdx.x * 32 + tx;
        if (row < M && col < N)
            C[row * N + col] = acc[i];
    }
}
