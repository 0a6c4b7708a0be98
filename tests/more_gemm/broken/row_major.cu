// /// gemm
// name = "a_is_transposed"
// entry = "gemm<0>"
// block = [16, 16]
// grid = ["cdiv(N, 16)", "cdiv(M, 16)"]
// transa = "T"
// ///

// /// gemm
// name = "b_is_transposed"
// entry = "gemm<1>"
// block = [16, 16]
// grid = ["cdiv(N, 16)", "cdiv(M, 16)"]
// transb = "T"
// ///

// /// gemm
// name = "by_columns"
// entry = "gemm<2>"
// block = [16, 16]
// grid = ["cdiv(N, 16)", "cdiv(M, 16)"]
// layout = "column-major"
// ///

template <int kind>
__global__ void gemm(const float* A, const float* B, float* C, int M, int N, int K)
{
    const int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
    if (row >= M || col >= N)
        return;
    float acc = 0;
    for (int k = 0; k < K; ++k)
        acc += A[row * K + k] * B[k * N + col];
    C[row * N + col] = acc;
}
