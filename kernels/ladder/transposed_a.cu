// A transposed in shared memory, so that a thread's 8 values of A are two float4.
//
// A step takes 4 loads instead of 10, here; of the 10 the compiler had made 4 too, as it reads 16
// bytes of A along K. The price is paid where tiles are written: a warp stores to 4 rows of As at
// once, which lie 128 floats apart, in one bank.

// /// gemm
// block        = [16, 16]
// grid         = ["cdiv(N, 128)", "cdiv(M, 128)"]
// derived_from = "float4_loads"
// change       = "LOSES: A transposed in shared memory, read as float4"
// ///

#include "edges.cuh"

constexpr int TILE = 128;   // rows and columns of C per block
constexpr int BK = 16;
constexpr int TM = 8;       // rows of C per thread
constexpr int TN = 8;       // columns of C per thread
constexpr int THREADS = 256;

__global__ void __launch_bounds__(THREADS)
transposed_a(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M,
             int N, int K)
{
    __shared__ alignas(16) float As[BK][TILE];
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
                unpack(a_frag + m, &As[k][row + m]);
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
