// /// gemm
// block = [8, 8]
// grid = ["cdiv(N, 8)", "cdiv(M, 8)"]
// ///
#include <cuda_bf16.h>

__global__ void mul(const float* A, const float* B, float* C, int M, int N, int K)
{
    __shared__ nv_bfloat16 As[8][8], Bs[8][8];
    const int row = blockIdx.y * 8 + threadIdx.y, col = blockIdx.x * 8 + threadIdx.x;
    float sum = 0.0f;
    for (int k0 = 0; k0 < K; k0 += 8) {
        const int a_col = k0 + threadIdx.x, b_row = k0 + threadIdx.y;
        As[threadIdx.y][threadIdx.x] = row < M && a_col < K ? A[row * K + a_col] : 0.0f;
        Bs[threadIdx.y][threadIdx.x] = __float2bfloat16(b_row < K && col < N ? B[b_row * N + col] : 0);
        __syncthreads();
        for (int k = 0; k < 8; ++k)
            sum += __bfloat162float(As[threadIdx.y][k]) * __bfloat162float(Bs[k][threadIdx.x]);
        __syncthreads();
    }
    if (row < M && col < N) C[row * N + col] = sum;
}
