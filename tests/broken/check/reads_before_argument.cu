// Broken: the first element of the first row is read one to the left.

// /// gemm
// block = [16, 16]
// grid  = ["cdiv(N, 16)", "cdiv(M, 16)"]
// ///

__global__ void reads_before_argument(const float* A, const float* B, float* C, int M, int N, int K)
{
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= M || col >= N)
        return;

    float acc = 0.0f;
    for (int k = 0; k < K; ++k) {
        const float a = A[row * K + k - 1];  // finding: out-of-bounds
        acc += a * B[k * N + col];
    }
    C[row * N + col] = acc;
}
