// A transposed in shared memory, so that a thread's 8 values of A are two float4.
//
// A step takes 4 loads instead of 10, here; of the 10 the compiler had made 4 too, as it reads 16
// bytes of A along K. The price is paid where tiles are written: a warp stores to 4 rows of As at
// once, which lie 128 floats apart, in one bank.


#ifndef PYTEST_GEMM_ONCE_1
#define PYTEST_GEMM_ONCE_1
#line 1 "kernels/ladder/edges.cuh"
// Four neighbours of a row at once, and what to do where a matrix ends: zeros are read, nothing is
// written. Rows are read as float4 where all of them begin at multiples of 16 bytes.


#include <cuda_pipeline.h>

// Elements (row, col) to (row, col + 3) of a rows x cols matrix; col is a multiple of 4.
__device__ __forceinline__ float4 load4(const float* __restrict__ X, int row, int col, int rows,
                                        int cols)
{
    const float* from = X + (size_t)row * cols + col;
    if (row < rows && col < cols && cols % 4 == 0)
        return *reinterpret_cast<const float4*>(from);
    float4 x = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (row < rows) {
        if (col < cols) x.x = from[0];
        if (col + 1 < cols) x.y = from[1];
        if (col + 2 < cols) x.z = from[2];
        if (col + 3 < cols) x.w = from[3];
    }
    return x;
}

__device__ __forceinline__ void store4(float* __restrict__ X, int row, int col, int rows, int cols,
                                       float4 x)
{
    float* to = X + (size_t)row * cols + col;
    if (row < rows && col < cols && cols % 4 == 0) {
        *reinterpret_cast<float4*>(to) = x;
    } else if (row < rows) {
        if (col < cols) to[0] = x.x;
        if (col + 1 < cols) to[1] = x.y;
        if (col + 2 < cols) to[2] = x.z;
        if (col + 3 < cols) to[3] = x.w;
    }
}

// Four floats of shared memory, in one load.
__device__ __forceinline__ void unpack(float* to, const float* from)
{
    const float4 x = *reinterpret_cast<const float4*>(from);
    to[0] = x.x; to[1] = x.y; to[2] = x.z; to[3] = x.w;
}

// BYTES (4 or 16) to shared memory without a register between, or zeros.
template <int BYTES>
__device__ __forceinline__ void copy_async(float* to, const float* from, bool inside)
{
    __pipeline_memcpy_async(to, from, BYTES, inside ? 0 : BYTES);
}

// load4 to shared memory, asynchronously.
__device__ __forceinline__ void copy4_async(float* to, const float* __restrict__ X, int row,
                                            int col, int rows, int cols)
{
    const float* from = X + (size_t)row * cols + col;
    if (cols % 4 == 0) {
        const bool inside = row < rows && col < cols;
        copy_async<16>(to, inside ? from : X, inside);
    } else {
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            const bool inside = row < rows && col + i < cols;
            copy_async<4>(to + i, inside ? from + i : X, inside);
        }
    }
}
#endif


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
