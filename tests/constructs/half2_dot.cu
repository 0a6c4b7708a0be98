// /// gemm
// block = [16, 8]
// grid = ["cdiv(N, 16)", "cdiv(M, 8)"]
// ///
#include <cuda_fp16.h>

__global__ void mul(const float* A, const float* B, float* C, int M, int N, int K)
{
    __shared__ half2 As[8][8];
    const int row = blockIdx.y * 8 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
    float sum = 0.0f;
    for (int k0 = 0; k0 < K; k0 += 16) {
        if (threadIdx.x < 8) {
            const int k = k0 + 2 * threadIdx.x;
            As[threadIdx.y][threadIdx.x] =
                __floats2half2_rn(row < M && k < K ? A[row * K + k] : 0.0f,
                                  row < M && k + 1 < K ? A[row * K + k + 1] : 0.0f);
        }
        __syncthreads();
        half2 part = __float2half2_rn(0.0f);
        for (int i = 0; i < 8; ++i) {
            const int k = k0 + 2 * i;
            const half x = k < K && col < N ? __float2half(B[k * N + col]) : half(0.0f);
            const half y = k + 1 < K && col < N ? __float2half(B[(k + 1) * N + col]) : half(0.0f);
            part = __hfma2(As[threadIdx.y][i], __halves2half2(x, y), part);
        }
        sum += __low2float(part) + __high2float(part);
        __syncthreads();
    }
    if (row < M && col < N) C[row * N + col] = sum;
}
