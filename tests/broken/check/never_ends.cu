// Broken: k0 never equals a K that is no multiple of the tile.

// /// gemm
// block = [16, 16]
// grid  = ["cdiv(N, 16)", "cdiv(M, 16)"]
// ///

__global__ void never_ends(const float* A, const float* B, float* C, int M, int N, int K)
{
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= M || col >= N)
        return;

    float acc = 0.0f;
    for (unsigned k0 = 0; k0 != K; k0 += 16)  // finding: timeout
        for (unsigned k = k0; k < K && k < k0 + 16; ++k)  // finding: timeout
            acc += A[row * K + k] * B[k * N + col];
    C[row * N + col] = acc;
}
