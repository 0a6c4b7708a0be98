// A pipeline of asynchronous copies; rungs that differ in one number are kernels of this file.
//
// While the multiply-adds of one tile run, cp.async brings the next STAGES - 1 tiles from global
// to shared memory without passing through registers. A lies there as it does in memory, by rows
// of BK + PAD floats: a thread reads 4 steps of K at once as a float4, and the rows of a warp's
// lanes fall into different banks. One barrier per tile: it says both that everybody's copies have
// arrived and that nobody reads the stage that is written next.









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


template <int BM, int BN, int BK, int WM, int WN, int TM, int TN, int STAGES, int PAD, int GROUP>
__global__ void __launch_bounds__(BM / WM * (BN / WN) * 32)
gemm(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N,
     int K)
{
    constexpr int WARPS_N = BN / WN;
    constexpr int THREADS = BM / WM * WARPS_N * 32;
    constexpr int LANES_M = WM / TM;               // rows of lanes
    constexpr int LANES_N = WN / TN;               // columns of lanes
    constexpr int PITCH = BK + PAD;
    constexpr int STAGE = BM * PITCH + BK * BN;
    constexpr int A_ROWS = THREADS / (BK / 4);     // that all threads copy at once
    constexpr int B_ROWS = THREADS / (BN / 4);
    static_assert(LANES_M * LANES_N == 32, "a warp has 32 lanes");
    static_assert(BM % A_ROWS == 0 && BK % B_ROWS == 0, "all threads copy");

    extern __shared__ float4 shared[];
    float* const stages = reinterpret_cast<float*>(shared);

    // Blocks that run at the same time share rows of A and columns of B in L2: GROUP rows of
    // blocks are walked through column by column.
    const int block_cols = (N + BN - 1) / BN;
    const int block_rows = (M + BM - 1) / BM;
    const int first = blockIdx.x / (GROUP * block_cols) * GROUP;
    const int height = min(GROUP, block_rows - first);
    const int inside = blockIdx.x % (GROUP * block_cols);
    const int block_row = (first + inside % height) * BM;
    const int block_col = inside / height * BN;
    const bool whole = block_row + BM <= M && block_col + BN <= N && K % BK == 0 && N % 4 == 0;

    const int thread = threadIdx.x;
    const int lane = thread % 32;
    const int row = thread / 32 / WARPS_N * WM + lane / LANES_N;        // + m * LANES_M
    const int col = thread / 32 % WARPS_N * WN + lane % LANES_N * 4;    // + n * LANES_N

    const int a_row = thread / (BK / 4), a_col = thread % (BK / 4) * 4;
    const int b_row = thread / (BN / 4), b_col = thread % (BN / 4) * 4;
    const float* a_from = A + (size_t)(block_row + a_row) * K + a_col;
    const float* b_from = B + (size_t)b_row * N + block_col + b_col;

    // Tiles are copied in their order, so the pointers only move on.
    const auto copy = [&](int tile, float* stage) {
        float* const As = stage + a_row * PITCH + a_col;
        float* const Bs = stage + BM * PITCH + b_row * BN + b_col;
        if (whole) {
            #pragma unroll
            for (int i = 0; i < BM / A_ROWS; ++i)
                copy_async<16>(As + i * A_ROWS * PITCH, a_from + (size_t)(i * A_ROWS) * K, true);
            #pragma unroll
            for (int i = 0; i < BK / B_ROWS; ++i)
                copy_async<16>(Bs + i * B_ROWS * BN, b_from + (size_t)(i * B_ROWS) * N, true);
            a_from += BK;
            b_from += (size_t)BK * N;
        } else {
            #pragma unroll 1
            for (int i = 0; i < BM; i += A_ROWS)
                copy4_async(As + i * PITCH, A, block_row + a_row + i, tile * BK + a_col, M, K);
            #pragma unroll 1
            for (int i = 0; i < BK; i += B_ROWS)
                copy4_async(Bs + i * BN, B, tile * BK + b_row + i, block_col + b_col, K, N);
        }
    };

    const int tiles = (K + BK - 1) / BK;
    #pragma unroll 1
    for (int tile = 0; tile < STAGES - 1; ++tile) {
        if (tile < tiles)
            copy(tile, stages + tile * STAGE);
        __pipeline_commit();
    }

    float acc[TM][TN] = {};
    int reading = 0, writing = STAGES - 1;
    #pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
        __pipeline_wait_prior(STAGES - 2);
        __syncthreads();
        if (tile + STAGES - 1 < tiles)
            copy(tile + STAGES - 1, stages + writing * STAGE);
        __pipeline_commit();

        const float* const As = stages + reading * STAGE + row * PITCH;
        const float* const Bs = stages + reading * STAGE + BM * PITCH + col;
        #pragma unroll
        for (int k4 = 0; k4 < BK; k4 += 4) {
            float a_frag[TM][4];
            #pragma unroll
            for (int m = 0; m < TM; ++m)
                unpack(a_frag[m], As + m * LANES_M * PITCH + k4);
            #pragma unroll
            for (int k = 0; k < 4; ++k) {
                float b_frag[TN];
                #pragma unroll
                for (int n = 0; n < TN; n += 4)
                    unpack(b_frag + n, Bs + (k4 + k) * BN + n * LANES_N);
                #pragma unroll
                for (int m = 0; m < TM; ++m)
                    #pragma unroll
                    for (int n = 0; n < TN; ++n)
                        acc[m][n] += a_frag[m][k] * b_frag[n];
            }
        }
        reading = reading + 1 == STAGES ? 0 : reading + 1;
        writing = writing + 1 == STAGES ? 0 : writing + 1;
    }

    #pragma unroll
    for (int m = 0; m < TM; ++m)
        #pragma unroll
        for (int n = 0; n < TN; n += 4)
            store4(C, block_row + row + m * LANES_M, block_col + col + n * LANES_N, M, N,
                   make_float4(acc[m][n], acc[m][n + 1], acc[m][n + 2], acc[m][n + 3]));
}
