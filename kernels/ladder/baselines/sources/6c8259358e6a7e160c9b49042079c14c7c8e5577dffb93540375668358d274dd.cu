// The tiled product with 32 x 32 tiles: nothing but TILE differs from tiled.cu.
//
// 2 K / 32 loads from global memory per element of C. A block now has 1024 threads, the most that
// there can be, and a barrier waits for 32 warps instead of 8.


constexpr int TILE = 32;

__global__ void tiled32(const float* __restrict__ A, const float* __restrict__ B,
                        float* __restrict__ C, int M, int N, int K)
{
    __shared__ float As[TILE][TILE];
    __shared__ float Bs[TILE][TILE];

    const int ty = threadIdx.y;
    const int tx = threadIdx.x;
    const int row = blockIdx.y * TILE + ty;
    const int col = blockIdx.x * TILE + tx;

    float acc = 0.0f;
    for (int k0 = 0; k0 < K; k0 += TILE) {
        // Zeros stand for what lies outside A and B, so the loop below needs no bounds. Threads
        // outside C load them too: every thread of the block has to reach the barriers.
        As[ty][tx] = row < M && k0 + tx < K ? A[(size_t)row * K + k0 + tx] : 0.0f;
        Bs[ty][tx] = k0 + ty < K && col < N ? B[(size_t)(k0 + ty) * N + col] : 0.0f;
        __syncthreads();

        #pragma unroll
        for (int k = 0; k < TILE; ++k)
            acc += As[ty][k] * Bs[k][tx];

        // Nobody may overwrite a tile that another thread still reads.
        __syncthreads();
    }

    if (row < M && col < N)
        C[(size_t)row * N + col] = acc;
}
