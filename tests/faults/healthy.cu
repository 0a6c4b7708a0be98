// Nothing is wrong with it: it runs before, between and after those that are broken.

// /// gemm
// block = [16, 16]
// grid  = ["cdiv(N, 16)", "cdiv(M, 16)"]
// sizes = ["16x16x1", "16x16x2", "16x16x3", "16x16x4", "16x16x5", "16x16x6", "16x16x7", "16x16x8",
//          "16x16x9", "16x16x10", "16x16x11", "16x16x12", "16x16x13", "16x16x14", "16x16x15",
//          "16x16x16", "16x16x17", "16x16x18", "16x16x19", "16x16x20"]
// ///

__global__ void healthy(const float* A, const float* B, float* C, int M, int N, int K)
{
    const int row = blockIdx.y * 16 + threadIdx.y;
    const int col = blockIdx.x * 16 + threadIdx.x;
    if (row >= M || col >= N)
        return;
    float acc = 0.0f;
    for (int k = 0; k < K; ++k)
        acc += A[row * K + k] * B[k * N + col];
    C[row * N + col] = acc;
}
