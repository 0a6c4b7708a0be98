// Every thread of the block stores the same value in a shared flag.

// /// gemm
// block = [16, 16]
// grid  = ["cdiv(N, 16)", "cdiv(M, 16)"]
// ///

__global__ void uniform_flag(const float* A, const float* B, float* C, int M, int N, int K)
{
    __shared__ int is_whole;
    __shared__ short2 corner;
    is_whole = (blockIdx.y + 1) * 16 <= M && (blockIdx.x + 1) * 16 <= N;
    if (threadIdx.x == 0)
        corner = make_short2(blockIdx.y * 16, blockIdx.x * 16);
    __syncthreads();
    const int row = corner.x + threadIdx.y, col = corner.y + threadIdx.x;
    if (!is_whole && (row >= M || col >= N))
        return;
    float acc = 0.0f;
    for (int k = 0; k < K; ++k)
        acc += A[row * K + k] * B[k * N + col];
    C[row * N + col] = acc;
}
