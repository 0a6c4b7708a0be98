// /// gemm
// name = "ignores_lda"
// entry = "gemm<0>"
// block = [16, 16]
// grid = ["cdiv(N, 16)", "cdiv(M, 16)"]
// ///

// /// gemm
// name = "ignores_ldc"
// entry = "gemm<1>"
// block = [16, 16]
// grid = ["cdiv(N, 16)", "cdiv(M, 16)"]
// ///

// /// gemm
// name = "forgets_beta"
// entry = "gemm<2>"
// block = [16, 16]
// grid = ["cdiv(N, 16)", "cdiv(M, 16)"]
// ///

// /// gemm
// name = "clears_padding"
// entry = "gemm<3>"
// block = [16, 16]
// grid = ["cdiv(N, 16)", "cdiv(M, 16)"]
// ///

// /// gemm
// name = "reads_padding"
// entry = "gemm<4>"
// block = [16, 16]
// grid = ["cdiv(N, 16)", "cdiv(M, 16)"]
// dtype = "float32"
// ///

template <int mistake>
__global__ void gemm(int M, int N, int K, float alpha, const float* A, int lda, const float* B,
                     int ldb, float beta, float* C, int ldc)
{
    const int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
    if (mistake == 3 && row < M && col >= N && col < ldc)
        C[row * ldc + col] = 0;
    if (row >= M || col >= N)
        return;
    float acc = 0;
    for (int k = 0; k < (mistake == 4 ? lda : K); ++k)
        acc += A[row * (mistake == 0 ? K : lda) + k] * (k < K ? B[k * ldb + col] : 1);
    float& c = C[row * (mistake == 1 ? N : ldc) + col];
    c = beta == 0 || mistake == 2 ? alpha * acc : alpha * acc + beta * c;
}
