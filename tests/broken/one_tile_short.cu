// Broken: the grid rounds down, so the last partial tile of C has no block.

// /// gemm
// block = [16, 16]
// grid  = ["max(N // 16, 1)", "max(M // 16, 1)"]
// ///

__global__ void one_tile_short(const float* A, const float* B, float* C, int M, int N, int K)
{
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= M || col >= N)
        return;

    float acc = 0.0f;
    for (int k = 0; k < K; ++k)
        acc += A[row * K + k] * B[k * N + col];
    C[row * N + col] = acc;
}
