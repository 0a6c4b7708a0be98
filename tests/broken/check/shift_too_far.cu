// Broken: a bit mask for more columns than an int has bits.

// /// gemm
// block = [16, 16]
// grid  = ["cdiv(N, 16)", "cdiv(M, 16)"]
// ///

__global__ void shift_too_far(const float* A, const float* B, float* C, int M, int N, int K)
{
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= M || col >= N)
        return;

    const int bit = 1 << (col + 30);  // finding: shift
    float acc = 0.0f;
    for (int k = 0; k < K; ++k)
        acc += A[row * K + k] * B[k * N + col];
    C[row * N + col] = bit != 0 ? acc : acc;
}
