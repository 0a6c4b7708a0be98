// Every warp computes 32 x 64 elements of C, with its lanes as 4 x 8.
//
// Before, a warp's lanes were 2 x 16: 16 and 128 floats of A and B a step, now 32 and 64: a third
// fewer values are read from shared memory, though not in fewer cycles.

// /// gemm
// block        = [256]
// grid         = ["cdiv(N, 128)", "cdiv(M, 128)"]
// derived_from = "quadrants"
// change       = "lanes of a warp as 4 x 8 instead of 2 x 16"
// ///

#include "edges.cuh"

constexpr int TILE = 128;         // rows and columns of C per block
constexpr int BK = 16;
constexpr int TM = 8;             // rows of C per thread
constexpr int TN = 8;             // columns of C per thread
constexpr int THREADS = 256;
constexpr int PITCH = TILE + 4;   // of a column of A
constexpr int WM = 32;            // rows of C per warp
constexpr int WN = 64;            // columns of C per warp
constexpr int ROWS = WM / TM;     // rows of lanes
constexpr int COLS = WN / TN;     // columns of lanes

__global__ void __launch_bounds__(THREADS)
warp_tile(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M,
          int N, int K)
{
    __shared__ alignas(16) float As[BK][PITCH];
    __shared__ alignas(16) float Bs[BK][TILE];

    const int thread = threadIdx.x;
    const int warp = thread / 32, lane = thread % 32;
    const int row = warp / 2 * WM + lane / COLS * 4;    // + m * ROWS, within the block
    const int col = warp % 2 * WN + lane % COLS * 4;    // + n * COLS
    const int block_row = blockIdx.y * TILE;
    const int block_col = blockIdx.x * TILE;

    float acc[TM][TN] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        // A warp takes 8 columns of 16 rows: whole sectors of global memory, and with this pitch
        // 32 different banks of shared memory.
        #pragma unroll
        for (int k = 0; k < BK; k += 8) {
            const int i = thread / 2, j = k + thread % 2 * 4;
            const float4 a = load4(A, block_row + i, k0 + j, M, K);
            As[j][i] = a.x;
            As[j + 1][i] = a.y;
            As[j + 2][i] = a.z;
            As[j + 3][i] = a.w;
        }
        #pragma unroll
        for (int n = 4 * thread; n < BK * TILE; n += 4 * THREADS) {
            const int i = n / TILE, j = n % TILE;
            *reinterpret_cast<float4*>(&Bs[i][j]) = load4(B, k0 + i, block_col + j, K, N);
        }
        __syncthreads();

        #pragma unroll
        for (int k = 0; k < BK; ++k) {
            float a_frag[TM], b_frag[TN];
            #pragma unroll
            for (int m = 0; m < TM; m += 4)
                unpack(a_frag + m, &As[k][row + m * ROWS]);
            #pragma unroll
            for (int n = 0; n < TN; n += 4)
                unpack(b_frag + n, &Bs[k][col + n * COLS]);
            #pragma unroll
            for (int m = 0; m < TM; ++m)
                #pragma unroll
                for (int n = 0; n < TN; ++n)
                    acc[m][n] += a_frag[m] * b_frag[n];
        }
        __syncthreads();
    }

    #pragma unroll
    for (int m = 0; m < TM; ++m)
        #pragma unroll
        for (int n = 0; n < TN; n += 4)
            store4(C, block_row + row + m / 4 * 4 * ROWS + m % 4, block_col + col + n * COLS, M, N,
                   make_float4(acc[m][n], acc[m][n + 1], acc[m][n + 2], acc[m][n + 3]));
}
