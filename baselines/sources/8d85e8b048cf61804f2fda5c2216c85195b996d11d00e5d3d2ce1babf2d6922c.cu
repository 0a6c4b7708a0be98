// The naive product with square blocks of SIDE x SIDE threads, SIDE from 1 to 32.
//
// The code is that of naive.cu; only the launch changes. With few threads a warp is mostly idle and
// its loads use a small part of each memory transaction; with 32 x 32 a warp reads 128 contiguous
// bytes of B. A CPU runs the threads one after another: there the curve is flat, and a small
// problem is enough.


__global__ void block_size(const float* __restrict__ A, const float* __restrict__ B,
                           float* __restrict__ C, int M, int N, int K)
{
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= M || col >= N)
        return;

    float acc = 0.0f;
    for (int k = 0; k < K; ++k)
        acc += A[(size_t)row * K + k] * B[(size_t)k * N + col];
    C[(size_t)row * N + col] = acc;
}
