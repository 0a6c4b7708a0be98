// Broken: blocks that share K add to C without atomics.

// /// gemm
// block = [16, 16]
// grid  = ["cdiv(N, 16)", "cdiv(M, 16)", 2]
// ///

__global__ void race_between_blocks(const float* A, const float* B, float* C, int M, int N, int K)
{
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= M || col >= N)
        return;

    float acc = 0.0f;
    for (int k = blockIdx.z; k < K; k += 2)
        acc += A[row * K + k] * B[k * N + col];
    C[row * N + col] += acc;  // finding: race
}
