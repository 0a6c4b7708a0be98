// Four floats with each access, where the 8 x 8 product took one.
//
// Copies from global memory to the tiles, reads of B's tile, and stores of C move 16 bytes a
// thread. A thread's column of A is not contiguous, and is still read float by float.

// /// gemm
// block        = [16, 16]
// grid         = ["cdiv(N, 128)", "cdiv(M, 128)"]
// derived_from = "thread_tile_8x8"
// change       = "float4 for all accesses but the reads of A in shared memory"
// ///

#include "edges.cuh"

constexpr int TILE = 128;   // rows and columns of C per block
constexpr int BK = 16;
constexpr int TM = 8;       // rows of C per thread
constexpr int TN = 8;       // columns of C per thread
constexpr int THREADS = 256;

__global__ void __launch_bounds__(THREADS)
float4_loads(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M,
             int N, int K)
{
    __shared__ alignas(16) float As[TILE][BK];
    __shared__ alignas(16) float Bs[BK][TILE];

    const int thread = threadIdx.y * 16 + threadIdx.x;
    const int row = threadIdx.y * TM;    // within the block
    const int col = threadIdx.x * TN;
    const int block_row = blockIdx.y * TILE;
    const int block_col = blockIdx.x * TILE;

    float acc[TM][TN] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        #pragma unroll
        for (int n = 4 * thread; n < TILE * BK; n += 4 * THREADS) {
            const int i = n / BK, j = n % BK;
            *reinterpret_cast<float4*>(&As[i][j]) = load4(A, block_row + i, k0 + j, M, K);
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
            for (int m = 0; m < TM; ++m)
                a_frag[m] = As[row + m][k];
            #pragma unroll
            for (int n = 0; n < TN; n += 4)
                unpack(b_frag + n, &Bs[k][col + n]);
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
            store4(C, block_row + row + m, block_col + col + n, M, N,
                   make_float4(acc[m][n], acc[m][n + 1], acc[m][n + 2], acc[m][n + 3]));
}
