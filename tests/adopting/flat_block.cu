// A block with one dimension for a tile with two.
#include <cuda_runtime.h>
#define BLOCKSIZE 32

__global__ void coalesced(int M, int N, int K, const float *A, const float *B, float *C)
{
    const int row = blockIdx.x * BLOCKSIZE + threadIdx.x / BLOCKSIZE;
    const int col = blockIdx.y * BLOCKSIZE + threadIdx.x % BLOCKSIZE;
    if (row < M && col < N) {
        float sum = 0.0;
        for (int i = 0; i < K; ++i)
            sum += A[row * K + i] * B[i * N + col];
        C[row * N + col] = sum;
    }
}

void run(const float *A, const float *B, float *C, int M, int N, int K)
{
    dim3 grid((M + BLOCKSIZE - 1) / BLOCKSIZE, (N + BLOCKSIZE - 1) / BLOCKSIZE);
    coalesced<<<grid, BLOCKSIZE * BLOCKSIZE>>>(M, N, K, A, B, C);
}
