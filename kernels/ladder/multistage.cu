// A pipeline of asynchronous copies; rungs that differ in one number are kernels of this file.
//
// While the multiply-adds of one tile run, cp.async brings the next STAGES - 1 tiles from global
// to shared memory without passing through registers. A lies there as it does in memory, by rows
// of BK + PAD floats: a thread reads 4 steps of K at once as a float4, and the rows of a warp's
// lanes fall into different banks. One barrier per tile: it says both that everybody's copies have
// arrived and that nobody reads the stage that is written next.

// /// gemm
// name         = "async_copy"
// entry        = "gemm<BM, BN, BK, WM, WN, TM, TN, STAGES, PAD, GROUP>"
// block        = ["BM // WM * (BN // WN) * 32"]
// grid         = ["cdiv(N, BN) * cdiv(M, BM)"]
// shared_mem   = "4 * STAGES * (BM * (BK + PAD) + BK * BN)"
// params       = { BM=128, BN=128, BK=16, WM=32, WN=64, TM=8, TN=8, STAGES=2, PAD=4, GROUP=1 }
// derived_from = "row_major_a"
// change       = "cp.async to shared memory instead of loads to registers and stores"
// ///

// /// gemm
// name         = "three_stages"
// entry        = "gemm<BM, BN, BK, WM, WN, TM, TN, STAGES, PAD, GROUP>"
// block        = ["BM // WM * (BN // WN) * 32"]
// grid         = ["cdiv(N, BN) * cdiv(M, BM)"]
// shared_mem   = "4 * STAGES * (BM * (BK + PAD) + BK * BN)"
// params       = { BM=128, BN=128, BK=16, WM=32, WN=64, TM=8, TN=8, STAGES=3, PAD=4, GROUP=1 }
// derived_from = "async_copy"
// change       = "3 stages instead of 2"
// ///

// /// gemm
// name         = "deep_k"
// entry        = "gemm<BM, BN, BK, WM, WN, TM, TN, STAGES, PAD, GROUP>"
// block        = ["BM // WM * (BN // WN) * 32"]
// grid         = ["cdiv(N, BN) * cdiv(M, BM)"]
// shared_mem   = "4 * STAGES * (BM * (BK + PAD) + BK * BN)"
// params       = { BM=128, BN=128, BK=32, WM=32, WN=64, TM=8, TN=8, STAGES=3, PAD=4, GROUP=1 }
// derived_from = "three_stages"
// change       = "tiles 32 deep instead of 16"
// ///

// /// gemm
// name         = "thread_tile_16x8"
// entry        = "gemm<BM, BN, BK, WM, WN, TM, TN, STAGES, PAD, GROUP>"
// block        = ["BM // WM * (BN // WN) * 32"]
// grid         = ["cdiv(N, BN) * cdiv(M, BM)"]
// shared_mem   = "4 * STAGES * (BM * (BK + PAD) + BK * BN)"
// params       = { BM=128, BN=128, BK=32, WM=64, WN=64, TM=16, TN=8, STAGES=3, PAD=4, GROUP=1 }
// derived_from = "deep_k"
// change       = "16 x 8 elements of C per thread instead of 8 x 8, by half as many threads"
// ///

// /// gemm
// name         = "bank_conflicts"
// entry        = "gemm<BM, BN, BK, WM, WN, TM, TN, STAGES, PAD, GROUP>"
// block        = ["BM // WM * (BN // WN) * 32"]
// grid         = ["cdiv(N, BN) * cdiv(M, BM)"]
// shared_mem   = "4 * STAGES * (BM * (BK + PAD) + BK * BN)"
// params       = { BM=128, BN=128, BK=32, WM=64, WN=64, TM=16, TN=8, STAGES=3, PAD=0, GROUP=1 }
// derived_from = "thread_tile_16x8"
// change       = "no padding of the rows of A"
// ///

// /// gemm
// name         = "thread_tile_8x16"
// entry        = "gemm<BM, BN, BK, WM, WN, TM, TN, STAGES, PAD, GROUP>"
// block        = ["BM // WM * (BN // WN) * 32"]
// grid         = ["cdiv(N, BN) * cdiv(M, BM)"]
// shared_mem   = "4 * STAGES * (BM * (BK + PAD) + BK * BN)"
// params       = { BM=128, BN=128, BK=32, WM=64, WN=64, TM=8, TN=16, STAGES=3, PAD=4, GROUP=1 }
// derived_from = "thread_tile_16x8"
// change       = "LOSES: 8 x 16 elements of C per thread"
// ///

// /// gemm
// name         = "big_block"
// entry        = "gemm<BM, BN, BK, WM, WN, TM, TN, STAGES, PAD, GROUP>"
// block        = ["BM // WM * (BN // WN) * 32"]
// grid         = ["cdiv(N, BN) * cdiv(M, BM)"]
// shared_mem   = "4 * STAGES * (BM * (BK + PAD) + BK * BN)"
// params       = { BM=256, BN=128, BK=32, WM=64, WN=64, TM=16, TN=8, STAGES=3, PAD=4, GROUP=1 }
// derived_from = "thread_tile_16x8"
// change       = "256 x 128 elements of C per block, by 256 threads: one block per multiprocessor"
// ///

// /// gemm
// name         = "raster"
// entry        = "gemm<BM, BN, BK, WM, WN, TM, TN, STAGES, PAD, GROUP>"
// block        = ["BM // WM * (BN // WN) * 32"]
// grid         = ["cdiv(N, BN) * cdiv(M, BM)"]
// shared_mem   = "4 * STAGES * (BM * (BK + PAD) + BK * BN)"
// params       = { BM=128, BN=128, BK=32, WM=64, WN=64, TM=16, TN=8, STAGES=3, PAD=4, GROUP=8 }
// derived_from = "thread_tile_16x8"
// change       = "8 rows of blocks at a time, column by column"
// ///

#include "edges.cuh"

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
