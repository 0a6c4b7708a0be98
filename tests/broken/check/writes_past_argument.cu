// Broken: blocks at the bottom write rows that C does not have.

// /// gemm
// block = [16, 16]
// grid  = ["cdiv(N, 16)", "cdiv(M, 16)"]
// ///

__global__ void writes_past_argument(const float* A, const float* B, float* C, int M, int N, int K)
{
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (col >= N)
        return;

    float acc = 0.0f;
    for (int k = 0; row < M && k < K; ++k)
        acc += A[row * K + k] * B[k * N + col];
    C[row * N + col] = acc;  // finding: out-of-bounds
}
