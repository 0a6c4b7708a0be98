// Four columns of a thread at a time.
#include <cuda_runtime.h>

__global__ void by_four(const float *A, const float *B, float *C, int M, int N, int K)
{
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int col = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
    if (row >= M || col >= N)
        return;
    float4 sum = make_float4(0.f, 0.f, 0.f, 0.f);
    for (int k = 0; k < K; ++k) {
        float a = A[row * K + k];
        float4 b = *reinterpret_cast<const float4 *>(&B[k * N + col]);
        sum.x += a * b.x;
        sum.y += a * b.y;
        sum.z += a * b.z;
        sum.w += a * b.w;
    }
    *reinterpret_cast<float4 *>(&C[row * N + col]) = sum;
}

void launch(const float *A, const float *B, float *C, int M, int N, int K)
{
    dim3 block(8, 16);
    by_four<<<dim3((N / 4 + block.x - 1) / block.x, (M + block.y - 1) / block.y), block>>>(A, B, C, M, N, K);
}
