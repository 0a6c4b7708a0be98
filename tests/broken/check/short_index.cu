// Broken: an index in short passes 2^15.

// /// gemm
// block = [16, 16]
// grid  = ["cdiv(N, 16)", "cdiv(M, 16)"]
// ///

__global__ void short_index(const float* A, const float* B, float* C, int M, int N, int K)
{
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= M || col >= N)
        return;

    float acc = 0.0f;
    for (int k = 0; k < K; ++k) {
        const short at = 100 * (row * K + k);  // finding: truncation
        acc += (at >= 0 ? A[row * K + k] : 0.0f) * B[k * N + col];
    }
    C[row * N + col] = acc;
}
