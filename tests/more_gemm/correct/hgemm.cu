// /// gemm
// block = [16, 16]
// grid = ["cdiv(N, 32)", "cdiv(M, 16)"]
// dtype = "float16"
// acc_dtype = "float16"
// requires = ["N % 2 == 0", "ldb % 2 == 0", "ldc % 2 == 0"]
// ///
#include <cuda_fp16.h>

// Two columns a thread, numbers of half too.
__global__ void hgemm(int M, int N, int K, half alpha, const half* A, int lda, const half2* B,
                      int ldb, half beta, half2* C, int ldc)
{
    const int row = blockIdx.y * 16 + threadIdx.y, pair = blockIdx.x * 16 + threadIdx.x;
    if (row >= M || 2 * pair >= N)
        return;
    half2 acc = __float2half2_rn(0.0f);
    for (int k = 0; k < K; ++k)
        acc = __hfma2(__half2half2(A[row * lda + k]), B[k * (ldb / 2) + pair], acc);
    acc = __hmul2(acc, __half2half2(alpha));
    half2& c = C[row * (ldc / 2) + pair];
    c = __heq(beta, half(0.0f)) ? acc : __hfma2(__half2half2(beta), c, acc);
}
