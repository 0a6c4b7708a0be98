// Threads share K and add into shared memory with atomics.

// /// gemm
// block = [32, 8]
// grid  = ["cdiv(N, 32)", "M"]
// deterministic = false
// ///

__global__ void shared_atomics(const float* A, const float* B, float* C, int M, int N, int K)
{
    __shared__ float sums[32];
    const int row = blockIdx.y, col = blockIdx.x * 32 + threadIdx.x;
    if (threadIdx.y == 0)
        sums[threadIdx.x] = 0.0f;
    __syncthreads();
    float acc = 0.0f;
    for (int k = threadIdx.y; col < N && k < K; k += blockDim.y)
        acc += A[row * K + k] * B[k * N + col];
    atomicAdd(&sums[threadIdx.x], acc);
    __syncthreads();
    if (threadIdx.y == 0 && col < N)
        C[row * N + col] = sums[threadIdx.x];
}
