// Broken: threads wait for a flag in shared memory instead of at a barrier.

// /// gemm
// block = [16, 16]
// grid  = ["cdiv(N, 16)", "cdiv(M, 16)"]
// ///

__global__ void waits_for_a_thread(const float* A, const float* B, float* C, int M, int N, int K)
{
    __shared__ volatile int is_ready;
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.x == 0 && threadIdx.y == 0)
        is_ready = 0;
    __syncthreads();
    if (threadIdx.x == 1 && threadIdx.y == 0)
        is_ready = 1;
    while (is_ready == 0) {  // finding: timeout
    }
    float acc = 0.0f;
    for (int k = 0; row < M && col < N && k < K; ++k)
        acc += A[row * K + k] * B[k * N + col];
    if (row < M && col < N)
        C[row * N + col] = acc;
}
