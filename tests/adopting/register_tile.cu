// Each thread computes a part of a tile; all sizes are template parameters that a launcher fills.
#include <cuda_runtime.h>
#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))

template <const int BM, const int BN, const int BK, const int TM, const int TN>
__global__ void __launch_bounds__((BM * BN) / (TM * TN))
blocked(int M, int N, int K, float alpha, const float *A, const float *B, float beta, float *C)
{
    __shared__ float As[BM * BK];
    __shared__ float Bs[BK * BN];
    const int threads = BM * BN / (TM * TN);
    const int thread_row = threadIdx.x / (BN / TN), thread_col = threadIdx.x % (BN / TN);
    float acc[TM][TN] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        for (int i = threadIdx.x; i < BM * BK; i += threads) {
            int r = blockIdx.y * BM + i / BK, k = k0 + i % BK;
            As[i] = r < M && k < K ? A[r * K + k] : 0.0f;
        }
        for (int i = threadIdx.x; i < BK * BN; i += threads) {
            int k = k0 + i / BN, c = blockIdx.x * BN + i % BN;
            Bs[i] = k < K && c < N ? B[k * N + c] : 0.0f;
        }
        __syncthreads();
        for (int k = 0; k < BK; ++k)
            for (int i = 0; i < TM; ++i)
                for (int j = 0; j < TN; ++j)
                    acc[i][j] += As[(thread_row * TM + i) * BK + k] * Bs[k * BN + thread_col * TN + j];
        __syncthreads();
    }
    for (int i = 0; i < TM; ++i)
        for (int j = 0; j < TN; ++j) {
            int r = blockIdx.y * BM + thread_row * TM + i, c = blockIdx.x * BN + thread_col * TN + j;
            if (r < M && c < N) {
                float old = beta == 0.0f ? 0.0f : beta * C[r * N + c];
                C[r * N + c] = alpha * acc[i][j] + old;
            }
        }
}

void launch_blocked(int M, int N, int K, float alpha, float *A, float *B, float beta, float *C)
{
    const unsigned BM = 64;
    const unsigned BN = 32;
    const unsigned BK = 8;
    const unsigned TM = 8;
    const unsigned TN = 4;
    dim3 gridDim(CEIL_DIV(N, BN), CEIL_DIV(M, BM));
    dim3 blockDim((BM * BN) / (TM * TN));
    blocked<BM, BN, BK, TM, TN><<<gridDim, blockDim>>>(M, N, K, alpha, A, B, beta, C);
}
