// /// gemm
// name = "same_b"
// entry = "gemm<0>"
// block = [16, 16]
// grid = ["cdiv(N, 16)", "cdiv(M, 16)", "batch"]
// ///

// /// gemm
// name = "stride_of_c"
// entry = "gemm<1>"
// block = [16, 16]
// grid = ["cdiv(N, 16)", "cdiv(M, 16)", "batch"]
// ///

// /// gemm
// name = "dense_strides"
// entry = "gemm<2>"
// block = [16, 16]
// grid = ["cdiv(N, 16)", "cdiv(M, 16)", "batch"]
// ///

// /// gemm
// name = "first_only"
// entry = "gemm<3>"
// block = [16, 16]
// grid = ["cdiv(N, 16)", "cdiv(M, 16)"]
// batch = 2
// ///

// /// gemm
// name = "one_too_many"
// entry = "gemm<4>"
// block = [16, 16]
// grid = ["cdiv(N, 16)", "cdiv(M, 16)", "batch + 1"]
// ///

// /// gemm
// name = "clears_between"
// entry = "gemm<5>"
// block = [16, 16]
// grid = ["cdiv(N, 16)", "cdiv(M, 16)", "batch"]
// ///

template <int mistake>
__global__ void gemm(const float* A, const float* B, float* C, int M, int N, int K,
                     long long strideA, long long strideB, long long strideC)
{
    A += blockIdx.z * (mistake == 2 ? M * K : strideA);
    B += mistake == 0 ? 0 : blockIdx.z * strideB;
    C += blockIdx.z * (mistake == 1 ? strideA : strideC);
    if (mistake == 5 && threadIdx.x == 0 && threadIdx.y == 0 && blockIdx.z == 0)
        for (int i = M * N; i < strideC; ++i)
            C[i] = 0;
    const int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
    if (row >= M || col >= N)
        return;
    float acc = 0;
    for (int k = 0; k < K; ++k)
        acc += A[row * K + k] * B[k * N + col];
    C[row * N + col] = acc;
}
