// Broken: an index in int passes 2^31 before it is divided again.

// /// gemm
// block = [16, 16]
// grid  = ["cdiv(N, 16)", "cdiv(M, 16)"]
// ///

__global__ void index_overflow(const float* A, const float* B, float* C, int M, int N, int K)
{
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= M || col >= N)
        return;

    float acc = 0.0f;
    for (int k = 0; k < K; ++k) {
        const int at = (row * K + k) * 20000000;  // finding: overflow
        acc += (at >= 0 ? A[row * K + k] : 0.0f) * B[k * N + col];
    }
    C[row * N + col] = acc;
}
