// The kernel guards its edges, and the launch leaves them out.
#include <cuda_runtime.h>
const int TS = 16;

__global__ void guarded(float *A, float *B, float *C, int M, int N, int K)
{
    int r = blockIdx.y * TS + threadIdx.y, c = blockIdx.x * TS + threadIdx.x;
    if (r >= M || c >= N) return;
    float sum = 0;
    for (int k = 0; k < K; k++) sum += A[r * K + k] * B[k * N + c];
    C[r * N + c] = sum;
}

void multiply(float *A, float *B, float *C, int M, int N, int K)
{
    dim3 block(TS, TS);
    dim3 grid(N / TS, M / TS);
    guarded<<<grid, block>>>(A, B, C, M, N, K);
}
