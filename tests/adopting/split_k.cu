// Layers of blocks take a part of K each, and add to a C that the host has cleared.
#include <cuda_runtime.h>

__global__ void split_k(const float *A, const float *B, float *C, int M, int N, int K)
{
    int i = threadIdx.y + blockIdx.y * 16, j = threadIdx.x + blockIdx.x * 16;
    int part = (K + gridDim.z - 1) / gridDim.z;
    if (i >= M || j >= N)
        return;
    float sum = 0.0f;
    for (int k = blockIdx.z * part; k < K && k < (blockIdx.z + 1) * part; ++k)
        sum += A[i * K + k] * B[k * N + j];
    atomicAdd(&C[i * N + j], sum);
}

void run(const float *A, const float *B, float *C, int M, int N, int K)
{
    cudaMemset(C, 0, M * N * sizeof(float));
    split_k<<<dim3((N + 15) / 16, (M + 15) / 16, 4), dim3(16, 16)>>>(A, B, C, M, N, K);
}
