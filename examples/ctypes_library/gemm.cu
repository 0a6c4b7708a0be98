// C = A B on a GPU: one thread for each element of C, queued on the stream that is given.
__global__ void multiply(const float* A, const float* B, float* C, int M, int N, int K)
{
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= M || col >= N)
        return;
    float acc = 0.0f;
    for (int k = 0; k < K; ++k)
        acc += A[row * K + k] * B[k * N + col];
    C[row * N + col] = acc;
}

extern "C" const char* gemm(const float* A, const float* B, float* C, int M, int N, int K,
                            cudaStream_t stream)
{
    const dim3 block(16, 16);
    const dim3 grid((N + 15) / 16, (M + 15) / 16);
    multiply<<<grid, block, 0, stream>>>(A, B, C, M, N, K);
    const cudaError_t status = cudaGetLastError();
    return status == cudaSuccess ? nullptr : cudaGetErrorString(status);
}
