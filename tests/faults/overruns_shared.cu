// Broken: Writes 4 MB past its shared memory.

// /// gemm
// block = [16, 16]
// grid  = ["cdiv(N, 16)", "cdiv(M, 16)"]
// sizes = [64]
// ///

__global__ void overruns_shared(const float* A, const float* B, float* C, int M, int N, int K)
{
    const int row = blockIdx.y * 16 + threadIdx.y;
    const int col = blockIdx.x * 16 + threadIdx.x;
    __shared__ float tile[16][16];
    for (int i = 0; i < 4096; ++i)
        tile[threadIdx.y + 16 * i][threadIdx.x] = 1.0f;
    __syncthreads();
    if (row >= M || col >= N)
        return;
    float acc = tile[threadIdx.y + 16 * 4095][threadIdx.x] - 1.0f;
    for (int k = 0; k < K; ++k)
        acc += A[row * K + k] * B[k * N + col];
    C[row * N + col] = acc;
}
