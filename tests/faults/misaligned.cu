// Broken: Stores four elements at once at an address that is no multiple of 16.

// /// gemm
// block = [16, 16]
// grid  = ["cdiv(N, 16)", "cdiv(M, 16)"]
// sizes = [64]
// ///

__global__ void misaligned(const float* A, const float* B, float* C, int M, int N, int K)
{
    const int row = blockIdx.y * 16 + threadIdx.y;
    const int col = blockIdx.x * 16 + threadIdx.x;
    if (row == 0 && col == 0 && M * N > 8)
        *reinterpret_cast<float4*>(C + 1) = *reinterpret_cast<const float4*>(A);
    if (row >= M || col >= N)
        return;
    float acc = 0.0f;
    for (int k = 0; k < K; ++k)
        acc += A[row * K + k] * B[k * N + col];
    C[row * N + col] = acc;
}
