// C = A B with 16 x 16 tiles of A and B in shared memory.
//
// The 256 threads of a block copy one tile of each operand, one element per thread, and then all
// use it: every value that is read from global memory serves 16 threads, 2 K / 16 loads per
// element of C instead of the naive kernel's 2 K.


constexpr int TILE = 16;

__global__ void tiled(const float* __restrict__ A, const float* __restrict__ B,
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
