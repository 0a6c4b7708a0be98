// The tiled product with 32 x 32 tiles, where each thread computes 4 elements of a column of C.
//
// A value of B that a thread has read from shared memory serves 4 multiply-adds: 5 loads for 4,
// where tiled32.cu does 8.


constexpr int TILE = 32;
constexpr int TM = 4;             // rows of C per thread
constexpr int ROWS = TILE / TM;   // rows of threads

__global__ void __launch_bounds__(ROWS * TILE)
thread_column(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C,
              int M, int N, int K)
{
    __shared__ float As[TILE][TILE];
    __shared__ float Bs[TILE][TILE];

    const int ty = threadIdx.y;
    const int tx = threadIdx.x;
    const int block_row = blockIdx.y * TILE;
    const int col = blockIdx.x * TILE + tx;

    float acc[TM] = {};
    for (int k0 = 0; k0 < K; k0 += TILE) {
        #pragma unroll
        for (int m = 0; m < TM; ++m) {
            const int i = ty + m * ROWS;
            const int row = block_row + i;
            As[i][tx] = row < M && k0 + tx < K ? A[(size_t)row * K + k0 + tx] : 0.0f;
            Bs[i][tx] = k0 + i < K && col < N ? B[(size_t)(k0 + i) * N + col] : 0.0f;
        }
        __syncthreads();

        #pragma unroll
        for (int k = 0; k < TILE; ++k) {
            const float b = Bs[k][tx];
            #pragma unroll
            for (int m = 0; m < TM; ++m)
                acc[m] += As[ty * TM + m][k] * b;
        }
        __syncthreads();
    }

    #pragma unroll
    for (int m = 0; m < TM; ++m) {
        const int row = block_row + ty * TM + m;
        if (row < M && col < N)
            C[(size_t)row * N + col] = acc[m];
    }
}
