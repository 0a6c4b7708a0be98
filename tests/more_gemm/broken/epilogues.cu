// /// gemm
// name = "without_relu"
// entry = "gemm<0>"
// block = [16, 16]
// grid = ["cdiv(N, 16)", "cdiv(M, 16)"]
// reference = "../refs.py:relu"
// ///

// /// gemm
// name = "leaky_relu"
// entry = "gemm<1>"
// block = [16, 16]
// grid = ["cdiv(N, 16)", "cdiv(M, 16)"]
// reference = "../refs.py:relu"
// ///

// /// gemm
// name = "gelu_by_sigmoid"
// entry = "gemm<2>"
// block = [16, 16]
// grid = ["cdiv(N, 16)", "cdiv(M, 16)"]
// reference = "../refs.py:gelu"
// ///

// /// gemm
// name = "reads_c"
// entry = "gemm<3>"
// block = [16, 16]
// grid = ["cdiv(N, 16)", "cdiv(M, 16)"]
// reference = "../refs.py:relu"
// ///

template <int mistake>
__global__ void gemm(const float* A, const float* B, float* C, int M, int N, int K)
{
    const int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
    if (row >= M || col >= N)
        return;
    float x = 0;
    for (int k = 0; k < K; ++k)
        x += A[row * K + k] * B[k * N + col];
    if (mistake == 1)
        x = x > 0 ? x : 0.01f * x;
    if (mistake == 2)
        x = x / (1 + expf(-1.702f * x));
    if (mistake == 3)
        x = fmaxf(x, 0.0f) + 0.0f * C[row * N + col];
    C[row * N + col] = x;
}
