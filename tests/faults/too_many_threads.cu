// Broken: Asks for 1025 threads in a block.

// /// gemm
// block = ["1024 + cdiv(K, 4096)"]
// grid  = ["cdiv(N, 16)", "cdiv(M, 16)"]
// sizes = [64]
// ///

__global__ void too_many_threads(const float* A, const float* B, float* C, int M, int N, int K)
{
    const int row = blockIdx.y * 16 + threadIdx.y;
    const int col = blockIdx.x * 16 + threadIdx.x;
    if (row >= M || col >= N)
        return;
    float acc = 0.0f;
    for (int k = 0; k < K; ++k)
        acc += A[row * K + k] * B[k * N + col];
    C[row * N + col] = acc;
}
