// Tiles of 128 x 128 x 16, where each of the 256 threads computes an 8 x 8 block of C.
//
// 16 loads from shared memory for 64 multiply-adds, 4 for each load instead of 2.


constexpr int TILE = 128;         // rows and columns of C per block
constexpr int BK = 16;
constexpr int TM = 8;             // rows of C per thread
constexpr int TN = 8;             // columns of C per thread
constexpr int COLS = TILE / TN;   // columns of threads
constexpr int THREADS = TILE / TM * COLS;

__global__ void __launch_bounds__(THREADS)
thread_tile_8x8(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C,
                int M, int N, int K)
{
    __shared__ float As[TILE][BK];
    __shared__ float Bs[BK][TILE];

    const int ty = threadIdx.y;
    const int tx = threadIdx.x;
    const int thread = ty * COLS + tx;
    const int block_row = blockIdx.y * TILE;
    const int block_col = blockIdx.x * TILE;

    float acc[TM][TN] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        #pragma unroll
        for (int n = thread; n < TILE * BK; n += THREADS) {
            const int i = n / BK, j = n % BK;
            const int row = block_row + i;
            As[i][j] = row < M && k0 + j < K ? A[(size_t)row * K + k0 + j] : 0.0f;
        }
        #pragma unroll
        for (int n = thread; n < BK * TILE; n += THREADS) {
            const int i = n / TILE, j = n % TILE;
            const int col = block_col + j;
            Bs[i][j] = k0 + i < K && col < N ? B[(size_t)(k0 + i) * N + col] : 0.0f;
        }
        __syncthreads();

        #pragma unroll
        for (int k = 0; k < BK; ++k) {
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
