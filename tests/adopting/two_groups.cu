// Threads of two kinds meet at barriers in different lines; sums are atomic.
__global__ void halves(const float *A, const float *B, float *C, int M, int N, int K)
{
    __shared__ float sums[32];
    const int col = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y;
    if (threadIdx.y == 0) {
        sums[threadIdx.x] = 0.0f;
        __syncthreads();
    } else {
        __syncthreads();
    }
    for (int k = threadIdx.y; col < N && k < K; k += 4)
        atomicAdd(&sums[threadIdx.x], A[row * K + k] * B[k * N + col]);
    __syncthreads();
    if (threadIdx.y == 0 && col < N)
        C[row * N + col] = sums[threadIdx.x];
}

void launch(const float *A, const float *B, float *C, int M, int N, int K)
{
    halves<<<dim3((N - 1) / 32 + 1, M), dim3(32, 4)>>>(A, B, C, M, N, K);
}
