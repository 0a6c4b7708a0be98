// Tiles whose sides are template parameters, in a block of another shape.

// /// gemm
// entry = "gemm<16, 32, 8>"
// block = [32, 16]
// grid  = ["cdiv(N, 32)", "cdiv(M, 16)"]
// ///

template <int BM, int BN, int BK>
__global__ void __launch_bounds__(BM * BN)
gemm(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N, int K)
{
    __shared__ float As[BM][BK], Bs[BK][BN];
    const int row = blockIdx.y * BM + threadIdx.y;
    const int col = blockIdx.x * BN + threadIdx.x;
    const int thread = threadIdx.y * BN + threadIdx.x;

    float acc = 0.0f;
    for (int k0 = 0; k0 < K; k0 += BK) {
        if (thread < BM * BK) {
            const int i = thread / BK, k = thread % BK;
            const int r = blockIdx.y * BM + i;
            As[i][k] = r < M && k0 + k < K ? A[r * K + k0 + k] : 0.0f;
        }
        if (threadIdx.y < BK)
            Bs[threadIdx.y][threadIdx.x] =
                k0 + threadIdx.y < K && col < N ? B[(k0 + threadIdx.y) * N + col] : 0.0f;
        __syncthreads();
#pragma unroll
        for (int k = 0; k < BK; ++k)
            acc += As[threadIdx.y][k] * Bs[k][threadIdx.x];
        __syncthreads();
    }
    if (row < M && col < N)
        C[row * N + col] = acc;
}
