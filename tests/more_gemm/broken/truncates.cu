// /// gemm
// block = [16, 16]
// grid = ["cdiv(N, 16)", "cdiv(M, 16)"]
// dtype = "bfloat16"
// ///

#include <cuda_bf16.h>

__global__ void truncates(const nv_bfloat16* A, const nv_bfloat16* B, nv_bfloat16* C, int M, int N,
                          int K)
{
    const int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
    if (row >= M || col >= N)
        return;
    float acc = 0;
    for (int k = 0; k < K; ++k)
        acc += float(A[row * K + k]) * float(B[k * N + col]);
    C[row * N + col] = __float2bfloat16_rz(acc);
}
