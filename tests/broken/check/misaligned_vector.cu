// Broken: rows of an odd length are read four elements at a time.

// /// gemm
// block = [16, 16]
// grid  = ["cdiv(N, 16)", "cdiv(M, 16)"]
// ///

__global__ void misaligned_vector(const float* A, const float* B, float* C, int M, int N, int K)
{
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= M || col >= N)
        return;

    float acc = 0.0f;
    for (int k = 0; k + 4 <= K; k += 4) {
        const float4 a = *reinterpret_cast<const float4*>(&A[row * K + k]);  // finding: misaligned
        acc += a.x * B[k * N + col] + a.y * B[(k + 1) * N + col];
        acc += a.z * B[(k + 2) * N + col] + a.w * B[(k + 3) * N + col];
    }
    for (int k = K / 4 * 4; k < K; ++k)
        acc += A[row * K + k] * B[k * N + col];
    C[row * N + col] = acc;
}
