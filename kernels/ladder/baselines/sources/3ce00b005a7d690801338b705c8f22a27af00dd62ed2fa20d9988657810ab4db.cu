// The tiled product with 32 x 32 tiles, where each thread computes a 4 x 4 block of C.
//
// The tiles are those of tiled32.cu; 64 threads share them instead of 1024. In every step a thread
// reads 4 values of A and 4 of B from shared memory and multiplies each pair: 16 multiply-adds
// for 8 loads, where the tiled kernels do 1 for 2.


constexpr int TILE = 32;
constexpr int TM = 4;             // rows of C per thread
constexpr int TN = 4;             // columns of C per thread
constexpr int ROWS = TILE / TM;   // rows of threads
constexpr int COLS = TILE / TN;   // columns of threads

__global__ void __launch_bounds__(ROWS * COLS)
register_blocked(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C,
                 int M, int N, int K)
{
    __shared__ float As[TILE][TILE];
    __shared__ float Bs[TILE][TILE];

    const int ty = threadIdx.y;
    const int tx = threadIdx.x;
    const int block_row = blockIdx.y * TILE;
    const int block_col = blockIdx.x * TILE;

    float acc[TM][TN] = {};
    for (int k0 = 0; k0 < K; k0 += TILE) {
        // Each thread copies TM x TN elements of both tiles, as far apart as there are threads, so
        // that neighbours in x read neighbours in memory. Outside A and B there are zeros.
        #pragma unroll
        for (int m = 0; m < TM; ++m) {
            #pragma unroll
            for (int n = 0; n < TN; ++n) {
                const int i = ty + m * ROWS;
                const int j = tx + n * COLS;
                const int row = block_row + i;
                const int col = block_col + j;
                As[i][j] = row < M && k0 + j < K ? A[(size_t)row * K + k0 + j] : 0.0f;
                Bs[i][j] = k0 + i < K && col < N ? B[(size_t)(k0 + i) * N + col] : 0.0f;
            }
        }
        __syncthreads();

        #pragma unroll
        for (int k = 0; k < TILE; ++k) {
            float a_frag[TM], b_frag[TN];
            #pragma unroll
            for (int m = 0; m < TM; ++m)
                a_frag[m] = As[ty * TM + m][k];
            #pragma unroll
            for (int n = 0; n < TN; ++n)
                b_frag[n] = Bs[k][tx * TN + n];
            #pragma unroll
            for (int m = 0; m < TM; ++m)
                #pragma unroll
                for (int n = 0; n < TN; ++n)
                    acc[m][n] += a_frag[m] * b_frag[n];
        }
        __syncthreads();
    }

    #pragma unroll
    for (int m = 0; m < TM; ++m) {
        #pragma unroll
        for (int n = 0; n < TN; ++n) {
            const int row = block_row + ty * TM + m;
            const int col = block_col + tx * TN + n;
            if (row < M && col < N)
                C[(size_t)row * N + col] = acc[m][n];
        }
    }
}
