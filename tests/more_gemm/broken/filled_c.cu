// /// gemm
// name = "adds_finite_c"
// block = [16, 16]
// grid = ["cdiv(N, 16)", "cdiv(M, 16)"]
// finite_c = true
// ///

__global__ void gemm(const float* A, const float* B, float* C, int M, int N, int K)
{
    const int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
    if (row >= M || col >= N)
        return;
    float acc = 0;
    for (int k = 0; k < K; ++k)
        acc += A[row * K + k] * B[k * N + col];
    C[row * N + col] += acc;
}
