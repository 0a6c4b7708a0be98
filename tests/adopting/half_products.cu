// Products are rounded to half before they are added: right for whole numbers, and coarse otherwise.
#include <cuda_fp16.h>

__global__ void half_products(const half *a, const half *b, half *c, int M, int N, int K)
{
    int n = blockIdx.x * blockDim.x + threadIdx.x, m = blockIdx.y * blockDim.y + threadIdx.y;
    if (m >= M || n >= N)
        return;
    float sum = 0;
    for (int k = 0; k < K; ++k)
        sum += __half2float(__hmul(a[m * K + k], b[k * N + n]));
    c[m * N + n] = __float2half(sum);
}
