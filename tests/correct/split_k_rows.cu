// Blocks share K; each row's last block adds up. More rows than a checker can follow one by one.

// /// gemm
// block = [32]
// grid  = ["cdiv(N, 32)", "M", 2]
// ///

constexpr int MOST = 128;
__device__ float partial[2][MOST][MOST];
__device__ unsigned int finished[MOST][MOST / 32];

__global__ void split_k_rows(const float* A, const float* B, float* C, int M, int N, int K)
{
    __shared__ bool is_last;
    const int row = blockIdx.y, col = blockIdx.x * 32 + threadIdx.x;
    float acc = 0.0f;
    for (int k = blockIdx.z; col < N && k < K; k += 2)
        acc += A[row * K + k] * B[k * N + col];
    partial[blockIdx.z][row][col] = acc;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0)
        is_last = atomicInc(&finished[row][blockIdx.x], 1) == 1;
    __syncthreads();
    if (is_last && col < N)
        C[row * N + col] = partial[0][row][col] + partial[1][row][col];
}
