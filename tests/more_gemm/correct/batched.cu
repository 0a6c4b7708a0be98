// /// gemm
// name = "batched"
// block = [16, 16]
// grid = ["cdiv(N, 16)", "cdiv(M, 16)", "batch"]
// batch = 5
// ///

// /// gemm
// name = "batched_dense"
// args = ["A", "B", "C", "M", "N", "K", "K", "N", "N", "M * K", "K * N", "M * N"]
// block = [16, 16]
// grid = ["cdiv(N, 16)", "cdiv(M, 16)", "batch"]
// ///

__global__ void batched(const float* A, const float* B, float* C, int M, int N, int K, int lda,
                        int ldb, int ldc, long long strideA, long long strideB, long long strideC)
{
    A += blockIdx.z * strideA;
    B += blockIdx.z * strideB;
    C += blockIdx.z * strideC;
    const int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
    if (row >= M || col >= N)
        return;
    float acc = 0;
    for (int k = 0; k < K; ++k)
        acc += A[row * lda + k] * B[k * ldb + col];
    C[row * ldc + col] = acc;
}
