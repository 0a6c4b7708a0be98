// /// gemm
// block = [16, 16]
// grid = ["cdiv(N, 16)", "cdiv(M, 16)"]
// dtype = "float16"
// transa = "T"
// ///
#include <cuda_fp16.h>

__global__ void half_tn(const half* A, const half* B, half* C, int M, int N, int K)
{
    const int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
    if (row >= M || col >= N)
        return;
    float acc = 0;
    for (int k = 0; k < K; ++k)
        acc += __half2float(A[k * M + row]) * __half2float(B[k * N + col]);
    C[row * N + col] = __float2half(acc);
}
